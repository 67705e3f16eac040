//! Whether the heads' answer can be ready in time.

use super::Absent;
use serde::{Deserialize, Serialize};

/// A measured speed of the engine on this device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Speed {
    /// Prompt tokens that the backbone reads in a second.
    pub tokens_per_second: f64,
    /// Milliseconds that every prompt costs, however short.
    pub overhead_ms: f64,
}

impl Speed {
    /// When an answer on a prompt of `tokens` tokens is ready, in milliseconds from now. `None` where the speed is no
    /// sensible figure.
    #[must_use]
    pub fn estimate_ms(&self, tokens: u64) -> Option<f64> {
        let estimate = self.overhead_ms + tokens as f64 * 1000.0 / self.tokens_per_second;
        (self.tokens_per_second > 0.0 && self.overhead_ms >= 0.0 && estimate.is_finite()).then_some(estimate)
    }
}

/// Whether the heads may be asked: without a deadline always, else where the measured speed says that `tokens` tokens
/// (those that will be read, after truncation) are done in time. Where nothing has been measured yet nothing can be
/// promised, and the rules answer.
///
/// # Errors
/// [`Absent::Deadline`], to be handed to [`super::decide`] as the evidence's `heads`.
pub fn check_deadline(tokens: u64, speed: Option<&Speed>, deadline_ms: Option<f64>) -> Result<(), Absent> {
    let Some(deadline_ms) = deadline_ms else { return Ok(()) };
    let estimate_ms = speed.and_then(|speed| speed.estimate_ms(tokens));
    match estimate_ms {
        Some(estimate) if estimate <= deadline_ms => Ok(()),
        _ => Err(Absent::Deadline { estimate_ms, deadline_ms }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_decides() {
        let speed = Speed { tokens_per_second: 1000.0, overhead_ms: 5.0 };
        assert_eq!(speed.estimate_ms(100), Some(105.0));
        assert_eq!(check_deadline(100, Some(&speed), None), Ok(()));
        assert_eq!(check_deadline(100, Some(&speed), Some(105.0)), Ok(()));
        assert_eq!(
            check_deadline(100, Some(&speed), Some(104.0)),
            Err(Absent::Deadline { estimate_ms: Some(105.0), deadline_ms: 104.0 })
        );
    }

    #[test]
    fn nothing_is_promised_unmeasured() {
        let unknown = Err(Absent::Deadline { estimate_ms: None, deadline_ms: 1e9 });
        assert_eq!(check_deadline(1, None, Some(1e9)), unknown);
        for (tokens_per_second, overhead_ms) in
            [(0.0, 0.0), (-1.0, 0.0), (f64::NAN, 0.0), (1.0, f64::NAN), (1.0, -1.0)]
        {
            let speed = Speed { tokens_per_second, overhead_ms };
            assert_eq!(check_deadline(1, Some(&speed), Some(1e9)), unknown, "{speed:?}");
        }
        let speed = Speed { tokens_per_second: 10.0, overhead_ms: 0.0 };
        assert!(
            check_deadline(1, Some(&speed), Some(f64::NAN)).is_err(),
            "a deadline that is no number is missed"
        );
    }
}
