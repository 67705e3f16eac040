use super::learner::{BELIEFS, Belief, SHARED, priors};
use super::*;
use proptest::prelude::*;

const ROWS: usize = 3;
const FEATURES: usize = 20;
const PRIOR: [f64; ROWS] = [0.2, 0.7, 0.1];

fn arms() -> Arms {
    let ids = ["small", "large", "other"].map(String::from).to_vec();
    Arms { heads_sha256: "ab".repeat(32), ids, features: FEATURES }
}

fn options() -> BanditOptions {
    BanditOptions { epoch: Some(7), ..BanditOptions::default() }
}

fn bandit(options: BanditOptions) -> Bandit {
    Bandit::new(arms(), options)
}

/// A prompt's features, different for each number.
fn features(i: usize) -> Vec<f32> {
    (0..FEATURES).map(|j| ((i * 37 + j * 101 + i * j * 13) % 29) as f32 / 10.0 - 1.4).collect()
}

/// One prompt of a user, answered by a row.
fn turn(bandit: &mut Bandit, user: &str, i: usize, row: usize) -> OutcomeId {
    let estimate = bandit.estimate(user, &features(i), &PRIOR).unwrap();
    bandit.record(user, row, &estimate)
}

/// A bandit with two users, of whom one has tried two rows, and an outcome that waits.
fn taught() -> Bandit {
    let mut bandit = bandit(options());
    for i in 0..24 {
        let id = turn(&mut bandit, "ann", i, i % 2);
        bandit.observe(id, (i % 5) as f64 / 4.0).unwrap();
    }
    let id = turn(&mut bandit, "bob@example.org", 3, 2);
    bandit.observe(id, 0.5).unwrap();
    turn(&mut bandit, "ann", 99, 1);
    bandit
}

/// Bytes with their checksum made right.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let body = bytes.len() - 32;
    let checksum = Sha256::digest(&bytes[..body]);
    bytes[body..].copy_from_slice(&checksum);
    bytes
}

fn refused(bytes: &[u8], arms: Arms) -> FreshStart {
    let (fresh, why) = Bandit::from_bytes(bytes, arms, options());
    assert_eq!((fresh.stats().users, fresh.stats().pending), (0, 0));
    why.expect("the file is refused")
}

#[test]
fn an_unknown_user_gets_the_prior_and_leaves_no_trace() {
    let mut bandit = bandit(options());
    let estimate = bandit.estimate("ann", &features(1), &PRIOR).unwrap();
    assert_eq!(estimate.mean, PRIOR);
    assert!(estimate.width.iter().all(|&w| w > 0.0));
    for row in 0..ROWS {
        let sum = estimate.mean[row] + bandit.options().exploration * estimate.width[row];
        assert_eq!(estimate.quality[row], sum);
    }
    let id = bandit.record("ann", 1, &estimate);
    assert_eq!((bandit.stats().users, bandit.user("ann")), (0, None));
    bandit.observe(id, 1.0).unwrap();
    assert_eq!(bandit.stats().users, 1);
}

#[test]
fn what_does_not_fit_is_refused_by_cause() {
    let bandit = bandit(options());
    let error = |features: &[f32], prior: &[f64]| bandit.estimate("ann", features, prior).unwrap_err();
    assert_eq!(error(&[0.0; 3], &PRIOR), BanditError::Features { found: 3, expected: FEATURES });
    assert_eq!(error(&features(0), &[0.5]), BanditError::Prior { found: 1, expected: ROWS });
    let mut bad = features(0);
    bad[19] = f32::INFINITY;
    assert_eq!(error(&bad, &PRIOR), BanditError::Feature { index: 19, value: f32::INFINITY });
    assert!(matches!(error(&features(0), &[0.1, f64::NAN, 0.2]), BanditError::PriorValue { index: 1, .. }));
}

#[test]
fn a_reward_is_learned_once_and_only_for_what_waits() {
    let mut bandit = bandit(BanditOptions { max_pending: 2, ..options() });
    let ids: Vec<_> = (0..3).map(|i| turn(&mut bandit, "ann", i, 0)).collect();
    assert_eq!((bandit.stats().pending, bandit.stats().missing), (2, 1));
    assert_eq!(bandit.observe(ids[0], 1.0), Err(ObserveError::Unknown(ids[0])));
    assert!(matches!(bandit.observe(ids[1], f64::NAN), Err(ObserveError::NotFinite(_))));
    assert_eq!(bandit.observe(ids[2], 1.0), Ok(()), "rewards may come in any order");
    assert_eq!(bandit.observe(ids[1], 1.0), Ok(()), "a reward that was no number leaves the outcome waiting");
    assert_eq!(bandit.observe(ids[1], 1.0), Err(ObserveError::Unknown(ids[1])));
    assert_eq!((bandit.stats().observed, bandit.stats().pending), (2, 0));

    let estimate = bandit.estimate("ann", &features(0), &PRIOR).unwrap();
    let nowhere = bandit.record("ann", ROWS, &estimate);
    assert_eq!(bandit.observe(nowhere, 1.0), Err(ObserveError::Unknown(nowhere)));
}

#[test]
fn what_is_learned_moves_the_estimate_of_the_row_and_little_else() {
    let mut bandit = bandit(options());
    for i in 0..60 {
        let id = turn(&mut bandit, "ann", i, i % 2);
        bandit.observe(id, if i % 2 == 0 { 0.9 } else { 0.3 }).unwrap();
    }
    let estimate = bandit.estimate("ann", &features(7), &PRIOR).unwrap();
    assert!(estimate.mean[0] > estimate.mean[1] + 0.3, "{:?}", estimate.mean);
    // The row that was never tried is thought of as the tried ones are on the whole, and is known least.
    assert!(estimate.mean[2] > 0.3 && estimate.mean[2] < 0.9, "{:?}", estimate.mean);
    assert!(estimate.width[2] > estimate.width[0] && estimate.width[2] > estimate.width[1]);
    let stranger = bandit.estimate("bob", &features(7), &PRIOR).unwrap();
    assert_eq!(stranger.mean, PRIOR, "users do not learn from each other");

    let ann = bandit.user("ann").unwrap();
    assert_eq!(ann.observations, 60);
    assert!(ann.effective > 55.0 && ann.effective < 60.0, "{}", ann.effective);
    let of: Vec<_> = ann.arms.iter().map(|arm| (arm.model.as_str(), arm.pulls)).collect();
    assert_eq!(of, [("small", 30), ("large", 30)]);
    assert!((ann.arms[0].quality - 0.9).abs() < 1e-9 && (ann.arms[1].quality - 0.3).abs() < 1e-9);
}

#[test]
fn an_absurd_reward_is_clamped() {
    let (mut absurd, mut most) = (bandit(options()), bandit(options()));
    for (bandit, quality) in [(&mut absurd, 1e300), (&mut most, QUALITY_RANGE.1)] {
        let id = turn(bandit, "ann", 0, 0);
        bandit.observe(id, quality).unwrap();
    }
    assert_eq!(absurd.to_bytes(), most.to_bytes());
}

#[test]
fn the_user_that_was_used_longest_ago_makes_room() {
    let mut bandit = bandit(BanditOptions { max_users: 2, ..options() });
    for user in ["ann", "bob"] {
        let id = turn(&mut bandit, user, 0, 0);
        bandit.observe(id, 1.0).unwrap();
    }
    turn(&mut bandit, "ann", 1, 0);
    let id = turn(&mut bandit, "eve", 2, 0);
    assert_eq!(bandit.stats().users, 2, "a prompt alone evicts nobody");
    bandit.observe(id, 1.0).unwrap();
    let known = ["ann", "bob", "eve"].map(|user| bandit.user(user).is_some());
    assert_eq!((known, bandit.stats().evictions), ([true, false, true], 1));

    let mut none = self::bandit(BanditOptions { max_users: 0, max_pending: 1, ..options() });
    let id = turn(&mut none, "ann", 0, 0);
    assert_eq!(none.observe(id, 1.0), Ok(()));
    assert_eq!(none.stats().users, 0);
}

#[test]
fn forgetting_a_user_leaves_nothing_of_them() {
    let mut bandit = bandit(options());
    let empty = bandit.stats().bytes;
    let id = turn(&mut bandit, "ann", 0, 0);
    assert!(bandit.forget("ann"), "an outcome that waits is something");
    assert_eq!(bandit.observe(id, 1.0), Err(ObserveError::Unknown(id)));
    let id = turn(&mut bandit, "ann", 1, 0);
    bandit.observe(id, 1.0).unwrap();
    assert!(bandit.stats().bytes > empty);
    assert!(bandit.forget("ann") && !bandit.forget("ann"));
    assert_eq!((bandit.user("ann"), bandit.stats().bytes), (None, empty));
}

#[test]
fn a_user_of_28_models_stays_below_64_kib() {
    let ids: Vec<String> = (0..28).map(|i| format!("model-{i}")).collect();
    let mut bandit = Bandit::new(Arms { ids, features: 256, ..arms() }, options());
    let empty = bandit.to_bytes().len();
    for row in 0..28 {
        let features: Vec<f32> = (0..256).map(|i| ((row * 31 + i * 7) % 13) as f32).collect();
        let estimate = bandit.estimate("ann", &features, &[0.04; 28]).unwrap();
        let id = bandit.record("ann", row, &estimate);
        bandit.observe(id, 0.5).unwrap();
    }
    let (memory, file) = (bandit.user("ann").unwrap().bytes, bandit.to_bytes().len() - empty);
    assert!(memory <= 64 << 10 && file <= 64 << 10, "{memory} bytes in memory, {file} in the file");
}

#[test]
fn options_out_of_range_count_as_the_default() {
    for bad in [f64::NAN, -1.0, f64::INFINITY] {
        let options = BanditOptions { exploration: bad, forgetting: bad, ..options() };
        assert_eq!(*bandit(options).options(), self::options());
    }
    assert_eq!(
        bandit(BanditOptions { forgetting: 0.0, ..options() }).options().forgetting,
        options().forgetting
    );
    assert_eq!(bandit(BanditOptions { forgetting: 1.0, ..options() }).options().forgetting, 1.0);
}

#[test]
fn ids_are_sixteen_digits_everywhere() {
    let id = OutcomeId::new(0xab, 0x1f);
    assert_eq!(id.to_string(), "000000ab0000001f");
    assert_eq!("000000AB0000001f".parse(), Ok(id));
    assert_eq!(serde_json::to_string(&id).unwrap(), "\"000000ab0000001f\"");
    assert_eq!(serde_json::from_str::<OutcomeId>("\"000000ab0000001f\"").unwrap(), id);
    assert_eq!(serde_json::from_reader::<_, OutcomeId>(&b"\"000000ab0000001f\""[..]).unwrap(), id);
    for bad in ["", "1f", "000000ab0000001g", "+00000ab0000001f", "000000ab0000001f0", "000000ab000001é"] {
        assert!(bad.parse::<OutcomeId>().is_err(), "{bad}");
    }
    assert!(serde_json::from_str::<OutcomeId>("17").is_err());
}

#[test]
fn ids_do_not_repeat() {
    let mut bandit = taught();
    let mut ids: Vec<_> = (0..5).map(|i| turn(&mut bandit, "ann", i, 0)).collect();
    // The caller hands in the same epoch again: an outcome of the first run may still wait, or its reward be on its way.
    let (mut back, _) = Bandit::from_bytes(&bandit.to_bytes(), arms(), options());
    ids.extend((0..40).map(|i| turn(&mut back, "ann", i, 0)));
    back.sequence = u32::MAX;
    ids.extend((0..2).map(|i| turn(&mut back, "ann", i, 0)));
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
    let epochs: Vec<u32> = (0..8).map(|_| Bandit::new(arms(), BanditOptions::default()).epoch).collect();
    assert!(epochs.iter().any(|epoch| *epoch != epochs[0]), "{epochs:?}");
}

#[test]
fn a_file_comes_back_as_it_was() {
    let mut bandit = taught();
    let id = turn(&mut bandit, "bob@example.org", 5, 0);
    let bytes = bandit.to_bytes();
    let (mut back, why) = Bandit::from_bytes(&bytes, arms(), options());
    assert_eq!(why, None);
    assert_eq!((&back.users, &back.pending, &back.scale), (&bandit.users, &bandit.pending, &bandit.scale));
    assert_eq!(back.stats(), bandit.stats());
    // A reward that comes after the restart.
    for bandit in [&mut back, &mut bandit] {
        bandit.observe(id, 0.25).unwrap();
    }
    let of = |bandit: &Bandit| bandit.estimate("bob@example.org", &features(8), &PRIOR).unwrap();
    assert_eq!(of(&back), of(&bandit));
    assert!(!bytes.windows(4).any(|part| part == b"bob@"), "a user's name stands in the file");
}

#[test]
fn a_file_is_cut_to_the_caps_of_the_new_run() {
    let options = BanditOptions { max_users: 1, max_pending: 0, ..options() };
    let (back, why) = Bandit::from_bytes(&taught().to_bytes(), arms(), options);
    assert_eq!(why, None);
    let stats = back.stats();
    assert_eq!((stats.users, stats.evictions, stats.pending, stats.missing), (1, 1, 0, 1));
    assert!(back.user("ann").is_some(), "she was used last");
}

#[test]
fn each_reason_for_a_fresh_start() {
    let bytes = taught().to_bytes();
    assert_eq!(refused(b"", arms()), FreshStart::NotOurs);
    assert_eq!(refused(b"safetensors", arms()), FreshStart::NotOurs);
    let mut other = bytes.clone();
    other[8] = 9;
    assert_eq!(refused(&other, arms()), FreshStart::Version { found: 9 });
    let expected = bytes.len() as u64;
    assert_eq!(refused(&bytes[..100], arms()), FreshStart::Length { found: 100, expected });
    let longer = [&bytes[..], b"x"].concat();
    assert_eq!(refused(&longer, arms()), FreshStart::Length { found: expected + 1, expected });
    let mut other = bytes.clone();
    other[200] ^= 1;
    assert_eq!(refused(&other, arms()), FreshStart::Checksum);
    let heads = Arms { heads_sha256: "cd".repeat(32), ..arms() };
    let (found, expected) = ("ab".repeat(32), "cd".repeat(32));
    assert_eq!(refused(&bytes, heads), FreshStart::OtherHeads { found, expected });
    let mut renamed = arms();
    renamed.ids.swap(0, 1);
    assert_eq!(refused(&bytes, renamed), FreshStart::OtherArms);
    assert_eq!(refused(&bytes, Arms { features: 256, ..arms() }), FreshStart::OtherArms);
    let mut fewer = arms();
    fewer.ids.pop();
    assert_eq!(refused(&bytes, fewer), FreshStart::OtherArms);
    // A row beyond the models, under a right checksum: the pending outcome's, near the end.
    let mut other = bytes.clone();
    let row = bytes.len() - 32 - 4 - 4 * RAW - 4;
    other[row] = 200;
    assert_eq!(refused(&sealed(other), arms()), FreshStart::Impossible { what: "outcome" });
}

#[test]
fn every_cut_and_every_changed_byte_is_refused() {
    let bytes = taught().to_bytes();
    for len in 0..bytes.len() {
        refused(&bytes[..len], arms());
    }
    for at in 0..bytes.len() {
        for change in [0x01, 0x80, 0xff] {
            let mut other = bytes.clone();
            other[at] ^= change;
            refused(&other, arms());
        }
    }
}

/// What a file with a right checksum claims is refused or gives finite estimates, before and after it learns more.
fn harmless(bytes: Vec<u8>) {
    let (mut bandit, _) = Bandit::from_bytes(&sealed(bytes), arms(), options());
    for i in 0..2 {
        let estimate = bandit.estimate("ann", &features(i), &PRIOR).unwrap();
        let numbers = estimate.mean.iter().chain(&estimate.width);
        assert!(numbers.clone().all(|x| x.is_finite()), "{estimate:?}");
        let id = bandit.record("ann", 0, &estimate);
        bandit.observe(id, 1.0).unwrap();
    }
    assert!(!bandit.to_bytes().is_empty());
}

#[test]
fn every_changed_byte_under_a_right_checksum_is_harmless() {
    let bytes = taught().to_bytes();
    for at in 0..bytes.len() - 32 {
        for change in [0x40, 0xff] {
            let mut other = bytes.clone();
            other[at] ^= change;
            harmless(other);
        }
    }
}

proptest! {
    #[test]
    fn many_changed_bytes_under_a_right_checksum_are_harmless(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20)
    ) {
        let mut bytes = taught().to_bytes();
        let body = bytes.len() - 32;
        for (at, value) in changes {
            bytes[at.index(body)] = value;
        }
        harmless(bytes);
    }
}

#[test]
fn a_saved_file_replaces_the_old_one_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("learned.bin");
    let (fresh, why) = Bandit::load(&path, arms(), options()).unwrap();
    assert_eq!((fresh.stats().users, why), (0, None), "an absent file is no damage");
    fresh.save(&path).unwrap();
    taught().save(&path).unwrap();
    let (back, why) = Bandit::load(&path, arms(), options()).unwrap();
    assert_eq!((back.stats().users, why), (2, None));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    std::fs::write(&path, b"ZEDGE").unwrap();
    let (fresh, why) = Bandit::load(&path, arms(), options()).unwrap();
    assert!(matches!(why, Some(FreshStart::Length { found: 5, .. })), "{why:?}");
    assert_eq!(fresh.stats().users, 0);
    assert!(Bandit::load(folder.path(), arms(), options()).is_err(), "a folder cannot be read");
    assert!(taught().save(&folder.path().join("absent/learned.bin")).is_err());
}

/// A seeded stream of prompts in `z` coordinates.
fn stream(n: usize) -> impl Iterator<Item = (Z, f64, usize, f64)> {
    let mut state = 1u64;
    let mut unit = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    (0..n).map(move |i| {
        let mut z = [1.0; DIMENSIONS];
        z[1..].iter_mut().for_each(|z| *z = unit() - 0.5);
        let quality = if unit() < 0.5 + 0.4 * z[1 + i % ROWS] { 1.0 } else { 0.0 };
        (z, unit(), i % ROWS, quality)
    })
}

/// The posterior mean of all weights by normal equations in f64: the shared ones, then each row's own.
fn solved(belief: usize, n: usize) -> Vec<f64> {
    let size = SHARED + ROWS * DIMENSIONS;
    let (row, shared) = priors(belief);
    let mut a = vec![vec![0.0; size + 1]; size];
    for i in 0..size {
        a[i][i] = if i < SHARED { shared[i].0 } else { 1.0 / row };
        a[i][size] = if i < SHARED { shared[i].1 } else { 0.0 };
    }
    for (z, prior, row, quality) in stream(n) {
        let mut x = vec![0.0; size];
        x[..DIMENSIONS].copy_from_slice(&z);
        x[DIMENSIONS] = prior;
        x[SHARED + row * DIMENSIONS..][..DIMENSIONS].copy_from_slice(&z);
        for i in (0..size).filter(|&i| x[i] != 0.0) {
            for (entry, other) in a[i].iter_mut().zip(&x) {
                *entry += x[i] * other;
            }
            a[i][size] += x[i] * quality;
        }
    }
    for i in 0..size {
        let pivot = a[i].clone();
        for below in &mut a[i + 1..] {
            let factor = below[i] / pivot[i];
            for (entry, above) in below[i..].iter_mut().zip(&pivot[i..]) {
                *entry -= factor * above;
            }
        }
    }
    let mut w = vec![0.0; size];
    for i in (0..size).rev() {
        let rest: f64 = (i + 1..size).map(|j| a[i][j] * w[j]).sum();
        w[i] = (a[i][size] - rest) / a[i][i];
    }
    w
}

#[test]
fn a_hundred_thousand_updates_do_not_drift() {
    const N: usize = 100_000;
    let mut user = User::default();
    for (z, prior, row, quality) in stream(N) {
        user.observe(ROWS, row, &z, prior, quality, 1.0);
    }
    let weights: [Vec<f64>; BELIEFS] = std::array::from_fn(|belief| solved(belief, N));
    for (z, prior, row, _) in stream(50) {
        for (b, (belief, w)) in user.beliefs.iter().zip(&weights).enumerate() {
            let own = &w[SHARED + row * DIMENSIONS..];
            let exact: f64 =
                (0..DIMENSIONS).map(|i| z[i] * (w[i] + own[i])).sum::<f64>() + prior * w[DIMENSIONS];
            let ours = belief.mean(b, row, &z, prior);
            assert!((ours - exact).abs() < 2e-4, "{ours} after {N} updates, {exact} by a fresh solve");
        }
    }
    assert!(user.is_possible());
}

#[test]
fn with_forgetting_nothing_wears_out() {
    let mut user = User::default();
    for (z, prior, row, quality) in stream(100_000) {
        // Two of the rows only: the third must come to rest at its prior.
        user.observe(ROWS, row % 2, &z, prior, quality, 0.99);
    }
    assert!(user.is_possible());
    assert!((user.effective - 100.0).abs() < 0.01, "{}", user.effective);
    let (z, prior, ..) = stream(1).next().unwrap();
    let (_, width) = user.estimate(&z, &[prior; ROWS]);
    assert!(width[2] > width[0] && width[2] > width[1], "{width:?}");
    let fresh: Vec<Belief> = User::default().beliefs.into();
    for (belief, fresh) in user.beliefs.iter().zip(&fresh) {
        assert!(belief.precision[0] > fresh.precision[0]);
    }
}
