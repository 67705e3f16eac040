//! The published zen-router heads and config, read as they are. The files are never committed: without
//! `../shared/data/zen-router` these tests are skipped, visibly.

use std::fs;
use zen_edge_core::config::RouterConfig;
use zen_edge_core::heads::{Heads, TrainedMask};
use zen_edge_tests::{need, shared};

/// The vector that numpy multiplied: a fixed sequence, scaled to the norm of a real hidden state (103).
fn hidden() -> Vec<f32> {
    let mut state = 20_261_130_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((f64::from(state >> 8) / f64::from(1 << 23) - 1.0) * 5.5) as f32
    };
    (0..1024).map(|_| next()).collect()
}

fn load(test: &str) -> Option<(RouterConfig, Heads)> {
    let folder = need(test, "the published zen-router heads", shared("data/zen-router"))?;
    let config = fs::read(folder.join("router_config.json")).unwrap();
    let config = RouterConfig::parse(&config, "router_config.json").unwrap();
    let heads = fs::read(folder.join("heads.safetensors")).unwrap();
    let heads = Heads::from_bytes(&heads, "heads.safetensors", &config).unwrap();
    Some((config, heads))
}

#[test]
fn published_heads_load() {
    let Some((config, heads)) = load("published_heads_load") else { return };
    assert_eq!((config.tasks.len(), config.catalog.len()), (8, 28));
    assert_eq!((config.hidden_size, config.feature_dim), (1024, 256));
    assert!(config.unknown.is_empty(), "{:?}", config.unknown);
    assert_eq!(heads.parameters(), 299_300);
    assert_eq!(heads.vector_size(), 1024);
}

#[test]
fn exactly_the_eight_rows_with_data_are_derived_as_trained() {
    let Some((config, heads)) = load("exactly_the_eight_rows_with_data_are_derived_as_trained") else {
        return;
    };
    let TrainedMask::Derived(rows) = heads.trained() else { panic!("the published config states no mask") };
    let trained: Vec<&str> =
        config.catalog.iter().zip(rows).filter(|(_, t)| **t).map(|(id, _)| id.as_str()).collect();
    assert_eq!(
        trained,
        [
            "claude-opus-4-8",
            "claude-opus-4-5",
            "claude-opus-4-1",
            "claude-fable-5",
            "claude-sonnet-4-6",
            "claude-sonnet-4-5",
            "claude-haiku-4-5",
            "gpt-5.5",
        ]
    );
    for (norm, &trained) in heads.route_norms().iter().zip(rows) {
        let range = if trained { 0.68..0.85 } else { 0.60..0.67 };
        assert!(range.contains(norm), "{norm}");
    }
}

#[test]
fn logits_equal_those_of_numpy() {
    let Some((_, heads)) = load("logits_equal_those_of_numpy") else { return };
    // numpy 2, float32: W @ x + b.
    let task = [0.157899, -1.870705, 0.627429, 1.565811, 0.738994, 1.921_36, -1.491218, 1.187_77];
    let route = [
        0.372833, 1.844737, 4.164748, -0.399227, -2.069502, -0.392317, -0.113382, -0.888298, 2.521103,
        3.012136, -3.217_78, 0.554668, -0.241914, -1.594362, -2.156507, 1.390137, 0.101249, 1.677209,
        5.964773, 2.983023, 1.765652, -0.157418, -2.056522, 0.586633, 4.004414, -0.294729, 0.345754,
        -1.211243,
    ];
    let output = heads.apply(&hidden()).unwrap();
    assert_eq!((output.task.len(), output.route.len(), output.features.len()), (8, 28, 256));
    let features = [0, 1, 128, 255].map(|i: usize| output.features[i]);
    let pairs = output.task.iter().zip(&task).chain(output.route.iter().zip(&route));
    for (ours, numpy) in pairs.chain(features.iter().zip(&[-0.341345, 0.773660, -1.284077, 4.676246])) {
        assert!((ours - numpy).abs() <= 1e-5 * f32::max(1.0, numpy.abs()), "{ours} and {numpy}");
    }
}

#[test]
fn another_config_is_refused_naming_both_sides() {
    let test = "another_config_is_refused_naming_both_sides";
    let Some(folder) = need(test, "the published zen-router heads", shared("data/zen-router")) else {
        return;
    };
    let heads = fs::read(folder.join("heads.safetensors")).unwrap();
    let config = fs::read_to_string(folder.join("router_config.json")).unwrap();
    for (from, to, both) in [
        ("1024", "896", ["1024", "896"]),
        ("256", "128", ["256", "128"]),
        ("\"o3\",", "", ["28", "27"]),
        ("\"math\",", "", ["[8, 1024]", "[7, 1024]"]),
    ] {
        let config = RouterConfig::parse(config.replace(from, to).as_bytes(), "router_config.json").unwrap();
        let error = Heads::from_bytes(&heads, "heads.safetensors", &config).unwrap_err().to_string();
        for side in both.iter().chain(&["heads.safetensors", "router_config.json"]) {
            assert!(error.contains(side), "{error}");
        }
    }
    // An id renamed to one with a date is the same model.
    let dated = config.replace("\"claude-haiku-4-5\"", "\"claude-haiku-4-5-20251001\"");
    let dated = RouterConfig::parse(dated.as_bytes(), "c").unwrap();
    assert_eq!(dated.catalog[15], "claude-haiku-4-5");
}
