//! What is answered at which path, and what every request goes through.

use super::fields::Fields;
use super::gate::Gate;
use super::guard::Guard;
use super::metrics::{self, Metrics};
use super::refusal::Refusal;
use super::{chat, embeddings, routing};
use crate::engine::Embedder;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, FromRequest, MatchedPath, Path, Request, State};
use axum::http::{HeaderValue, Method, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::StreamExt;
use serde::Serialize;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};
use zen_edge_core::backbone::Cancel;
use zen_edge_core::generate::Generator;

/// All that answers requests.
pub struct Server {
    pub embedder: Embedder,
    /// The same backbone as a language model, or why it is none.
    pub generator: Result<Generator, String>,
    /// The model's name, then its aliases.
    pub names: Vec<String>,
    pub gate: Gate,
    pub guard: Guard,
    pub metrics: Metrics,
    /// Tokens of a prompt, where no config cuts it.
    pub max_tokens: usize,
    /// Bytes of a body.
    pub max_body: usize,
    /// From a request's head to its answer.
    pub timeout: Duration,
    /// Seconds of Unix time.
    pub since: u64,
}

/// Bytes that are read of a body only to drop them.
const DRAINED: usize = 256 << 10;

/// When a request's time is over.
#[derive(Clone, Copy)]
pub struct Deadline(pub Instant);

/// A request's fields, read within the limits of body and time.
pub struct Asked {
    pub fields: Fields,
    pub deadline: Deadline,
}

/// Cancels when it is dropped: with the request's future, so when its client goes away or its time is over.
pub struct Guarded(pub Arc<Cancel>);

impl Drop for Guarded {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Server {
    /// Computes an answer off the thread that serves, as soon as it is its turn.
    ///
    /// # Errors
    /// [`Refusal::Busy`], [`Refusal::Timeout`], and what `job` says.
    pub async fn compute<T: Send + 'static>(
        self: &Arc<Self>,
        deadline: Deadline,
        job: impl FnOnce(&Self, &Arc<Cancel>) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let cancel = Guarded(Arc::new(Cancel::new()));
        let answer = async {
            let place = self.gate.enter().await?;
            let (server, cancel) = (self.clone(), cancel.0.clone());
            let job = move || {
                let _place = place;
                job(&server, &cancel)
            };
            tokio::task::spawn_blocking(job).await.map_err(|_| Refusal::Panicked)?
        };
        match timeout_at(deadline.0, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(Refusal::Timeout(self.timeout.as_secs_f64())),
        }
    }

    /// Whether the model that a client names is the one that is served; no name is as good.
    ///
    /// # Errors
    /// [`Refusal::Model`].
    pub fn check_model(&self, asked: Option<String>) -> Result<(), Refusal> {
        match asked {
            Some(asked) if !self.names.contains(&asked) => {
                let asked = asked.chars().take(100).collect();
                Err(Refusal::Model { asked, served: self.names.join(", ") })
            }
            _ => Ok(()),
        }
    }
}

impl FromRequest<Arc<Server>> for Asked {
    type Rejection = Refusal;

    async fn from_request(request: Request, server: &Arc<Server>) -> Result<Self, Refusal> {
        let deadline = request.extensions().get::<Deadline>().copied();
        let deadline = deadline.unwrap_or_else(|| Deadline(Instant::now() + server.timeout));
        let body = match timeout_at(deadline.0, Bytes::from_request(request, &())).await {
            Ok(Ok(body)) => body,
            Ok(Err(error)) if error.status() == 413 => return Err(Refusal::TooLarge(server.max_body)),
            Ok(Err(error)) => return Err(Refusal::Broken(error.body_text())),
            Err(_) => return Err(Refusal::Slow(server.timeout.as_secs_f64())),
        };
        Ok(Self { fields: Fields::parse(&body)?, deadline })
    }
}

/// A value as the body of an answer. To be called where the answer was computed: a long one takes its time.
pub fn body(value: &impl Serialize) -> Result<Bytes, Refusal> {
    serde_json::to_vec(value).map(Bytes::from).map_err(|error| Refusal::Engine(error.to_string()))
}

/// An answer of JSON.
pub fn answer(body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An answer that tells how long the engine took for it, in milliseconds: the rest of a round trip is HTTP.
pub fn timed((body, engine): (Bytes, Duration)) -> Response {
    let mut response = answer(body);
    let timing = format!("engine;dur={:.3}", engine.as_secs_f64() * 1e3);
    if let Ok(timing) = HeaderValue::from_str(&timing) {
        response.headers_mut().insert("server-timing", timing);
    }
    response
}

/// Which origins' pages may ask; `None`: none.
///
/// # Errors
/// What is no origin.
pub fn cors(origins: &[String]) -> Result<Option<CorsLayer>, String> {
    let whole = |origin: &&String| {
        let rest = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
        *origin == "*" || rest.is_some_and(|rest| !rest.is_empty() && !rest.contains('/'))
    };
    if let Some(wrong) = origins.iter().find(|origin| !whole(origin)) {
        return Err(format!(
            "{wrong} is no origin: give it as https://app.example or http://localhost:3000, or *"
        ));
    }
    let allowed = if origins.iter().any(|origin| origin == "*") {
        AllowOrigin::any()
    } else {
        let list: Result<Vec<_>, _> = origins.iter().map(|origin| HeaderValue::from_str(origin)).collect();
        AllowOrigin::list(list.map_err(|error| error.to_string())?)
    };
    let layer = CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([Method::GET, Method::POST])
        .allow_headers(AllowHeaders::mirror_request());
    Ok((!origins.is_empty()).then_some(layer))
}

/// The paths.
pub fn app(server: Arc<Server>, cors: Option<CorsLayer>) -> axum::Router {
    let app = axum::Router::new()
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .route("/v1/models", get(models))
        .route("/v1/models/{model}", get(model))
        .route("/embedding", post(embeddings::llama))
        .route("/embeddings", post(embeddings::llama))
        .route("/v1/embeddings", post(embeddings::openai))
        .route("/v1/chat/completions", post(chat::completions))
        .route("/v1/route", post(routing::route))
        .route("/v1/observe", post(routing::observe))
        .route("/v1/stats", get(routing::stats))
        .fallback(async |request: Request| {
            let refusal = Refusal::Path(path(&request));
            refuse(request, refusal).await
        })
        .method_not_allowed_fallback(async |request: Request| {
            let refusal = Refusal::Method(path(&request));
            refuse(request, refusal).await
        })
        .layer(DefaultBodyLimit::max(server.max_body))
        .layer(from_fn_with_state(server.clone(), watch))
        .with_state(server);
    match cors {
        Some(cors) => app.layer(cors),
        None => app,
    }
}

/// Checks every request, starts its time and counts its answer.
async fn watch(State(server): State<Arc<Server>>, mut request: Request, next: Next) -> Response {
    let start = Instant::now();
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let open = route.as_deref() == Some("/health");
    request.extensions_mut().insert(Deadline(start + server.timeout));
    let response = match server.guard.check(request.uri(), request.headers(), open) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refuse(request, refusal).await,
    };
    server.metrics.answered(route.as_deref().unwrap_or("other"), response.status().as_u16(), start.elapsed());
    response
}

/// Refuses a request whose body nobody has read. A short one is read and dropped, so that the connection can go on;
/// else it is closed, and the client is told.
async fn refuse(request: Request, refusal: Refusal) -> Response {
    let deadline = request.extensions().get::<Deadline>().map_or_else(Instant::now, |deadline| deadline.0);
    let mut rest = DRAINED;
    let mut body = request.into_body().into_data_stream();
    let whole = async {
        while let Some(Ok(data)) = body.next().await {
            rest = rest.checked_sub(data.len())?;
        }
        Some(())
    };
    let drained = matches!(timeout_at(deadline, whole).await, Ok(Some(())));
    let mut response = refusal.into_response();
    if !drained {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn path(request: &Request) -> String {
    request.uri().path().chars().take(100).collect()
}

async fn health() -> Response {
    answer(json!({"status": "ok", "version": env!("CARGO_PKG_VERSION")}).to_string())
}

async fn metrics(State(server): State<Arc<Server>>) -> Response {
    let page = server.metrics.page(server.gate.running(), server.gate.waiting());
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], page).into_response()
}

fn about(server: &Server, name: &str) -> serde_json::Value {
    json!({"id": name, "object": "model", "created": server.since, "owned_by": "zen-edge"})
}

async fn models(State(server): State<Arc<Server>>) -> Response {
    let data: Vec<_> = server.names.iter().map(|name| about(&server, name)).collect();
    answer(json!({"object": "list", "data": data}).to_string())
}

async fn model(State(server): State<Arc<Server>>, Path(name): Path<String>) -> Result<Response, Refusal> {
    let known = about(&server, &name).to_string();
    server.check_model(Some(name))?;
    Ok(answer(known))
}
