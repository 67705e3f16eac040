//! A decision as it is shown: the JSON that programs read, and the lines that people read. docs/cli.md describes both.

use owo_colors::OwoColorize;
use serde::Serialize;
use std::time::Duration;

/// The answer to one prompt. Its fields are the JSON of `zen-edge route --json`: part of the interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct View {
    /// The most probable task.
    pub task: String,
    /// The model that should answer; `null` where none fits.
    pub model: Option<String>,
    pub confidence: Confidence,
    /// The three most probable models.
    pub top3: Vec<Choice>,
    pub scores: Scores,
    /// How many tokens were read.
    pub tokens: usize,
    /// Whether the prompt was longer than what was read of it.
    pub truncated: bool,
    /// What decided: `learned`, `rules` or `fallback`.
    pub source: String,
    pub backend: Backend,
    /// Milliseconds.
    pub timings: Timings,
}

/// How sure the heads are, from 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Confidence {
    pub task: f32,
    pub model: Option<f32>,
}

/// Everything that the heads said.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scores {
    pub tasks: Vec<Scored>,
    pub models: Vec<Choice>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scored {
    pub id: String,
    pub probability: f32,
    pub logit: f32,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    pub id: String,
    pub probability: f32,
    pub logit: f32,
    /// Whether the head's row of this model has seen data.
    pub trained: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Backend {
    pub isa: String,
    pub threads: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Timings {
    pub tokenize: f64,
    pub prefill: f64,
    pub heads: f64,
    pub total: f64,
}

impl Timings {
    pub fn new(tokenize: Duration, prefill: Duration, heads: Duration) -> Self {
        let ms = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
        Self {
            tokenize: ms(tokenize),
            prefill: ms(prefill),
            heads: ms(heads),
            total: ms(tokenize + prefill + heads),
        }
    }
}

/// How wide a bar of 100 % is, in characters.
const BAR: usize = 24;

impl View {
    /// For people. Colours are in it; where they are not seen they fall off at printing.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let name = |id: &str| crate::output::plain(id);
        let wide = self.top3.iter().map(|choice| &choice.id).chain([&self.task]);
        let wide = wide.map(|id| name(id).chars().count()).max().unwrap_or(0);
        let row = |label: &str, id: &str, share: f32, first: bool| {
            let id = format!("{:<wide$}", name(id));
            let id = if first { id.bold().to_string() } else { id };
            let bar = bar(share);
            let bar = if first { bar.green().to_string() } else { bar.dimmed().to_string() };
            // Trailing blanks of an empty bar would only be noise in a copied text.
            format!("{label:<6} {id}  {:>5.1} %  {bar}", share * 100.0).trim_end().to_owned()
        };
        lines.push(row("task", &self.task, self.confidence.task, true));
        match (&self.model, self.confidence.model) {
            (Some(model), _) if self.top3.first().is_some_and(|first| first.id == *model) => {}
            (Some(model), Some(share)) => lines.push(row("model", model, share, true)),
            (Some(model), None) => lines.push(format!("model  {}", name(model).bold())),
            (None, _) => lines.push("model  none fits".to_owned()),
        }
        for (at, choice) in self.top3.iter().enumerate() {
            let first = at == 0 && self.model.as_ref() == Some(&choice.id);
            let label = if first { "model".to_owned() } else { format!("{:>5}", at + 1) };
            let mut line = row(&label, &choice.id, choice.probability, first);
            if !choice.trained {
                line.push_str(&format!("  {}", "untrained row".yellow()));
            }
            lines.push(line);
        }
        lines.push(String::new());
        let tokens = match self.tokens {
            1 => "1 token".to_owned(),
            n => format!("{n} tokens"),
        };
        let read = if self.truncated {
            format!("{tokens} read, {}", "the rest of the prompt was cut off".yellow())
        } else {
            format!("{tokens}, all of the prompt")
        };
        let decided = match self.source.as_str() {
            "learned" => "decided by the learned heads".to_owned(),
            other => format!("decided by {}", name(other).yellow()),
        };
        lines.push(format!("{read}; {decided}"));
        let t = &self.timings;
        lines.push(
            format!(
                "{:.1} ms (tokenise {:.1}, prefill {:.1}, heads {:.1}) on {}, {} thread{}",
                t.total,
                t.tokenize,
                t.prefill,
                t.heads,
                name(&self.backend.isa),
                self.backend.threads,
                if self.backend.threads == 1 { "" } else { "s" }
            )
            .dimmed()
            .to_string(),
        );
        lines
    }
}

/// A share of [`BAR`] characters, to an eighth of one.
fn bar(share: f32) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    // A share that is no number has no bar.
    let eighths =
        if share.is_finite() { (share.clamp(0.0, 1.0) * (BAR * 8) as f32).round() as usize } else { 0 };
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> View {
        let choice =
            |id: &str, probability, trained| Choice { id: id.into(), probability, logit: 1.5, trained };
        View {
            task: "code".into(),
            model: Some("m-large".into()),
            confidence: Confidence { task: 0.975, model: Some(0.5) },
            top3: vec![
                choice("m-large", 0.5, true),
                choice("m-small", 0.25, true),
                choice("m-new", 0.1, false),
            ],
            scores: Scores {
                tasks: vec![Scored { id: "code".into(), probability: 0.975, logit: 0.1 }],
                models: vec![],
            },
            tokens: 12,
            truncated: false,
            source: "learned".into(),
            backend: Backend { isa: "avx2".into(), threads: 2 },
            timings: Timings::new(
                Duration::from_micros(100),
                Duration::from_micros(2500),
                Duration::from_micros(50),
            ),
        }
    }

    fn seen(view: &View) -> String {
        anstream::adapter::strip_str(&view.lines().join("\n")).to_string()
    }

    #[test]
    fn people_read_task_model_and_the_top_3_with_bars() {
        let expected = "\
task   code      97.5 %  ███████████████████████▍
model  m-large   50.0 %  ████████████
    2  m-small   25.0 %  ██████
    3  m-new     10.0 %  ██▍  untrained row

12 tokens, all of the prompt; decided by the learned heads
2.6 ms (tokenise 0.1, prefill 2.5, heads 0.1) on avx2, 2 threads";
        assert_eq!(seen(&view()), expected);
    }

    #[test]
    fn what_is_out_of_the_ordinary_is_said() {
        let mut odd = view();
        odd.truncated = true;
        odd.source = "rules".into();
        odd.tokens = 2048;
        odd.model = Some("chosen by\u{1b}[2J a file".into());
        odd.confidence.model = None;
        let text = seen(&odd);
        assert!(
            text.contains("2048 tokens read, the rest of the prompt was cut off; decided by rules"),
            "{text}"
        );
        assert!(text.contains("chosen by\\u{1b}[2J a file"), "{text}");
        odd.model = None;
        assert!(seen(&odd).contains("none fits"));
    }

    #[test]
    fn programs_read_the_same() {
        let json = serde_json::to_value(view()).unwrap();
        assert_eq!(json["task"], "code");
        assert_eq!(json["model"], "m-large");
        assert_eq!(json["top3"][2]["trained"], false);
        assert_eq!(json["timings"]["total"], 2.65);
        assert_eq!(json["backend"]["threads"], 2);
        assert_eq!(json["truncated"], false);
        // Numbers are written as the floats that they are, not as their doubles.
        assert!(serde_json::to_string(&view()).unwrap().contains("\"probability\":0.1,"));
    }

    #[test]
    fn bars_stay_in_their_bounds() {
        assert_eq!(bar(0.0), "");
        assert_eq!(bar(1.0), "█".repeat(BAR));
        assert_eq!(bar(7.0), bar(1.0));
        assert_eq!(bar(f32::NAN), "");
        assert_eq!(bar(1.0 / 192.0), "▏");
    }
}
