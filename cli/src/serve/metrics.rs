//! What `/metrics` tells, in the text format of Prometheus. No figure holds a text or a name that a client chose.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::prometheus_text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use std::time::Duration;
use zen_edge_core::router::Reading;

pub use prometheus_text::CONTENT_TYPE;

/// Seconds, from a known prompt to a long answer.
const BUCKETS: [f64; 16] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    route: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecidedBy {
    source: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct About {
    version: &'static str,
    model: String,
    isa: &'static str,
}

/// The figures.
pub struct Metrics {
    registry: Registry,
    requests: Family<Answered, Counter>,
    seconds: Family<Route, Histogram, fn() -> Histogram>,
    running: Gauge,
    waiting: Gauge,
    read: Counter,
    reused: Counter,
    generated: Counter,
    cache_hits: Counter,
    prefix_hits: Counter,
    decisions: Family<DecidedBy, Counter>,
}

impl Metrics {
    /// All at zero. `model` and `isa`: what runs.
    pub fn new(model: &str, isa: &'static str) -> Self {
        let mut registry = Registry::with_prefix("zen_edge");
        let seconds: Family<Route, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(BUCKETS));
        let about = About { version: env!("CARGO_PKG_VERSION"), model: model.to_owned(), isa };
        registry.register("build", "What runs", Info::new(about));
        let requests = Family::default();
        registry.register("http_requests", "Requests that were answered", Family::clone(&requests));
        registry.register_with_unit(
            "http_request_duration",
            "From a request's head to its answer; of a stream, to its first byte",
            Unit::Seconds,
            seconds.clone(),
        );
        let [running, waiting] = [Gauge::default(), Gauge::default()];
        registry.register("running", "Requests that are being computed", running.clone());
        registry.register("queue_depth", "Requests that wait for their turn", waiting.clone());
        let [read, reused, generated, cache_hits, prefix_hits] = [(); 5].map(|()| Counter::<u64>::default());
        for (name, help, counter) in [
            ("tokens_read", "Tokens that the backbone read", &read),
            ("tokens_reused", "Tokens that were known from earlier prompts that begin alike", &reused),
            ("tokens_generated", "Tokens that were generated", &generated),
            ("cache_hits", "Prompts whose vector was known", &cache_hits),
            ("prefix_hits", "Prompts that went on from an earlier one", &prefix_hits),
        ] {
            registry.register(name, help, counter.clone());
        }
        let decisions = Family::default();
        registry.register("decisions", "Decisions by what chose the model", Family::clone(&decisions));
        Self {
            registry,
            requests,
            seconds,
            running,
            waiting,
            read,
            reused,
            generated,
            cache_hits,
            prefix_hits,
            decisions,
        }
    }

    /// Counts an answer. `route` is a path of ours, never one that a client made up.
    pub fn answered(&self, route: &str, status: u16, took: Duration) {
        let route = route.to_owned();
        self.seconds.get_or_create(&Route { route: route.clone() }).observe(took.as_secs_f64());
        self.requests.get_or_create(&Answered { route, status }).inc();
    }

    /// Counts what was read of a prompt.
    pub fn reading(&self, reading: &Reading) {
        self.tokens(reading.tokens, reading.reused, reading.cached);
    }

    /// Counts so many tokens of a prompt, of which the first `reused` were known, or all.
    pub fn tokens(&self, tokens: usize, reused: usize, cached: bool) {
        if cached {
            self.cache_hits.inc();
            return;
        }
        self.read.inc_by((tokens - reused) as u64);
        self.reused.inc_by(reused as u64);
        if reused > 0 {
            self.prefix_hits.inc();
        }
    }

    /// Counts generated tokens.
    pub fn generated(&self, tokens: usize) {
        self.generated.inc_by(tokens as u64);
    }

    /// Counts a decision.
    pub fn decided(&self, source: &'static str) {
        self.decisions.get_or_create(&DecidedBy { source }).inc();
    }

    /// The page, with what runs and waits now.
    pub fn page(&self, running: usize, waiting: usize) -> String {
        self.running.set(running as i64);
        self.waiting.set(waiting as i64);
        let mut page = String::new();
        // Writing to a string does not fail.
        let _ = prometheus_text::encode(&mut page, &self.registry);
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_known_is_not_counted_as_read() {
        let metrics = Metrics::new("m", "scalar");
        metrics.tokens(10, 4, false);
        metrics.tokens(10, 0, true);
        metrics.generated(3);
        metrics.answered("/embedding", 200, Duration::from_millis(2));
        let page = metrics.page(1, 2);
        for line in [
            "zen_edge_tokens_read_total 6",
            "zen_edge_tokens_reused_total 4",
            "zen_edge_tokens_generated_total 3",
            "zen_edge_cache_hits_total 1",
            "zen_edge_prefix_hits_total 1",
            "zen_edge_running 1",
            "zen_edge_queue_depth 2",
            "zen_edge_http_requests_total{route=\"/embedding\",status=\"200\"} 1",
            "zen_edge_http_request_duration_seconds_bucket{route=\"/embedding\",le=\"0.001\"} 0",
            "zen_edge_http_request_duration_seconds_bucket{route=\"/embedding\",le=\"0.0025\"} 1",
        ] {
            assert!(page.lines().any(|there| there == line), "no {line} in\n{page}");
        }
    }
}
