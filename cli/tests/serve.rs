//! `zen-edge serve` as its clients see it: the program is started on a free port and asked over HTTP.

use serde_json::{Value, json};
use served::{Answer, Served};
use std::process::Command;

mod served;

const PROMPT: &str = "write a python function to reverse a linked list";

/// What the command prints.
fn command(words: &[&str], state: &std::path::Path) -> Value {
    let ran = Command::new(env!("CARGO_BIN_EXE_zen-edge"))
        .args(words)
        .env("ZEN_EDGE_STATE", state)
        .env("ZEN_EDGE_CACHE", state)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{words:?}: {}", String::from_utf8_lossy(&ran.stderr));
    serde_json::from_slice(&ran.stdout).unwrap_or_default()
}

fn bits(vector: &Value) -> Vec<u32> {
    vector.as_array().unwrap().iter().map(|value| (value.as_f64().unwrap() as f32).to_bits()).collect()
}

#[track_caller]
fn refused(answer: &Answer, status: u16, code: &str) -> String {
    assert_eq!(
        (answer.status, answer.json["error"]["code"].as_str()),
        (status, Some(code)),
        "{}",
        answer.text
    );
    let kind = if status >= 500 { "server_error" } else { "invalid_request_error" };
    assert_eq!(answer.json["error"]["type"], kind);
    answer.json["error"]["message"].as_str().unwrap().to_owned()
}

#[test]
fn embedding_is_llama_servers_with_the_commands_own_bits() {
    let served = Served::start(&[]);
    let vector = &command(&["embed", "--json", PROMPT], served.state())["embedding"];
    for field in ["content", "input"] {
        let answer = served.post("/embedding", &json!({field: PROMPT})).good();
        // One object an input, and in it one vector for the whole prompt: [{"index":0,"embedding":[[…]]}].
        assert_eq!(answer.as_array().unwrap().len(), 1);
        assert_eq!(answer[0].as_object().unwrap().len(), 2);
        assert_eq!((&answer[0]["index"], answer[0]["embedding"].as_array().unwrap().len()), (&json!(0), 1));
        assert_eq!(bits(&answer[0]["embedding"][0]), bits(vector), "{field}");
    }
    let timing = served.post("/embedding", &json!({"content": "a new one"}));
    let engine = timing.header("server-timing").and_then(|value| value.strip_prefix("engine;dur=")).unwrap();
    assert!(engine.parse::<f64>().unwrap() > 0.0, "{engine}");
    assert_eq!(timing.header("zen-edge-truncated"), None);
    let cut = served.post("/embedding", &json!({"content": ["river ".repeat(3000), "a"]}));
    assert_eq!((cut.status, cut.header("zen-edge-truncated")), (200, Some("1")));
    // Many at once, fields that llama-server would know, its other path, and no content type: a script's urllib.
    let many = json!({"content": ["hi", PROMPT], "image_data": [], "cache_prompt": true});
    let answer = served.ask("POST", "/embeddings", many.to_string().as_bytes(), &[]).good();
    assert_eq!((&answer[1]["index"], bits(&answer[1]["embedding"][0])), (&json!(1), bits(vector)));
    let unit = served.post("/embedding", &json!({"content": PROMPT, "embd_normalize": 2})).good();
    let unit = unit[0]["embedding"][0].as_array().unwrap();
    let norm: f64 = unit.iter().map(|value| value.as_f64().unwrap().powi(2)).sum();
    assert!((norm - 1.0).abs() < 1e-5, "{norm}");
}

#[test]
fn a_backbone_without_heads_gives_vectors_and_says_what_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("pack.gguf");
    std::fs::write(&model, zen_edge_default_pack::MODEL).unwrap();
    let model = model.to_str().unwrap();
    let served = Served::start(&["--model", model, "--max-tokens", "300", "--alias", "small"]);
    assert_eq!((&served.said["model"], &served.said["routes"]), (&json!("pack"), &json!(false)));
    let vector = &command(&["embed", "--json", "--model", model, PROMPT], served.state())["embedding"];
    let answer = served.post("/embedding", &json!({"content": PROMPT})).good();
    assert_eq!(bits(&answer[0]["embedding"][0]), bits(vector));
    refused(&served.post("/v1/route", &json!({"prompt": "hi"})), 404, "no_heads");
    refused(&served.get("/v1/stats"), 404, "no_heads");
    let long = json!({"content": vec![7; 301]});
    let said = refused(&served.post("/embedding", &long), 400, "context_length_exceeded");
    assert!(said.contains("301") && said.contains("300"), "{said}");
    served.post("/embedding", &json!({"content": vec![7; 300]})).good();
    let said =
        refused(&served.post("/embedding", &json!({"content": [[1], [4_000_000]]})), 400, "invalid_token");
    assert!(said.starts_with("content[1]: "), "{said}");
    for name in ["pack", "small"] {
        assert_eq!(served.get(&format!("/v1/models/{name}")).good()["id"], name);
        let asked = json!({"model": name, "input": "hi"});
        assert_eq!(served.post("/v1/embeddings", &asked).good()["model"], "pack");
    }
    assert_eq!(served.get("/v1/models").good()["data"].as_array().unwrap().len(), 2);
}

#[test]
fn openai_embeddings_are_the_same_vectors_in_either_encoding() {
    use base64::Engine as _;
    let served = Served::start(&[]);
    let raw = served.post("/embedding", &json!({"content": ["hi", PROMPT]})).good();
    let floats = served.post("/v1/embeddings", &json!({"input": ["hi", PROMPT], "user": "u"})).good();
    let asked =
        json!({"input": ["hi", PROMPT], "encoding_format": "base64", "model": null, "dimensions": null});
    let packed = served.post("/v1/embeddings", &asked).good();
    assert_eq!((&floats["object"], &floats["model"]), (&json!("list"), &served.said["model"]));
    for at in 0..2 {
        let expected = bits(&raw[at]["embedding"][0]);
        assert_eq!(
            (&floats["data"][at]["object"], &floats["data"][at]["index"]),
            (&"embedding".into(), &at.into())
        );
        assert_eq!(bits(&floats["data"][at]["embedding"]), expected);
        let text = packed["data"][at]["embedding"].as_str().unwrap();
        let bytes = base64::prelude::BASE64_STANDARD.decode(text).unwrap();
        let values: Vec<u32> =
            bytes.chunks_exact(4).map(|four| u32::from_le_bytes(four.try_into().unwrap())).collect();
        assert_eq!(values, expected);
    }
    let state = served.state();
    let tokens: u64 = ["hi", PROMPT]
        .iter()
        .map(|p| command(&["embed", "--json", p], state)["tokens"].as_u64().unwrap())
        .sum();
    assert_eq!(floats["usage"], json!({"prompt_tokens": tokens, "total_tokens": tokens}));
    for (wrong, status, code) in [
        (json!({"input": "a", "model": "text-embedding-3-small"}), 404, "model_not_found"),
        (json!({"input": "a", "encoding_format": "hex"}), 400, "invalid_value"),
        (json!({"input": "a", "dimensions": 7}), 400, "invalid_value"),
        (json!({"input": "a", "embd_normalise": 2}), 400, "unknown_field"),
        (json!({"input": "a", "embd_normalize": -2}), 400, "invalid_value"),
        (json!({"input": ""}), 400, "empty_input"),
        (json!({"input": []}), 400, "empty_input"),
        (json!({"input": 1}), 400, "invalid_value"),
        (json!({}), 400, "missing_field"),
    ] {
        refused(&served.post("/v1/embeddings", &wrong), status, code);
    }
}

/// A decision without what differs from call to call: times, what was known, and what free memory there is.
fn decision(answer: &Value) -> Value {
    let mut answer = answer.clone();
    let fields = answer.as_object_mut().unwrap();
    for field in ["timings", "cached", "reused", "outcome"] {
        fields.remove(field);
    }
    for candidate in fields["scores"]["models"].as_array_mut().unwrap() {
        candidate.as_object_mut().unwrap().remove("why_not");
    }
    answer
}

#[test]
fn route_decides_as_the_command_does() {
    let served = Served::start(&[]);
    let state = served.state();
    let plain = served.post("/v1/route", &json!({"prompt": PROMPT})).good();
    assert_eq!(decision(&plain), decision(&command(&["route", "--json", PROMPT], state)));
    let model = plain["model"].as_str().unwrap();
    let asked = json!({"prompt": PROMPT, "limits": {"max_cost": 0.0005, "exclude": [model]}, "task": "math"});
    let words = ["route", "--json", "--max-cost", "0.0005", "--exclude", model, "--task", "math", PROMPT];
    let limited = served.post("/v1/route", &asked).good();
    assert_eq!(decision(&limited), decision(&command(&words, state)));
    assert_ne!(limited["model"], model);
    let rules = served.post("/v1/route", &json!({"prompt": "a prompt that is new", "deadline_ms": 0})).good();
    assert_eq!((&rules["source"], &rules["tokens"]), (&json!("rules"), &json!(0)));
    let blank = served.post("/v1/route", &json!({"prompt": "  ", "user": "ann"})).good();
    assert_eq!(blank["reason"], "the prompt is empty");
    assert!(
        plain["cached"] == false
            && served.post("/v1/route", &json!({"prompt": PROMPT})).good()["cached"] == true
    );
    // A conversation is held by its key alone, turn for turn as the command holds one.
    let turns =
        ["prove that there are infinitely many primes", "hi", "write a poem", "hello", "thanks", "hi again"];
    let rows = state.join("rows.jsonl");
    std::fs::write(&rows, turns.map(|turn| json!({"prompt": turn}).to_string()).join("\n")).unwrap();
    let ran = Command::new(env!("CARGO_BIN_EXE_zen-edge"))
        .args(["route", "--no-stats", "--conversation", "--file", rows.to_str().unwrap()])
        .output()
        .unwrap();
    let expected = String::from_utf8(ran.stdout).unwrap();
    let expected = expected.lines().map(|line| decision(&serde_json::from_str(line).unwrap()));
    let mut held = 0;
    for (turn, expected) in turns.iter().zip(expected) {
        let asked = json!({"prompt": turn, "conversation": "a"});
        assert_eq!(decision(&served.post("/v1/route", &asked).good()), expected, "{turn}");
        held += u32::from(expected["held"] == true);
        let other = served.post("/v1/route", &json!({"prompt": turn})).good();
        assert_eq!(other["held"], false);
    }
    assert!(held > 0, "no turn was held: these turns test nothing");
    for (wrong, param) in [
        (json!({"prompt": PROMPT, "limits": {"max_costs": 1}}), "limits"),
        (json!({"prompt": PROMPT, "limits": {"max_cost": -1}}), "limits.max_cost"),
        (json!({"prompt": PROMPT, "limits": {"exclude": ["no-such-model"]}}), "limits"),
        (json!({"prompt": PROMPT, "task": "cooking"}), "task"),
        (json!({"prompt": 7}), "prompt"),
        (json!({"prompt": PROMPT, "user": "x".repeat(300)}), "user"),
        (json!({"prompt": PROMPT, "deadline_ms": -1}), "deadline_ms"),
    ] {
        let answer = served.post("/v1/route", &wrong);
        refused(&answer, 400, "invalid_value");
        assert_eq!(answer.json["error"]["param"], param);
    }
    refused(&served.post("/v1/route", &json!({"prompt": PROMPT, "limit": {}})), 400, "unknown_field");
    refused(&served.post("/v1/route", &json!({"limits": {}})), 400, "missing_field");
}

#[test]
fn rewards_are_the_commands_too() {
    let served = Served::start(&[]);
    let asked = json!({"prompt": PROMPT, "user": "ann"});
    let outcome = served.post("/v1/route", &asked).good()["outcome"].clone();
    let reward = json!({"outcome": outcome, "quality": 0.9});
    served.post("/v1/observe", &reward).good();
    let said = refused(&served.post("/v1/observe", &reward), 400, "unknown_outcome");
    assert!(said.contains(outcome.as_str().unwrap()), "{said}");
    // What the server gave the command rewards, and the other way round, while the server runs.
    let outcome = served.post("/v1/route", &asked).good()["outcome"].clone();
    command(&["observe", outcome.as_str().unwrap(), "--quality", "0.5"], served.state());
    let outcome = command(&["route", "--json", "--user", "ann", "hello"], served.state())["outcome"].clone();
    served.post("/v1/observe", &json!({"outcome": outcome, "quality": 1, "latency_ms": 20})).good();
    let learned = command(&["stats", "--json", "--user", "ann"], served.state());
    assert_eq!(learned["user"]["observations"], 3, "{learned}");
    refused(&served.post("/v1/observe", &json!({"outcome": outcome, "quality": 2})), 400, "invalid_value");
    refused(&served.post("/v1/observe", &json!({"outcome": "x", "quality": 1})), 400, "invalid_value");
    refused(&served.post("/v1/observe", &json!({"quality": 1})), 400, "missing_field");
    assert_eq!(served.get("/v1/stats").good()["routed"], 2);
}

#[test]
fn what_makes_no_sense_is_refused_by_its_cause() {
    let served = Served::start(&["--max-body", "1000"]);
    refused(&served.ask("POST", "/embedding", b"{", &[]), 400, "invalid_json");
    refused(&served.ask("POST", "/embedding", b"[]", &[]), 400, "invalid_json");
    refused(&served.ask("POST", "/embedding", b"{\"content\": \"\xff\"}", &[]), 400, "invalid_json");
    let deep = format!("{{\"content\": {}{}}}", "[".repeat(400), "]".repeat(400));
    refused(&served.ask("POST", "/embedding", deep.as_bytes(), &[]), 400, "invalid_json");
    refused(&served.post("/embedding", &json!({})), 400, "missing_field");
    refused(&served.post("/embedding", &json!({"content": "a".repeat(2000)})), 413, "body_too_large");
    refused(&served.get("/"), 404, "not_found");
    refused(&served.get("/embedding"), 405, "method_not_allowed");
    served.post("/embedding", &json!({"content": "it still answers"})).good();
    // One connection goes on through refusals: their bodies are read. What is too long closes it, and says so.
    for _ in 0..50 {
        refused(&served.post("/nothing", &json!({"content": "a"})), 404, "not_found");
        let rebound = served.ask("POST", "/embedding", b"{\"content\": 1}", &[("Host", "evil.example")]);
        refused(&rebound, 403, "host_not_allowed");
        assert_eq!(rebound.header("connection"), None);
    }
    let large = served.post("/embedding", &json!({"content": "a".repeat(2000)}));
    assert_eq!(large.header("connection"), Some("close"));
}

#[test]
fn pages_that_reach_for_this_machine_are_refused() {
    let served = Served::start(&["--cors", "https://app.example"]);
    let body = b"{\"content\": \"a\"}";
    let rebound = served.ask("POST", "/embedding", body, &[("Host", "evil.example")]);
    refused(&rebound, 403, "host_not_allowed");
    let foreign = served.ask("POST", "/embedding", body, &[("Origin", "https://evil.example")]);
    refused(&foreign, 403, "origin_not_allowed");
    assert_eq!(foreign.header("access-control-allow-origin"), None);
    let allowed = served.ask("POST", "/embedding", body, &[("Origin", "https://app.example")]);
    assert_eq!(
        (allowed.status, allowed.header("access-control-allow-origin")),
        (200, Some("https://app.example"))
    );
    let asks = [
        ("Origin", "https://app.example"),
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "content-type,authorization"),
    ];
    let preflight = served.ask("OPTIONS", "/v1/embeddings", b"", &asks);
    assert_eq!(
        (preflight.status, preflight.header("access-control-allow-origin")),
        (200, Some("https://app.example"))
    );
    assert_eq!(preflight.header("access-control-allow-headers"), Some("content-type,authorization"));
}

#[test]
fn with_a_key_only_health_is_open() {
    let served = Served::with(&["--host", "0.0.0.0"], &[("ZEN_EDGE_API_KEY", "secret")]);
    served.get("/health").good();
    for path in ["/metrics", "/v1/models", "/v1/stats", "/nothing"] {
        refused(&served.get(path), 401, "invalid_api_key");
    }
    let body = b"{\"content\": \"a\"}";
    refused(
        &served.ask("POST", "/embedding", body, &[("Authorization", "Bearer wrong")]),
        401,
        "invalid_api_key",
    );
    served.ask("POST", "/embedding", body, &[("Authorization", "Bearer secret")]).good();
    served.ask("POST", "/embedding", body, &[("X-Api-Key", "secret")]).good();
}

#[test]
fn metrics_count_what_was_done() {
    let served = Served::start(&[]);
    let tokens =
        served.post("/v1/embeddings", &json!({"input": PROMPT})).good()["usage"]["prompt_tokens"].clone();
    served.post("/v1/embeddings", &json!({"input": PROMPT})).good();
    served.post("/v1/route", &json!({"prompt": PROMPT})).good();
    served.get("/made-up-by-a-client");
    let page = served.get("/metrics");
    assert_eq!(page.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    for line in [
        format!("zen_edge_tokens_read_total {tokens}"),
        "zen_edge_cache_hits_total 2".into(),
        "zen_edge_decisions_total{source=\"learned\"} 1".into(),
        "zen_edge_http_requests_total{route=\"/v1/embeddings\",status=\"200\"} 2".into(),
        "zen_edge_http_requests_total{route=\"other\",status=\"404\"} 1".into(),
        "zen_edge_http_request_duration_seconds_count{route=\"/v1/embeddings\"} 2".into(),
        "zen_edge_queue_depth 0".into(),
    ] {
        assert!(page.text.lines().any(|there| there == line), "no {line} in\n{}", page.text);
    }
    assert!(!page.text.contains("made-up"), "a client must not make series");
}

#[test]
fn each_failure_to_start_has_its_exit_code() {
    let busy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = busy.local_addr().unwrap().port().to_string();
    let cases: [(&[&str], i32, &str); 9] = [
        (&["--host", "0.0.0.0"], 2, "ZEN_EDGE_API_KEY"),
        (&["--host", "::"], 2, "ZEN_EDGE_API_KEY"),
        (&["--host", "no such host"], 2, "no such host"),
        (&["--api-key", ""], 2, "API key"),
        (&["--cors", "app.example/path"], 2, "no origin"),
        (&["--concurrency", "0"], 2, "concurrency"),
        (&["--port", &port], 7, "--port"),
        (&["--model", "no-such-model"], 3, "no-such-model"),
        (&["--heads", "no/such/folder"], 3, "no/such/folder"),
    ];
    for (words, code, said) in cases {
        let words =
            if words.contains(&"--port") { words.to_vec() } else { [&["--port", "0"], words].concat() };
        let ran = Command::new(env!("CARGO_BIN_EXE_zen-edge"))
            .arg("serve")
            .args(&words)
            .env_remove("ZEN_EDGE_API_KEY")
            .env("ZEN_EDGE_CACHE", env!("CARGO_TARGET_TMPDIR"))
            .output()
            .unwrap();
        let err = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.code() == Some(code) && err.contains(said), "{words:?}: {:?} {err}", ran.status);
    }
}
