//! What is refused, each with its cause; and what a context keeps.

use super::*;
use crate::gguf::testing::Builder;
use crate::source::Memory;
use std::sync::atomic::{AtomicUsize, Ordering};

const LAYERS: usize = 2;
const VOCAB: usize = 7;

/// Numbers of no pattern.
fn noise(n: usize, seed: &mut u32) -> Vec<f32> {
    (0..n)
        .map(|_| {
            *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (*seed >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

/// A tiny model, with what a test changes: keys left out or added, one tensor in place of another.
struct Model {
    architecture: &'static str,
    without: &'static str,
    layers: u32,
    swap: Vec<(&'static str, Vec<u64>, Vec<f32>)>,
    extra: Vec<(&'static str, crate::gguf::Value)>,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            architecture: "llama",
            without: "",
            layers: LAYERS as u32,
            swap: Vec::new(),
            extra: Vec::new(),
        }
    }
}

impl Model {
    fn build(&self) -> Gguf {
        let mut file = Builder::new(self.architecture);
        let keys: [(&str, u32); 7] = [
            ("block_count", self.layers),
            ("context_length", 64),
            ("embedding_length", 32),
            ("feed_forward_length", 48),
            ("attention.head_count", 4),
            ("attention.head_count_kv", 2),
            ("attention.key_length", 16),
        ];
        let own = |suffix: &str| format!("{}.{suffix}", self.architecture);
        for (key, value) in keys {
            if key != self.without && !self.extra.iter().any(|(extra, _)| *extra == key) {
                file = file.with(&own(key), value);
            }
        }
        file = file.with(&own("attention.layer_norm_rms_epsilon"), 1e-5f32);
        for (key, value) in &self.extra {
            file = file.with(&own(key), value.clone());
        }
        let mut tensors: Vec<(String, Vec<u64>)> = vec![
            ("token_embd.weight".into(), vec![32, VOCAB as u64]),
            ("output_norm.weight".into(), vec![32]),
        ];
        for layer in 0..LAYERS {
            for (part, dims) in [
                ("attn_norm", vec![32]),
                ("attn_q", vec![32, 64]),
                ("attn_k", vec![32, 32]),
                ("attn_v", vec![32, 32]),
                ("attn_output", vec![64, 32]),
                ("ffn_norm", vec![32]),
                ("ffn_gate", vec![32, 48]),
                ("ffn_up", vec![32, 48]),
                ("ffn_down", vec![48, 32]),
            ] {
                tensors.push((format!("blk.{layer}.{part}.weight"), dims));
            }
        }
        let mut seed = 1;
        for (name, dims) in tensors {
            if name == self.without {
                continue;
            }
            let n = dims.iter().product::<u64>() as usize;
            let values = noise(n, &mut seed);
            match self.swap.iter().find(|(swapped, ..)| *swapped == name) {
                Some((_, dims, values)) => file = file.f32_tensor(&name, dims, values),
                None => file = file.f32_tensor(&name, &dims, &values),
            }
        }
        for (name, dims, values) in self.swap.iter().filter(|(name, ..)| name.ends_with(".bias")) {
            file = file.f32_tensor(name, dims, values);
        }
        Gguf::open(Arc::new(Memory::new("tiny", file.build()))).unwrap()
    }

    fn load(&self) -> Result<Backbone, BackboneError> {
        Backbone::load(&self.build(), &BackboneOptions { threads: Some(1), ..BackboneOptions::default() })
    }

    fn error(&self) -> BackboneError {
        let error = self.load().expect_err("it is refused");
        assert!(check(&self.build()).is_err() || matches!(error, BackboneError::Isa(_)));
        error
    }
}

#[test]
fn the_tiny_model_runs() {
    let model = Model::default().load().unwrap();
    assert!(check(&Model::default().build()).is_ok());
    let vector = model.embed(&[1, 2, 3]).unwrap();
    assert_eq!(vector.len(), 32);
    assert_eq!(model.weight_bytes(), 4 * model.multiply_adds());
}

/// Changes tensors whose names hold a word; notes what it was asked for.
struct Halved(&'static str, Vec<String>);

impl Weights for Halved {
    fn held(&mut self, tensor: &TensorInfo) -> Held {
        self.1.push(tensor.name.clone());
        if tensor.name.contains(self.0) { Held::Changed } else { Held::Float }
    }

    fn change(&mut self, tensor: &TensorInfo, cols: usize, values: &mut [f32]) {
        assert_eq!((cols as u64, values.len() as u64), (tensor.dims[0], tensor.elements()));
        values.iter_mut().for_each(|value| *value *= 0.5);
    }
}

#[test]
fn weights_are_changed_as_they_are_loaded() {
    let gguf = Model::default().build();
    let options = BackboneOptions { threads: Some(1), ..BackboneOptions::default() };
    let plain = Backbone::load(&gguf, &options).unwrap().embed(&[1, 2, 3]).unwrap();
    let changed = |word| {
        let mut weights = Halved(word, Vec::new());
        let model = Backbone::load_with(&gguf, &options, &mut weights).unwrap();
        assert_eq!(weights.1.len(), 1 + 7 * LAYERS, "the embedding and each matrix, once: {:?}", weights.1);
        model.embed(&[1, 2, 3]).unwrap()
    };
    assert_eq!(changed("no such tensor"), plain);
    for word in ["token_embd", "blk.0.attn_v", "ffn_down"] {
        assert_ne!(changed(word), plain, "{word}");
    }
}

#[test]
fn a8_an_architecture_that_we_do_not_run_is_named() {
    let error = Model { architecture: "mamba", ..Model::default() }.error();
    assert!(matches!(&error, BackboneError::Architecture { found, .. } if found == "mamba"), "{error}");
    assert!(error.to_string().contains("qwen3"));
}

#[test]
fn a8_a_missing_key_is_named_with_the_architecture_before_it() {
    let error = Model { without: "block_count", ..Model::default() }.error();
    assert!(
        matches!(error, BackboneError::Gguf(_)) && error.to_string().contains("llama.block_count"),
        "{error}"
    );
}

#[test]
fn a9_a_missing_tensor_is_found_at_load() {
    let error = Model { without: "blk.1.ffn_up.weight", ..Model::default() }.error();
    assert!(error.to_string().contains("blk.1.ffn_up.weight"), "{error}");
    // A claim of more layers than there are ends at the first that is absent.
    let error = Model { layers: 4000, ..Model::default() }.error();
    assert!(error.to_string().contains("blk.2."), "{error}");
}

#[test]
fn values_that_cannot_be_are_refused_with_the_key() {
    use crate::gguf::Value;
    let cases: [(&'static str, Value); 10] = [
        ("block_count", Value::U32(0)),
        ("block_count", Value::U32(5000)),
        ("embedding_length", Value::U32(u32::MAX)),
        ("attention.head_count_kv", Value::U32(3)),
        ("attention.key_length", Value::U32(20)),
        ("attention.head_count", Value::U32(1 << 24)),
        ("attention.value_length", Value::U32(32)),
        ("rope.freq_base", Value::F32(f32::NAN)),
        ("rope.dimension_count", Value::U32(18)),
        ("rope.scaling.type", Value::String("longrope".into())),
    ];
    for (key, value) in cases {
        let error = Model { extra: vec![(key, value)], ..Model::default() }.error();
        assert!(
            matches!(&error, BackboneError::Impossible { key: named, .. } if named.ends_with(key)),
            "{key}: {error}"
        );
    }
}

#[test]
fn a_tensor_of_another_shape_is_refused_with_both_shapes() {
    let swap = vec![("blk.0.attn_k.weight", vec![32, 16], vec![0.0; 512])];
    let error = Model { swap, ..Model::default() }.error();
    assert!(
        matches!(&error, BackboneError::TensorShape { tensor, expected, found, .. }
            if tensor == "blk.0.attn_k.weight" && *expected == [32, 32] && *found == [32, 16]),
        "{error}"
    );
}

#[test]
fn a_tensor_that_would_be_left_out_is_refused() {
    let swap = vec![("blk.0.attn_q.bias", vec![64], vec![0.0; 64])];
    let error = Model { swap, ..Model::default() }.error();
    assert!(
        matches!(&error, BackboneError::UnknownTensor { tensor, .. } if tensor == "blk.0.attn_q.bias"),
        "{error}"
    );
}

#[test]
fn tokens_are_checked() {
    let model = Model::default().load().unwrap();
    assert!(matches!(model.embed(&[]), Err(BackboneError::NoTokens)));
    assert!(matches!(model.embed(&[1, 7]), Err(BackboneError::Token { id: 7, vocab: VOCAB })));
    assert!(matches!(model.embed_batch(&[&[1], &[]]), Err(BackboneError::NoTokens)));
    assert!(model.embed_batch(&[]).unwrap().is_empty());
}

#[test]
fn weights_that_are_not_finite_are_found_and_wedge_nothing() {
    for bad in [f32::NAN, f32::INFINITY] {
        let mut values = vec![0.5; 32 * VOCAB];
        values[3 * 32 + 5] = bad;
        let model =
            Model { swap: vec![("token_embd.weight", vec![32, VOCAB as u64], values)], ..Model::default() };
        let model = model.load().unwrap();
        let mut context = model.context();
        let before = model.embed_in(&mut context, &[1, 2], None).unwrap();
        assert!(matches!(model.embed_in(&mut context, &[1, 3], None), Err(BackboneError::NotFinite)));
        assert_eq!(model.embed_in(&mut context, &[1, 2], None).unwrap(), before);
        assert_eq!(model.embed(&[1, 2]).unwrap(), before);
    }
}

#[test]
fn a_reused_prefix_gives_the_same_bits() {
    let model = Model::default().load().unwrap();
    let mut context = model.context();
    for ids in [&[1u32, 2, 3, 4][..], &[1, 2, 3, 4, 5, 6], &[1, 2], &[1, 2, 6, 6, 6], &[1, 2, 6, 6, 6], &[3]]
    {
        assert_eq!(model.embed_in(&mut context, ids, None).unwrap(), model.embed(ids).unwrap(), "{ids:?}");
        assert_eq!(context.tokens(), ids);
    }
    // A copy of a start goes on as the whole does, and neither knows of the other.
    let mut whole = model.context();
    model.embed_in(&mut whole, &[1, 2, 3, 4, 5, 6], None).unwrap();
    let mut start = whole.prefix(3);
    assert_eq!((start.tokens(), whole.shared(&[1, 2, 3, 9])), (&[1u32, 2, 3][..], 3));
    assert_eq!(
        model.embed_in(&mut start, &[1, 2, 3, 6, 6], None).unwrap(),
        model.embed(&[1, 2, 3, 6, 6]).unwrap()
    );
    assert_eq!(
        model.embed_in(&mut whole, &[1, 2, 3, 4, 5, 6, 0], None).unwrap(),
        model.embed(&[1, 2, 3, 4, 5, 6, 0]).unwrap()
    );
    let cancel = Cancel::new();
    cancel.cancel();
    assert!(matches!(model.embed_in(&mut context, &[3, 1, 2], Some(&cancel)), Err(BackboneError::Cancelled)));
    assert_eq!(context.tokens(), [3]);
    assert_eq!(model.embed_in(&mut context, &[3, 1, 2], None).unwrap(), model.embed(&[3, 1, 2]).unwrap());
}

#[test]
fn a_pass_in_steps_gives_the_same_bits_and_its_context_back() {
    let model = Model::default().load().unwrap();
    let ids = [1, 2, 3, 4, 5, 6];
    let finish = |context| {
        let mut pass = model.begin(&ids, context).unwrap();
        let mut steps = 1;
        let vector = loop {
            match model.step(&mut pass).unwrap() {
                Some(vector) => break vector,
                None => steps += 1,
            }
        };
        assert!(matches!(model.step(&mut pass), Err(BackboneError::NoTokens)), "it has ended");
        (vector, steps, pass.into_context())
    };
    let whole = model.embed(&ids).unwrap();
    let (vector, steps, none) = finish(None);
    assert_eq!(vector, whole);
    assert!(steps > model.shape().layers && none.is_none());
    let mut context = model.context();
    model.embed_in(&mut context, &[1, 2, 0], None).unwrap();
    let (vector, _, context) = finish(Some(context));
    assert_eq!(vector, whole);
    let context = context.unwrap();
    assert_eq!(context.tokens(), ids);
    // What is given up in the middle keeps what it had.
    let mut pass = model.begin(&[1, 2, 0, 0], Some(context)).unwrap();
    assert!(model.step(&mut pass).unwrap().is_none());
    let mut context = pass.into_context().unwrap();
    assert_eq!(context.tokens(), [1, 2]);
    assert_eq!(model.embed_in(&mut context, &ids, None).unwrap(), whole);
    assert!(matches!(model.begin(&[], None), Err(BackboneError::NoTokens)));
}

/// Each token's vector, as the token alone would have it at the end of its prompt.
fn of_prefixes(model: &Backbone, ids: &[u32]) -> Vec<Vec<f32>> {
    (1..=ids.len()).map(|n| model.embed(&ids[..n]).unwrap()).collect()
}

fn mean(rows: &[Vec<f32>]) -> Vec<f32> {
    let sum = |at: usize| rows.iter().fold(0.0, |sum, row| sum + f64::from(row[at]));
    (0..rows[0].len()).map(|at| (sum(at) / rows.len() as f64) as f32).collect()
}

#[test]
fn each_part_of_a_pooling_is_what_its_name_says() {
    let with = |model: &Model, pooling: &str| {
        let options = BackboneOptions {
            pooling: pooling.parse().unwrap(),
            threads: Some(1),
            ..BackboneOptions::default()
        };
        Backbone::load(&model.build(), &options).unwrap()
    };
    let ids = [1, 2, 3, 4, 5, 6, 0, 1];
    let model = Model::default();
    let last = model.load().unwrap();
    assert_eq!(with(&model, "mean").embed(&ids).unwrap(), mean(&of_prefixes(&last, &ids)));
    // A model whose second layer adds nothing and whose final norm has no weights ends with what `@1` reads.
    let zeros = |name| (name, vec![32], vec![0.0; 32]);
    let ended = Model {
        swap: vec![
            zeros("blk.1.attn_norm.weight"),
            zeros("blk.1.ffn_norm.weight"),
            ("output_norm.weight", vec![32], vec![1.0; 32]),
        ],
        ..Model::default()
    };
    let ended = ended.load().unwrap();
    let early = with(&model, "last@1");
    assert_eq!(early.embed(&ids).unwrap(), ended.embed(&ids).unwrap());
    assert_eq!(with(&model, "mean@1").embed(&ids).unwrap(), mean(&of_prefixes(&ended, &ids)));
    // A vector of the first layer needs no other one.
    assert_eq!((early.depth(), last.depth()), (1, 2));
    assert_eq!(2 * early.weight_bytes(), last.weight_bytes());
    let whole = with(&model, "length+last+mean@1");
    let vector = whole.embed(&ids).unwrap();
    assert_eq!(vector.len(), whole.vector_size());
    assert_eq!(vector[0], 9f32.ln());
    assert_eq!(vector[1..33], last.embed(&ids).unwrap());
    assert_eq!(vector[33..], with(&model, "mean@1").embed(&ids).unwrap());
    let options = BackboneOptions { pooling: "mean@2".parse().unwrap(), ..BackboneOptions::default() };
    let error = Backbone::load(&model.build(), &options).unwrap_err();
    assert!(matches!(error, BackboneError::Pooling { .. }) && error.to_string().contains("`@1`"), "{error}");
}

#[test]
fn a_pooled_vector_has_the_same_bits_however_it_is_read() {
    let ids = [1, 2, 3, 4, 5, 6, 0, 1];
    for pooling in ["mean", "last@1", "mean@1", "last+mean+mean@1+last@1+length"] {
        let of = |chunk, threads| {
            let options = BackboneOptions {
                pooling: pooling.parse().unwrap(),
                threads: Some(threads),
                chunk: Some(chunk),
                ..BackboneOptions::default()
            };
            Backbone::load(&Model::default().build(), &options).unwrap()
        };
        let model = of(512, 1);
        let whole = model.embed(&ids).unwrap();
        for chunk in [1, 3] {
            assert_eq!(of(chunk, 2).embed(&ids).unwrap(), whole, "{pooling}");
        }
        let batch = model.embed_batch(&[&ids[..3], &ids, &[6]]).unwrap();
        assert_eq!(batch[1], whole, "{pooling}");
        assert_eq!(batch[0], model.embed(&ids[..3]).unwrap(), "{pooling}");
        let mut context = model.context();
        model.embed_in(&mut context, &[1, 2, 3, 0, 0], None).unwrap();
        let mut start = context.prefix(4);
        assert_eq!(model.embed_in(&mut context, &ids, None).unwrap(), whole, "{pooling}");
        assert_eq!(model.embed_in(&mut start, &ids, None).unwrap(), whole, "{pooling}");
        assert_eq!(model.embed_in(&mut context, &ids, None).unwrap(), whole, "{pooling}: all is known");
        let cancel = Cancel::new();
        cancel.cancel();
        assert!(model.embed_in(&mut context, &ids[..5], Some(&cancel)).is_err());
        let mut pass = model.begin(&ids, Some(context)).unwrap();
        let vector = loop {
            if let Some(vector) = model.step(&mut pass).unwrap() {
                break vector;
            }
        };
        assert_eq!(vector, whole, "{pooling}");
        // A context of another kind of vector gives what it can: its tokens are read anew.
        let mut other = Model::default().load().unwrap().context();
        Model::default().load().unwrap().embed_in(&mut other, &ids, None).unwrap();
        assert_eq!(model.embed_in(&mut other, &ids, None).unwrap(), whole, "{pooling}");
        let mut half = pass.into_context().unwrap();
        let last = model.embed_as(&mut half, &ids, None, &Pooling::default()).unwrap();
        assert_eq!(last, Model::default().load().unwrap().embed(&ids).unwrap(), "{pooling}");
        assert!(half.memory() >= 4 * half.tokens().len());
    }
}

#[test]
fn a_trace_names_the_first_part_that_is_not_finite() {
    let sound = Model::default().load().unwrap().trace(&[1, 2, 3]).unwrap();
    assert_eq!(sound.fault, None);
    assert_eq!(sound.layers.iter().map(|layer| layer.layers).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(
        sound
            .layers
            .iter()
            .all(|layer| layer.not_finite == 0 && layer.rms > 0.0 && layer.largest >= layer.rms)
    );
    let with = |name: &'static str, dims: &[u64], at: usize, value: f32| {
        let mut values = noise(dims.iter().product::<u64>() as usize, &mut 9);
        values[at] = value;
        let model = Model { swap: vec![(name, dims.to_vec(), values)], ..Model::default() }.load().unwrap();
        assert!(matches!(model.embed(&[1, 2, 3]), Err(BackboneError::NotFinite)), "{name}");
        let trace = model.trace(&[1, 2, 3]).unwrap();
        // Later requests are not the worse for it.
        assert!(matches!(model.embed(&[1, 2, 3]), Err(BackboneError::NotFinite)));
        let fault = trace.fault.unwrap();
        (fault.layer, fault.part, fault.token)
    };
    assert_eq!(with("token_embd.weight", &[32, VOCAB as u64], 3 * 32, f32::NAN), (0, "embedding", 2));
    assert_eq!(with("blk.0.attn_q.weight", &[32, 64], 5, f32::NAN), (1, "queries", 0));
    assert_eq!(with("blk.1.attn_v.weight", &[32, 32], 5, f32::INFINITY), (2, "values", 0));
    assert_eq!(with("blk.1.ffn_up.weight", &[32, 48], 5, f32::NAN), (2, "gate", 0));
    assert_eq!(with("blk.1.ffn_down.weight", &[48, 32], 5, f32::NAN), (2, "ffn output", 0));
    assert_eq!(with("output_norm.weight", &[32], 5, f32::NEG_INFINITY), (3, "final norm", 0));
}

#[test]
fn logits_that_are_not_finite_are_an_error() {
    let mut seed = 5;
    let mut embedding = noise(32 * VOCAB, &mut seed);
    // A token that no prompt here has: the hidden states are sound, the tied head is not.
    embedding[32 * 6 + 3] = f32::NAN;
    let damaged =
        Model { swap: vec![("token_embd.weight", vec![32, VOCAB as u64], embedding)], ..Model::default() };
    for (model, sound) in [(Model::default(), true), (damaged, false)] {
        let gguf = model.build();
        let backbone = Backbone::load(&gguf, &BackboneOptions::default()).unwrap();
        let head = backbone.head(&gguf).unwrap();
        assert!(head.is_tied() && head.vocab() == VOCAB);
        let hidden = backbone.embed(&[1, 2]).unwrap();
        match backbone.logits(&head, &hidden) {
            Ok(logits) => assert!(sound && logits.len() == VOCAB),
            Err(error) => assert!(!sound && matches!(error, BackboneError::NotFinite), "{error}"),
        }
    }
}

#[test]
fn branches_are_what_each_continuation_gives_alone() {
    for chunk in [1, 3, 512] {
        let options = BackboneOptions { threads: Some(2), chunk: Some(chunk), ..BackboneOptions::default() };
        let model = Backbone::load(&Model::default().build(), &options).unwrap();
        for kind in KvType::ALL {
            let mut trunk = model.context_of(kind);
            model.embed_in(&mut trunk, &[1, 2, 3], None).unwrap();
            let all = model.branches(&mut trunk, &[&[4, 5], &[6], &[4, 0, 1, 2]], None).unwrap();
            assert_eq!(trunk.tokens(), [1, 2, 3]);
            for (ids, rows) in [&[4u32, 5][..], &[6], &[4, 0, 1, 2]].iter().zip(&all) {
                assert_eq!(rows.len(), ids.len() * model.hidden_size());
                for (n, row) in rows.chunks_exact(model.hidden_size()).enumerate() {
                    let mut alone = trunk.prefix(3);
                    let whole = [&[1, 2, 3], &ids[..=n]].concat();
                    assert_eq!(
                        row,
                        model.embed_in(&mut alone, &whole, None).unwrap(),
                        "{ids:?}, chunks of {chunk}"
                    );
                }
            }
            let cancel = Cancel::new();
            cancel.cancel();
            assert!(model.branches(&mut trunk, &[&[4, 5]], Some(&cancel)).is_err());
            assert!(matches!(model.branches(&mut trunk, &[&[4], &[]], None), Err(BackboneError::NoTokens)));
            let again = model.branches(&mut trunk, &[&[6]], None).unwrap();
            assert_eq!(again[0], all[1], "an ended pass leaves nothing behind");
        }
    }
}

#[test]
fn a_source_without_views_gives_the_same_bits_and_is_asked_once_for_a_row() {
    /// A browser's storage: bytes are read, never seen.
    struct Far(Memory, AtomicUsize);
    impl Source for Far {
        fn name(&self) -> &str {
            self.0.name()
        }
        fn len(&self) -> u64 {
            self.0.len()
        }
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.read_at(offset, buf)
        }
    }
    let near = Model::default().build();
    let mut bytes = vec![0; near.source().len() as usize];
    near.source().read_at(0, &mut bytes).unwrap();
    let source = Arc::new(Far(Memory::new("far", bytes), AtomicUsize::new(0)));
    let far = Gguf::open(source.clone()).unwrap();
    let options = BackboneOptions { threads: Some(1), ..BackboneOptions::default() };
    let far = Backbone::load(&far, &options).unwrap();
    let near = Model::default().load().unwrap();
    let reads = |ids: &[u32]| {
        let before = source.1.load(Ordering::Relaxed);
        assert_eq!(far.embed(ids).unwrap(), near.embed(ids).unwrap());
        source.1.load(Ordering::Relaxed) - before
    };
    assert_eq!(reads(&[1, 2, 3]), 3);
    assert_eq!(reads(&[3, 1, 4, 4, 4, 1]), 1);
    assert_eq!(reads(&[4, 3]), 0);
}
