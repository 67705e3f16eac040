//! Prompts for a bench that was given none, and the lengths by which decisions are told apart.

use crate::router::Router;

/// Decisions are told apart by tokens: the strata that zen-router published its latencies by.
pub const STRATA: [(&str, usize, usize); 4] =
    [("1-32", 1, 32), ("33-128", 33, 128), ("129-512", 129, 512), ("513+", 513, usize::MAX)];

/// The stratum of a prompt of `tokens` tokens.
pub(super) fn stratum(tokens: usize) -> usize {
    STRATA.iter().position(|(_, _, to)| tokens <= *to).unwrap_or(STRATA.len() - 1)
}

/// The longest prompt that is made.
const LONGEST: usize = 900;

/// Words of many prompts: every prompt is a run of these, begun by its own number, so that no two begin alike.
const WORDS: [&str; 33] = [
    "explain", "how", "a", "small", "engine", "reads", "the", "whole", "question", "once", "and", "then",
    "decides", "which", "of", "the", "listed", "models", "ought", "to", "answer", "it", "within", "the",
    "given", "price", "and", "time", "while", "nobody", "else", "ever", "sees",
];

/// `each` prompts of every stratum that the router reads, spread over its lengths, with their tokens.
pub(super) fn made(router: &Router, each: usize) -> Vec<String> {
    let most = router.config().max_tokens;
    let mut prompts = Vec::new();
    for (_, from, to) in STRATA {
        if from > most {
            break;
        }
        let to = to.min(most).min(LONGEST);
        for at in 0..each {
            let aim = from + ((to - from) as f64 * (at as f64 + 0.5) / each as f64) as usize;
            prompts.push(prompt(router, prompts.len(), aim));
        }
    }
    prompts
}

/// A prompt of `tokens` tokens, or of the next number that whole words give without going over.
fn prompt(router: &Router, number: usize, tokens: usize) -> String {
    let mut text = format!("{}", 1000 + number);
    let fits = |text: &str| router.encode(text, None).0.len() <= tokens;
    // Words by the hundred first: a prompt is encoded some dozens of times, not once a word.
    for stride in [64, 8, 1] {
        loop {
            let have = text.split(' ').count();
            let more: String = (have..have + stride)
                .map(|at| format!(" {}", WORDS[(at * 7 + number) % WORDS.len()]))
                .collect();
            let longer = text.clone() + &more;
            if !fits(&longer) || have > 4 * LONGEST {
                break;
            }
            text = longer;
        }
    }
    text
}
