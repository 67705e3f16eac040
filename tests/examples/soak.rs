//! A long run of mixed prompts: nothing may grow, nothing may fail, and how long answers take is told.
//!
//!     cargo run --release -p zen-edge-tests --example soak -- [CPU_MINUTES]
//!
//! Prompts of 1 to 4,000 tokens in many languages, by every way in: alone, from four threads, typed in a session, in
//! conversations, with users and rewards, under limits, deadlines, and a device that grows hot and cools again. Prints JSON;
//! ends with an error where memory grew or an answer was missing.

use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zen_edge_core::decision::{Context, Limits, Power, Source, Thermal};
use zen_edge_core::pack::{Pack, Part};
use zen_edge_core::router::{Request, Router, RouterOptions, Session};
use zen_edge_default_pack::{CONFIG, pack};

const SENTENCES: [&str; 20] = [
    "The committee met again, and nothing was decided about the bridge.",
    "Was kostet es, das Dach im Frühjahr neu zu decken?",
    "¿Por qué el cielo es azul y el atardecer rojo?",
    "你好，请用两句话解释什么是量子纠缠。",
    "Напиши функцию, которая сортирует список по длине строк.",
    "اشرح الفرق بين الذاكرة والتخزين.",
    "次の文章を要約してください。",
    "대한민국의 수도는 어디이며 왜 그곳이 수도가 되었나요?",
    "भारत में मानसून कब आता है और क्यों?",
    "ทำไมท้องฟ้าจึงเป็นสีฟ้า",
    "כתוב שיר קצר על הים בלילה.",
    "Γιατί ο ουρανός είναι γαλάζιος το μεσημέρι;",
    "Pourquoi les marées changent-elles d'heure chaque jour ?",
    "Şu cümleyi İngilizceye çevir: yağmur yağıyor.",
    "Tại sao lá cây đổi màu vào mùa thu?",
    "fn main() { let x = (1..=10).map(|i| i * i).sum::<u32>(); println!(\"{x}\"); }",
    "\\int_0^\\infty e^{-x^2} dx = \\frac{\\sqrt{\\pi}}{2}",
    "{\"key\": [1, 2.5e-9, null, true], \"s\": \"\\u00e9\"}",
    "thanks!",
    "🙂🚀👩‍🚀 ok\r\n\t",
];

/// CPU time of this process.
fn cpu() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let after_name = stat.rsplit_once(')')?.1;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 10))
}

/// Memory of our own and open files.
fn held() -> (u64, usize) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap_or_default();
    let kib = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    (kib, std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count))
}

fn prompt(random: &mut fastrand::Rng) -> String {
    // Lengths by powers of two: as many of 1 to 2 sentences as of 128 to 256.
    let sentences = 1 << random.u32(0..9);
    let mut text = format!("{} ", random.u32(..));
    for _ in 0..random.usize(sentences / 2..=sentences) {
        text.push_str(SENTENCES[random.usize(..SENTENCES.len())]);
        text.push(' ');
    }
    text
}

/// The default pack, which reads 4,000 tokens of a prompt and not only the 512 that its heads were fitted to.
fn reads_4000() -> Pack {
    let mut config: serde_json::Value = serde_json::from_slice(CONFIG).expect("the config is JSON");
    config["max_chars"] = json!(200_000);
    config["max_tokens"] = json!(4000);
    Pack { config: Part::new("router_config.json", config.to_string()), ..pack() }
}

fn main() {
    let minutes: f64 = std::env::args().nth(1).map_or(1.0, |word| word.parse().expect("minutes"));
    let router = Router::load(&reads_4000(), &RouterOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    let router = Arc::new(router);
    router.warm_up().expect("a pass");
    let session = Session::new(router.clone());
    let mut random = fastrand::Rng::with_seed(30);
    let (start, begun) = (Instant::now(), cpu().unwrap_or_default());
    let spent = || cpu().map_or_else(|| start.elapsed(), |now| now - begun);
    let mut times: Vec<(usize, f64)> = Vec::new();
    let (mut rounds, mut rules, mut samples) = (0u64, 0u64, Vec::new());
    while spent().as_secs_f64() < minutes * 60.0 {
        rounds += 1;
        // Hot for a fifth of the time: nothing is loaded then, and too hot for a twentieth.
        let thermal = match rounds % 100 {
            0..5 => Thermal::Critical,
            5..20 => Thermal::Serious,
            _ => Thermal::Nominal,
        };
        let power = Power { battery: Some((rounds % 50) as f32 / 50.0), ..Power::default() };
        let (user, talk) = (format!("user {}", rounds % 90), format!("talk {}", rounds % 3000));
        let request = Request {
            limits: Limits {
                max_cost: (rounds % 7 == 0).then_some(0.001),
                offline: rounds % 11 == 0,
                ..Limits::default()
            },
            context: Context { thermal, power, now_ms: rounds, ..Context::default() },
            deadline_ms: (rounds % 13 == 0).then_some(5.0),
            user: (rounds % 3 == 0).then_some(&*user),
            conversation: (rounds % 4 == 0).then_some(&*talk),
            ..Request::default()
        };
        let text = prompt(&mut random);
        match rounds % 40 {
            // Four callers at once.
            0 => std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| router.route(&text, &request).expect("an answer"));
                }
            }),
            // Somebody types.
            1 => {
                for end in (0..text.len().min(200)).step_by(9).filter(|end| text.is_char_boundary(*end)) {
                    session.update(&text[..end], &request).expect("a draft");
                }
            }
            _ => {
                let begin = Instant::now();
                let outcome = router.route(&text, &request).expect("an answer");
                rules += u64::from(outcome.decision.source != Source::Learned);
                times.push((outcome.reading.tokens, begin.elapsed().as_secs_f64() * 1e3));
                if let Some(id) = outcome.id
                    && rounds % 6 == 0
                {
                    router.observe(id, random.f64()).expect("it waits");
                }
            }
        }
        if rounds % 500 == 0 {
            let (kib, files) = held();
            samples.push(json!({"round": rounds, "kib": kib, "files": files}));
            eprint!(
                "\r{rounds} rounds, {:.1} of {minutes} CPU minutes, {kib} KiB ",
                spent().as_secs_f64() / 60.0
            );
        }
    }
    eprintln!();
    let mut strata = Vec::new();
    for (name, range) in
        [("1-32", 1..33), ("33-128", 33..129), ("129-512", 129..513), ("513-4000", 513..4001)]
    {
        let mut ms: Vec<f64> = times.iter().filter(|(n, _)| range.contains(n)).map(|(_, ms)| *ms).collect();
        ms.sort_by(f64::total_cmp);
        let at = |share: f64| ms.get((ms.len().saturating_sub(1) as f64 * share) as usize).copied();
        strata.push(json!({"tokens": name, "prompts": ms.len(), "p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1.0)}));
    }
    let stats = router.stats();
    // After the caches have filled, memory must stay where it is.
    let kib = |at: usize| samples.get(at).and_then(|s| s["kib"].as_u64()).unwrap_or(0);
    let (early, last) = (kib(samples.len() / 4), kib(samples.len().saturating_sub(1)));
    println!(
        "{}",
        json!({
            "rounds": rounds, "cpu_minutes": spent().as_secs_f64() / 60.0, "wall_minutes": start.elapsed().as_secs_f64() / 60.0,
            "not_by_heads": rules, "strata": strata, "kib_at_a_quarter": early, "kib_at_the_end": last,
            "memory": samples.iter().step_by((samples.len() / 20).max(1)).collect::<Vec<_>>(), "stats": stats,
        })
    );
    assert_eq!(stats.counts.failed, 0);
    assert!(last < early + 8 * 1024, "memory grew from {early} to {last} KiB");
}
