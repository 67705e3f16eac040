//! The backbone against transformers (fp32) on tiny random models, and against itself however it is run.

mod parity_common;

use parity_common::{
    bits, cosine, each, embed, expanded, gguf, ids, json, load, mapped, norm, options, vector,
};
use zen_edge_core::backbone::Backbone;
use zen_edge_kernels::isa::Isa;
use zen_edge_tests::{fixture, need, shared};

const ARCHITECTURES: [&str; 3] = ["qwen3", "llama", "gemma3"];

/// The committed file of an architecture: F16 as it lies there, or its F32 expansion.
fn tiny(architecture: &str, f32: bool, isa: Option<Isa>, threads: usize) -> Backbone {
    let path = fixture(&format!("tiny/{architecture}-tiny-rand-f16.gguf"));
    let file = std::fs::read(&path).unwrap();
    let name = path.display().to_string();
    load(&gguf(&name, if f32 { expanded(&file) } else { file }), &options(isa, threads))
}

/// Compares at each of the lengths 1, 7, 64, 300 and 1,500.
fn agrees_with_transformers(refs: &str, backbone: &Backbone, at_least: f64) {
    let refs = json(&fixture(refs));
    let prompts = each(&refs["ids"], ids);
    let want = each(&refs["transformers_fp32"], vector);
    assert_eq!(prompts.iter().map(Vec::len).collect::<Vec<_>>(), [1, 7, 64, 300, 1500]);
    for (ids, want) in prompts.iter().zip(&want) {
        let got = embed(backbone, ids);
        let (cosine, ratio) = (cosine(&got, want), norm(&got) / norm(want));
        println!(
            "{} {:>5} tokens: cosine 1 - {:.2e}, norm {ratio:.6}",
            refs["model"],
            ids.len(),
            1.0 - cosine
        );
        assert!(
            cosine >= at_least,
            "{}: cosine {cosine} < {at_least} at {} tokens",
            refs["model"],
            ids.len()
        );
        // A cosine does not see a factor: the final norm's weight, the embedding's scale.
        assert!((ratio - 1.0).abs() < 2e-3, "{}: norm {ratio} times transformers'", refs["model"]);
    }
}

#[test]
fn c2_c9_qwen3_agrees_with_transformers_at_1_to_1500_tokens() {
    agrees_with_transformers("tiny/qwen3-tiny-rand.json", &tiny("qwen3", true, None, 2), 0.99999);
}

#[test]
fn c2_c9_llama_agrees_with_transformers_at_1_to_1500_tokens() {
    agrees_with_transformers("tiny/llama-tiny-rand.json", &tiny("llama", true, None, 2), 0.99999);
}

#[test]
fn c2_c9_gemma3_agrees_with_transformers_at_1_to_1500_tokens() {
    agrees_with_transformers("tiny/gemma3-tiny-rand.json", &tiny("gemma3", true, None, 2), 0.99999);
}

#[test]
fn c2_f16_weights_agree_with_transformers() {
    for architecture in ARCHITECTURES {
        let refs = format!("tiny/{architecture}-tiny-rand.json");
        agrees_with_transformers(&refs, &tiny(architecture, false, None, 2), 0.99999);
    }
}

#[test]
fn c2_the_shared_qwen3_agrees_with_transformers() {
    let test = "c2_the_shared_qwen3_agrees_with_transformers";
    let Some(path) = need(test, "shared fixtures", shared("data/fixtures/qwen3-tiny-rand-f32.gguf")) else {
        return;
    };
    let backbone = load(&mapped(&path), &options(None, 2));
    agrees_with_transformers("tiny/shared-qwen3-tiny-rand.json", &backbone, 0.99999);
}

/// A model, loaded for an instruction set and a number of threads.
type Model = Box<dyn Fn(Option<Isa>, usize) -> Backbone>;

/// Every model that the invariance tests run: the committed ones and, where they lie there, quantised ones.
fn models(test: &str) -> Vec<(String, Model)> {
    let mut models: Vec<(String, Model)> = Vec::new();
    for architecture in ARCHITECTURES {
        models.push((
            format!("{architecture} F16"),
            Box::new(move |isa, threads| tiny(architecture, false, isa, threads)),
        ));
    }
    for format in ["q4_k_m", "q4_0", "q5_1", "q8_0", "q2_k"] {
        let path = shared(&format!("data/fixtures/qwen3-tiny-rand-{format}.gguf"));
        if let Some(path) = need(&format!("{test} ({format})"), "shared fixtures", path) {
            models.push((
                format!("qwen3 {format}"),
                Box::new(move |isa, threads| load(&mapped(&path), &options(isa, threads))),
            ));
        }
    }
    models
}

/// Token ids of each of the five lengths; all below 320, so every tiny model has them.
fn prompts() -> Vec<Vec<u32>> {
    each(&json(&fixture("tiny/qwen3-tiny-rand.json"))["ids"], ids)
}

#[test]
fn c7_i25_any_chunk_size_gives_the_same_bits() {
    let prompts = prompts();
    for (name, model) in models("c7_any_chunk_size_gives_the_same_bits") {
        let backbone = model(None, 1);
        for ids in &prompts[1..] {
            let want = bits(&embed(&backbone, ids));
            for chunk in [1, 7, 64, 512] {
                // 1,500 single steps of every model would take longer than all else here, and say no more than 300.
                if chunk == 1 && ids.len() > 300 {
                    continue;
                }
                let got = bits(&backbone.embed_chunked(ids, chunk).unwrap());
                assert_eq!(got, want, "{name}: chunks of {chunk} over {} tokens", ids.len());
            }
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let prompts = prompts();
    for (name, model) in models("any_number_of_threads_gives_the_same_bits") {
        let one = model(None, 1);
        for threads in [2, 3] {
            let many = model(None, threads);
            for ids in &prompts {
                assert_eq!(
                    bits(&embed(&many, ids)),
                    bits(&embed(&one, ids)),
                    "{name}: {threads} threads, {} tokens",
                    ids.len()
                );
            }
        }
    }
}

#[test]
fn c14_every_instruction_set_gives_the_same_bits() {
    let prompts = prompts();
    let here: Vec<_> = Isa::ALL.into_iter().filter(|isa| isa.is_available()).collect();
    assert!(here.contains(&Isa::Scalar), "the scalar kernels run everywhere");
    for (name, model) in models("every_instruction_set_gives_the_same_bits") {
        let scalar = model(Some(Isa::Scalar), 1);
        // The scalar kernels are slow and 300 tokens pass every tile and tail that 1,500 pass.
        let want: Vec<_> = prompts[..4].iter().map(|ids| bits(&embed(&scalar, ids))).collect();
        for &isa in here.iter().filter(|&&isa| isa != Isa::Scalar) {
            let backbone = model(Some(isa), 1);
            for (ids, want) in prompts.iter().zip(&want) {
                assert_eq!(
                    &bits(&embed(&backbone, ids)),
                    want,
                    "{name}: {}, {} tokens",
                    isa.name(),
                    ids.len()
                );
            }
        }
    }
}

#[test]
fn c1_c3_a_batch_gives_each_prompt_the_vector_that_it_gets_alone() {
    let prompts = prompts();
    // Unlike lengths in an order where the longest is neither first nor last, one of them twice.
    let order = [2, 0, 3, 1, 2];
    let batch: Vec<&[u32]> = order.iter().map(|&i| &prompts[i][..]).collect();
    for (name, model) in models("c1_c3_a_batch_gives_each_prompt_the_vector_that_it_gets_alone") {
        let backbone = model(None, 2);
        let together = backbone.embed_batch(&batch).unwrap();
        assert_eq!(together.len(), batch.len());
        for (ids, got) in batch.iter().zip(&together) {
            assert_eq!(bits(got), bits(&embed(&backbone, ids)), "{name}: {} tokens", ids.len());
        }
    }
}

#[test]
fn c1_the_vector_is_the_last_tokens() {
    // Two prompts that differ in the last token alone, and two in the first alone: both must differ, and the vector
    // must not be that of any prefix.
    for architecture in ARCHITECTURES {
        let backbone = tiny(architecture, false, None, 1);
        let base = prompts()[1].clone();
        let vector = |ids: &[u32]| bits(&embed(&backbone, ids));
        let want = vector(&base);
        let (mut last, mut first) = (base.clone(), base.clone());
        *last.last_mut().unwrap() ^= 1;
        first[0] ^= 1;
        assert_ne!(vector(&last), want, "{architecture}: the last token");
        assert_ne!(vector(&first), want, "{architecture}: the first token");
        assert_ne!(vector(&base[..base.len() - 1]), want, "{architecture}: a prefix");
        assert_eq!(vector(&base), want, "{architecture}: a second call");
    }
}

#[test]
fn gemma3_forgets_what_its_windows_cannot_carry_and_keeps_what_the_full_layer_carries() {
    // Layer 5 is full, so the first token still reaches the last one at 1,500 tokens: a model that took every layer
    // for a sliding one would give the same vector for both prompts (6 windows of 64 reach back 379 tokens).
    let backbone = tiny("gemma3", false, None, 2);
    let ids = prompts()[4].clone();
    let mut other = ids.clone();
    other[0] ^= 1;
    assert_ne!(bits(&embed(&backbone, &ids)), bits(&embed(&backbone, &other)));
}
