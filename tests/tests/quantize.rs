//! Quantising, beside ggml's quantiser: the files of `../shared/data/fixtures` are llama.cpp's, made from the F16 one. And what a
//! folder of Hugging Face files becomes, beside what llama.cpp's converter makes of it.

mod parity_common;
mod quantize_support;

use parity_common::{cosine, each, embed, gguf, ids, json, load, mapped, options, vector};
use quantize_support::{Folder, expanded_values, folder_of};
use std::path::Path;
use zen_edge_core::backbone::check;
use zen_edge_core::gguf::Gguf;
use zen_edge_core::tokenizer::{EncodeOptions, Tokenizer};
use zen_edge_forge::quantize::{Importance, Mix, Options, QuantizeError, Report, quantize};
use zen_edge_forge::source::{Model, SourceError};
use zen_edge_kernels::format::{BlockType, EncodeError, dequantize, encode};
use zen_edge_kernels::pool::Pool;
use zen_edge_tests::{fixture, need, peers, shared};

fn values(gguf: &Gguf, name: &str) -> Vec<f32> {
    let tensor = gguf.require_tensor(name).unwrap();
    let mut out = vec![0.0; tensor.elements() as usize];
    dequantize(tensor.block_type().unwrap(), &gguf.tensor_bytes(tensor).unwrap(), &mut out);
    out
}

fn rmse(a: &[f32], b: &[f32]) -> f64 {
    let sum: f64 = a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
    (sum / a.len() as f64).sqrt()
}

#[allow(clippy::result_large_err)] // a test's own helper
fn make(input: &Path, output: &Path, mix: Mix, options: &Options) -> Result<Report, QuantizeError> {
    quantize(input, output, mix, options, &mut |progress| (0.0..=1.0).contains(&progress.share))
}

fn types(gguf: &Gguf) -> Vec<(String, BlockType)> {
    let mut types: Vec<_> =
        gguf.tensors().iter().map(|t| (t.name.clone(), t.block_type().unwrap())).collect();
    types.sort();
    types
}

const LLAMA_CPP_FILES: [&str; 11] =
    ["q2_k", "q3_k_m", "q4_0", "q4_1", "q4_k_m", "q4_k_s", "q5_0", "q5_1", "q5_k_m", "q6_k", "q8_0"];

/// Every tensor of every file that llama.cpp quantised: encoded in the same type, our error is no larger.
#[test]
fn errors_are_no_larger_than_those_of_ggml() {
    const TEST: &str = "errors_are_no_larger_than_those_of_ggml";
    let Some(folder) = need(TEST, "the files that llama.cpp quantised", shared("data/fixtures")) else {
        return;
    };
    let float = mapped(&folder.join("qwen3-tiny-rand-f16.gguf"));
    let mut seen = std::collections::BTreeMap::<BlockType, (f64, f64, usize)>::new();
    for name in LLAMA_CPP_FILES {
        let theirs = mapped(&folder.join(format!("qwen3-tiny-rand-{name}.gguf")));
        for tensor in theirs.tensors() {
            let ty = tensor.block_type().unwrap();
            if ty.block_len() == 1 {
                continue;
            }
            let want = values(&float, &tensor.name);
            let ggml = rmse(&want, &values(&theirs, &tensor.name));
            let mut back = vec![0.0; want.len()];
            dequantize(ty, &encode(ty, &want, None).unwrap(), &mut back);
            let ours = rmse(&want, &back);
            assert!(ours <= ggml * 1.001, "{name}, {} as {ty}: {ours} > {ggml}", tensor.name);
            let entry = seen.entry(ty).or_default();
            *entry = (entry.0 + ours, entry.1 + ggml, entry.2 + 1);
        }
    }
    for (ty, (ours, ggml, count)) in &seen {
        println!("{ty}: {:.4} of ggml's error over {count} tensors", ours / ggml);
    }
    assert_eq!(seen.len(), 10, "a type of the fixtures is missing: {seen:?}");
}

/// llama.cpp's mixtures by our own rules: the types of every tensor of its files.
#[test]
fn mixtures_are_those_of_llama_cpp() {
    const TEST: &str = "mixtures_are_those_of_llama_cpp";
    let shared = |file: &str| shared(&format!("data/fixtures/qwen3-tiny-rand-{file}.gguf"));
    let model = |file: &str| peers(&format!("models/{file}.gguf"));
    let files = [
        (Mix::Q4_0, shared("q4_0")),
        (Mix::Q4_1, shared("q4_1")),
        (Mix::Q4_K_S, shared("q4_k_s")),
        (Mix::Q4_K_M, shared("q4_k_m")),
        (Mix::Q5_0, shared("q5_0")),
        (Mix::Q5_1, shared("q5_1")),
        (Mix::Q5_K_M, shared("q5_k_m")),
        (Mix::Q6_K, shared("q6_k")),
        (Mix::Q8_0, shared("q8_0")),
        (Mix::F16, shared("f16")),
        (Mix::BF16, shared("bf16")),
        (Mix::F32, shared("f32")),
        // 28 layers, and 18 whose rows are not multiples of 256.
        (Mix::Q4_K_M, model("qwen3-0.6b-rand-q4_k_m")),
        (Mix::Q8_0, model("qwen3-0.6b-rand-q8_0")),
        (Mix::Q4_K_M, model("gemma-3-270m-q4_k_m")),
    ];
    for (mix, path) in files {
        let Some(path) = need(&format!("{TEST} ({mix})"), "a file of llama.cpp's", path) else { continue };
        let gguf = mapped(&path);
        let layers =
            gguf.u32(&format!("{}.block_count", gguf.architecture().unwrap())).unwrap().unwrap() as usize;
        let tied = gguf.tensor("output.weight").is_none();
        for tensor in gguf.tensors() {
            let (ours, _) = mix.of(&tensor.name, &tensor.dims, layers, tied);
            assert_eq!(ours, tensor.block_type().unwrap(), "{mix}, {} of {}", tensor.name, path.display());
        }
        if gguf.u32("general.file_type").unwrap().is_some() {
            assert_eq!(gguf.u32("general.file_type").unwrap(), Some(mix.file_type()), "{mix}");
        }
    }
}

/// The hidden states of what we quantise are as near to the float model's as those of llama.cpp's files.
#[test]
fn quantised_files_run_as_near_to_the_model_as_those_of_llama_cpp() {
    const TEST: &str = "quantised_files_run_as_near_to_the_model_as_those_of_llama_cpp";
    let Some(folder) = need(TEST, "the files that llama.cpp quantised", shared("data/fixtures")) else {
        return;
    };
    let refs = json(&folder.join("qwen3-tiny-rand-refs.json"));
    let prompts = each(&refs["ids"], ids);
    let want = each(&refs["refs"]["f32"]["transformers_fp32_dequantised"], vector);
    let away = |path: &Path| -> f64 {
        let backbone = load(&mapped(path), &options(None, 2));
        let cosines = prompts.iter().zip(&want).map(|(ids, want)| 1.0 - cosine(&embed(&backbone, ids), want));
        cosines.sum::<f64>() / prompts.len() as f64
    };
    let made = tempfile::tempdir().unwrap();
    let (mut ours_in_all, mut ggml_in_all) = (0.0, 0.0);
    for mix in [
        Mix::Q4_K_M,
        Mix::Q4_K_S,
        Mix::Q4_0,
        Mix::Q4_1,
        Mix::Q5_K_M,
        Mix::Q5_0,
        Mix::Q5_1,
        Mix::Q6_K,
        Mix::Q8_0,
    ] {
        let theirs = folder.join(format!("qwen3-tiny-rand-{}.gguf", mix.name().to_lowercase()));
        let ours = made.path().join(format!("{mix}.gguf"));
        let report = make(&folder.join("qwen3-tiny-rand-f32.gguf"), &ours, mix, &Options::default()).unwrap();
        assert_eq!(types(&mapped(&ours)), types(&mapped(&theirs)), "{mix}");
        // The same tensors in the same types: the same bytes in all.
        let bytes = mapped(&theirs).tensors().iter().map(|t| t.bytes).sum::<u64>();
        assert_eq!(report.bytes, bytes);
        let (ours, ggml) = (away(&ours), away(&theirs));
        println!(
            "{mix}: {} bytes, {:.3} bits, rmse {:.3e}, 1 - cosine {ours:.2e}, of llama.cpp's file {ggml:.2e}",
            report.file_bytes, report.bits_per_weight, report.rmse
        );
        // Twenty prompts through random weights: a single file's mean has a band.
        assert!(ours <= 1.15 * ggml, "{mix}: {ours} > {ggml}");
        ours_in_all += ours / ggml;
        ggml_in_all += 1.0;
    }
    assert!(ours_in_all <= ggml_in_all, "{ours_in_all} of {ggml_in_all}");
}

/// What a GGUF says of itself stays, but for how it is quantised.
#[test]
fn metadata_is_kept() {
    let made = tempfile::tempdir().unwrap();
    let (input, output) = (fixture("tiny/gemma3-tiny-rand-f16.gguf"), made.path().join("out.gguf"));
    let report = make(&input, &output, Mix::Q5_K_M, &Options::default()).unwrap();
    let (before, after) = (mapped(&input), mapped(&output));
    for (key, value) in before.metadata().filter(|(key, _)| *key != "general.file_type") {
        assert_eq!(after.get(key), Some(value), "{key}");
    }
    assert_eq!(after.u32("general.file_type").unwrap(), Some(17));
    assert_eq!(after.u32("general.quantization_version").unwrap(), Some(2));
    assert_eq!(after.metadata().count(), before.metadata().count());
    // No row of it is a multiple of 256: every matrix has a type of smaller blocks, and it is said.
    assert!(report.tensors.iter().all(|t| t.ty == "F32" || t.instead_of.is_some()));
    assert!(report.notes.iter().any(|note| note.contains("not whole blocks")));
    check(&after).unwrap();
}

/// A Hugging Face folder becomes what llama.cpp's converter made of it: the shared Qwen3's own files.
#[test]
fn a_qwen3_folder_is_the_gguf_of_the_converter() {
    const TEST: &str = "a_qwen3_folder_is_the_gguf_of_the_converter";
    let Some(folder) = need(TEST, "the tiny Qwen3", shared("data/fixtures")) else { return };
    let made = tempfile::tempdir().unwrap();
    let output = made.path().join("out.gguf");
    make(&folder.join("qwen3-tiny-rand-hf"), &output, Mix::F32, &Options::default()).unwrap();
    same_model(&mapped(&output), &mapped(&folder.join("qwen3-tiny-rand-f32.gguf")));
}

/// The same metadata (but for names and such as converters add), the same values, the same ids.
fn same_model(ours: &Gguf, theirs: &Gguf) {
    for (key, value) in theirs.metadata() {
        // Scores are made anew from the merges: what they lead to is compared below.
        let about = [
            "general.name",
            "general.size_label",
            "general.license",
            "general.file_type",
            "tokenizer.ggml.scores",
        ];
        assert!(about.contains(&key) || ours.get(key) == Some(value), "{key} differs");
    }
    assert_eq!(ours.tensors().len(), theirs.tensors().len());
    for tensor in theirs.tensors() {
        assert_eq!(ours.require_tensor(&tensor.name).unwrap().dims, tensor.dims, "{}", tensor.name);
        assert!(values(ours, &tensor.name) == values(theirs, &tensor.name), "{}", tensor.name);
    }
    let (a, b) = (Tokenizer::from_gguf(ours).unwrap(), Tokenizer::from_gguf(theirs).unwrap());
    let corpus = json(&fixture("tokenizer/corpus.json"));
    let texts: Vec<&str> = corpus.as_array().unwrap().iter().filter_map(|text| text.as_str()).collect();
    assert!(texts.len() > 50);
    for text in texts {
        for plain_text in [false, true] {
            let options = EncodeOptions { plain_text, ..EncodeOptions::default() };
            assert_eq!(a.encode(text, &options), b.encode(text, &options), "{text:?}");
        }
    }
}

/// The committed tiny models as the folders that they would have been made of, in one file and in several: rows put back in
/// halves, norms less one. They run as they did.
#[test]
fn folders_of_every_architecture_are_the_ggufs_of_the_converter() {
    for (architecture, parts) in [("qwen3", 1), ("llama", 1), ("llama", 3), ("gemma3", 2)] {
        let path = fixture(&format!("tiny/{architecture}-tiny-rand-f16.gguf"));
        let theirs = mapped(&path);
        let folder = folder_of(&theirs).write(parts);
        let output = folder.path().join("out.gguf");
        make(folder.path(), &output, Mix::F32, &Options::default()).unwrap();
        let ours = mapped(&output);
        same_model(&ours, &gguf("expanded", parity_common::expanded(&std::fs::read(&path).unwrap())));
        let refs = json(&fixture(&format!("tiny/{architecture}-tiny-rand.json")));
        let backbone = load(&ours, &options(None, 2));
        for (ids, want) in
            each(&refs["ids"], ids).iter().zip(&each(&refs["transformers_fp32"], vector)).take(3)
        {
            assert!(cosine(&embed(&backbone, ids), want) > 0.99999, "{architecture}");
        }
    }
}

/// Real `tokenizer.json` files: the ids of Hugging Face `tokenizers` come out of the GGUF that is made of them.
#[test]
fn tokenizers_of_folders_give_the_ids_of_hugging_face() {
    const TEST: &str = "tokenizers_of_folders_give_the_ids_of_hugging_face";
    for (name, architecture, tokens) in [
        ("qwen3", "qwen3", 151_936),
        ("llama3", "llama", 128_256),
        ("gpt2", "llama", 50_257),
        ("llama2", "llama", 32_000),
        ("gemma3", "gemma3", 262_208),
    ] {
        let path = peers(&format!("tokenizers/{name}/tokenizer.json"));
        let Some(path) = need(&format!("{TEST} ({name})"), "a vocabulary (cargo xtask peers)", path) else {
            continue;
        };
        let mut folder = Folder::small(architecture, tokens);
        folder.tokenizer = std::fs::read(path).unwrap();
        let folder = folder.write(1);
        let output = folder.path().join("out.gguf");
        make(folder.path(), &output, Mix::Q8_0, &Options::default()).unwrap();
        let tokenizer = Tokenizer::from_gguf(&mapped(&output)).unwrap();
        let golden = json(&fixture(&format!("tokenizer/golden-{}.json", name)));
        let corpus = json(&fixture("tokenizer/corpus.json"));
        let bare = EncodeOptions { plain_text: false, add_bos: Some(false), add_eos: Some(false) };
        let mut seen = 0;
        for (text, want) in corpus.as_array().unwrap().iter().zip(golden["ids"].as_array().unwrap()) {
            let Some(text) = text.as_str() else { continue };
            assert_eq!(tokenizer.encode(text, &bare), ids(want), "{name}: {text:?}");
            seen += 1;
        }
        assert!(seen > 50);
        // Llama 2 and Gemma begin with BOS by their template; of the others the file at hand says nothing.
        let begins = tokenizer.encode("a", &EncodeOptions::default()).len() > 1;
        assert_eq!(begins, ["llama2", "gemma3"].contains(&name), "{name}");
    }
}

fn prompts_file(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("prompts.jsonl");
    let rows = [
        "the cat sat on the mat",
        "write a function that adds two numbers",
        "in the end it is as it was",
        "a",
    ];
    let text: String = rows.iter().map(|prompt| format!("{{\"prompt\": \"{prompt}\"}}\n")).collect();
    std::fs::write(&path, text).unwrap();
    path
}

/// With an importance matrix the error, weighted by it, falls; and a folder gives what its GGUF gives.
#[test]
fn an_importance_matrix_lowers_the_weighted_error() {
    let made = tempfile::tempdir().unwrap();
    let prompts = prompts_file(made.path());
    for architecture in ["llama", "qwen3"] {
        let input = fixture(&format!("tiny/{architecture}-tiny-rand-f16.gguf"));
        let (plain, weighted) = (made.path().join("plain.gguf"), made.path().join("weighted.gguf"));
        let with = Options { imatrix: Some(prompts.clone()), ..Options::default() };
        for mix in [Mix::Q4_0, Mix::Q4_K_M] {
            make(&input, &plain, mix, &Options::default()).unwrap();
            let report = make(&input, &weighted, mix, &with).unwrap();
            let gguf = mapped(&input);
            let importance = Importance::collect(&gguf, &prompts, &Pool::single(), &mut |_| true).unwrap();
            let shape = |key: &str| gguf.require_u32(&format!("{architecture}.{key}")).unwrap() as usize;
            assert_eq!(importance.columns.len(), 7 * shape("block_count"));
            assert_eq!(report.imatrix.as_ref().unwrap().prompts, 4);
            let (plain, weighted) = (mapped(&plain), mapped(&weighted));
            assert_eq!(weighted.str("quantize.imatrix.dataset").unwrap(), Some("prompts.jsonl"));
            for (name, weights) in &importance.columns {
                assert!(weights.iter().all(|w| w.is_finite() && *w > 0.0));
                let want = values(&gguf, name);
                let error = |file: &Gguf| -> f64 {
                    let got = values(file, name);
                    let off = want.iter().zip(&got).zip(weights.iter().cycle());
                    off.map(|((a, b), w)| f64::from(*w) * (f64::from(*a) - f64::from(*b)).powi(2)).sum()
                };
                let (without, with) = (error(&plain), error(&weighted));
                assert!(with < without, "{architecture} {mix} {name}: {with} is not below {without}");
            }
        }
        let folder = folder_of(&mapped(&input)).write(1);
        let (a, b) = (made.path().join("a.gguf"), made.path().join("b.gguf"));
        make(&input, &a, Mix::Q4_0, &with).unwrap();
        make(folder.path(), &b, Mix::Q4_0, &with).unwrap();
        for tensor in mapped(&a).tensors() {
            assert_eq!(
                values(&mapped(&a), &tensor.name),
                values(&mapped(&b), &tensor.name),
                "{}",
                tensor.name
            );
        }
    }
}

/// The inputs that an observer is shown are those of the products: by an importance of ones nothing changes, and what one prompt
/// of one token puts into the first layer is its own embedding, normalised.
#[test]
fn the_importance_is_that_of_the_activations() {
    let gguf = mapped(&fixture("tiny/llama-tiny-rand-f16.gguf"));
    let made = tempfile::tempdir().unwrap();
    let prompts = made.path().join("one.jsonl");
    std::fs::write(&prompts, "{\"prompt\": \"a\"}\n").unwrap();
    let importance = Importance::collect(&gguf, &prompts, &Pool::single(), &mut |_| true).unwrap();
    assert_eq!(importance.tokens, 1);
    let id = Tokenizer::from_gguf(&gguf).unwrap().encode("a", &EncodeOptions::default())[0] as usize;
    let hidden = gguf.require_u32("llama.embedding_length").unwrap() as usize;
    let row = values(&gguf, "token_embd.weight")[id * hidden..(id + 1) * hidden].to_vec();
    let norm = values(&gguf, "blk.0.attn_norm.weight");
    let eps = gguf.require_f32("llama.attention.layer_norm_rms_epsilon").unwrap();
    let scale = 1.0 / (row.iter().map(|x| x * x).sum::<f32>() / hidden as f32 + eps).sqrt();
    let squares: Vec<f32> = row.iter().zip(&norm).map(|(x, n)| (x * scale * n).powi(2)).collect();
    let mean = squares.iter().sum::<f32>() / hidden as f32;
    for (got, square) in importance.columns["blk.0.attn_q.weight"].iter().zip(&squares) {
        // One token and four of the average.
        let want = (square + 4.0 * mean) / 5.0;
        assert!((got / want - 1.0).abs() < 1e-3, "{got} is not {want}");
    }
}

/// Every refusal says why, and leaves nothing behind and an existing file as it was.
#[test]
fn refusals_are_typed_and_leave_nothing_behind() {
    let made = tempfile::tempdir().unwrap();
    let output = made.path().join("out.gguf");
    std::fs::write(&output, "mine").unwrap();
    let plain = Options::default();
    let left = || {
        let names: Vec<_> = std::fs::read_dir(made.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["out.gguf"], "something was left behind");
        assert_eq!(std::fs::read(&output).unwrap(), b"mine");
    };
    let fails = |input: &Path| {
        let error = make(input, &output, Mix::Q4_0, &plain).unwrap_err();
        left();
        error
    };
    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(
        fails(empty.path()),
        QuantizeError::Source(SourceError::MissingFile { name: "config.json", .. })
    ));
    assert!(matches!(fails(Path::new("/nowhere.gguf")), QuantizeError::Source(SourceError::Io { .. })));
    assert!(matches!(fails(&output), QuantizeError::SameFile { .. }));

    type Change = fn(&mut Folder);
    type Expected = fn(&QuantizeError) -> bool;
    let cases: [(&str, Change, Expected); 9] = [
        (
            "architecture",
            |f| f.config["architectures"][0] = "BertModel".into(),
            |e| matches!(e, QuantizeError::Source(SourceError::Architecture { found, .. }) if found == "BertModel"),
        ),
        (
            "activation",
            |f| f.config["hidden_act"] = "gelu".into(),
            |e| matches!(e, QuantizeError::Source(SourceError::Config { key, .. }) if key == "hidden_act"),
        ),
        (
            "rope",
            |f| f.config["rope_scaling"] = serde_json::json!({"rope_type": "longrope"}),
            |e| matches!(e, QuantizeError::Source(SourceError::Config { key, .. }) if key == "rope scaling type"),
        ),
        (
            "bias",
            |f| f.tensors.push(("model.layers.0.self_attn.q_proj.bias".into(), vec![1], vec![0.0])),
            |e| matches!(e, QuantizeError::Source(SourceError::UnknownTensor { .. })),
        ),
        (
            "lacking",
            |f| f.tensors.retain(|(name, ..)| !name.contains("layers.0.mlp.up_proj")),
            |e| matches!(e, QuantizeError::Backbone(_)),
        ),
        (
            "nan",
            |f| f.tensors[3].2[5] = f32::NAN,
            |e| matches!(e, QuantizeError::Encode { source: EncodeError::NotFinite { index: 5, .. }, .. }),
        ),
        (
            "tokenizer",
            |f| f.tokenizer = b"{\"model\": {\"type\": \"WordPiece\", \"vocab\": {}}}".to_vec(),
            |e| matches!(e, QuantizeError::Source(SourceError::Tokenizer { what: "the model", .. })),
        ),
        (
            "json",
            |f| f.tokenizer = b"{".to_vec(),
            |e| matches!(e, QuantizeError::Source(SourceError::Json { .. })),
        ),
        (
            "pre-tokenizer",
            |f| {
                let mut json: serde_json::Value = serde_json::from_slice(&f.tokenizer).unwrap();
                json["pre_tokenizer"] = serde_json::json!({"type": "Whitespace"});
                f.tokenizer = json.to_string().into_bytes();
            },
            |e| {
                let e = e.to_string();
                e.contains("pre-tokenizer") && e.contains("Whitespace")
            },
        ),
    ];
    for (name, change, expected) in cases {
        let mut folder = folder_of(&mapped(&fixture("tiny/llama-tiny-rand-f16.gguf")));
        change(&mut folder);
        let folder = folder.write(1);
        let error = fails(folder.path());
        assert!(expected(&error), "{name}: {error:?}");
    }
    // A caller that has had enough.
    let error =
        quantize(&fixture("tiny/llama-tiny-rand-f16.gguf"), &output, Mix::Q4_0, &plain, &mut |progress| {
            progress.share < 0.5
        });
    assert!(matches!(error, Err(QuantizeError::Cancelled)));
    left();
}

#[test]
fn a_quantised_model_is_refused_unless_asked_for() {
    let made = tempfile::tempdir().unwrap();
    let (first, second) = (made.path().join("a.gguf"), made.path().join("b.gguf"));
    make(&fixture("tiny/llama-tiny-rand-f16.gguf"), &first, Mix::Q8_0, &Options::default()).unwrap();
    let error = make(&first, &second, Mix::Q4_0, &Options::default()).unwrap_err();
    assert!(matches!(error, QuantizeError::Quantized { ty: BlockType::Q8_0, .. }));
    assert!(error.to_string().contains("--requantize"));
    let options = Options { requantize: true, ..Options::default() };
    make(&first, &second, Mix::Q4_0, &options).unwrap();
    check(&mapped(&second)).unwrap();
}

/// The scalings of rotations: keys as the backbone reads them, and Llama 3's as a tensor of factors.
#[test]
fn scaled_rotations_are_carried_over() {
    let of = |scaling: serde_json::Value| {
        let mut folder = folder_of(&mapped(&fixture("tiny/llama-tiny-rand-f16.gguf")));
        folder.config["rope_scaling"] = scaling;
        let folder = folder.write(1);
        let output = folder.path().join("out.gguf");
        make(folder.path(), &output, Mix::F16, &Options::default()).unwrap();
        let gguf = mapped(&output);
        load(&gguf, &options(None, 1));
        gguf
    };
    let linear = of(serde_json::json!({"type": "linear", "factor": 4.0}));
    assert_eq!(linear.str("llama.rope.scaling.type").unwrap(), Some("linear"));
    assert_eq!(linear.f32("llama.rope.scaling.factor").unwrap(), Some(4.0));
    let yarn = of(serde_json::json!({
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512, "attention_factor": 1.0
    }));
    assert_eq!(yarn.u32("llama.rope.scaling.original_context_length").unwrap(), Some(512));
    let attention = yarn.f32("llama.rope.scaling.attn_factor").unwrap().unwrap();
    assert!((attention * (1.0 + 0.1 * 4.0f32.ln()) - 1.0).abs() < 1e-6);
    // Heads of 64, base 1e5: `transformers`' _compute_llama3_parameters divides the frequencies by these.
    let llama3 = of(serde_json::json!({
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 512
    }));
    let factors = values(&llama3, "rope_freqs.weight");
    assert_eq!(factors.len(), 32);
    assert!(factors[..8].iter().all(|f| *f == 1.0) && factors[20..].iter().all(|f| *f == 8.0), "{factors:?}");
    assert!(factors.is_sorted() && factors.iter().any(|f| *f > 1.0 && *f < 8.0), "{factors:?}");
}

#[test]
fn a_model_gives_any_rows_of_a_tensor() {
    let folder = folder_of(&mapped(&fixture("tiny/llama-tiny-rand-f16.gguf"))).write(1);
    let model = Model::open(folder.path()).unwrap();
    let tensor = model.tensors.iter().find(|t| t.name == "blk.1.attn_k.weight").unwrap();
    let (mut whole, mut part) = (Vec::new(), Vec::new());
    model.rows(tensor, 0..tensor.rows(), &mut whole).unwrap();
    let columns = tensor.columns() as usize;
    for rows in [0..1, 5..9, 63..65, tensor.rows() - 1..tensor.rows(), 3..3] {
        model.rows(tensor, rows.clone(), &mut part).unwrap();
        assert_eq!(part, whole[rows.start as usize * columns..rows.end as usize * columns], "{rows:?}");
    }
    assert_eq!(
        whole.len(),
        expanded_values(&mapped(&fixture("tiny/llama-tiny-rand-f16.gguf")), "blk.1.attn_k.weight").len()
    );
}
