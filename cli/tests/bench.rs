//! `zen-edge bench` and `compare` as a person or a script runs them, and the runner behind them with a clock of our own.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use zen_edge_core::bench::{
    About, Bench, BenchError, Energy, MemoryUse, Meter, NoMeter, Plan, Prompts, Record, Subject,
};
use zen_edge_core::router::{Clock, NoClock, Router, RouterOptions};

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

fn zen_edge(words: &[&str]) -> Ran {
    let ran = Command::new(env!("CARGO_BIN_EXE_zen-edge"))
        .args(words)
        .env("COLUMNS", "160")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: ran.status.code(), out: text(ran.stdout), err: text(ran.stderr) }
}

#[track_caller]
fn good(words: &[&str]) -> String {
    let ran = zen_edge(words);
    assert_eq!(ran.code, Some(0), "{words:?}: {}{}", ran.out, ran.err);
    ran.out
}

#[track_caller]
fn refused(words: &[&str], code: i32, said: &[&str]) {
    let ran = zen_edge(words);
    assert_eq!(ran.code, Some(code), "{words:?}: {}{}", ran.out, ran.err);
    for word in said {
        assert!(ran.err.contains(word), "no {word:?} in {}", ran.err);
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

fn schema(file: &str) -> jsonschema::Validator {
    let text = std::fs::read_to_string(root().join("docs").join(file)).unwrap();
    jsonschema::validator_for(&serde_json::from_str(&text).unwrap()).unwrap()
}

#[track_caller]
fn valid(record: &Value) {
    let errors: Vec<String> = schema("bench.schema.json")
        .iter_errors(record)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A run of tiny sizes.
const QUICK: [&str; 9] = ["bench", "-p", "4,8", "-n", "3", "-r", "2", "--each", "3"];

fn quick<'a>(more: &[&'a str]) -> Vec<&'a str> {
    QUICK.iter().chain(more).copied().collect()
}

#[test]
fn a_real_run_leaves_a_record_that_keeps_the_schema() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("r.json");
    let out = good(&quick(&["-o", file.to_str().unwrap(), "--name", "the test's", "--json"]));
    let record: Value = serde_json::from_str(&out).unwrap();
    valid(&record);
    assert_eq!(record, serde_json::from_str::<Value>(&std::fs::read_to_string(&file).unwrap()).unwrap());
    Record::parse(&out).unwrap();

    assert_eq!((&record["batch_size"], &record["device"]["name"]), (&json!(1), &json!("the test's")));
    assert_eq!(record["model"]["sha256"].as_str().unwrap().len(), 64);
    assert_eq!(record["model"]["name"], "zen-edge-default");
    let tests: Vec<&str> =
        record["speed"].as_array().unwrap().iter().map(|row| row["test"].as_str().unwrap()).collect();
    assert_eq!(tests, ["pp4", "pp8", "tg3"]);
    for row in record["speed"].as_array().unwrap() {
        assert_eq!((&row["repetitions"], &row["batch_size"]), (&json!(2), &json!(1)));
        let figure = |name: &str| row["tokens_per_second"][name].as_f64().unwrap();
        assert!(
            0.0 < figure("min") && figure("min") <= figure("median") && figure("median") <= figure("max")
        );
        let bound = &row["bound"];
        let (share, most) = (bound["share"].as_f64().unwrap(), bound["tokens_per_second"].as_f64().unwrap());
        assert!((share * most / figure("median") - 1.0).abs() < 1e-6, "{row}");
    }
    assert_eq!(record["speed"][2]["kv"], "f32");
    // The pack reads 512 tokens: three of the four strata, three prompts each.
    let strata = record["decisions"]["strata"].as_array().unwrap();
    let names: Vec<&str> = strata.iter().map(|one| one["tokens"].as_str().unwrap()).collect();
    assert_eq!(names, ["1-32", "33-128", "129-512"]);
    assert!(strata.iter().all(|one| one["prompts"] == 3), "{strata:#?}");
    assert_eq!(record["decisions"]["count"], 9);
    let p50 = |part: &str| record["decisions"][part]["p50"].as_f64().unwrap();
    assert!(p50("cached") < p50("cold"), "a look-up is no pass");
    assert!(record["load"]["again"]["ms"].as_f64().unwrap() > 0.0);
    if cfg!(target_os = "linux") {
        let memory = &record["memory"];
        let bytes = |name: &str| memory[name].as_u64().unwrap();
        assert!(bytes("anonymous_bytes") + bytes("file_bytes") <= bytes("resident_bytes"));
        assert!(bytes("resident_bytes") <= bytes("peak_bytes"));
    }
}

#[test]
fn the_schema_refuses_what_is_no_record() {
    let out = good(&["bench", "-p", "4", "-n", "0", "-r", "1", "--each", "0", "--json"]);
    let record: Value = serde_json::from_str(&out).unwrap();
    valid(&record);
    let validator = schema("bench.schema.json");
    let changes: [(&str, Value); 6] = [
        ("/schema", json!("zen-edge.bench/1")),
        ("/batch_size", json!(8)),
        ("/speed/0/batch_size", json!(8)),
        ("/speed/0/tokens_per_second/mean", json!("fast")),
        ("/speed/0/bound/limiter", json!("luck")),
        ("/model/sha256", json!("abc")),
    ];
    for (at, value) in changes {
        let mut changed = record.clone();
        *changed.pointer_mut(at).unwrap() = value;
        assert!(!validator.is_valid(&changed), "{at}");
    }
}

#[test]
fn threads_and_kernels_are_measured_one_after_the_other() {
    let out = good(&[
        "bench", "-p", "4", "-n", "2", "-r", "1", "--each", "0", "-t", "1,2", "--isa", "scalar", "--kv",
        "int8", "--json",
    ]);
    let record: Value = serde_json::from_str(&out).unwrap();
    valid(&record);
    let of = |part: &str| -> Vec<(String, u64)> {
        let rows = record[part].as_array().unwrap();
        rows.iter()
            .map(|row| (row["isa"].as_str().unwrap().to_owned(), row["threads"].as_u64().unwrap()))
            .collect()
    };
    let scalar = |threads| ("scalar".to_owned(), threads);
    assert_eq!(of("speed"), [scalar(1), scalar(1), scalar(2), scalar(2)]);
    assert_eq!(of("limits"), [scalar(1), scalar(2)]);
    assert_eq!(record["speed"][1]["kv"], "int8");
    assert!(record.get("decisions").is_none());
}

#[test]
fn prompts_come_from_a_file_and_equal_ones_count_once() {
    let dir = tempfile::tempdir().unwrap();
    let lines = write(dir.path(), "p.txt", "why is the sky blue?\n\nwrite a poem\nwhy is the sky blue?\n");
    let rows = write(dir.path(), "p.jsonl", "{\"prompt\":\"a\"}\n{\"prompt\":\"b\",\"id\":3}\n");
    for file in [&lines, &rows] {
        let out = good(&["bench", "-p", "0", "-n", "0", "--prompts", file, "--json"]);
        let record: Value = serde_json::from_str(&out).unwrap();
        valid(&record);
        assert_eq!(record["decisions"]["count"], 2, "{file}");
        assert_eq!(record["decisions"]["prompts"], "file");
        assert_eq!(record["speed"], json!([]));
    }
    let empty = write(dir.path(), "e.txt", "\n \n");
    refused(&["bench", "--prompts", &empty], 4, &["holds no prompts"]);
    let wrong = write(dir.path(), "w.jsonl", "{\"text\":\"a\"}\n");
    refused(&["bench", "--prompts", &wrong], 4, &["row 1"]);
    refused(&["bench", "--prompts", "no/such/file"], 3, &["no/such/file"]);
}

#[test]
fn a_backbone_without_heads_is_measured_without_decisions() {
    let model = root().join("tests/fixtures/tiny/qwen3-tiny-rand-f16.gguf");
    let out = good(&["bench", "-m", model.to_str().unwrap(), "-p", "4", "-n", "2", "-r", "1", "--json"]);
    let record: Value = serde_json::from_str(&out).unwrap();
    valid(&record);
    assert!(record.get("decisions").is_none());
    assert_eq!(record["model"]["name"], "qwen3-tiny-rand-f16.gguf", "no folder");
    // F16 weights: every multiply-add is one of floats.
    assert_eq!(record["model"]["float_multiply_adds"], record["model"]["multiply_adds"]);
    if cfg!(target_os = "linux") {
        assert_eq!(record["load"]["page_cache_dropped"], true);
    }
    refused(&["bench", "-m", "no/such.gguf"], 3, &["no/such.gguf"]);
    refused(&["bench", "-p", "100000"], 2, &["100000 tokens"]);
}

#[test]
fn formats_hold_the_same_rows() {
    let table = good(&quick(&[]));
    for word in
        ["model", "zen-edge-default", "sha256", "limits", "pp4", "tg3", "batch", "at most", "1-32 tokens"]
    {
        assert!(table.contains(word), "no {word:?} in\n{table}");
    }
    let markdown = good(&quick(&["--format", "md"]));
    assert!(markdown.lines().any(|line| line.starts_with("| pp8 | 1 |")), "{markdown}");
    let csv = good(&quick(&["--format", "csv"]));
    let mut lines = csv.lines();
    let columns = lines.next().unwrap().split(',').count();
    let rows: Vec<&str> = lines.collect();
    // Two prefills, one decode; cold and cached decisions of three strata and of all.
    assert_eq!(rows.len(), 3 + 8, "{csv}");
    // Nothing here needs quotes but a platform's or a processor's name could.
    assert!(
        rows.iter().filter(|row| !row.contains('"')).all(|row| row.split(',').count() == columns),
        "{csv}"
    );
    refused(&quick(&["--json", "--format", "csv"]), 2, &["cannot be used with"]);
}

#[test]
fn a_sustained_run_shows_its_course() {
    let words = ["bench", "-p", "0", "-n", "0", "--each", "0", "--sustained", "1"];
    let record: Value =
        serde_json::from_str(&good(&words.iter().chain(&["--json"]).copied().collect::<Vec<_>>())).unwrap();
    valid(&record);
    let sustained = &record["sustained"];
    assert!(sustained["seconds"].as_f64().unwrap() >= 1.0);
    assert!(!sustained["tokens_per_second"].as_array().unwrap().is_empty());
    let table = good(&words);
    assert!(table.contains("pp128 for ") && table.contains('█'), "{table}");
}

// --- the runner, with a clock of our own -------------------------------------------------------------------------------

/// A clock that goes on by so many nanoseconds whenever it is asked.
#[derive(Default)]
struct Ticks {
    now: AtomicU64,
    step: AtomicU64,
}

impl Clock for Ticks {
    fn now(&self) -> Duration {
        let step = self.step.load(Ordering::Relaxed);
        Duration::from_nanos(self.now.fetch_add(step, Ordering::Relaxed) + step)
    }
}

fn router() -> Arc<Router> {
    let options = RouterOptions { threads: Some(1), ..RouterOptions::default() };
    Arc::new(Router::load(&zen_edge_default_pack::pack(), &options).unwrap())
}

fn plan() -> Plan {
    Plan {
        prefill: vec![8],
        decode: vec![2],
        repetitions: 3,
        prompts: Prompts::None,
        read_bytes: 1 << 20,
        ..Plan::default()
    }
}

/// Runs a bench whose clock goes on by `step` nanoseconds, and by `limits` while the limits are measured.
fn ticking(step: u64, limits: u64) -> Record {
    let clock = Arc::new(Ticks::default());
    let mut bench = Bench::new(Subject::Router(router()), plan(), clock.clone(), Box::new(NoMeter)).unwrap();
    let mut stages = Vec::new();
    loop {
        let stage = bench.progress().stage;
        clock.step.store(if stage == "limits" { limits } else { step }, Ordering::Relaxed);
        if stages.last() != Some(&stage) {
            stages.push(stage);
        }
        if bench.work(Duration::MAX).unwrap() {
            break;
        }
    }
    assert_eq!(stages, ["warm-up", "pp8", "tg2", "limits"]);
    assert_eq!(bench.progress().share, 1.0);
    assert_eq!(bench.progress().stage, "done");
    bench.finish(About::default())
}

#[test]
fn a_figure_above_its_bound_is_kept_with_a_warning() {
    // The limits seem slow and the passes quick: that cannot be, and it is said of each row.
    let record = ticking(10, 1_000_000_000);
    assert!(record.speed.iter().all(|row| row.bound.unwrap().share > 1.0));
    let above: Vec<&str> = record
        .warnings
        .iter()
        .filter(|warning| warning.code == "above_bound")
        .map(|warning| warning.message.as_str())
        .collect();
    assert_eq!(above.len(), 2, "{:#?}", record.warnings);
    assert!(above[0].starts_with("pp8 on ") && above[1].starts_with("tg2 on "), "{above:#?}");
    assert!(
        above.iter().all(|message| message.contains("measured twice") && message.contains("Do not quote"))
    );

    // The other way round nothing is said: a step takes a thousand seconds.
    let record = ticking(1_000_000_000_000, 4_000_000);
    assert!(record.speed.iter().all(|row| row.bound.unwrap().share < 1.0), "{:#?}", record.speed);
    assert_eq!(record.warnings, []);
}

#[test]
fn the_clock_alone_tells_the_time() {
    // A repetition asks the clock once before it begins and once after each step; with one step of the clock for each, the
    // time is the number of steps, and so the same in every repetition.
    let record = ticking(1_000_000, 4_000_000);
    for row in &record.speed {
        assert_eq!(row.repetitions, 3);
        assert!(row.tokens_per_second.sd < 1e-9, "{row:?}");
    }
    // A layer is five steps, of the last one only two are for all tokens, and one ends the pass: 8 of 1 ms, for 8 tokens.
    assert!((row(&record, "pp8") - 8.0 / 8e-3).abs() < 1e-6, "{}", row(&record, "pp8"));
}

fn row(record: &Record, test: &str) -> f64 {
    record.speed.iter().find(|row| row.test == test).unwrap().tokens_per_second.median
}

#[test]
fn slices_do_not_change_what_is_counted_and_a_clock_must_go_on() {
    let clock = Arc::new(Ticks::default());
    clock.step.store(1_000_000, Ordering::Relaxed);
    let short = Plan { limits: false, decode: Vec::new(), ..plan() };
    let mut bench = Bench::new(Subject::Router(router()), short, clock, Box::new(NoMeter)).unwrap();
    let mut calls = 0;
    // A slice is over after one step; the time between two of them is not counted.
    while !bench.work(Duration::ZERO).unwrap() {
        calls += 1;
    }
    assert!(calls > 3 * 4, "{calls}");
    let record = bench.finish(About::default());
    assert!((row(&record, "pp8") - 8.0 / 8e-3).abs() < 1e-6);
    assert_eq!(record.speed[0].bound, None);

    let mut bench =
        Bench::new(Subject::Router(router()), plan(), Arc::new(NoClock), Box::new(NoMeter)).unwrap();
    let error = loop {
        match bench.work(Duration::MAX) {
            Ok(done) => assert!(!done, "a clock that stands still measures nothing"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, BenchError::Clock), "{error}");
}

#[test]
fn plans_that_cannot_be_are_refused() {
    let bench =
        |plan| Bench::new(Subject::Router(router()), plan, Arc::new(NoClock), Box::new(NoMeter)).err();
    for sizes in [vec![0], vec![1 << 30]] {
        assert!(matches!(bench(Plan { prefill: sizes.clone(), ..plan() }), Some(BenchError::Tokens { .. })));
        assert!(matches!(bench(Plan { decode: sizes, ..plan() }), Some(BenchError::Tokens { .. })));
    }
    assert!(matches!(bench(Plan { repetitions: 0, ..plan() }), Some(BenchError::Repetitions)));
}

/// A machine that uses a joule whenever it is asked.
struct Joules(AtomicU64);

impl Meter for Joules {
    fn joules(&self) -> Option<(&'static str, f64)> {
        Some(("rapl", self.0.fetch_add(1, Ordering::Relaxed) as f64))
    }

    fn memory(&self) -> Option<MemoryUse> {
        Some(MemoryUse { resident_bytes: 7, ..MemoryUse::default() })
    }
}

#[test]
fn energy_is_that_of_the_measured_passes() {
    let clock = Arc::new(Ticks::default());
    clock.step.store(1_000_000, Ordering::Relaxed);
    let plan = Plan { limits: false, decode: Vec::new(), ..plan() };
    let mut bench =
        Bench::new(Subject::Router(router()), plan, clock, Box::new(Joules(AtomicU64::new(0)))).unwrap();
    while !bench.work(Duration::MAX).unwrap() {}
    let record = bench.finish(About::default());
    // Three repetitions, in each a joule between before and after; warming up is not counted.
    assert_eq!(record.energy, Some(Energy { source: "rapl".to_owned(), joules: 3.0, seconds: 0.024 }));
    assert_eq!(record.speed[0].joules_per_token, Some(3.0 / 24.0));
    assert_eq!(record.memory.unwrap().resident_bytes, 7);
}

// --- compare -----------------------------------------------------------------------------------------------------------

fn version_1() -> Value {
    let times = |ms: f64| json!({"mean": ms, "p50": ms, "p90": ms, "p99": ms, "min": ms, "max": ms});
    json!({
        "schema": "zen-edge.bench/1", "date": "2026-01-01T00:00:00Z",
        "engine": {"version": "0.1.0", "build": "relaxed-simd", "isa": "relaxed-simd", "threads": 1},
        "device": {"name": "<b>a phone</b>", "platform": "Android", "browser": "Chrome 1", "cores": 8, "memory_gb": 4,
            "cross_origin_isolated": false, "adapter": null},
        "model": {"architecture": "qwen3", "layers": 2, "hidden_size": 256, "multiply_adds": 5, "weight_bytes": 6},
        "load": {"ms": 12.5, "stored": true, "memory_bytes": 77},
        "cold": [{"tokens": "1-32", "prompts": 3, "mean_tokens": 9.5, "ms": times(40.0), "tokens_per_second": 700}],
        "repeated": times(0.25), "warnings": ["Timers come late"],
    })
}

#[test]
fn records_of_both_versions_are_compared() {
    let dir = tempfile::tempdir().unwrap();
    assert!(schema("bench.schema.1.json").is_valid(&version_1()));
    let old = write(dir.path(), "phone.json", &version_1().to_string());
    let new = dir.path().join("laptop.json");
    let new = new.to_str().unwrap();
    good(&quick(&["-o", new]));
    let (svg, html) = (dir.path().join("c.svg"), dir.path().join("c.html"));
    let out = good(&["compare", new, &old, "--svg", svg.to_str().unwrap(), "--html", html.to_str().unwrap()]);
    // A record without a name of its own is called by its file.
    for word in ["laptop", "<b>a phone</b>", "pp8", "tg3", "decision, 1-32 tokens", "decision, cached", "█"]
    {
        assert!(out.contains(word), "no {word:?} in\n{out}");
    }
    assert!(out.contains("Timers come late") && out.contains("of different backbones"), "{out}");
    let both: Vec<&str> = out.lines().filter(|line| line.contains("decision, 1-32 tokens")).collect();
    assert_eq!(both.len(), 2, "{out}");
    let bar = |line: &str| line.chars().filter(|c| *c == '█').count();
    let longest = both.iter().map(|line| bar(line)).max().unwrap();
    assert_eq!(longest, 24, "{out}");

    let svg = std::fs::read_to_string(svg).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("laptop") && svg.contains("&lt;b&gt;a phone"), "{svg}");
    let html = std::fs::read_to_string(html).unwrap();
    assert!(html.starts_with("<!doctype html>") && html.contains("<svg") && html.contains("<td>pp8</td>"));
    assert!(
        html.contains("&lt;b&gt;a phone&lt;/b&gt;") && !html.contains("<b>a phone"),
        "names are no markup"
    );
    assert!(!html.contains("<script") && !html.contains("http://localhost"));
    let markdown = good(&["compare", new, &old, "--md"]);
    assert!(markdown.lines().any(|line| line.starts_with("| pp8 | laptop |")), "{markdown}");
}

#[test]
fn what_is_no_record_is_not_compared() {
    let dir = tempfile::tempdir().unwrap();
    refused(&["compare"], 2, &["RECORD"]);
    refused(&["compare", "no/such.json"], 3, &["no/such.json"]);
    refused(&["compare", &write(dir.path(), "a.json", "{}")], 4, &["a.json", "no benchmark record"]);
    let mut later = version_1();
    later["schema"] = json!("zen-edge.bench/9");
    refused(
        &["compare", &write(dir.path(), "b.json", &later.to_string())],
        4,
        &["zen-edge.bench/9", "this version reads"],
    );
    let mut wild = version_1();
    wild["cold"][0]["ms"]["p50"] = json!(-1);
    refused(&["compare", &write(dir.path(), "c.json", &wild.to_string())], 4, &["is no measurement"]);
}

// --- what is published -------------------------------------------------------------------------------------------------

/// The rows of the table below a heading of docs/bench.md, without its header.
fn table(heading: &str) -> Vec<Vec<String>> {
    let page = std::fs::read_to_string(root().join("docs/bench.md")).unwrap();
    let part =
        page.split(&format!("\n## {heading}\n")).nth(1).unwrap_or_else(|| panic!("no heading {heading:?}"));
    part.lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect()
}

/// The number at the start of a cell: `1,008 GB/s` is 1008.
fn number(cell: &str) -> f64 {
    let digits: String =
        cell.replace(',', "").chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    digits.parse().unwrap_or_else(|_| panic!("no number at the start of {cell:?}"))
}

#[test]
fn the_table_of_published_throughput_reckons_rightly() {
    let rows = table("What others published, and what a single stream can reach");
    assert_eq!(rows.len(), 6);
    for row in &rows {
        let [part, _, speed, ram, needed, public, bound, over] = row.as_slice() else {
            panic!("{row:?} has not eight cells")
        };
        let (speed, megabytes, needed) = (number(speed), number(ram), number(needed));
        assert!(
            (speed * megabytes / 1e3 - needed).abs() < 0.51,
            "{part}: {speed} · {megabytes} MB is not {needed} GB/s"
        );
        let low = number(public) * 1e3 / megabytes;
        assert!(
            (low / number(bound) - 1.0).abs() < 0.01,
            "{part}: {public} over {megabytes} MB is {low}, not {bound}"
        );
        // Where the bandwidth is a range the bound is one, and so is what is claimed over it.
        let high = public.split_once('–').map_or(low, |(_, high)| number(high) * 1e3 / megabytes);
        if let Some((_, shown)) = bound.split_once('–') {
            assert!((high / number(shown) - 1.0).abs() < 0.01, "{part}: {high} is not {shown}");
        }
        let (least, most) = over.split_once('–').unwrap_or((over, over));
        assert!((speed / high - number(least)).abs() < 0.06, "{part}: {speed} over {high} is not {least}");
        assert!((speed / low - number(most)).abs() < 0.06, "{part}: {speed} over {low} is not {most}");
    }
    let within: Vec<&str> =
        rows.iter().filter(|row| number(&row[7]) < 1.0).map(|row| row[0].as_str()).collect();
    assert_eq!(within, ["WASM SIMD (browser)"], "the text below the table says so");
}

#[test]
fn the_kept_records_keep_the_schema_and_stand_in_their_overview() {
    let folder = root().join("benches/records/devices");
    let overview = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let mut records = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|kind| kind != "json") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        valid(&serde_json::from_str(&text).unwrap());
        let record = Record::parse(&text).unwrap();
        for row in &record.speed {
            let above = row.bound.is_some_and(|bound| bound.share > 1.0);
            let told =
                record.warnings.iter().any(|w| w.code == "above_bound" && w.message.starts_with(&row.test));
            assert!(!above || told, "{}: {} stands above its bound without a word", path.display(), row.test);
        }
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(overview.contains(&name), "the overview does not name {name}");
        records += 1;
    }
    assert!(records > 0);
}
