//! `/v1/chat/completions` of `zen-edge serve`: the small backbone with a template, and a real chat model where it is.

use serde_json::{Value, json};
use served::{Answer, Served, chat_model};
use std::process::Command;
use zen_edge_tests::{need, peers};

mod served;

fn chatting(words: &[&str]) -> (Served, tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.gguf");
    std::fs::write(&path, chat_model()).unwrap();
    let model = path.to_str().unwrap().to_owned();
    (Served::start(&[&["--model", &model], words].concat()), folder, model)
}

/// What the command makes of the same prompt.
fn generated(model: &str, prompt: &str, words: &[&str]) -> Value {
    let ran = Command::new(env!("CARGO_BIN_EXE_zen-edge"))
        .args(["generate", "--json", "--model", model, prompt])
        .args(words)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    serde_json::from_slice(&ran.stdout).unwrap()
}

/// The data of a stream's events.
fn events(answer: &Answer) -> Vec<String> {
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (200, Some("text/event-stream")),
        "{}",
        answer.text
    );
    let blocks = answer.text.split("\n\n").filter(|block| !block.is_empty());
    blocks.map(|block| block.strip_prefix("data: ").expect("data alone").to_owned()).collect()
}

fn code(answer: &Answer) -> (u16, &str) {
    (answer.status, answer.json["error"]["code"].as_str().unwrap_or_default())
}

#[test]
fn a_chat_is_the_template_and_the_commands_own_text() {
    let (served, _folder, model) = chatting(&[]);
    assert_eq!(served.said["chats"], true);
    let messages = json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]);
    let prompt = "<system>Be brief.\n<user>hi\n<assistant>";
    for (sampling, words) in [
        (json!({}), vec![]),
        (
            json!({"temperature": 0.75, "top_p": 0.5, "top_k": 40, "min_p": 0.01, "repetition_penalty": 1.25, "seed": 7}),
            vec![
                "--temperature",
                "0.75",
                "--top-p",
                "0.5",
                "--top-k",
                "40",
                "--min-p",
                "0.01",
                "--repetition-penalty",
                "1.25",
                "--seed",
                "7",
            ],
        ),
    ] {
        let expected = generated(&model, prompt, &[&["-n", "24"][..], &words].concat());
        let mut asked = json!({"model": "chat", "messages": messages, "max_tokens": 24});
        asked.as_object_mut().unwrap().extend(sampling.as_object().unwrap().clone());
        let whole = served.post("/v1/chat/completions", &asked).good();
        assert_eq!(whole["choices"][0]["message"]["content"], expected["text"]);
        assert_eq!((&whole["object"], &whole["model"]), (&json!("chat.completion"), &json!("chat")));
        let (prompt_tokens, tokens) = (&expected["prompt_tokens"], &expected["tokens"]);
        assert_eq!(
            (&whole["usage"]["prompt_tokens"], &whole["usage"]["completion_tokens"]),
            (prompt_tokens, tokens)
        );
        let finish = if expected["ended_by"] == "length" { "length" } else { "stop" };
        assert_eq!(whole["choices"][0]["finish_reason"], finish);

        asked["stream"] = true.into();
        asked["stream_options"] = json!({"include_usage": true});
        let mut events = events(&served.post("/v1/chat/completions", &asked));
        assert_eq!(events.pop().as_deref(), Some("[DONE]"));
        let chunks: Vec<Value> = events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
        assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
        let text: String =
            chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(text, expected["text"].as_str().unwrap());
        let [.., last, usage] = &chunks[..] else { panic!("{events:?}") };
        assert_eq!(last["choices"][0]["finish_reason"], finish);
        assert_eq!((&usage["choices"], &usage["usage"]), (&json!([]), &whole["usage"]));
        assert!(chunks.iter().all(|chunk| chunk["id"] == chunks[0]["id"]) && chunks[0]["id"] != whole["id"]);
        assert!(chunks.len() > 4, "piece by piece: {events:?}");
    }
    assert!(served.metric("zen_edge_tokens_generated_total") > 0.0);
}

#[test]
fn a_stop_text_ends_it_and_is_not_in_it() {
    let (served, _folder, _) = chatting(&[]);
    let mut asked = json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 24});
    let whole = served.post("/v1/chat/completions", &asked).good();
    let text = whole["choices"][0]["message"]["content"].as_str().unwrap();
    let stop: String = text.chars().skip(5).take(3).collect();
    asked["stop"] = json!([stop]);
    let cut = served.post("/v1/chat/completions", &asked).good();
    assert_eq!(cut["choices"][0]["message"]["content"].as_str(), text.split(&stop).next());
    assert_eq!(cut["choices"][0]["finish_reason"], "stop");
    asked["stream"] = true.into();
    let streamed: String = events(&served.post("/v1/chat/completions", &asked))
        .iter()
        .filter_map(|event| serde_json::from_str::<Value>(event).ok())
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(Some(streamed.as_str()), text.split(&stop).next());
}

#[test]
fn what_cannot_be_answered_has_a_status_also_where_a_stream_was_asked_for() {
    let (served, _folder, _) = chatting(&[]);
    for stream in [false, true] {
        let ask = |more: Value| {
            let mut asked =
                json!({"messages": [{"role": "user", "content": "hi"}], "stream": stream, "max_tokens": 2});
            asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            served.post("/v1/chat/completions", &asked)
        };
        let refused = ask(json!({"messages": [{"role": "user", "content": "refuse me"}]}));
        assert_eq!(code(&refused), (400, "chat_template_error"));
        assert!(refused.text.contains("as asked"), "{}", refused.text);
        let long = ask(json!({"messages": [{"role": "user", "content": "river ".repeat(8000)}]}));
        assert_eq!(code(&long), (400, "context_length_exceeded"));
        let wrong = ask(json!({"top_p": 0}));
        assert_eq!((code(&wrong), &wrong.json["error"]["param"]), ((400, "invalid_value"), &json!("top_p")));
        assert_eq!(code(&ask(json!({"model": "gpt-5"}))), (404, "model_not_found"));
        assert_eq!(code(&ask(json!({"tools": [{"type": "function"}]}))), (400, "unsupported_field"));
    }
    // The default pack's backbone was made to route: it has no template.
    let served = Served::start(&[]);
    assert_eq!(served.said["chats"], false);
    let asked = json!({"messages": [{"role": "user", "content": "hi"}]});
    let refused = served.post("/v1/chat/completions", &asked);
    assert_eq!(code(&refused), (400, "no_chat_template"));
    assert!(refused.text.contains("chat template"), "{}", refused.text);
}

#[test]
fn a_real_chat_model_answers() {
    let test = "a_real_chat_model_answers";
    let model = peers("models/smollm2-135m-q4_1.gguf");
    let Some(model) = need(test, "SmolLM2 135M", model) else { return };
    let model = model.to_str().unwrap();
    let served = Served::start(&["--model", model, "--alias", "small"]);
    assert_eq!(served.said["chats"], true, "{}", served.said);
    let messages = json!([{"role": "user", "content": "What is the capital of France?"}]);
    let asked = json!({"model": "small", "messages": messages, "max_tokens": 24});
    let whole = served.post("/v1/chat/completions", &asked).good();
    let text = whole["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(text.split_whitespace().count() > 3, "{text}");
    let expected = generated(model, "What is the capital of France?", &["--chat", "-n", "24"]);
    assert_eq!(text, expected["text"].as_str().unwrap());
}
