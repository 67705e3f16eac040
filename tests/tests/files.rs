//! The readers on real files: against what other readers of the same formats say of them.

use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::Arc;
use zen_edge_core::gguf::{Array, Gguf, Value, type_name};
use zen_edge_core::inspect::{Role, inspect};
use zen_edge_core::source::{Memory, Source};
use zen_edge_core::tensors::{Dtype, TensorFile};
use zen_edge_tests::{fixture, need, shared};

fn source(path: &Path) -> Arc<dyn Source> {
    Arc::new(Memory::open(path).unwrap())
}

/// As tests/fixtures/gguf_tables.py writes a value.
fn as_python(value: &Value) -> Json {
    let array = match value {
        Value::Bool(v) => return (*v).into(),
        Value::String(v) => return v.as_str().into(),
        Value::F32(v) => return f64::from(*v).into(),
        Value::U32(v) => return (*v).into(),
        Value::Array(Array::Strings(v)) => {
            Json::from(v.iter().map(|s| std::str::from_utf8(s).unwrap().into()).collect::<Vec<Json>>())
        }
        Value::Array(Array::I32(v)) => Json::from(v.clone()),
        other => panic!("these files have no {}", other.type_name()),
    };
    let digest = Sha256::digest(array.to_string());
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    serde_json::json!({ "len": array.as_array().unwrap().len(), "sha256": hex })
}

#[test]
fn gguf_metadata_and_tables_equal_those_of_the_python_package() {
    let test = "gguf_metadata_and_tables_equal_those_of_the_python_package";
    let Some(folder) = need(test, "the tiny GGUF fixtures", shared("data/fixtures")) else { return };
    let tables: Json = serde_json::from_slice(&std::fs::read(fixture("gguf_tables.json")).unwrap()).unwrap();
    let tables = tables.as_object().unwrap();
    assert_eq!(tables.len(), 14);
    for (name, theirs) in tables {
        let gguf = Gguf::open(source(&folder.join(name))).unwrap();
        let metadata: serde_json::Map<String, Json> =
            gguf.metadata().map(|(key, value)| (key.to_owned(), as_python(value))).collect();
        assert_eq!(&Json::from(metadata), &theirs["metadata"], "{name}");
        let tensors: Vec<Json> = gguf
            .tensors()
            .iter()
            .map(|t| serde_json::json!([t.name, t.dims, type_name(t.type_id), t.offset, t.bytes]))
            .collect();
        assert_eq!(Json::from(tensors), theirs["tensors"], "{name}");
        for tensor in gguf.tensors() {
            assert_eq!(gguf.tensor_bytes(tensor).unwrap().len() as u64, tensor.bytes);
            assert!(gguf.tensor_bytes(tensor).unwrap().is_mapped());
        }

        let report = inspect(source(&folder.join(name))).unwrap();
        assert!(report.runnable.yes, "{name}: {:?}", report.runnable);
        assert_eq!(report.role, Role::Backbone);
        assert_eq!(report.tokenizer.unwrap().tokens, 2048);
    }
}

#[test]
fn a6_a_real_file_cut_anywhere_names_a_tensor_or_its_header() {
    let test = "a6_a_real_file_cut_anywhere_names_a_tensor_or_its_header";
    let path = shared("data/fixtures/qwen3-tiny-rand-q4_k_m.gguf");
    let Some(path) = need(test, "a tiny GGUF fixture", path) else { return };
    let whole = std::fs::read(path).unwrap();
    for len in (4..whole.len()).step_by(997).chain([whole.len() - 1]) {
        let error =
            Gguf::open(Arc::new(Memory::new("cut.gguf", whole[..len].to_vec()))).unwrap_err().to_string();
        assert!(error.contains("cut.gguf"), "{error}");
    }
}

#[test]
fn the_published_heads_are_read() {
    let test = "the_published_heads_are_read";
    let Some(path) = need(test, "the published heads", shared("data/zen-router/heads.safetensors")) else {
        return;
    };
    let heads = TensorFile::open(source(&path)).unwrap();
    let rows = [("task", 8), ("route", 28), ("feature", 256)];
    for (head, rows) in rows {
        let weight = heads.require(&format!("{head}_head.weight")).unwrap();
        assert_eq!((weight.dtype, &weight.shape[..]), (Dtype::F32, &[rows, 1024][..]));
        let bias = heads.require(&format!("{head}_head.bias")).unwrap();
        assert_eq!(bias.shape, [rows]);
        let values = heads.f32(&weight.name).unwrap();
        assert_eq!(values.len() as u64, rows * 1024);
        assert!(values.iter().all(|v| v.is_finite()));
    }
    assert_eq!(heads.names().len(), 6);

    // DESIGN.md: 299,300 parameters; the row norms of the route head lie between .61 and .84.
    let report = inspect(source(&path)).unwrap();
    assert_eq!((report.role, report.parameters), (Role::Heads, 299_300));
    assert_eq!(report.heads.unwrap().hidden, 1024);
    for row in heads.f32("route_head.weight").unwrap().chunks(1024) {
        let norm = row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
        assert!((0.605..0.845).contains(&norm), "{norm}");
    }
}

#[test]
fn a_checkpoint_equals_the_gguf_that_was_made_with_it() {
    let test = "a_checkpoint_equals_the_gguf_that_was_made_with_it";
    let Some(folder) = need(test, "the tiny fixtures", shared("data/fixtures")) else { return };
    let checkpoint = TensorFile::open(source(&folder.join("qwen3-tiny-rand-hf/model.safetensors"))).unwrap();
    let gguf = Gguf::open(source(&folder.join("qwen3-tiny-rand-f32.gguf"))).unwrap();
    let names = [
        ("model.embed_tokens.weight", "token_embd.weight"),
        ("model.norm.weight", "output_norm.weight"),
        ("model.layers.1.self_attn.k_proj.weight", "blk.1.attn_k.weight"),
        ("model.layers.0.self_attn.q_norm.weight", "blk.0.attn_q_norm.weight"),
        ("model.layers.1.mlp.down_proj.weight", "blk.1.ffn_down.weight"),
    ];
    for (theirs, ours) in names {
        let values = checkpoint.f32(theirs).unwrap();
        let tensor = gguf.require_tensor(ours).unwrap();
        let mut shape = checkpoint.require(theirs).unwrap().shape.clone();
        shape.reverse();
        assert_eq!(shape, tensor.dims);
        let bytes = gguf.tensor_bytes(tensor).unwrap();
        let f32s: Vec<f32> = bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
        assert!(values == f32s, "{theirs}");
    }
    assert!(!inspect(source(&folder.join("qwen3-tiny-rand-hf/model.safetensors"))).unwrap().runnable.yes);
}

/// The models that are compared with other engines: they open, their shapes are the published ones, and they are said to run.
#[test]
fn real_models_are_described() {
    let test = "real_models_are_described";
    // (file, architecture, layers, hidden, heads, KV heads, head width, FFN, vocabulary, tokenizer)
    let models = [
        ("gemma-3-270m-q4_k_m.gguf", "gemma3", 18, 640, 4, 1, 256, 2048, 262_144, "llama"),
        ("smollm2-135m-q4_1.gguf", "llama", 30, 576, 9, 3, 64, 1536, 49_152, "gpt2"),
    ];
    for (file, arch, layers, hidden, heads, kv_heads, head_dim, ffn, vocab, tokenizer) in models {
        let path = zen_edge_tests::peers(&format!("models/{file}"));
        let Some(path) = need(test, &format!("the model {file}"), path) else { continue };
        let begun = std::time::Instant::now();
        let report = inspect(source(&path)).unwrap();
        eprintln!("{file}: inspected in {:?}", begun.elapsed());
        assert!(report.runnable.yes, "{file}: {:?}", report.runnable);
        assert_eq!(report.architecture.as_deref(), Some(arch));
        let shapes = report.shapes.unwrap();
        let found =
            (shapes.layers, shapes.hidden, shapes.heads, shapes.kv_heads, shapes.head_dim, shapes.ffn);
        let expected = [layers, hidden, heads, kv_heads, head_dim, ffn].map(Some);
        assert_eq!(found, expected.into());
        assert_eq!(shapes.vocab, Some(vocab));
        assert!(shapes.tied_embedding);
        let facts = report.tokenizer.unwrap();
        assert_eq!((facts.model.as_deref(), facts.tokens as u64), (Some(tokenizer), vocab));
        let tensors: u64 = report.types.iter().map(|t| t.bytes).sum();
        let resident = report.resident.unwrap();
        assert_eq!(resident.weights + resident.left_in_file, tensors);
        assert!(report.bytes - tensors >= report.header_bytes);
    }
}
