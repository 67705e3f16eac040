//! L-BFGS with backtracking, for smooth convex functions.
//!
//! Own code and small: the crates that offer it bring a linear algebra library with them, and this needs none.

use std::collections::VecDeque;

/// When the search ends.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Steps at most.
    pub iterations: usize,
    /// The search has ended where no component of the gradient is larger.
    pub gradient: f64,
    /// And where a step betters the value by less than this share of it, twice in a row.
    pub gain: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { iterations: 200, gradient: 1e-5, gain: 1e-7 }
    }
}

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ended {
    /// The value that was reached.
    pub value: f64,
    /// The gradient's largest component there.
    pub gradient: f64,
    /// Steps that were made.
    pub iterations: usize,
}

/// Pairs of steps and changes of the gradient that are kept.
const HISTORY: usize = 12;
/// Armijo's share of the promised descent.
const DESCENT: f64 = 1e-4;

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn largest(a: &[f64]) -> f64 {
    a.iter().fold(0.0, |most, a| a.abs().max(most))
}

/// Minimises a function from `x` on; `f` gives the value and writes the gradient. `x` ends as the best point found.
pub fn minimise(x: &mut [f64], options: Options, mut f: impl FnMut(&[f64], &mut [f64]) -> f64) -> Ended {
    let n = x.len();
    let mut gradient = vec![0.0; n];
    let mut value = f(x, &mut gradient);
    let mut pairs: VecDeque<(Vec<f64>, Vec<f64>, f64)> = VecDeque::with_capacity(HISTORY);
    let (mut next, mut next_gradient) = (vec![0.0; n], vec![0.0; n]);
    let (mut iterations, mut small) = (0, 0);
    while iterations < options.iterations && largest(&gradient) > options.gradient {
        let mut direction: Vec<f64> = gradient.iter().map(|g| -g).collect();
        let mut alphas = Vec::with_capacity(pairs.len());
        for (s, y, rho) in pairs.iter().rev() {
            let alpha = rho * dot(s, &direction);
            direction.iter_mut().zip(y).for_each(|(d, y)| *d -= alpha * y);
            alphas.push(alpha);
        }
        if let Some((s, y, _)) = pairs.back() {
            let scale = dot(s, y) / dot(y, y);
            direction.iter_mut().for_each(|d| *d *= scale);
        }
        for ((s, y, rho), alpha) in pairs.iter().zip(alphas.into_iter().rev()) {
            let beta = rho * dot(y, &direction);
            direction.iter_mut().zip(s).for_each(|(d, s)| *d += (alpha - beta) * s);
        }
        let mut slope = dot(&gradient, &direction);
        if slope >= 0.0 || !slope.is_finite() {
            // The kept pairs no longer describe the function: steepest descent anew.
            pairs.clear();
            direction = gradient.iter().map(|g| -g).collect();
            slope = -dot(&gradient, &gradient);
        }
        let mut step = if pairs.is_empty() { (1.0 / dot(&gradient, &gradient).sqrt()).min(1.0) } else { 1.0 };
        let mut found = None;
        for _ in 0..40 {
            next.iter_mut().zip(&*x).zip(&direction).for_each(|((next, x), d)| *next = x + step * d);
            let reached = f(&next, &mut next_gradient);
            if reached <= value + DESCENT * step * slope {
                found = Some(reached);
                break;
            }
            // The minimum of the parabola through what is known, kept within a tenth and a half.
            let parabola = -slope * step * step / (2.0 * (reached - value - step * slope));
            step = if parabola.is_finite() { parabola.clamp(0.1 * step, 0.5 * step) } else { 0.5 * step };
        }
        let Some(reached) = found else { break };
        let s: Vec<f64> = next.iter().zip(&*x).map(|(next, x)| next - x).collect();
        let y: Vec<f64> = next_gradient.iter().zip(&gradient).map(|(next, g)| next - g).collect();
        let curvature = dot(&s, &y);
        if curvature > 1e-12 * dot(&y, &y) {
            if pairs.len() == HISTORY {
                pairs.pop_front();
            }
            pairs.push_back((s, y, 1.0 / curvature));
        }
        x.copy_from_slice(&next);
        std::mem::swap(&mut gradient, &mut next_gradient);
        small = if value - reached <= options.gain * value.abs() { small + 1 } else { 0 };
        value = reached;
        iterations += 1;
        if small == 2 {
            break;
        }
    }
    Ended { value, gradient: largest(&gradient), iterations }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bent_valley_is_followed_to_its_end() {
        // Rosenbrock's function, least at (1, 1); not convex, which is more than is asked for.
        let mut x = [-1.2, 1.0];
        let ended = minimise(&mut x, Options { gain: 0.0, ..Options::default() }, |x, g| {
            let (a, b) = (1.0 - x[0], x[1] - x[0] * x[0]);
            g[0] = -2.0 * a - 400.0 * x[0] * b;
            g[1] = 200.0 * b;
            a * a + 100.0 * b * b
        });
        assert!((x[0] - 1.0).abs() < 1e-4 && (x[1] - 1.0).abs() < 1e-4, "{x:?} {ended:?}");
    }

    #[test]
    fn a_parabola_of_unequal_axes_takes_few_steps() {
        let scales: Vec<f64> = (0..50).map(|i| 10f64.powf(f64::from(i) / 25.0)).collect();
        let mut x = vec![1.0; 50];
        let ended = minimise(&mut x, Options { gain: 0.0, ..Options::default() }, |x, g| {
            g.iter_mut().zip(x).zip(&scales).for_each(|((g, x), s)| *g = s * x);
            x.iter().zip(&scales).map(|(x, s)| 0.5 * s * x * x).sum()
        });
        assert!(ended.gradient <= 1e-5 && ended.iterations < 150, "{ended:?}");
    }
}
