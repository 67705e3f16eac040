//! `zen-edge inspect`: the facts of a GGUF or safetensors file.

use crate::exit::Exit;
use crate::failure::Failure;
use crate::model::locate;
use crate::output::{self, bytes, line, plain, table};
use owo_colors::OwoColorize;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use zen_edge_core::backbone::{Backbone, BackboneOptions};
use zen_edge_core::gguf::Gguf;
use zen_edge_core::inspect::{Format, Report, Role, inspect};
use zen_edge_core::pack::LoadError;
use zen_edge_core::source::Memory;
use zen_edge_core::tokenizer::{EncodeOptions, Tokenizer};

/// The arguments of `zen-edge inspect`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A GGUF or safetensors file, or the name of a pulled backbone
    file: PathBuf,
    /// List every tensor
    #[arg(long)]
    tensors: bool,
    /// List every metadata key
    #[arg(long)]
    metadata: bool,
    /// Run this prompt through a backbone and show the residual stream after each layer, and where a value is not finite
    #[arg(long, value_name = "PROMPT", conflicts_with_all = ["tensors", "metadata"])]
    trace: Option<String>,
    /// Print JSON, for programs: everything
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    let path = locate(&args.file)?;
    let source = Memory::open(&path).map_err(|error| Failure::file(&path, &error))?;
    if let Some(prompt) = &args.trace {
        return trace(source, prompt, args.json);
    }
    let report = inspect(Arc::new(source))?;
    if args.json {
        let text = serde_json::to_string_pretty(&report);
        line(&text.map_err(|error| Failure::new(Exit::Other, format!("the report is no JSON: {error}")))?);
        return Ok(());
    }
    for text in summary(&report) {
        line(&text);
    }
    if args.metadata {
        line("");
        line(&metadata(&report));
    }
    if args.tensors {
        line("");
        line(&tensors(&report));
    }
    Ok(())
}

/// The residual stream of a prompt; a value that is not finite is a failure of its own.
fn trace(source: Memory, prompt: &str, json: bool) -> Result<(), Failure> {
    let gguf = Gguf::open(Arc::new(source)).map_err(LoadError::from)?;
    let ids = Tokenizer::from_gguf(&gguf).map_err(LoadError::from)?.encode(prompt, &EncodeOptions::default());
    let backbone = Backbone::load(&gguf, &BackboneOptions::default()).map_err(LoadError::from)?;
    let trace = backbone.trace(&ids).map_err(LoadError::from)?;
    if json {
        let layers = trace.layers.iter().map(|layer| {
            json!({"layers": layer.layers, "rms": layer.rms, "largest": layer.largest, "not_finite": layer.not_finite})
        });
        let fault = trace
            .fault
            .as_ref()
            .map(|fault| json!({"layer": fault.layer, "part": fault.part, "token": fault.token}));
        line(&json!({"tokens": ids.len(), "layers": layers.collect::<Vec<_>>(), "fault": fault}).to_string());
    } else {
        let mut rows = table(&["after layer", "rms", "largest", "not finite"]);
        for layer in &trace.layers {
            let cells = [
                if layer.layers == 0 { "embedding".to_owned() } else { layer.layers.to_string() },
                format!("{:.4}", layer.rms),
                format!("{:.3}", layer.largest),
                layer.not_finite.to_string(),
            ];
            rows.add_row(cells);
        }
        output::right(&mut rows, 1..4);
        line(&format!("{} tokens", ids.len()));
        output::rows(&rows).for_each(|text| line(&text));
    }
    match trace.fault {
        None => Ok(()),
        Some(fault) => Err(Failure::new(Exit::Format, format!("a value is not finite: first in {fault}"))),
    }
}

/// A row of the summary: what, and which.
fn fact(label: &str, value: impl AsRef<str>) -> String {
    format!("{label:<13} {}", plain(value.as_ref()))
}

fn summary(report: &Report) -> Vec<String> {
    let mut lines = vec![plain(&report.file).bold().to_string()];
    let format = match (report.format, report.version) {
        (Format::Gguf, Some(version)) => format!("GGUF version {version}"),
        (Format::Gguf, None) => "GGUF".to_owned(),
        (Format::Safetensors, _) => "safetensors".to_owned(),
    };
    let role = match report.role {
        Role::Backbone => "a backbone",
        Role::Heads => "router heads",
        Role::Other => "other tensors",
    };
    lines.push(fact("format", format!("{format}, {}, {role}", bytes(report.bytes))));
    let named = [
        ("name", &report.name),
        ("architecture", &report.architecture),
        ("quantisation", &report.file_type),
        ("licence", &report.license),
    ];
    lines.extend(named.iter().filter_map(|(label, value)| value.as_ref().map(|value| fact(label, value))));
    lines.push(fact("parameters", grouped(report.parameters)));
    if let Some(shapes) = &report.shapes {
        let mut parts = Vec::new();
        let mut push = |value: Option<u64>, what: &str| {
            if let Some(value) = value {
                parts.push(format!("{} {what}", grouped(value)));
            }
        };
        push(shapes.layers.map(u64::from), "layers");
        push(shapes.hidden.map(u64::from), "hidden");
        push(shapes.heads.map(u64::from), "query heads");
        push(shapes.kv_heads.map(u64::from), "KV heads");
        push(shapes.head_dim.map(u64::from), "a head");
        push(shapes.ffn.map(u64::from), "FFN");
        push(shapes.vocab, "tokens in the vocabulary");
        push(shapes.context.map(u64::from), "positions");
        push(shapes.sliding_window.map(u64::from), "positions in a sliding window");
        if shapes.tied_embedding {
            parts.push("embedding tied to the output".to_owned());
        }
        lines.push(fact("shapes", parts.join(", ")));
    }
    if let Some(heads) = &report.heads {
        let rows: Vec<String> = heads.rows.iter().map(|(name, rows)| format!("{name} {rows}")).collect();
        lines.push(fact("heads", format!("{} rows on {} hidden", rows.join(", "), grouped(heads.hidden))));
    }
    if let Some(tokenizer) = &report.tokenizer {
        let mut text = tokenizer.model.clone().unwrap_or_else(|| "of no kind".to_owned());
        if let Some(pre) = &tokenizer.pre {
            text.push_str(&format!(" with pre-tokenizer {pre}"));
        }
        text.push_str(&format!(", {} tokens", grouped(tokenizer.tokens as u64)));
        if let Some(merges) = tokenizer.merges {
            text.push_str(&format!(", {} merges", grouped(merges as u64)));
        }
        for (key, what) in [(tokenizer.add_bos, "BOS"), (tokenizer.add_eos, "EOS")] {
            match key {
                Some(true) => text.push_str(&format!(", adds {what}")),
                Some(false) => text.push_str(&format!(", adds no {what}")),
                None => {}
            }
        }
        lines.push(fact("tokenizer", text));
    }
    if let Some(resident) = &report.resident {
        lines.push(fact(
            "resident",
            format!(
                "{} of weights ({} stay in the file), and for 1,000 tokens {} of keys and values, {} of activations",
                bytes(resident.weights),
                bytes(resident.left_in_file),
                bytes(resident.kv_per_1k_tokens),
                bytes(resident.activations_per_1k_tokens)
            ),
        ));
    }
    if !report.types.is_empty() {
        lines.push(String::new());
        let mut types = table(&["type", "tensors", "parameters", "bytes", "runs here"]);
        for facts in &report.types {
            let runs = if facts.supported { "yes" } else { "no" };
            let row =
                [plain(&facts.name), grouped(facts.tensors), grouped(facts.parameters), grouped(facts.bytes)];
            types.add_row(row.into_iter().chain([runs.to_owned()]));
        }
        output::right(&mut types, 1..4);
        lines.push(types.trim_fmt());
    }
    lines.push(String::new());
    if report.runnable.yes {
        lines.push("can be run here".green().to_string());
    } else {
        lines.push("cannot be run here:".yellow().to_string());
        lines.extend(report.runnable.reasons.iter().map(|reason| format!("  {}", plain(&reason.message))));
    }
    lines
}

fn metadata(report: &Report) -> String {
    let mut keys = table(&["key", "type", "value"]);
    for entry in &report.metadata {
        let mut value = match &entry.value {
            serde_json::Value::String(text) => plain(text),
            other => plain(&other.to_string()),
        };
        if entry.abbreviated {
            value.push_str(" …");
        }
        if let Some(elements) = entry.elements {
            value.push_str(&format!(" ({} elements)", grouped(elements as u64)));
        }
        keys.add_row([plain(&entry.key), entry.value_type.to_owned(), value]);
    }
    keys.trim_fmt()
}

fn tensors(report: &Report) -> String {
    let mut list = table(&["tensor", "type", "dims", "bytes", "offset"]);
    for tensor in &report.tensors {
        let dims: Vec<String> = tensor.dims.iter().map(u64::to_string).collect();
        list.add_row([
            plain(&tensor.name),
            plain(&tensor.element_type),
            dims.join(" × "),
            grouped(tensor.bytes),
            tensor.offset.to_string(),
        ]);
    }
    output::right(&mut list, 3..5);
    list.trim_fmt()
}

/// `1234567` as `1,234,567`.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn digits_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1,000");
        assert_eq!(grouped(123_456_789), "123,456,789");
    }
}
