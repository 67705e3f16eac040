use super::*;
use crate::decision::{MemorySnapshot, Thermal};
use crate::policy::Policy;

#[test]
fn androids_levels_map_by_what_they_ask_for() {
    use TrimLevel::{Caches, Contexts, Weights};
    let expected = [
        (0, None),
        (-1, None),
        (5, Some(Contexts)),
        (10, Some(Contexts)),
        (15, Some(Caches)),
        (20, Some(Contexts)),
        (40, Some(Caches)),
        (59, Some(Caches)),
        (60, Some(Weights)),
        (80, Some(Weights)),
        (i32::MAX, Some(Weights)),
    ];
    for (level, trim) in expected {
        assert_eq!(TrimLevel::of_android(level), trim, "{level}");
    }
    assert_eq!(TrimLevel::of_memory_warning(true), Caches);
    assert_eq!(TrimLevel::of_memory_warning(false), Weights);
    assert!(Contexts < Caches && Caches < Weights);
}

#[test]
fn heat_and_background_take_threads_and_the_gpu() {
    use Thermal::{Critical, Fair, Nominal, Serious};
    let run = |threads, gpu| Work::Run { threads, gpu };
    let deferred = Work::Deferred(Deferral::Background);
    for (foreground, thermal, cpu, defer) in [
        (true, Nominal, run(5, true), run(5, true)),
        (true, Fair, run(3, true), run(3, true)),
        (true, Serious, run(1, false), run(1, false)),
        (true, Critical, Work::Rules, Work::Rules),
        (false, Nominal, run(1, false), deferred),
        (false, Fair, run(1, false), deferred),
        (false, Serious, run(1, false), deferred),
        (false, Critical, Work::Rules, deferred),
    ] {
        let device = Device { foreground, thermal };
        assert_eq!(plan(5, &device, Background::Cpu), cpu, "{device:?}");
        assert_eq!(plan(5, &device, Background::Defer), defer, "{device:?}");
        // Never more than there are, never none.
        for work in [plan(0, &device, Background::Cpu), plan(1, &device, Background::Cpu)] {
            assert!(matches!(work, Work::Rules | Work::Run { threads: 1, .. }), "{work:?}");
        }
    }
}

#[test]
fn fast_cores_are_those_near_the_fastest() {
    // Capacities of phones: one prime, three or four large, four small.
    assert_eq!(fast_cores(&[250, 250, 250, 250, 880, 880, 880, 1024]), Some(4));
    assert_eq!(fast_cores(&[1_803_000, 1_803_000, 2_850_000, 2_850_000]), Some(4));
    assert_eq!(fast_cores(&[400, 400, 1024, 1024]), Some(2));
    assert_eq!(fast_cores(&[1024; 2]), Some(2));
    assert_eq!(fast_cores(&[u64::MAX, 1]), Some(1));
    assert_eq!((fast_cores(&[]), fast_cores(&[0, 0])), (None, None));
}

#[test]
fn a_budget_refuses_with_the_figures() {
    const MB: u64 = 1_000_000;
    let footprint = Footprint {
        weights: 250 * MB,
        mapped: true,
        heads: 2 * MB,
        vocabulary: 20 * MB,
        activations: 30 * MB,
        caches: 38 * MB,
    };
    assert_eq!((footprint.private(), footprint.total()), (90 * MB, 340 * MB));
    assert_eq!(Footprint { mapped: false, ..footprint }.private(), 340 * MB);
    let policy = Policy::default();
    let memory = |available| MemorySnapshot { available, total: 6_000 * MB, unified: true };
    footprint.check(&memory(400 * MB), &policy).unwrap();
    let over = footprint.check(&memory(399 * MB), &policy).unwrap_err();
    assert_eq!((over.needs, over.available, over.budget), (340 * MB, 399 * MB, 339_150_000));
    let words = over.to_string();
    for word in ["340.0 MB", "250.0 MB", "399.0 MB", "339.1 MB", "0.85"] {
        assert!(words.contains(word), "{words}");
    }
    // Not unified: a smaller share. A snapshot that claims more than the machine has is not believed.
    assert!(footprint.check(&MemorySnapshot { unified: false, ..memory(400 * MB) }, &policy).is_err());
    assert!(footprint.check(&MemorySnapshot { total: 300 * MB, ..memory(u64::MAX) }, &policy).is_err());
    let own = Policy { memory_fraction: Some(1.0), ..Policy::default() };
    footprint.check(&memory(340 * MB), &own).unwrap();
    // Sums of a hostile file's figures do not wrap.
    let endless = Footprint { weights: u64::MAX, heads: u64::MAX, ..footprint };
    assert_eq!(endless.check(&memory(u64::MAX), &policy).unwrap_err().needs, u64::MAX);
}
