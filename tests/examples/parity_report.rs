//! Prints how close the backbone comes to the references, format by format, and writes the kept record.
//!
//! ```text
//! cargo run --release -p zen-edge-tests --example parity_report -- [--out benches/records] [--isa NAME] [--threads N]
//! ```
//! Models that are absent are named and left out. With `--out` the table goes to `parity-ISA.md` and, with each
//! prompt's cosine, to `parity-ISA.json` in that folder.

#[path = "../tests/parity_common/mod.rs"]
mod parity_common;

use parity_common::{
    Agreement, cosine, each, embed, expanded, gguf, ids, json, load, mapped, norm, options, standard_error,
    vector,
};
use serde_json::{Value, json as object};
use std::fmt::Write as _;
use std::path::PathBuf;
use zen_edge_core::backbone::Backbone;
use zen_edge_core::gguf::Gguf;
use zen_edge_kernels::isa::Isa;
use zen_edge_tests::{fixture, peers, shared};

/// One model in one format against one reference.
struct Row {
    model: String,
    format: String,
    /// What `ours` and `theirs` are compared with.
    reference: &'static str,
    ours: Vec<f64>,
    theirs: Vec<f64>,
    /// Our norm over the reference's.
    norms: Vec<f64>,
}

struct Report {
    isa: Isa,
    threads: usize,
    rows: Vec<Row>,
    absent: Vec<String>,
}

impl Report {
    fn backbone(&self, gguf: &Gguf) -> Backbone {
        load(gguf, &options(Some(self.isa), self.threads))
    }

    fn run(
        &mut self,
        model: &str,
        format: &str,
        reference: &'static str,
        backbone: &Backbone,
        cases: &[Case],
    ) {
        let vectors: Vec<_> = cases.iter().map(|case| embed(backbone, &case.ids)).collect();
        let row = Row {
            model: model.into(),
            format: format.into(),
            reference,
            ours: vectors.iter().zip(cases).map(|(v, case)| cosine(v, &case.want)).collect(),
            theirs: cases.iter().map(|case| case.theirs).collect(),
            norms: vectors.iter().zip(cases).map(|(v, case)| norm(v) / norm(&case.want)).collect(),
        };
        println!("{}", line(&row));
        self.rows.push(row);
    }
}

struct Case {
    ids: Vec<u32>,
    want: Vec<f32>,
    /// llama.cpp's cosine with `want`.
    theirs: f64,
}

fn main() {
    let mut report = Report { isa: Isa::best(), threads: 1, rows: Vec::new(), absent: Vec::new() };
    let mut out: Option<PathBuf> = None;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().unwrap_or_else(|| panic!("{arg} needs a value"));
        match arg.as_str() {
            "--out" => out = Some(value.into()),
            "--isa" => report.isa = Isa::from_name(&value).unwrap_or_else(|e| panic!("{e}")),
            "--threads" => report.threads = value.parse().expect("--threads needs a number"),
            _ => panic!("unknown argument {arg}"),
        }
    }
    println!("{}", HEAD);
    tiny(&mut report);
    shared_formats(&mut report);
    real(&mut report);
    for absent in &report.absent {
        println!("absent: {absent}");
    }
    if let Some(folder) = out {
        write(&report, &folder);
    }
}

/// The committed tiny models, F16 and expanded to F32, at five lengths.
fn tiny(report: &mut Report) {
    for architecture in ["qwen3", "llama", "gemma3"] {
        let refs = json(&fixture(&format!("tiny/{architecture}-tiny-rand.json")));
        let file = std::fs::read(fixture("tiny").join(refs["file"].as_str().unwrap())).unwrap();
        for (format, theirs) in [("F32", "llama.cpp F32, f32 cache"), ("F16", "llama.cpp F16, f32 cache")] {
            let theirs = each(&refs["cosine_with_transformers_fp32"][theirs], |x| x.as_f64().unwrap());
            let cases: Vec<_> = each(&refs["ids"], ids)
                .into_iter()
                .zip(each(&refs["transformers_fp32"], vector))
                .zip(theirs)
                .map(|((ids, want), theirs)| Case { ids, want, theirs })
                .collect();
            let bytes = if format == "F32" { expanded(&file) } else { file.clone() };
            let backbone = report.backbone(&gguf(architecture, bytes));
            report.run(&format!("{architecture}-tiny"), format, "transformers fp32", &backbone, &cases);
        }
    }
}

/// The random Qwen3 of ../shared, tiny and 0.6B.
fn shared_formats(report: &mut Report) {
    for model in ["qwen3-tiny-rand", "qwen3-0.6b-rand"] {
        let path = shared(&format!("data/fixtures/{model}-refs.json"));
        if !path.exists() {
            report.absent.push(path.display().to_string());
            continue;
        }
        let refs = json(&path);
        for (format, entry) in refs["refs"].as_object().unwrap() {
            let name = entry["file"].as_str().unwrap();
            let beside = path.with_file_name(name);
            let file = if beside.exists() { beside } else { peers("models").join(name) };
            if !file.exists() {
                report.absent.push(name.to_owned());
                continue;
            }
            let cases: Vec<_> = each(&refs["ids"], ids)
                .into_iter()
                .zip(each(&entry["transformers_fp32_dequantised"], vector))
                .zip(each(&entry["llama_cpp_haswell"], vector))
                .map(|((ids, want), theirs)| Case { ids, theirs: cosine(&theirs, &want), want })
                .collect();
            let backbone = report.backbone(&mapped(&file));
            report.run(model, &format.to_uppercase(), "transformers fp32, dequantised", &backbone, &cases);
        }
    }
}

/// The real models: against llama.cpp (which there agrees with itself) and against float64.
fn real(report: &mut Report) {
    for model in ["gemma-3-270m-q4_k_m", "smollm2-135m-q4_1"] {
        let file = peers(&format!("models/{model}.gguf"));
        if !file.exists() {
            report.absent.push(file.display().to_string());
            continue;
        }
        let refs = json(&fixture(&format!("real/{model}.json")));
        let backbone = report.backbone(&mapped(&file));
        let (name, format) = model.rsplit_once('-').unwrap();
        for (key, reference) in [("float64_dequantised", "float64, dequantised"), ("llama_cpp", "llama.cpp")]
        {
            let cases = each(&refs["prompts"], |prompt| {
                let want = vector(&prompt[key]);
                Case { ids: ids(&prompt["ids"]), theirs: cosine(&vector(&prompt["llama_cpp"]), &want), want }
            });
            report.run(name, &format.to_uppercase(), reference, &backbone, &cases);
        }
    }
}

const HEAD: &str = "\
| model | format | against | n | ours mean | ours min | llama.cpp mean | llama.cpp min | ours − llama.cpp ± standard error | norm ratio min | max |
|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|";

fn line(row: &Row) -> String {
    let (ours, theirs) = (Agreement::of(&row.ours), Agreement::of(&row.theirs));
    let norms = Agreement::of(&row.norms);
    let most = row.norms.iter().copied().fold(0.0, f64::max);
    format!(
        "| {} | {} | {} | {} | {:.7} | {:.7} | {:.7} | {:.7} | {:.1e} ± {:.1e} | {:.4} | {most:.4} |",
        row.model,
        row.format,
        row.reference,
        ours.n,
        ours.mean,
        ours.min,
        theirs.mean,
        theirs.min,
        ours.mean - theirs.mean,
        standard_error(&row.ours, &row.theirs),
        norms.min
    )
}

fn write(report: &Report, folder: &std::path::Path) {
    let isa = report.isa.name();
    let mut text = format!(
        "# Parity, {isa}, {} thread{}\n\n\
         Cosine of the raw last-token vector with a reference, ours and llama.cpp's. Made by\n\
         `cargo run --release -p zen-edge-tests --example parity_report -- --out {} --isa {isa} --threads {}`;\n\
         each prompt's cosine stands in parity-{isa}.json. The standard error is that of\n\
         the mean difference over the prompts: less than two of them are the luck of the rounding.\n\n{HEAD}\n",
        report.threads,
        if report.threads == 1 { "" } else { "s" },
        folder.display(),
        report.threads,
    );
    for row in &report.rows {
        writeln!(text, "{}", line(row)).unwrap();
    }
    for absent in &report.absent {
        writeln!(text, "\nAbsent here and left out: {absent}").unwrap();
    }
    let rows: Vec<Value> = report
        .rows
        .iter()
        .map(|row| {
            object!({"model": row.model, "format": row.format, "against": row.reference, "ours": row.ours,
                     "llama_cpp": row.theirs, "norm_ratio": row.norms})
        })
        .collect();
    let record = object!({"isa": isa, "threads": report.threads, "arch": std::env::consts::ARCH,
                          "version": env!("CARGO_PKG_VERSION"), "rows": rows, "absent": report.absent});
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join(format!("parity-{isa}.md")), text).unwrap();
    std::fs::write(folder.join(format!("parity-{isa}.json")), serde_json::to_string(&record).unwrap() + "\n")
        .unwrap();
}
