//! A decision as it is shown: the JSON that programs read, and the lines that people read. docs/cli.md describes both.

use crate::output::{self, plain};
use owo_colors::OwoColorize;
use zen_edge_core::decision::Source;
use zen_edge_core::router::View;

/// How wide a bar of 100 % is, in characters.
const BAR: usize = 24;

/// An outcome for people.
pub trait Show {
    /// In lines. Colours are in it; where they are not seen they fall off at printing.
    fn lines(&self) -> Vec<String>;
    /// Every model with its score, or why it fell out.
    fn explain(&self) -> Vec<String>;
}

impl Show for View {
    fn lines(&self) -> Vec<String> {
        let ids = self.top3.iter().map(|candidate| &candidate.model).chain([&self.task]);
        let wide = ids.map(|id| plain(id).chars().count()).max().unwrap_or(0);
        let row = |label: &str, id: &str, share: Option<f32>, first: bool| {
            let id = format!("{:<wide$}", plain(id));
            let id = if first { id.bold().to_string() } else { id };
            let Some(share) = share else { return format!("{label:<6} {id}").trim_end().to_owned() };
            let bar = bar(share);
            let bar = if first { bar.green().to_string() } else { bar.dimmed().to_string() };
            format!("{label:<6} {id}  {:>5.1} %  {bar}", share * 100.0)
        };
        let mut lines = vec![row("task", &self.task, self.confidence.task.value(), true)];
        if self.model.is_none() {
            lines.push("model  none fits".to_owned());
        }
        for (at, candidate) in self.top3.iter().enumerate() {
            let first = at == 0 && self.model.as_ref() == Some(&candidate.model);
            let label = if first { "model".to_owned() } else { format!("{:>5}", at + 1) };
            let mut line = row(&label, &candidate.model, candidate.probability.map(|p| p as f32), first);
            if self.source == Source::Learned && !candidate.trained {
                line.push_str(&format!("  {}", "untrained row".yellow()));
            }
            lines.push(line);
        }
        if self.top3.is_empty() {
            // Nothing is feasible: then the reasons are the answer.
            lines.extend(self.scores.models.iter().map(|candidate| {
                let why = candidate.why_not.map(|why| why.to_string()).unwrap_or_default();
                format!("       {}: {}", plain(&candidate.model), plain(&why))
            }));
        }
        lines.push(String::new());
        lines.push(read(self));
        let t = &self.timings;
        let backend = &self.backend;
        let on = match &backend.adapter {
            Some(adapter) => {
                let lost = if adapter.rebuilt { ", rebuilt after a loss" } else { "" };
                format!("{} {} ({}{lost})", backend.device, plain(&adapter.name), adapter.api)
            }
            None => {
                let s = if backend.threads == 1 { "" } else { "s" };
                format!("{} {}, {} thread{s}", backend.device, backend.isa, backend.threads)
            }
        };
        let times = format!(
            "{:.1} ms (tokenise {:.1}, prefill {:.1}, heads {:.1}) on {on}",
            t.total, t.tokenize, t.prefill, t.heads,
        );
        if let Some(why) = &backend.fallback {
            lines.push(format!("not on the GPU: {}", plain(why)).yellow().to_string());
        }
        lines.push(times.dimmed().to_string());
        if let Some(outcome) = self.outcome {
            lines.push(format!("reward it by: zen-edge observe {outcome} --quality 0…1"));
        }
        lines
    }

    fn explain(&self) -> Vec<String> {
        let mut lines = vec![match self.source {
            Source::Learned => format!(
                "score = quality − {} · cost − {} · latency; quality is the head's probability{}",
                self.scores.lambda,
                self.scores.mu,
                if self.outcome.is_some() { ", corrected by this user's rewards" } else { "" }
            ),
            Source::Tag | Source::Both => format!(
                "score = quality − {} · cost − {} · latency; quality is {}",
                self.scores.lambda,
                self.scores.mu,
                if self.source == Source::Tag { "the tag's probability" } else { "the mean of the head's and the tag's" }
            ),
            Source::Rules | Source::Fallback => {
                "score = 1 / place in the order: the policy's preference, the models of the task, the general ones".into()
            }
        }];
        let mut table = output::table(&["", "model", "score", "p", "$ / 1k tokens", "latency", "why not"]);
        for (at, candidate) in self.scores.models.iter().enumerate() {
            let chosen = at == 0 && self.model.as_ref() == Some(&candidate.model);
            let figure =
                |value: Option<f64>, digits| value.map_or("–".to_owned(), |v| format!("{v:.digits$}"));
            let why = candidate.why_not.map(|why| plain(&why.to_string())).unwrap_or_default();
            let place = if chosen { "▶".into() } else { format!("{}", at + 1) };
            table.add_row([
                place,
                plain(&candidate.model),
                figure(candidate.score, 3),
                figure(candidate.probability, 3),
                format!("{}", candidate.cost_per_1k),
                candidate.latency_ms.map_or("–".to_owned(), |ms| format!("{ms:.0} ms")),
                why,
            ]);
        }
        output::right(&mut table, 2..6);
        lines.extend(output::rows(&table));
        if self.held {
            lines.push("The conversation is held at its model: a switch throws its cache away.".into());
        }
        lines
    }
}

/// How much was read, and who decided.
fn read(view: &View) -> String {
    let tokens = match view.tokens {
        1 => "1 token".to_owned(),
        n => format!("{n} tokens"),
    };
    let read = match (view.truncated, view.tokens) {
        (true, _) => format!("{tokens} read, {}", "the rest of the prompt was cut off".yellow()),
        (false, 0) => "nothing read".to_owned(),
        (false, _) => format!("{tokens}, all of the prompt"),
    };
    let read = if view.reused > 0 { format!("{read} ({} known already)", view.reused) } else { read };
    let decided = match view.source {
        Source::Learned => "decided by the learned heads".to_owned(),
        Source::Tag => "decided by the backbone's route tag".to_owned(),
        Source::Both => "decided by the learned heads and the backbone's route tag".to_owned(),
        Source::Rules => format!("{}: {}", "decided by rules".yellow(), plain(&view.reason)),
        Source::Fallback => format!("{}: {}", "the policy's default".yellow(), plain(&view.reason)),
    };
    let task = view.confidence.task;
    let raw = task.raw.is_some() && task.calibrated.is_none();
    format!("{read}; {decided}{}", if raw { "; confidences are not calibrated" } else { "" })
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
    use std::time::Duration;
    use zen_edge_core::decision::{Candidate, Confidence, WhyNot};
    use zen_edge_core::router::{BackendInfo, Milliseconds, Scored, Scores, Shares};

    fn candidate(model: &str, probability: Option<f64>) -> Candidate {
        Candidate {
            model: model.into(),
            score: probability,
            quality: None,
            probability,
            cost_per_1k: 0.01,
            latency_ms: None,
            trained: probability.is_some(),
            running: false,
            feasible: true,
            why_not: None,
        }
    }

    fn view() -> View {
        let top3 =
            vec![candidate("m-large", Some(0.5)), candidate("m-small", Some(0.25)), candidate("m-new", None)];
        View {
            outcome: None,
            task: "code".into(),
            model: Some("m-large".into()),
            route: "cloud",
            provider: Some("somebody".into()),
            level: "balanced".into(),
            source: Source::Learned,
            reason: "best score".into(),
            held: false,
            confidence: Shares {
                task: Confidence { raw: Some(0.99), calibrated: Some(0.975) },
                model: Confidence { raw: Some(0.5), calibrated: Some(0.5) },
            },
            scores: Scores {
                lambda: 0.35,
                mu: 0.15,
                tasks: vec![Scored { task: "code".into(), probability: 0.1, logit: 0.3 }],
                models: top3.clone(),
            },
            top3,
            tokens: 12,
            reused: 0,
            truncated: false,
            cached: false,
            backend: BackendInfo { device: "cpu", isa: "avx2", threads: 2, adapter: None, fallback: None },
            timings: Milliseconds::new(&zen_edge_core::router::Timings {
                tokenize: Duration::from_micros(100),
                prefill: Duration::from_micros(2500),
                heads: Duration::from_micros(50),
            }),
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
    3  m-new  untrained row

12 tokens, all of the prompt; decided by the learned heads
2.6 ms (tokenise 0.1, prefill 2.5, heads 0.1) on cpu avx2, 2 threads";
        assert_eq!(seen(&view()), expected);
    }

    #[test]
    fn what_is_out_of_the_ordinary_is_said() {
        let mut odd = view();
        odd.truncated = true;
        odd.source = Source::Rules;
        odd.reason = "the heads are unsure".into();
        odd.confidence.task.calibrated = None;
        odd.tokens = 2048;
        odd.top3[0].model = "chosen by\u{1b}[2J a file".into();
        let text = seen(&odd);
        let read = "2048 tokens read, the rest of the prompt was cut off; decided by rules: the heads are unsure; \
                    confidences are not calibrated";
        assert!(text.contains(read), "{text}");
        assert!(text.contains("chosen by\\u{1b}[2J a file"), "{text}");
        odd.model = None;
        odd.top3.clear();
        odd.scores.models[0].why_not = Some(WhyNot::Excluded);
        let text = seen(&odd);
        assert!(text.contains("none fits") && text.contains("m-large: excluded"), "{text}");
    }

    #[test]
    fn an_explanation_shows_every_model_and_why() {
        let mut view = view();
        view.scores.models[2].why_not = Some(WhyNot::Untrained);
        let text = anstream::adapter::strip_str(&view.explain().join("\n")).to_string();
        assert!(
            text.starts_with("score = quality − 0.35 · cost − 0.15 · latency; quality is the head's"),
            "{text}"
        );
        let row = |model: &str| text.lines().find(|line| line.contains(model)).unwrap();
        assert!(row("m-large").contains('▶') && row("m-large").contains("0.500"), "{text}");
        assert!(row("m-new").contains("its route row has seen no data"), "{text}");
        view.source = Source::Rules;
        view.held = true;
        let text = view.explain().join("\n");
        assert!(text.starts_with("score = 1 / place") && text.contains("held at its model"), "{text}");
    }

    #[test]
    fn programs_read_the_same() {
        let json = serde_json::to_value(view()).unwrap();
        assert_eq!(json["task"], "code");
        assert_eq!(json["model"], "m-large");
        assert_eq!(json["source"], "learned");
        assert_eq!(json["top3"][2]["trained"], false);
        assert_eq!(json["timings"]["total"], 2.65);
        assert_eq!(json["backend"]["threads"], 2);
        assert_eq!((&json["truncated"], &json["cached"]), (&false.into(), &false.into()));
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
