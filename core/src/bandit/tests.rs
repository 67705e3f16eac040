use super::*;

fn arms(rows: usize, features: usize) -> Arms {
    Arms { heads_sha256: "ab".repeat(32), ids: (0..rows).map(|i| format!("model-{i}")).collect(), features }
}

fn options() -> BanditOptions {
    BanditOptions { epoch: Some(7), ..BanditOptions::default() }
}

#[test]
fn an_unknown_user_gets_the_prior_and_leaves_no_trace() {
    let bandit = Bandit::new(arms(3, 20), options());
    let estimate = bandit.estimate("ann", &[0.5; 20], &[0.2, 0.7, 0.1]).unwrap();
    assert_eq!(estimate.mean, [0.2, 0.7, 0.1]);
    assert_eq!(bandit.stats().users, 0);
    assert_eq!(bandit.user("ann"), None);
}

#[test]
fn a_file_comes_back_as_it_was() {
    let mut bandit = Bandit::new(arms(3, 20), options());
    for i in 0..40 {
        let features: Vec<f32> = (0..20).map(|j| ((i * 7 + j * 3) % 11) as f32).collect();
        let estimate = bandit.estimate("ann", &features, &[0.2, 0.7, 0.1]).unwrap();
        let id = bandit.record("ann", i % 2, &estimate);
        if i % 3 != 0 {
            bandit.observe(id, (i % 5) as f64 / 4.0).unwrap();
        }
    }
    let (back, why) = Bandit::from_bytes(&bandit.to_bytes(), arms(3, 20), options());
    assert_eq!(why, None);
    assert_eq!((back.users, back.pending, back.scale), (bandit.users, bandit.pending, bandit.scale));
}
