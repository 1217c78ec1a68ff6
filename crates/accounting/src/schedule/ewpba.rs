//! Epoch-weighted privacy budget allocation (EWPBA; EW-FT, Algorithms 1 and 3), for gradient noise.
//!
//! A first noise multiplier, `beginning`, spends ε minus a reserve uniformly. The epochs' noise
//! multipliers are spread around it: the smallest one, σ_fir, is lowered until the spread list
//! spends ε. Counted backwards from the last epoch, the noise multiplier grows by `add` while the
//! epoch number is at most E/2 − 1 (real division), and by S·add afterward, where
//! ```text
//! add = 4 (beginning − σ_fir) / ((E − 1)(S + 1)).
//! ```
//!
//! Differences from the published algorithm: both searches use the certified upper bound of ε
//! instead of an estimate, so the target is met exactly instead of approximately. They check their
//! brackets, and stop within 2·10⁻⁴·max(1, ε) below the target (the paper: 10⁻⁴ on either side).
//! The reserve, 1 in the paper, is a parameter. With a single epoch there is nothing to spread.

use super::{Passes, Schedule};
use crate::calibrate::least_noise;
use crate::event::limits;
use crate::{Accountant, Error, Result};

/// Hyperparameters of EWPBA.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ewpba {
    /// Target ε.
    pub epsilon: f64,
    /// Target δ.
    pub delta: f64,
    /// S: how many times faster the noise multiplier falls in the first stage than in the second.
    pub step_distance: f64,
    /// The part of ε that is reserved for the spread.
    pub reserve: f64,
}

/// The schedule, and the noise multiplier it is spread around.
pub fn ewpba(asked: &Ewpba, passes: &Passes) -> Result<(Schedule, f64)> {
    let Ewpba { epsilon, delta, step_distance, reserve } = *asked;
    crate::accountant::check_target(epsilon)?;
    crate::accountant::check_delta(delta)?;
    if !(reserve >= 0.0 && reserve < epsilon) {
        let rule = format!(
            "at least 0 and below ε = {epsilon}: the spread starts from a uniform schedule at ε − \
             reserve"
        );
        return Err(Error::invalid("reserve", reserve, rule));
    }
    if !(step_distance > 0.0 && step_distance <= 1e6) {
        return Err(Error::invalid("step distance", step_distance, "above 0 and at most 1e6"));
    }
    let range = passes.noise_range();
    let uniform = |epsilon: f64| {
        least_noise(epsilon, delta, Accountant::Auto, range, |noise| {
            passes.compose(&vec![noise; passes.epochs as usize])
        })
    };
    let beginning = uniform(epsilon - reserve)?.noise;
    if passes.epochs == 1 || reserve == 0.0 {
        let calibrated = uniform(epsilon)?;
        let noise_multipliers = vec![calibrated.noise; passes.epochs as usize];
        return Ok((Schedule { noise_multipliers, answer: calibrated.answer }, beginning));
    }

    // As σ_fir falls from `beginning`, where the list is uniform and spends ε − reserve, to 0,
    // where ε is infinite, the spent ε crosses the target once: find the least σ_fir that meets it.
    let least = *limits::NOISE_MULTIPLIER.start();
    if beginning <= least {
        return Err(Error::Unreachable {
            low: least,
            high: beginning,
            advice: "ask for a smaller ε",
        });
    }
    let list = |first: f64| spread(beginning, first, step_distance, passes.epochs);
    let calibrated = least_noise(epsilon, delta, Accountant::Auto, (least, beginning), |first| {
        passes.compose(&list(first))
    })?;
    let mut noise_multipliers = list(calibrated.noise);
    noise_multipliers.reverse();
    Ok((Schedule { noise_multipliers, answer: calibrated.answer }, beginning))
}

/// Algorithm 1, lines 15 to 26: the list from the last epoch to the first.
fn spread(beginning: f64, first: f64, step_distance: f64, epochs: u32) -> Vec<f64> {
    let e = f64::from(epochs);
    let add = 4.0 * (beginning - first) / ((e - 1.0) * (step_distance + 1.0));
    let mut list = vec![first];
    let mut noise = first;
    for epoch in 1..epochs {
        noise += if f64::from(epoch) <= e / 2.0 - 1.0 { add } else { step_distance * add };
        list.push(noise);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sst2() -> Passes {
        Passes::over(67_349, 32, 3).unwrap()
    }

    #[test]
    fn the_spread_follows_the_published_steps() {
        // E = 3, S = 2: both steps are S·add with add = 4·0.1/(2·3).
        let list = spread(0.5, 0.4, 2.0, 3);
        let step = 2.0 * 4.0 * 0.1 / 6.0;
        for (computed, expected) in list.iter().zip([0.4, 0.4 + step, 0.4 + 2.0 * step]) {
            assert!((computed - expected).abs() < 1e-15);
        }
        // E = 4, S = 3: epoch 1 ≤ 4/2 − 1 takes add, the others S·add.
        let add = 4.0 * 0.1 / (3.0 * 4.0);
        let list = spread(0.5, 0.4, 3.0, 4);
        for (computed, expected) in
            list.iter().zip([0.4, 0.4 + add, 0.4 + 4.0 * add, 0.4 + 7.0 * add])
        {
            assert!((computed - expected).abs() < 1e-15);
        }
    }

    #[test]
    fn step_distance_one_and_three_epochs_is_symmetric_about_the_beginning() {
        let asked = Ewpba { epsilon: 8.0, delta: 1e-5, step_distance: 1.0, reserve: 1.0 };
        let (schedule, beginning) = ewpba(&asked, &sst2()).unwrap();
        let list = &schedule.noise_multipliers;
        assert!((list[1] - beginning).abs() < 1e-12);
        assert!((list[0] + list[2] - 2.0 * beginning).abs() < 1e-12);
    }

    #[test]
    fn the_target_is_met_and_nearly_used_up() {
        for (step_distance, epochs) in [(1.0, 2), (2.0, 3), (3.0, 5), (0.5, 4)] {
            let passes = Passes::over(67_349, 32, epochs).unwrap();
            let asked = Ewpba { epsilon: 8.0, delta: 1e-5, step_distance, reserve: 1.0 };
            let (schedule, beginning) = ewpba(&asked, &passes).unwrap();
            let upper = schedule.answer.epsilon.upper;
            assert!(upper <= 8.0 && upper > 7.998, "S={step_distance} E={epochs}: {upper}");
            let list = &schedule.noise_multipliers;
            assert!(list.windows(2).all(|s| s[0] > s[1]), "noise must fall: {list:?}");
            assert!(list[0] > beginning && *list.last().unwrap() < beginning);
        }
    }

    #[test]
    fn a_reserve_that_leaves_nothing_is_refused() {
        for reserve in [8.0, 9.0, -1.0, f64::NAN] {
            let asked = Ewpba { epsilon: 8.0, delta: 1e-5, step_distance: 2.0, reserve };
            assert!(matches!(ewpba(&asked, &sst2()), Err(Error::Invalid { name: "reserve", .. })));
        }
    }
}
