//! Figures of several records, test by test.

use super::Named;
use crate::bench::show::figure;

/// The columns of a comparison.
pub const HEADER: [&str; 7] = ["test", "record", "kernels", "threads", "value", "at most", "unit"];

/// One figure of one record.
pub struct Line {
    /// `pp128`, `tg64`, or the decisions of a length.
    pub test: String,
    /// What the record is called.
    pub record: String,
    pub isa: String,
    pub threads: usize,
    /// Tokens a second (median), or milliseconds (p50).
    pub value: f64,
    /// The bound, where there is one.
    pub bound: Option<f64>,
    pub unit: &'static str,
}

impl Line {
    pub fn cells(&self) -> [String; 7] {
        [
            self.test.clone(),
            self.record.clone(),
            self.isa.clone(),
            self.threads.to_string(),
            figure(self.value),
            self.bound.map(figure).unwrap_or_default(),
            self.unit.to_owned(),
        ]
    }

    /// The figure over the largest of its test.
    pub fn relative(&self, all: &[Self]) -> f64 {
        let most =
            all.iter().filter(|line| line.test == self.test).map(|line| line.value).fold(0.0, f64::max);
        if most > 0.0 { self.value / most } else { 0.0 }
    }
}

/// Every figure, those of one test together, tests in the order in which records have them.
pub fn lines(records: &[Named]) -> Vec<Line> {
    let mut all: Vec<Line> = Vec::new();
    for Named { name, record } in records {
        let short = |text: &str| crate::output::plain(text).chars().take(32).collect::<String>();
        all.extend(record.speed.iter().map(|row| Line {
            test: short(&row.test),
            record: name.clone(),
            isa: short(&row.isa),
            threads: row.threads,
            value: row.tokens_per_second.median,
            bound: row.bound.map(|bound| bound.tokens_per_second),
            unit: "tokens/s",
        }));
        let Some(decisions) = &record.decisions else { continue };
        let mut push = |test: String, value: f64| {
            all.push(Line {
                test,
                record: name.clone(),
                isa: short(&record.engine.isa),
                threads: record.engine.threads,
                value,
                bound: None,
                unit: "ms",
            });
        };
        for stratum in &decisions.strata {
            push(format!("decision, {} tokens", short(&stratum.tokens)), stratum.cold.p50);
        }
        if let Some(cached) = &decisions.cached {
            push("decision, cached".to_owned(), cached.p50);
        }
    }
    let mut order: Vec<String> = Vec::new();
    for line in &all {
        if !order.contains(&line.test) {
            order.push(line.test.clone());
        }
    }
    // Speeds first, then decisions, however the records were made.
    all.sort_by_key(|line| (line.unit == "ms", order.iter().position(|test| *test == line.test)));
    all
}
