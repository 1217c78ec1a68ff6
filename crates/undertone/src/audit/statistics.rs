//! ROC curves, binomial tails and confidence intervals.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
pub use undertone_run::audit::Interval;

/// Scores of members and non-members, sorted once; members should score higher.
#[derive(Clone, Debug)]
pub struct Scores {
    /// From the highest score down: the group (true for members), and whether the score ties with
    /// the one before.
    order: Vec<(bool, bool)>,
    /// For each position of `order`, the index within its group.
    index: Vec<u32>,
    members: usize,
    others: usize,
}

impl Scores {
    /// Sorts the scores; NaN counts as the lowest.
    pub fn new(members: &[f64], others: &[f64]) -> Self {
        let tagged = |group: bool, scores: &[f64]| -> Vec<(f64, bool, u32)> {
            let clean = |s: &f64| if s.is_nan() { f64::NEG_INFINITY } else { *s };
            scores.iter().enumerate().map(|(i, s)| (clean(s), group, i as u32)).collect()
        };
        let mut all = tagged(true, members);
        all.extend(tagged(false, others));
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        let tied = |i: usize| i > 0 && all[i].0 == all[i - 1].0;
        Self {
            order: (0..all.len()).map(|i| (all[i].1, tied(i))).collect(),
            index: all.iter().map(|score| score.2).collect(),
            members: members.len(),
            others: others.len(),
        }
    }

    /// The ROC curve, (false positive rate, true positive rate) at every threshold, when each score
    /// counts `weight` times.
    fn curve(&self, weight: impl Fn(bool, u32) -> f64) -> Vec<(f64, f64)> {
        let (mut positives, mut negatives) = (0.0, 0.0);
        let mut points = vec![(0.0, 0.0)];
        for (i, &(member, tied)) in self.order.iter().enumerate() {
            let count = weight(member, self.index[i]);
            if member {
                positives += count
            } else {
                negatives += count
            }
            // No threshold separates tied scores, so they share one point.
            if tied {
                points.pop();
            }
            points.push((negatives, positives));
        }
        let scale = |n: f64, all: f64| if all > 0.0 { n / all } else { 0.0 };
        points.into_iter().map(|(f, t)| (scale(f, negatives), scale(t, positives))).collect()
    }

    /// The ROC curve of the scores.
    pub fn roc(&self) -> Vec<(f64, f64)> {
        self.curve(|_, _| 1.0)
    }

    /// A statistic of the ROC curve with its percentile bootstrap interval, from `repetitions`
    /// resamples of both groups.
    pub fn bootstrap(
        &self,
        repetitions: usize,
        confidence: f64,
        seed: u64,
        figure: impl Fn(&[(f64, f64)]) -> f64,
    ) -> Interval {
        let estimate = figure(&self.roc());
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut draw = |count: usize| {
            let mut times = vec![0.0; count];
            for _ in 0..count {
                times[((u128::from(random.next_u64()) * count as u128) >> 64) as usize] += 1.0;
            }
            times
        };
        let mut means: Vec<f64> = (0..repetitions)
            .map(|_| {
                let (members, others) = (draw(self.members), draw(self.others));
                figure(&self.curve(
                    |member, i| if member { members[i as usize] } else { others[i as usize] },
                ))
            })
            .collect();
        means.sort_by(f64::total_cmp);
        let at = |share: f64| {
            means
                .get(((means.len() as f64 - 1.0) * share).round() as usize)
                .copied()
                .unwrap_or(estimate)
        };
        let tail = 0.5 * (1.0 - confidence);
        Interval { lower: at(tail).min(estimate), estimate, upper: at(1.0 - tail).max(estimate) }
    }
}

/// Area under a ROC curve (AUC): the probability that a member scores higher than a non-member,
/// ties counting half.
pub fn area(curve: &[(f64, f64)]) -> f64 {
    curve.windows(2).map(|w| (w[1].0 - w[0].0) * 0.5 * (w[0].1 + w[1].1)).sum()
}

/// The largest true positive rate at a false positive rate of at most `false_positives`.
pub fn rate_at(curve: &[(f64, f64)], false_positives: f64) -> f64 {
    curve.iter().filter(|point| point.0 <= false_positives).map(|point| point.1).fold(0.0, f64::max)
}

/// ln n!, to a few units in the last place.
fn ln_factorial(n: u64) -> f64 {
    if n < 32 {
        return (2..=n).map(|i| (i as f64).ln()).sum();
    }
    // Stirling's series.
    let x = n as f64 + 1.0;
    let r = 1.0 / (x * x);
    (x - 0.5) * x.ln() - x
        + 0.5 * (2.0 * std::f64::consts::PI).ln()
        + (1.0 / 12.0 - r * (1.0 / 360.0 - r / 1260.0)) / x
}

/// P(Bin(n, p) = k).
pub fn binomial(n: u64, k: u64, p: f64) -> f64 {
    if k > n {
        return 0.0;
    }
    if p <= 0.0 || p >= 1.0 {
        return f64::from(u8::from(k == if p <= 0.0 { 0 } else { n }));
    }
    let ways = ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k);
    (ways + k as f64 * p.ln() + (n - k) as f64 * (-p).ln_1p()).exp()
}

/// P(Bin(n, p) ≥ k).
pub fn at_least(n: u64, k: u64, p: f64) -> f64 {
    if k == 0 {
        return 1.0;
    }
    // Add small numbers first, for accuracy.
    let sum: f64 = (k..=n).rev().map(|i| binomial(n, i, p)).sum();
    sum.min(1.0)
}

/// The largest rejected number up to 64, by bisection, assuming that rejection is monotone; 0 if
/// none is rejected. The returned number is itself rejected, unless it is 0.
pub fn largest(refuted: impl Fn(f64) -> bool) -> f64 {
    if !refuted(0.0) {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, 1.0);
    while refuted(high) && high < 64.0 {
        (low, high) = (high, 2.0 * high);
    }
    for _ in 0..40 {
        let middle = 0.5 * (low + high);
        if refuted(middle) { low = middle } else { high = middle }
    }
    low
}

/// The mean with its percentile bootstrap interval.
pub fn mean(numbers: &[f64], confidence: f64, seed: u64) -> Interval {
    let count = numbers.len();
    let estimate = numbers.iter().sum::<f64>() / count.max(1) as f64;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut draw = || numbers[((u128::from(random.next_u64()) * count as u128) >> 64) as usize];
    let mut means: Vec<f64> =
        (0..1000).map(|_| (0..count).map(|_| draw()).sum::<f64>() / count.max(1) as f64).collect();
    means.sort_by(f64::total_cmp);
    let tail = 0.5 * (1.0 - confidence);
    let at = |share: f64| means[((means.len() - 1) as f64 * share).round() as usize];
    Interval { lower: at(tail).min(estimate), estimate, upper: at(1.0 - tail).max(estimate) }
}

/// The fraction of successes with its exact (Clopper–Pearson) interval.
pub fn proportion(successes: u64, tries: u64, confidence: f64) -> Interval {
    let tail = 0.5 * (1.0 - confidence);
    let solve = |above: &dyn Fn(f64) -> bool| {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if above(middle) { high = middle } else { low = middle }
        }
        0.5 * (low + high)
    };
    let lower = if successes == 0 { 0.0 } else { solve(&|p| at_least(tries, successes, p) > tail) };
    let upper = if successes == tries {
        1.0
    } else {
        solve(&|p| 1.0 - at_least(tries, successes + 1, p) < tail)
    };
    Interval { lower, estimate: successes as f64 / tries.max(1) as f64, upper }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_and_rates_are_those_of_the_definition() {
        let (members, others) = ([0.9, 0.8, 0.4, 0.4], [0.7, 0.4, 0.1]);
        let scores = Scores::new(&members, &others);
        let mut wins = 0.0;
        for m in members {
            for o in others {
                wins += if m > o {
                    1.0
                } else if m == o {
                    0.5
                } else {
                    0.0
                };
            }
        }
        assert!((area(&scores.roc()) - wins / 12.0).abs() < 1e-12);
        assert_eq!(rate_at(&scores.roc(), 0.0), 0.5);
        assert_eq!(rate_at(&scores.roc(), 0.34), 0.5);
        assert_eq!(rate_at(&scores.roc(), 0.67), 1.0);
        let interval = scores.bootstrap(500, 0.95, 1, area);
        assert!(interval.lower < interval.estimate && interval.estimate < interval.upper);
        assert!(
            Scores::new(&[f64::NAN, 1.0], &[0.0])
                .roc()
                .iter()
                .all(|p| p.0.is_finite() && p.1.is_finite())
        );
    }

    #[test]
    fn bootstrap_intervals_hold_the_truth_as_often_as_they_say() {
        // Two normal groups one standard deviation apart have an AUC of Φ(1/√2) = 0.7602.
        let mut held = 0;
        for trial in 0..200 {
            let secret = crate::noise::Secret::from_seed(trial);
            let noise = crate::noise::Noise::new(&secret);
            let (mut members, mut others) = (vec![1.0; 300], vec![0.0; 300]);
            noise.add(0, 0, 1.0, 1.0, &mut members);
            noise.add(1, 0, 1.0, 1.0, &mut others);
            let wide = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
            let interval =
                Scores::new(&wide(&members), &wide(&others)).bootstrap(300, 0.95, trial, area);
            held += u32::from(interval.contains(0.7602));
        }
        assert!((181..=199).contains(&held), "{held} of 200");
    }

    #[test]
    fn proportions_have_exact_intervals() {
        assert_eq!((at_least(5, 0, 0.3), at_least(5, 6, 0.3)), (1.0, 0.0));
        assert!((binomial(40, 20, 0.5) - 0.125_370_687_619_579_26).abs() < 1e-12);
        let interval = proportion(8, 10, 0.95);
        // At the ends of the interval, each tail has probability 1/40.
        assert!((at_least(10, 8, interval.lower) - 0.025).abs() < 1e-9);
        assert!((1.0 - at_least(10, 9, interval.upper) - 0.025).abs() < 1e-9);
        assert_eq!((proportion(0, 10, 0.95).lower, proportion(10, 10, 0.95).upper), (0.0, 1.0));
    }
}
