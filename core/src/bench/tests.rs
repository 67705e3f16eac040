//! Statistics, bounds and records; the runner is tested by the command line's tests, where there is a router.

use super::*;
use crate::gguf::testing::Builder;
use crate::source::Memory;

fn close(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * b.abs().max(1.0), "{a} is not {b}");
}

#[test]
fn a_mean_has_the_deviation_of_a_sample_and_the_median_lies_in_the_middle() {
    let figures = Figures::of(&[4.0, 2.0, 9.0, 5.0]).unwrap();
    close(figures.mean, 5.0);
    // (1 + 9 + 16 + 0) / 3
    close(figures.sd, (26.0f64 / 3.0).sqrt());
    close(figures.median, 4.5);
    assert_eq!((figures.min, figures.max), (2.0, 9.0));
    let one = Figures::of(&[7.0]).unwrap();
    assert_eq!((one.mean, one.sd, one.median), (7.0, 0.0, 7.0));
    assert_eq!(Figures::of(&[]), None);
}

#[test]
fn percentiles_are_values_that_were_measured() {
    let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
    let spread = Spread::of(&values).unwrap();
    assert_eq!((spread.p50, spread.p90, spread.p99), (100.0, 180.0, 198.0));
    assert_eq!((spread.min, spread.max, spread.mean), (1.0, 200.0, 100.5));
    // Of fewer than a hundred the 99th percentile is the longest.
    let few = Spread::of(&[3.0, 1.0, 2.0]).unwrap();
    assert_eq!((few.p50, few.p90, few.p99), (2.0, 3.0, 3.0));
    let one = Spread::of(&[5.0]).unwrap();
    assert_eq!([one.mean, one.p50, one.p90, one.p99, one.min, one.max], [5.0; 6]);
    assert_eq!(Spread::of(&[]), None);
}

/// A backbone of two layers, hidden 32, 2 heads and 1 KV head of 16, FFN 64, vocabulary 8: the first layer Q8_0 (type 8, 34
/// bytes for 32 values), the second F32.
fn tiny() -> Facts {
    let mut file = Builder::new("llama");
    let keys: [(&str, u32); 7] = [
        ("block_count", 2),
        ("context_length", 64),
        ("embedding_length", 32),
        ("feed_forward_length", 64),
        ("attention.head_count", 2),
        ("attention.head_count_kv", 1),
        ("attention.key_length", 16),
    ];
    for (key, value) in keys {
        file = file.with(&format!("llama.{key}"), value);
    }
    file = file.with("llama.attention.layer_norm_rms_epsilon", 1e-5f32);
    let q8 = |file: Builder, name: &str, dims: [u64; 2]| {
        let bytes = vec![0; (dims[0] * dims[1] / 32 * 34) as usize];
        file.tensor(name, &dims, 8, &bytes)
    };
    let f32s = |file: Builder, name: &str, dims: [u64; 2]| {
        file.f32_tensor(name, &dims, &vec![0.0; (dims[0] * dims[1]) as usize])
    };
    file = q8(file, "token_embd.weight", [32, 8]);
    for layer in 0..2 {
        let parts = [
            ("attn_q", [32, 32]),
            ("attn_k", [32, 16]),
            ("attn_v", [32, 16]),
            ("attn_output", [32, 32]),
            ("ffn_gate", [32, 64]),
            ("ffn_up", [32, 64]),
            ("ffn_down", [64, 32]),
        ];
        for (part, dims) in parts {
            let name = format!("blk.{layer}.{part}.weight");
            file = if layer == 0 { q8(file, &name, dims) } else { f32s(file, &name, dims) };
        }
    }
    let source = Arc::new(Memory::new("tiny", file.build()));
    Facts::read(&Gguf::open(source).unwrap()).unwrap()
}

/// Multiply-adds of one layer: q and o 1,024 each, k and v 512 each, the three of the FFN 2,048 each.
const LAYER: f64 = 9216.0;
/// Of these, what the last layer needs of the last token alone: all but k and v.
const LAST: f64 = 8192.0;

fn limits() -> Limits {
    let read = |bytes, bytes_per_second| Read { bytes, bytes_per_second };
    Limits {
        isa: "scalar".to_owned(),
        threads: 1,
        read: vec![read(1 << 10, 4e9), read(40_000, 1e9), read(1 << 28, 5e8)],
        int8_multiply_adds_per_second: 1e9,
        float_multiply_adds_per_second: 1e8,
    }
}

#[test]
fn facts_count_what_a_token_costs() {
    let facts = tiny();
    let Model { multiply_adds, float_multiply_adds, weight_bytes, head_bytes, layers, .. } = facts.model;
    assert_eq!((multiply_adds as f64, float_multiply_adds as f64, layers), (2.0 * LAYER, LAYER, 2));
    assert_eq!(weight_bytes, 9216 / 32 * 34 + 4 * 9216);
    // The embedding is tied.
    assert_eq!(head_bytes, Some(8 * 34));
}

#[test]
fn prefill_is_bound_by_arithmetic_where_the_prompt_is_long_and_by_reading_where_it_is_short() {
    let facts = tiny();
    let weights = facts.model.weight_bytes as f64;
    let long = facts.bound(&limits(), Phase::Prefill, 100, KvType::F32, 1000.0).unwrap();
    // The first layer in int8, the second in f32; of the latter only k and v for every token.
    let (int8, float) = (100.0 * LAYER, 100.0 * (LAYER - LAST) + LAST);
    close(long.multiply_adds, int8 + float);
    close(long.compute_tokens_per_second, 100.0 / (int8 / 1e9 + float / 1e8));
    // The buffer that is nearest in size tells the bandwidth: the weights are 46,656 bytes.
    close(long.bytes, weights);
    close(long.memory_tokens_per_second, 100.0 * 1e9 / weights);
    assert_eq!(long.limiter, Limiter::Compute);
    close(long.tokens_per_second, long.compute_tokens_per_second);
    close(long.share, 1000.0 / long.tokens_per_second);

    let quick =
        Limits { int8_multiply_adds_per_second: 1e12, float_multiply_adds_per_second: 1e12, ..limits() };
    let short = facts.bound(&quick, Phase::Prefill, 1, KvType::F32, 1.0).unwrap();
    assert_eq!(short.limiter, Limiter::Memory);
    close(short.tokens_per_second, 1e9 / weights);
    let none = Limits { read: Vec::new(), ..limits() };
    assert_eq!(facts.bound(&none, Phase::Prefill, 1, KvType::F32, 1.0), None);
}

#[test]
fn decode_reads_weights_head_and_what_came_before_for_every_token() {
    let facts = tiny();
    let step = (facts.model.weight_bytes + 8 * 34) as f64;
    assert_eq!(facts.step_bytes() as f64, step);
    for (kv, size) in [(KvType::F32, 4.0), (KvType::F16, 2.0), (KvType::Int8, 1.0)] {
        let bound = facts.bound(&limits(), Phase::Decode, 4, kv, 1.0).unwrap();
        // Keys and values of two layers with one head of 16: 64 values a token; 0 + 1 + 2 + 3 tokens before.
        close(bound.bytes, 4.0 * step + 64.0 * size * 6.0);
        close(bound.multiply_adds, 4.0 * (2.0 * LAYER + 32.0 * 8.0));
    }
}

fn record() -> Record {
    let facts = tiny();
    // Figures that a reader of JSON gives back to the last bit.
    let bound = Bound {
        tokens_per_second: 18.0,
        memory_tokens_per_second: 20.0,
        compute_tokens_per_second: 18.0,
        limiter: Limiter::Compute,
        bytes: 4.0,
        multiply_adds: 5.0,
        share: 0.5,
    };
    let spread = Spread::of(&[1.0, 2.0]).unwrap();
    Record {
        schema: SCHEMA.to_owned(),
        date: "2026-11-30T00:00:00Z".to_owned(),
        engine: Engine {
            version: "0".to_owned(),
            build: "native".to_owned(),
            isa: "scalar".to_owned(),
            threads: 1,
        },
        device: Device { name: "d".to_owned(), platform: "p".to_owned(), ..Device::default() },
        model: facts.model,
        batch_size: 1,
        load: Some(Load { ms: 1.0, ..Load::default() }),
        memory: None,
        energy: Some(Energy { source: "rapl".to_owned(), joules: 2.0, seconds: 1.0 }),
        limits: vec![limits()],
        speed: vec![Speed {
            test: "pp16".to_owned(),
            phase: Phase::Prefill,
            tokens: 16,
            batch_size: 1,
            isa: "scalar".to_owned(),
            threads: 1,
            kv: None,
            repetitions: 2,
            tokens_per_second: Figures { mean: 9.0, sd: 1.5, median: 9.0, min: 8.0, max: 10.0 },
            bound: Some(bound),
            joules_per_token: None,
        }],
        decisions: Some(Decisions {
            prompts: "made".to_owned(),
            count: 2,
            cold: Some(spread),
            cached: None,
            strata: Vec::new(),
        }),
        sustained: None,
        warnings: vec![Warning::new("noisy", "w")],
    }
}

#[test]
fn a_record_is_read_as_it_was_written_and_takes_over_another() {
    let record = record();
    let text = serde_json::to_string(&record).unwrap();
    assert_eq!(Record::parse(&text).unwrap(), record);
    // Fields of a later minor version are passed over.
    let later = text.replacen("{", "{\"later\":[1],", 1);
    assert_eq!(Record::parse(&later).unwrap(), record);
    let mut both = record.clone();
    both.absorb(record.clone());
    assert_eq!((both.speed.len(), both.limits.len(), both.warnings.len()), (2, 2, 1));
    assert_eq!(both.energy.unwrap().joules, 4.0);
    assert_eq!(both.decisions, record.decisions);
}

#[test]
fn a_record_of_version_1_is_brought_into_this_form() {
    let old = r#"{"schema":"zen-edge.bench/1","date":"2026-01-01","engine":{"version":"0.1.0","build":"simd128","isa":"simd128","threads":1},
        "device":{"name":"phone","platform":"Android","browser":"Chrome 1","cores":8,"memory_gb":4,"cross_origin_isolated":false,"adapter":null},
        "model":{"architecture":"qwen3","layers":2,"hidden_size":256,"multiply_adds":5,"weight_bytes":6},
        "load":{"ms":12.5,"stored":true,"memory_bytes":77},
        "cold":[{"tokens":"1-32","prompts":3,"mean_tokens":9.5,"ms":{"mean":2,"p50":1,"p90":3,"p99":4,"min":1,"max":4},"tokens_per_second":700}],
        "repeated":{"mean":0.2,"p50":0.1,"p90":0.3,"p99":0.4,"min":0.1,"max":0.4},"warnings":["open tools"]}"#;
    let record = Record::parse(old).unwrap();
    assert_eq!((record.schema.as_str(), record.batch_size), (SCHEMA, 1));
    assert_eq!(record.device.browser.as_deref(), Some("Chrome 1"));
    assert_eq!(record.device.memory_bytes, Some(4_000_000_000));
    assert_eq!(record.memory.unwrap().resident_bytes, 77);
    let decisions = record.decisions.unwrap();
    assert_eq!((decisions.count, decisions.strata[0].cold.p50), (3, 1.0));
    assert_eq!(decisions.cached.unwrap().p50, 0.1);
    assert_eq!(record.warnings, [Warning::new("noted", "open tools")]);
}

#[test]
fn what_is_no_record_is_refused_with_its_cause() {
    let text = serde_json::to_string(&record()).unwrap();
    let refused = |text: &str| Record::parse(text).unwrap_err();
    assert!(matches!(refused("nope"), RecordError::Json(_)));
    assert!(matches!(refused("{}"), RecordError::Json(_)));
    let other = text.replace(SCHEMA, "zen-edge.bench/3");
    let error = refused(&other);
    assert!(matches!(error, RecordError::Schema { .. }));
    assert!(error.to_string().contains("zen-edge.bench/3") && error.to_string().contains(SCHEMA));
    for (good, bad) in [("\"mean\":9.0", "\"mean\":-9.0"), ("\"p50\":1.0", "\"p50\":-1")] {
        assert!(text.contains(good), "{text}");
        assert!(matches!(refused(&text.replace(good, bad)), RecordError::Figure { .. }), "{bad}");
    }
    // JSON readers differ in what they make of a number beyond all numbers: none may reach a chart.
    assert!(Record::parse(&text.replace("\"mean\":9.0", "\"mean\":1e999")).is_err());
    let long =
        Record { warnings: (0..5000).map(|at| Warning::new("noisy", at.to_string())).collect(), ..record() };
    assert!(matches!(refused(&serde_json::to_string(&long).unwrap()), RecordError::TooManyRows));
    assert!(matches!(refused(&" ".repeat(MOST_BYTES + 1)), RecordError::TooLarge { .. }));
}

#[test]
fn a_series_closes_a_sample_when_its_interval_is_full() {
    let mut series = Series { interval: 1.0, ..Series::default() };
    for _ in 0..20 {
        series.add(128.0, 0.5);
    }
    for _ in 0..20 {
        series.add(128.0, 1.0);
    }
    let sustained = series.finish().unwrap();
    assert_eq!(sustained.tokens_per_second.len(), 30);
    close(sustained.seconds, 30.0);
    close(sustained.first, 256.0);
    close(sustained.last, 128.0);
    assert_eq!(Series::default().finish(), None);
    let mut short = Series { interval: 5.0, ..Series::default() };
    short.add(64.0, 0.5);
    assert_eq!(short.finish().unwrap().tokens_per_second, [128.0]);
}

#[test]
fn lengths_fall_into_their_strata() {
    let names: Vec<&str> =
        [1, 32, 33, 128, 129, 512, 513, 9000].into_iter().map(|n| STRATA[prompts::stratum(n)].0).collect();
    assert_eq!(names, ["1-32", "1-32", "33-128", "33-128", "129-512", "129-512", "513+", "513+"]);
}

#[test]
fn repetitions_that_differ_are_told_of_once() {
    let row = |test: &str, sd: f64| {
        let mut row = record().speed[0].clone();
        (row.test, row.repetitions, row.tokens_per_second.sd) = (test.to_owned(), 3, sd);
        row
    };
    assert_eq!(noisy_warning(&[row("pp16", 0.9)]), None);
    let warning = noisy_warning(&[row("pp16", 0.9), row("pp64", 2.7), row("tg64", 1.8)]).unwrap();
    assert_eq!(warning.code, "noisy");
    assert!(warning.message.starts_with("scalar, 1 thread: ") && warning.message.contains("pp64, tg64"));
    assert!(warning.message.contains("30 %"), "{}", warning.message);
    // Two repetitions have no deviation worth the name.
    assert_eq!(noisy_warning(&[Speed { repetitions: 2, ..row("pp16", 9.0) }]), None);
}
