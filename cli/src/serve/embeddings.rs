//! Vectors: as llama-server gives them, and as OpenAI does.

use super::app::{Asked, Server, body, timed};
use super::fields::Fields;
use super::refusal::Refusal;
use crate::engine::Input;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zen_edge_core::backbone::Cancel;

/// The most inputs of a request, as OpenAI has it.
const MOST: usize = 2048;

/// One input of a request.
#[derive(Debug, PartialEq)]
enum Prompt {
    Text(String),
    Ids(Vec<u32>),
}

/// The inputs of a request, and the field that they stood in.
struct Inputs {
    param: &'static str,
    prompts: Vec<Prompt>,
}

/// A vector and how many tokens it stands for.
struct Vector {
    values: Vec<f32>,
    tokens: usize,
}

/// What the engine did for a request.
#[derive(Default)]
struct Work {
    vectors: Vec<Vector>,
    took: Duration,
    /// Inputs of which not all was read.
    truncated: usize,
}

/// The inputs of a request: a text, a list of token ids, or a list of either.
fn inputs(param: &'static str, value: Value) -> Result<Vec<Prompt>, Refusal> {
    let wrong = |at: Option<usize>| {
        let param = at.map_or(param.to_owned(), |at| format!("{param}[{at}]"));
        Refusal::value(param, "give a text, a list of token ids, or a list of these")
    };
    let ids = |values: &[Value]| {
        let ids = values.iter().map(|value| value.as_u64().and_then(|id| u32::try_from(id).ok()));
        ids.collect::<Option<Vec<u32>>>()
    };
    let list = match value {
        Value::String(text) => return Ok(vec![Prompt::Text(text)]),
        Value::Array(list) => list,
        _ => return Err(wrong(None)),
    };
    if list.is_empty() {
        return Err(Refusal::Empty { param: param.to_owned() });
    }
    if let Some(ids) = ids(&list) {
        return Ok(vec![Prompt::Ids(ids)]);
    }
    if list.len() > MOST {
        return Err(Refusal::value(param, format!("has {} inputs; give at most {MOST} at once", list.len())));
    }
    let prompts = list.into_iter().enumerate().map(|(at, value)| match value {
        Value::String(text) => Ok(Prompt::Text(text)),
        Value::Array(values) => ids(&values).map(Prompt::Ids).ok_or_else(|| wrong(Some(at))),
        _ => Err(wrong(Some(at))),
    });
    prompts.collect()
}

/// The vectors of all inputs, in their order.
fn read(server: &Server, asked: &Inputs, norm: i32, cancel: &Cancel) -> Result<Work, Refusal> {
    let mut work = Work::default();
    for (at, prompt) in asked.prompts.iter().enumerate() {
        let input = match prompt {
            Prompt::Text(text) => Input::Text(text),
            Prompt::Ids(ids) => Input::Ids(ids),
        };
        let start = Instant::now();
        let read = server.embedder.read(input, server.max_tokens, cancel);
        let (mut values, reading) =
            read.map_err(|error| Refusal::of_read(&error, format!("{}[{at}]", asked.param)))?;
        work.took += start.elapsed();
        work.truncated += usize::from(reading.truncated);
        server.metrics.reading(&reading);
        normalise(&mut values, norm);
        work.vectors.push(Vector { values, tokens: reading.tokens });
    }
    Ok(work)
}

/// An answer that tells of inputs which were cut: neither form has a field for it.
fn respond((bytes, took, truncated): (Bytes, Duration, usize)) -> Response {
    let mut response = timed((bytes, took));
    if truncated > 0 {
        response.headers_mut().insert("zen-edge-truncated", truncated.into());
    }
    response
}

/// llama.cpp's norms: -1 none, 0 the largest value becomes 32760, 1 taxicab, 2 Euclidean, above that the p-norm.
fn normalise(values: &mut [f32], norm: i32) {
    let values64 = values.iter().map(|value| f64::from(value.abs()));
    let length = match norm {
        ..=-1 => return,
        0 => values64.fold(0.0, f64::max) / 32760.0,
        p => values64.map(|value| value.powi(p)).sum::<f64>().powf(1.0 / f64::from(p)),
    };
    if length > 0.0 && length.is_finite() {
        values.iter_mut().for_each(|value| *value = (f64::from(*value) / length) as f32);
    }
}

fn norm(fields: &mut Fields) -> Result<i32, Refusal> {
    match fields.take::<i32>("embd_normalize")? {
        Some(norm) if !(-1..=64).contains(&norm) => {
            Err(Refusal::value("embd_normalize", "give -1 (none), 0, 1, 2 or a larger p up to 64"))
        }
        norm => Ok(norm.unwrap_or(-1)),
    }
}

/// A vector as llama-server gives it: nested, because without pooling there would be one for each token.
#[derive(Serialize)]
struct Nested {
    index: usize,
    embedding: [Vec<f32>; 1],
}

/// `/embedding`, as llama-server answers it. Fields that it does not know are passed over, as there.
pub async fn llama(State(server): State<Arc<Server>>, asked: Asked) -> Result<Response, Refusal> {
    let Asked { mut fields, deadline } = asked;
    let (param, content) = match fields.take::<Value>("content")? {
        Some(content) => ("content", content),
        None => ("input", fields.take("input")?.ok_or(Refusal::Missing("content"))?),
    };
    let content = Inputs { param, prompts: inputs(param, content)? };
    let norm = norm(&mut fields)?;
    let bytes = server.compute(deadline, move |server, cancel| {
        let Work { vectors, took, truncated } = read(server, &content, norm, cancel)?;
        let rows = vectors.into_iter().enumerate();
        let rows: Vec<_> = rows.map(|(index, vector)| Nested { index, embedding: [vector.values] }).collect();
        Ok((body(&rows)?, took, truncated))
    });
    Ok(respond(bytes.await?))
}

#[derive(Serialize)]
#[serde(untagged)]
enum Written {
    Floats(Vec<f32>),
    Base64(String),
}

#[derive(Serialize)]
struct Row {
    object: &'static str,
    index: usize,
    embedding: Written,
}

#[derive(Serialize)]
struct Usage {
    prompt_tokens: usize,
    total_tokens: usize,
}

#[derive(Serialize)]
struct List<'a> {
    object: &'static str,
    data: Vec<Row>,
    model: &'a str,
    usage: Usage,
}

/// `/v1/embeddings`, as OpenAI answers it; the vectors are not normalised unless `embd_normalize` says so.
pub async fn openai(State(server): State<Arc<Server>>, asked: Asked) -> Result<Response, Refusal> {
    let Asked { mut fields, deadline } = asked;
    server.check_model(fields.take("model")?)?;
    let prompts = inputs("input", fields.take("input")?.ok_or(Refusal::Missing("input"))?)?;
    let prompts = Inputs { param: "input", prompts };
    let base64 = match fields.take::<String>("encoding_format")?.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => return Err(Refusal::value("encoding_format", "give float or base64")),
    };
    let hidden = server.embedder.backbone().vector_size();
    if fields.take::<usize>("dimensions")?.is_some_and(|asked| asked != hidden) {
        return Err(Refusal::value("dimensions", format!("this model's vectors have {hidden}")));
    }
    let norm = norm(&mut fields)?;
    fields.ignore(&["user"]);
    fields.end()?;
    let bytes = server.compute(deadline, move |server, cancel| {
        let Work { vectors, took, truncated } = read(server, &prompts, norm, cancel)?;
        let tokens = vectors.iter().map(|vector| vector.tokens).sum();
        let rows = vectors.into_iter().enumerate().map(|(index, vector)| {
            let embedding = if base64 {
                let bytes: Vec<u8> = vector.values.iter().flat_map(|value| value.to_le_bytes()).collect();
                Written::Base64(BASE64_STANDARD.encode(bytes))
            } else {
                Written::Floats(vector.values)
            };
            Row { object: "embedding", index, embedding }
        });
        let usage = Usage { prompt_tokens: tokens, total_tokens: tokens };
        let list = List { object: "list", data: rows.collect(), model: &server.names[0], usage };
        Ok((body(&list)?, took, truncated))
    });
    Ok(respond(bytes.await?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn inputs_are_texts_ids_or_lists_of_them() {
        let text = |text: &str| Prompt::Text(text.into());
        assert_eq!(inputs("input", json!("a")), Ok(vec![text("a")]));
        assert_eq!(inputs("input", json!([1, 2])), Ok(vec![Prompt::Ids(vec![1, 2])]));
        let mixed = json!(["a", [3], "b"]);
        assert_eq!(inputs("input", mixed), Ok(vec![text("a"), Prompt::Ids(vec![3]), text("b")]));
        assert_eq!(inputs("input", json!([[]])), Ok(vec![Prompt::Ids(vec![])]));
        assert!(matches!(inputs("input", json!([])), Err(Refusal::Empty { .. })));
        for (bad, name) in [
            (json!(3), "input"),
            (json!({}), "input"),
            (json!(["a", 3]), "input[1]"),
            (json!([1, -1]), "input[0]"),
            (json!([[1, 0.5]]), "input[0]"),
            (json!([[4294967296u64]]), "input[0]"),
        ] {
            assert!(
                matches!(inputs("input", bad), Err(Refusal::Value { param, .. }) if param == name),
                "{name}"
            );
        }
        assert!(inputs("input", json!(vec!["a"; MOST + 1])).is_err());
        assert!(inputs("input", json!(vec!["a"; MOST])).is_ok());
        assert_eq!(inputs("input", json!(vec![1; MOST + 1])).unwrap().len(), 1);
    }

    #[test]
    fn norms_are_those_of_llama_cpp() {
        let of = |norm| {
            let mut values = [3.0, -4.0];
            normalise(&mut values, norm);
            values
        };
        assert_eq!(of(-1), [3.0, -4.0]);
        assert_eq!(of(0), [24570.0, -32760.0]);
        assert_eq!(of(1), [3.0 / 7.0, -4.0 / 7.0]);
        assert_eq!(of(2), [0.6, -0.8]);
        let cube = of(3);
        assert!((cube[0].powi(3) - cube[1].powi(3) - 1.0).abs() < 1e-6, "{cube:?}");
        let mut zero = [0.0];
        normalise(&mut zero, 2);
        assert_eq!(zero, [0.0]);
    }
}
