//! Calibration: the least noise that meets a target (ε, δ).

use crate::accountant::{Accountant, Answer, check_delta, check_target, epsilon_to, is_unsampled};
use crate::event::limits;
use crate::pld::Precision;
use crate::{Adjacency, Composition, Error, Event, Result, gaussian};

/// A calibrated noise level and its ε.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibrated {
    /// The noise multiplier, or the factor on a schedule's shape.
    pub noise: f64,
    /// ε at this noise; its upper bound does not exceed the target.
    pub answer: Answer,
}

/// How close to the target the certified upper bound must come, as a share of the target.
const CLOSE: f64 = 2e-4;

/// Finds the least noise for which the certified upper bound of ε at `delta` does not exceed
/// `epsilon`.
///
/// `compose` returns the composition at a given noise level; more noise must mean less privacy
/// loss. The search covers `low` to `high`, and `compose` must accept both.
pub fn least_noise(
    epsilon: f64,
    delta: f64,
    accountant: Accountant,
    (low, high): (f64, f64),
    compose: impl Fn(f64) -> Composition,
) -> Result<Calibrated> {
    check_target(epsilon)?;
    check_delta(delta)?;
    let ask = |noise: f64, precision: Precision| -> Result<Option<Answer>> {
        match epsilon_to(&compose(noise), delta, accountant, precision) {
            Ok(answer) => Ok(Some(answer)),
            // Too little noise counts as an infinite ε.
            Err(Error::LossTooLarge { .. } | Error::GridTooLarge { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    };
    let upper = |answer: &Option<Answer>| answer.map_or(f64::INFINITY, |a| a.epsilon.upper);
    // For a small target the default interval would be too wide and would cost noise.
    let scale = epsilon.min(1.0);
    let (fine, coarse) = (Precision(scale * Precision::default().0), Precision(2e-2 * scale));

    let most = ask(high, coarse)?;
    if upper(&most) > epsilon {
        let most = ask(high, fine)?;
        if upper(&most) > epsilon {
            return Err(Error::Unreachable {
                low,
                high,
                advice: "allow a larger ε or δ, take fewer steps or lower the sampling rate",
            });
        }
    }
    // A coarse bracket first, by interpolation over ln σ.
    let (mut too_little, mut enough) = (low.ln(), high.ln());
    if let Some(answer) = ask(low, fine)?
        && answer.epsilon.upper <= epsilon
    {
        return Ok(Calibrated { noise: low, answer });
    }
    let mut at_too_little = f64::INFINITY;
    let mut at_enough = upper(&most);
    while enough - too_little > 0.05 {
        let middle = split(too_little, at_too_little, enough, at_enough, epsilon, 0.1);
        let value = upper(&ask(middle.exp(), coarse)?);
        if value > epsilon {
            (too_little, at_too_little) = (middle, value);
        } else {
            (enough, at_enough) = (middle, value);
        }
    }
    // Widen by the possible error of the coarse answers, then finish with fine ones.
    (too_little, enough) = (too_little.max(low.ln() + 1e-3) - 1e-3, (enough + 0.02).min(high.ln()));
    let mut answer = ask(too_little.exp(), fine)?;
    (at_too_little, at_enough) = (upper(&answer), f64::NAN);
    let mut best = None;
    // A coarse answer can overestimate ε by a few hundredths, so noise that seemed too little may
    // be enough. Move the left end below the least noise.
    let mut further = 0.02;
    while at_too_little <= epsilon {
        (enough, at_enough) = (too_little, at_too_little);
        best = answer.map(|answer| Calibrated { noise: enough.exp(), answer });
        if too_little <= low.ln() {
            break;
        }
        too_little = (too_little - further).max(low.ln());
        further *= 2.0;
        answer = ask(too_little.exp(), fine)?;
        at_too_little = upper(&answer);
    }
    for _ in 0..60 {
        if best.is_none() {
            // Certify the right end first.
            let answer = ask(enough.exp(), fine)?;
            if upper(&answer) > epsilon {
                too_little = enough;
                at_too_little = upper(&answer);
                enough = (enough + 0.05).min(high.ln());
                continue;
            }
            at_enough = upper(&answer);
            best = answer.map(|answer| Calibrated { noise: enough.exp(), answer });
        }
        if epsilon - at_enough <= CLOSE * epsilon || enough - too_little < 1e-9 {
            break;
        }
        let middle = split(too_little, at_too_little, enough, at_enough, epsilon, 0.02);
        let answer = ask(middle.exp(), fine)?;
        if upper(&answer) > epsilon {
            (too_little, at_too_little) = (middle, upper(&answer));
        } else {
            (enough, at_enough) = (middle, upper(&answer));
            best = answer.map(|answer| Calibrated { noise: middle.exp(), answer });
        }
    }
    best.ok_or(Error::Unreachable { low, high, advice: "allow a larger ε" })
}

/// A point of the bracket by log-linear interpolation of the values, aimed just below the target,
/// or the midpoint if a value is not finite. The point keeps a share `margin` away from either end,
/// so the bracket always shrinks.
fn split(a: f64, at_a: f64, b: f64, at_b: f64, target: f64, margin: f64) -> f64 {
    let aim = target - 0.3 * CLOSE * target;
    if !at_a.is_finite() || at_b <= 0.0 || at_b.is_nan() || at_b >= at_a {
        return 0.5 * (a + b);
    }
    let share = ((at_a.ln() - aim.ln()) / (at_a.ln() - at_b.ln())).clamp(margin, 1.0 - margin);
    a + share * (b - a)
}

/// The least noise multiplier for `steps` steps of DP-SGD at `sampling_rate`.
pub fn noise_multiplier(
    epsilon: f64,
    delta: f64,
    sampling_rate: f64,
    steps: u64,
    accountant: Accountant,
) -> Result<Calibrated> {
    if steps == 0 {
        return Err(Error::invalid("number of steps", steps, "at least 1"));
    }
    let compose = |noise: f64| Composition::dp_sgd(noise, sampling_rate, steps);
    check_target(epsilon)?;
    check_delta(delta)?;
    compose(1.0).validate()?;
    let exact = matches!(accountant, Accountant::Auto | Accountant::Gaussian);
    if exact && is_unsampled(&compose(1.0)) {
        // Rounded up, so that rounding does not break the guarantee.
        let noise = (steps as f64).sqrt() / gaussian::largest_mu(epsilon, delta)? * (1.0 + 1e-11);
        let mut released = Composition::new(Default::default());
        released.push(Event::Gaussian { noise_multiplier: noise, sensitivity: 1.0 }, steps);
        let answer = crate::epsilon(&released, delta, Accountant::Gaussian)?;
        return Ok(Calibrated { noise, answer });
    }
    let range = (*limits::NOISE_MULTIPLIER.start(), *limits::NOISE_MULTIPLIER.end());
    least_noise(epsilon, delta, accountant, range, compose)
}

/// The least noise multiplier for `steps` steps of DP-SGD that sample examples one by one at
/// `sampling_rate`, where the unit is a user with at most `examples_per_user` examples.
pub fn noise_for_users(
    epsilon: f64,
    delta: f64,
    sampling_rate: f64,
    steps: u64,
    examples_per_user: u64,
    accountant: Accountant,
) -> Result<Calibrated> {
    if steps == 0 {
        return Err(Error::invalid("number of steps", steps, "at least 1"));
    }
    let compose = |noise: f64| {
        let event = Event::of_step(noise, sampling_rate, Some(examples_per_user));
        Composition::new(Adjacency::AddRemove).with(event, steps)
    };
    compose(1.0).validate()?;
    let range = limits::noise_multiplier(examples_per_user).into_inner();
    least_noise(epsilon, delta, accountant, range, compose)
}
