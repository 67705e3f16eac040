//! Probabilities over given continuations: one pass over what they share, and one over all that they do not.

use super::{GenerateError, Generator};
use crate::backbone::{BackboneError, Cancel, Interrupt, KvType, Pooling};
use std::sync::Arc;
use zen_edge_kernels::math;
use zen_edge_kernels::ops::log_sum_exp;

/// Rows of logits that are held at once: at 151,936 tokens eight take 5 MB.
const ROWS: usize = 8;

/// How options are compared.
#[derive(Clone, Debug, Default)]
pub struct ChooseOptions {
    /// A prompt without content in the same form ("N/A" in the place of the text): what the model thinks of an option
    /// there is taken off, so that a frequent word does not win by being frequent (Zhao et al. 2021, arXiv 2102.09690).
    pub content_free: Option<String>,
    /// Compare by the mean over an option's tokens instead of the sum: for options of very different lengths.
    pub by_token: bool,
    /// Whether control tokens that stand in the texts are text like any other.
    pub plain_text: bool,
    /// Whether the BOS token begins the prompt; `None`: as the GGUF says.
    pub add_bos: Option<bool>,
    /// Ends the passes from another thread.
    pub cancel: Option<Arc<Cancel>>,
}

/// One option's share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The probability among the options.
    pub probability: f64,
    /// The natural logarithm of the probability that the model continues the prompt with this text, over its whole
    /// vocabulary.
    pub log_likelihood: f64,
    /// The same behind the content-free prompt, where there is one.
    pub content_free: Option<f64>,
    /// Its tokens.
    pub tokens: usize,
}

impl Generator {
    /// How probable each of `options` is as what follows `prompt`, in their order. What they are compared by are whole
    /// texts: a label that another one begins with ("A", "All") is never less probable than it, so end such labels alike
    /// ("A.", "All.").
    ///
    /// The prompt is read once and shared; all that the options add is one batch.
    ///
    /// # Errors
    /// No options, one without a token, two that are the same, and what the backbone says.
    pub fn choose(
        &self,
        prompt: &str,
        options: &[impl AsRef<str>],
        how: &ChooseOptions,
    ) -> Result<Vec<Choice>, GenerateError> {
        let interrupt = how.cancel.as_deref().map(|cancel| cancel as &dyn Interrupt);
        self.choose_until(prompt, options, how, interrupt)
    }

    /// [`choose`](Self::choose) that `interrupt` may end, in place of the options' own.
    pub(crate) fn choose_until(
        &self,
        prompt: &str,
        options: &[impl AsRef<str>],
        how: &ChooseOptions,
        interrupt: Option<&dyn Interrupt>,
    ) -> Result<Vec<Choice>, GenerateError> {
        if options.is_empty() {
            return Err(GenerateError::NoOptions);
        }
        for (second, option) in options.iter().enumerate() {
            if let Some(first) = options[..second].iter().position(|other| other.as_ref() == option.as_ref())
            {
                return Err(GenerateError::SameOptions { first, second });
            }
        }
        let here = self.likelihoods(prompt, options, how, interrupt)?;
        let free = match &how.content_free {
            Some(prompt) => Some(self.likelihoods(prompt, options, how, interrupt)?),
            None => None,
        };
        let score = |i: usize| {
            let (sum, tokens) = here[i];
            let sum = sum - free.as_ref().map_or(0.0, |free| free[i].0);
            if how.by_token { sum / tokens as f64 } else { sum }
        };
        let scores: Vec<f64> = (0..options.len()).map(score).collect();
        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let shares: Vec<f64> = scores.iter().map(|score| math::exp_f64(score - most)).collect();
        let sum: f64 = shares.iter().sum();
        let choice = |i: usize| Choice {
            probability: shares[i] / sum,
            log_likelihood: here[i].0,
            content_free: free.as_ref().map(|free| free[i].0),
            tokens: here[i].1,
        };
        Ok((0..options.len()).map(choice).collect())
    }

    /// The log likelihood of each option behind a prompt, and its tokens.
    fn likelihoods(
        &self,
        prompt: &str,
        options: &[impl AsRef<str>],
        how: &ChooseOptions,
        interrupt: Option<&dyn Interrupt>,
    ) -> Result<Vec<(f64, usize)>, GenerateError> {
        let alone = self.encode(prompt, how.plain_text, how.add_bos);
        // Text is tokenised as it would stand: what joins prompt and option is part of the option.
        let whole: Vec<Vec<u32>> = options
            .iter()
            .map(|option| self.encode(&format!("{prompt}{}", option.as_ref()), how.plain_text, how.add_bos))
            .collect();
        let common = |a: &[u32], b: &[u32]| a.iter().zip(b).take_while(|(a, b)| a == b).count();
        let boundary = whole.iter().map(|ids| common(&alone, ids)).min().unwrap_or(0);
        if let Some(index) = whole.iter().position(|ids| ids.len() <= boundary) {
            return Err(GenerateError::EmptyOption { index });
        }
        let context = self.backbone().shape().context;
        if let Some(tokens) = whole.iter().map(Vec::len).max().filter(|tokens| *tokens > context) {
            return Err(GenerateError::PromptTooLong { tokens, context });
        }
        // What all options begin with is read once; each keeps a token of its own.
        let shared = whole[1..].iter().map(|ids| common(&whole[0], ids)).min().unwrap_or(boundary);
        let shortest = whole.iter().map(Vec::len).min().unwrap_or(1);
        let shared = shared.clamp(boundary, shortest - 1).max(boundary);

        let (mut trunk, last_token) = (self.backbone().context_of(KvType::F32), Pooling::default());
        let mut last = self.backbone().embed_as(&mut trunk, &whole[0][..boundary], interrupt, &last_token)?;
        let mut beginning = 0.0;
        if shared > boundary {
            let more = &whole[0][boundary..shared];
            let hidden = self.backbone().branches(&mut trunk, &[more], interrupt)?.remove(0);
            let (size, rows) = (last.len(), hidden.len());
            let mut states = last;
            states.extend_from_slice(&hidden[..rows - size]);
            beginning = self.log_likelihood(&states, more)?;
            last = self.backbone().embed_as(&mut trunk, &whole[0][..shared], interrupt, &last_token)?;
        }
        // The last token of an option is predicted, not read.
        let read: Vec<&[u32]> = whole.iter().map(|ids| &ids[shared..ids.len() - 1]).collect();
        let not_empty: Vec<&[u32]> = read.iter().copied().filter(|ids| !ids.is_empty()).collect();
        let mut hidden = self.backbone().branches(&mut trunk, &not_empty, interrupt)?.into_iter();
        let mut out = Vec::with_capacity(whole.len());
        for (ids, read) in whole.iter().zip(&read) {
            let mut states = last.clone();
            if !read.is_empty() {
                states.extend(hidden.next().unwrap_or_default());
            }
            out.push((beginning + self.log_likelihood(&states, &ids[shared..])?, ids.len() - boundary));
        }
        Ok(out)
    }

    /// The sum of the log probabilities of `ids`, each behind its hidden state.
    fn log_likelihood(&self, states: &[f32], ids: &[u32]) -> Result<f64, BackboneError> {
        let size = self.backbone().hidden_size();
        let mut sum = 0.0;
        for (states, ids) in states.chunks(ROWS * size).zip(ids.chunks(ROWS)) {
            let logits = self.backbone().logits(self.head(), states)?;
            for (row, id) in logits.chunks_exact(self.head().vocab()).zip(ids) {
                sum += f64::from(row[*id as usize]) - log_sum_exp(self.backbone().isa(), row);
            }
        }
        Ok(sum)
    }
}
