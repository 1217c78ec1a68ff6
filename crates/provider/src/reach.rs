//! Bounds on honest releases: the provider rejects anything beyond them.
//!
//! # What is proved
//!
//! Divided by √Ψ, an honest release of w values is f + s·N with ‖f‖ ≤ C and N standard normal.
//! P(|N_j| > 10) < 2·10⁻²³ for one value, and P(‖N‖ > √w + 10) ≤ e⁻⁵⁰ (the norm is a 1-Lipschitz
//! function of N whose mean is at most √w). A release has at most 65,536 values, so an honest one
//! exceeds C + 10 s in a value, or C + (√w + 10) s in its norm, with a probability below 2·10⁻¹⁸. A
//! margin of 1 % covers the noise's grid of s/256 and rounding. The refusal is a function of the
//! release, and therefore post-processing.
//!
//! In turn, no release can influence the provider's training more than an honest one could.

use crate::frame::Kind;
use crate::task::Task;

/// Honest noise never exceeds this number of standard deviations.
const STDS: f64 = 10.0;
const MARGIN: f64 = 1.01;

/// Bounds on the releases of one kind and epoch.
#[derive(Debug)]
pub struct Reach<'a> {
    direction: Option<&'a [f32]>,
    number: f64,
    norm: f64,
}

impl<'a> Reach<'a> {
    pub fn new(task: &'a Task, kind: Kind, epoch: usize) -> Self {
        let norm = f64::from(task.sanitizer.norm);
        let noise = &task.releases.noise_multipliers;
        let noise = match kind {
            Kind::Contribution => noise.get(epoch).copied().unwrap_or(0.0),
            Kind::Query => task.query_noise(),
        };
        Self {
            direction: task.sanitizer.direction.as_deref(),
            number: MARGIN * norm * (1.0 + STDS * noise),
            norm: MARGIN * norm * (1.0 + (STDS + (task.width as f64).sqrt()) * noise),
        }
    }

    /// Whether an honest owner may have sent the release.
    pub fn holds(&self, numbers: &[f32]) -> bool {
        let mut squares = 0.0;
        for (at, &number) in numbers.iter().enumerate() {
            let direction = self.direction.map_or(1.0, |d| f64::from(d[at % d.len()]));
            let number = f64::from(number) / direction;
            // NaN is in no range.
            if !(-self.number..=self.number).contains(&number) {
                return false;
            }
            squares += number * number;
        }
        squares.sqrt() <= self.norm
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::tests::task;
    use undertone::method::local::EmbeddingNoise;
    use undertone::noise::Secret;
    use undertone_run::ReleaseKind;

    /// Rows of the maximum norm C with the task's noise are never refused.
    #[test]
    fn honest_releases_are_held() {
        let directions = [None, Some(vec![1e-10_f32, 1.0, 1e10, 3.0])];
        for (norm, multiplier, direction) in [(1e-10_f32, 1e-3), (1.0, 1.6), (1e10, 1e6)]
            .into_iter()
            .flat_map(|(norm, noise)| directions.clone().map(|d| (norm, noise, d)))
        {
            let mut task = task();
            task.sanitizer.norm = norm;
            task.sanitizer.direction = direction.clone();
            task.releases.noise_multipliers = vec![multiplier];
            let stds = vec![multiplier * f64::from(norm)];
            let noise = EmbeddingNoise::new(&Secret::from_seed(1), ReleaseKind::Once, stds);
            for (row, kind) in (0..20_000).zip([Kind::Contribution, Kind::Query].iter().cycle()) {
                let mut numbers = vec![0.0; 4];
                numbers[row as usize % 4] = norm;
                noise.perturb(row, 0, &mut numbers);
                for (x, d) in numbers.iter_mut().zip(direction.iter().flatten()) {
                    *x *= d;
                }
                assert!(numbers.iter().all(|x| x.is_finite()), "{numbers:?}");
                assert!(Reach::new(&task, *kind, 0).holds(&numbers), "{numbers:?}");
            }
        }
    }

    #[test]
    fn releases_beyond_the_noise_are_not() {
        let mut task = task();
        task.sanitizer.direction = Some(vec![1.0, 0.5, 2.0, 1.0]);
        let reach = Reach::new(&task, Kind::Contribution, 0);
        // 1.01 (1 + 10 · 1.6) = 17.17 times the direction, and 1.01 (1 + 12 · 1.6) = 20.4 in all.
        assert!(reach.holds(&[17.1, 0.0, 0.0, 0.0]) && reach.holds(&[0.0, 0.0, -34.3, 0.0]));
        for wrong in [
            [3.4e38, 0.0, 0.0, 0.0],
            [1e19, 0.0, 0.0, 0.0],
            [17.2, 0.0, 0.0, 0.0],
            [0.0, -8.6, 0.0, 0.0],
            [15.0, 0.0, 0.0, 15.0],
            [f32::NAN, 0.0, 0.0, 0.0],
            [0.0, f32::NEG_INFINITY, 0.0, 0.0],
        ] {
            assert!(!reach.holds(&wrong), "{wrong:?}");
        }
    }
}
