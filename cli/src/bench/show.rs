//! A record as tables: for people, in Markdown, as comma-separated values.

use crate::output::{bytes, plain, right, rows, table};
use owo_colors::OwoColorize;
use zen_edge_core::bench::{Decisions, Limiter, Record, Speed, Spread, Sustained};

/// A figure with as many digits as are worth reading.
pub fn figure(value: f64) -> String {
    match value {
        _ if value >= 999.5 => grouped(value.round() as u64),
        _ if value >= 99.95 => format!("{value:.0}"),
        _ if value >= 9.995 => format!("{value:.1}"),
        _ if value >= 0.1 || value == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// `1234567` as `1,234,567`.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let first = digits.len() % 3;
    let mut text = digits[..first].to_owned();
    for at in (first..digits.len()).step_by(3) {
        if at > 0 {
            text.push(',');
        }
        text.push_str(&digits[at..at + 3]);
    }
    text
}

/// Multiply-adds or bytes a second, in thousands of millions.
fn giga(value: f64) -> String {
    figure(value / 1e9)
}

/// A row of facts.
fn fact(label: &str, value: impl AsRef<str>) -> String {
    format!("{label:<9}{}", plain(value.as_ref()))
}

/// The lines for a person.
pub fn people(record: &Record) -> Vec<String> {
    let mut lines = about(record);
    if !record.speed.is_empty() {
        lines.push(String::new());
        lines.extend(speeds(record));
    }
    if let Some(decisions) = &record.decisions {
        lines.push(String::new());
        lines.extend(decided(decisions));
    }
    if let Some(sustained) = &record.sustained {
        lines.push(String::new());
        lines.extend(sparkline(sustained));
    }
    if !record.warnings.is_empty() {
        lines.push(String::new());
        for warning in &record.warnings {
            lines.push(format!("{} {}", "warning:".yellow(), plain(&warning.message)));
        }
    }
    lines
}

/// What ran, on what, and how it was loaded.
fn about(record: &Record) -> Vec<String> {
    let Record { engine, device, model, .. } = record;
    let mut parts = vec![
        model.name.clone().unwrap_or_else(|| "a backbone".to_owned()),
        format!("{}, {} layers of {}", model.architecture, model.layers, model.hidden_size),
    ];
    parts.extend(model.file_bytes.map(bytes));
    parts.extend(model.sha256.as_ref().map(|hash| format!("sha256 {}…", hash.get(..12).unwrap_or(hash))));
    let mut lines = vec![fact("model", parts.join(", "))];

    let mut parts = Vec::new();
    parts.extend(device.cpu.clone());
    parts.extend(device.browser.clone());
    parts.push(device.platform.clone());
    parts.extend(device.cores.map(|n| format!("{n} core{}", if n == 1 { "" } else { "s" })));
    parts.extend(device.memory_bytes.map(bytes));
    parts.extend(device.adapter.clone());
    lines.push(fact("device", parts.join(", ")));
    lines.push(fact("engine", format!("zen-edge {}, {}, {}", engine.version, engine.build, record.date)));

    if let Some(load) = &record.load {
        let mut text = format!("first {} ms", figure(load.ms));
        if let Some(ms) = load.first_decision_ms {
            text.push_str(&format!(", the first prompt {} ms", figure(ms)));
        }
        if let Some(again) = &load.again {
            text.push_str(&format!(
                "; again {} ms, {} ms",
                figure(again.ms),
                figure(again.first_decision_ms)
            ));
        }
        match (load.source.as_deref(), load.disk_bytes) {
            (Some("program"), _) => text.push_str(" (the model is part of the program)"),
            (_, Some(disk)) => text.push_str(&format!(" ({} from the disk)", bytes(disk))),
            _ => {}
        }
        lines.push(fact("load", text));
    }
    if let Some(memory) = &record.memory {
        let mut text = format!("{} resident", bytes(memory.resident_bytes));
        if let (Some(own), Some(file)) = (memory.anonymous_bytes, memory.file_bytes) {
            text.push_str(&format!(" ({} of its own, {} mapped from files)", bytes(own), bytes(file)));
        }
        if let Some(peak) = memory.peak_bytes {
            text.push_str(&format!(", at most {}", bytes(peak)));
        }
        lines.push(fact("memory", text));
    }
    if let Some(energy) = &record.energy {
        let watts = energy.joules / energy.seconds.max(1e-9);
        lines.push(fact(
            "energy",
            format!("{} J, {} W on average ({})", figure(energy.joules), figure(watts), energy.source),
        ));
    }
    for limits in &record.limits {
        let read: Vec<String> = limits
            .read
            .iter()
            .map(|read| format!("{} GB/s from {}", giga(read.bytes_per_second), bytes(read.bytes)))
            .collect();
        lines.push(fact(
            "limits",
            format!(
                "{}, {} thread{}: {}; G multiply-adds/s: int8 {}, f32 {}",
                limits.isa,
                limits.threads,
                if limits.threads == 1 { "" } else { "s" },
                read.join(", "),
                giga(limits.int8_multiply_adds_per_second),
                giga(limits.float_multiply_adds_per_second)
            ),
        ));
    }
    lines
}

/// What binds a row, in a word.
fn binds(row: &Speed) -> &'static str {
    match row.bound.map(|bound| bound.limiter) {
        Some(Limiter::Memory) => "reading",
        Some(Limiter::Compute) => "arithmetic",
        None => "",
    }
}

const SPEED: [&str; 9] =
    ["test", "batch", "kernels", "threads", "tokens/s", "median", "at most", "reached", "bound by"];

/// The cells of a row of speeds.
fn cells(row: &Speed) -> [String; 9] {
    let figures = &row.tokens_per_second;
    let sign = match row.bound {
        Some(bound) if bound.share > 1.0 => " !",
        _ => "",
    };
    [
        plain(&row.test),
        row.batch_size.to_string(),
        plain(&row.isa),
        row.threads.to_string(),
        format!("{} ± {}", figure(figures.mean), figure(figures.sd)),
        figure(figures.median),
        row.bound.map(|bound| figure(bound.tokens_per_second)).unwrap_or_default(),
        row.bound.map(|bound| format!("{:.0} %{sign}", 100.0 * bound.share)).unwrap_or_default(),
        binds(row).to_owned(),
    ]
}

fn speeds(record: &Record) -> Vec<String> {
    let mut out = table(&SPEED);
    for row in &record.speed {
        out.add_row(cells(row));
    }
    right(&mut out, 3..8);
    let mut lines: Vec<String> = rows(&out).collect();
    if record.speed.iter().any(|row| row.bound.is_some()) {
        lines.push(
            "at most: by the limits above, attention, norms and unpacking not counted; reached: the median's share"
                .to_owned(),
        );
    }
    lines
}

fn spread_cells(spread: &Spread) -> [String; 6] {
    let Spread { mean, p50, p90, p99, min, max } = *spread;
    [mean, p50, p90, p99, min, max].map(figure)
}

const DECISIONS: [&str; 9] =
    ["ms a decision", "prompts", "mean", "p50", "p90", "p99", "min", "max", "again, p50"];

/// The rows of the decisions: by length, then all of them.
fn decision_rows(decisions: &Decisions) -> Vec<Vec<String>> {
    let again = |spread: &Option<Spread>| spread.map(|spread| figure(spread.p50)).unwrap_or_default();
    let mut all = Vec::new();
    for stratum in &decisions.strata {
        let mut row = vec![format!("{} tokens", plain(&stratum.tokens)), stratum.prompts.to_string()];
        row.extend(spread_cells(&stratum.cold));
        row.push(again(&stratum.cached));
        all.push(row);
    }
    if let Some(cold) = &decisions.cold {
        let mut row = vec!["all".to_owned(), decisions.count.to_string()];
        row.extend(spread_cells(cold));
        row.push(again(&decisions.cached));
        all.push(row);
    }
    all
}

fn decided(decisions: &Decisions) -> Vec<String> {
    let mut out = table(&DECISIONS);
    for row in decision_rows(decisions) {
        out.add_row(row);
    }
    right(&mut out, 1..9);
    rows(&out).collect()
}

/// The speed over time as a line of blocks, from nothing to the highest.
pub fn sparkline(sustained: &Sustained) -> Vec<String> {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = sustained.tokens_per_second.iter().copied().fold(0.0, f64::max);
    let block = |value: &f64| match most > 0.0 {
        true => BLOCKS[((value / most * 8.0).ceil() as usize).clamp(1, 8) - 1],
        false => BLOCKS[0],
    };
    let line: String = sustained.tokens_per_second.iter().map(block).collect();
    vec![
        format!(
            "{} for {} s: {} tokens/s at first, {} at the end ({:+.0} %)",
            plain(&sustained.test),
            figure(sustained.seconds),
            figure(sustained.first),
            figure(sustained.last),
            100.0 * (sustained.last / sustained.first.max(1e-9) - 1.0)
        ),
        line,
        format!(
            "each block {} s; its height from 0 to {} tokens/s",
            figure(sustained.interval_seconds),
            figure(most)
        ),
    ]
}

/// A line of a Markdown table.
pub fn markdown_row<S: AsRef<str>>(cells: &[S]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| plain(cell.as_ref()).replace('|', "\\|")).collect();
    format!("| {} |", cells.join(" | "))
}

/// A record in Markdown: a line on what ran, then the tables.
pub fn markdown(record: &Record) -> Vec<String> {
    let mut lines: Vec<String> = about(record).iter().map(|line| format!("* {line}")).collect();
    if !record.speed.is_empty() {
        lines.extend([String::new(), markdown_row(&SPEED)]);
        lines.push("|---|--:|---|--:|--:|--:|--:|--:|---|".to_owned());
        lines.extend(record.speed.iter().map(|row| markdown_row(&cells(row))));
    }
    if let Some(decisions) = &record.decisions {
        lines.extend([String::new(), markdown_row(&DECISIONS)]);
        lines.push("|---|--:|--:|--:|--:|--:|--:|--:|--:|".to_owned());
        lines.extend(decision_rows(decisions).iter().map(|row| markdown_row(row)));
    }
    if let Some(sustained) = &record.sustained {
        lines.push(String::new());
        lines.extend(sparkline(sustained).into_iter().map(|line| line + "  "));
    }
    if !record.warnings.is_empty() {
        lines.push(String::new());
        lines.extend(record.warnings.iter().map(|warning| format!("* warning: {}", plain(&warning.message))));
    }
    lines
}

/// A cell of comma-separated values, quoted where it must be (RFC 4180).
fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

/// A record's figures in one table, a row a test: speeds in tokens a second, decisions in milliseconds.
pub fn csv(record: &Record) -> Vec<String> {
    let header = [
        "model",
        "cpu",
        "test",
        "batch_size",
        "isa",
        "threads",
        "unit",
        "count",
        "mean",
        "sd",
        "median",
        "p90",
        "p99",
        "min",
        "max",
        "bound",
        "bound_by",
        "reached",
    ];
    let model = record.model.name.clone().unwrap_or_default();
    let cpu = record.device.cpu.clone().or_else(|| record.device.browser.clone()).unwrap_or_default();
    let mut lines = vec![header.join(",")];
    let mut push = |cells: [String; 18]| {
        lines.push(cells.iter().map(|cell| quoted(&plain(cell))).collect::<Vec<_>>().join(","));
    };
    for row in &record.speed {
        let figures = &row.tokens_per_second;
        push([
            model.clone(),
            cpu.clone(),
            row.test.clone(),
            row.batch_size.to_string(),
            row.isa.clone(),
            row.threads.to_string(),
            "tokens/s".to_owned(),
            row.repetitions.to_string(),
            figures.mean.to_string(),
            figures.sd.to_string(),
            figures.median.to_string(),
            String::new(),
            String::new(),
            figures.min.to_string(),
            figures.max.to_string(),
            row.bound.map(|bound| bound.tokens_per_second.to_string()).unwrap_or_default(),
            binds(row).to_owned(),
            row.bound.map(|bound| bound.share.to_string()).unwrap_or_default(),
        ]);
    }
    let decisions = record.decisions.iter().flat_map(|decisions| {
        let strata = decisions.strata.iter().flat_map(|stratum| {
            let named = |kind: &str| format!("decision {kind} {}", stratum.tokens);
            [
                Some((named("cold"), stratum.prompts, stratum.cold)),
                stratum.cached.map(|cached| (named("cached"), stratum.prompts, cached)),
            ]
        });
        let all = [
            decisions.cold.map(|cold| ("decision cold all".to_owned(), decisions.count, cold)),
            decisions.cached.map(|cached| ("decision cached all".to_owned(), decisions.count, cached)),
        ];
        strata.chain(all).flatten()
    });
    for (test, count, spread) in decisions {
        push([
            model.clone(),
            cpu.clone(),
            test,
            record.batch_size.to_string(),
            record.engine.isa.clone(),
            record.engine.threads.to_string(),
            "ms".to_owned(),
            count.to_string(),
            spread.mean.to_string(),
            String::new(),
            spread.p50.to_string(),
            spread.p90.to_string(),
            spread.p99.to_string(),
            spread.min.to_string(),
            spread.max.to_string(),
            String::new(),
            String::new(),
            String::new(),
        ]);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_digits_that_are_worth_reading() {
        let shown = [0.0, 0.012_34, 0.5, 9.876, 12.34, 123.4, 1234.5, 1e7].map(figure);
        assert_eq!(shown, ["0.00", "0.0123", "0.50", "9.88", "12.3", "123", "1,235", "10,000,000"]);
    }

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(markdown_row(&["a|b"]), "| a\\|b |");
    }

    #[test]
    fn a_fall_is_seen_in_the_blocks() {
        let sustained = Sustained {
            test: "pp128".to_owned(),
            seconds: 4.0,
            interval_seconds: 1.0,
            tokens_per_second: vec![800.0, 790.0, 400.0, 100.0],
            first: 800.0,
            last: 100.0,
        };
        let lines = sparkline(&sustained);
        assert!(lines[0].contains("-88 %"), "{}", lines[0]);
        assert_eq!(lines[1], "██▄▁");
    }
}
