//! Rényi differential privacy (RDP) accounting.
//!
//! # What is proved
//!
//! For a dominating pair (P, Q) of one event let R(α) = ln E_P[e^{(α−1)·loss}] / (α − 1), the Rényi
//! divergence of order α. A dominating pair bounds it for every pair of neighboring data sets,
//! because it is monotone under post-processing. It adds up under composition. If the sum is R,
//! then for every α > 1
//!
//! ```text
//! ε(δ) ≤ R + ln((α − 1)/α) − (ln δ + ln α)/(α − 1)
//! ```
//!
//! (Canonne, Kamath, Steinke 2020, Proposition 12, the conversion used by current libraries). The
//! result is the minimum over a list of orders. Only the upper end is proved; the lower end is 0.
//! Under add-remove adjacency the direction with the unit present has the larger divergence
//! (Mironov, Talwar, Zhang 2019, Theorem 5).

use crate::event::{Adjacency, Event};
use crate::exponential;
use crate::normal::density;
use crate::pld::pair::Pair;
use crate::selection::BestOf;
use crate::{Bounds, Composition, Result};
use rayon::prelude::*;

/// The usual orders: fractional ones from 1.1 to 10.9 and integers from 12 to 63. Powers of two up
/// to 2¹⁴ are added for small ε.
pub fn default_orders() -> Vec<f64> {
    let fractional = (1..100).map(|x| 1.0 + f64::from(x) / 10.0);
    let whole = (12..64).map(f64::from);
    let large = (6..=14).map(|k| f64::from(1_u32 << k));
    fractional.chain(whole).chain(large).collect()
}

/// ε(δ) of a composition: the upper end is proved, the lower end is 0.
pub fn epsilon(composition: &Composition, delta: f64, orders: &[f64]) -> Result<Bounds> {
    let upper = least(composition, orders, |total, alpha| convert(total, alpha, delta))?.max(0.0);
    Ok(Bounds { lower: 0.0, estimate: upper, upper })
}

/// δ(ε) of a composition, by the same conversion solved for δ.
pub fn delta(composition: &Composition, epsilon: f64, orders: &[f64]) -> Result<Bounds> {
    let upper = least(composition, orders, |total, alpha| delta_at(total, alpha, epsilon))?;
    let upper = upper.min(1.0);
    Ok(Bounds { lower: 0.0, estimate: upper, upper })
}

/// Converts a Rényi divergence of order `alpha` to δ at `epsilon`.
pub(crate) fn delta_at(divergence: f64, alpha: f64, epsilon: f64) -> f64 {
    ((alpha - 1.0) * (divergence - epsilon + ((alpha - 1.0) / alpha).ln()) - alpha.ln()).exp()
}

/// The Rényi divergence of order `alpha` of a composition without private selections.
pub(crate) fn total(composition: &Composition, alpha: f64) -> f64 {
    let of = |part: &crate::Part| {
        part.count as f64 * within(&part.event, composition.adjacency, alpha, MOST_POINTS)
    };
    composition.parts().iter().map(of).sum()
}

/// The minimum of `convert` over the orders, applied to the composition's divergence of each order.
fn least(
    composition: &Composition,
    orders: &[f64],
    convert: impl Fn(f64, f64) -> f64 + Sync,
) -> Result<f64> {
    composition.validate()?;
    // With many parts the expensive orders are skipped: each order alone gives a valid bound.
    let frugal = composition.parts().len() > 32;
    let most = if frugal { MOST_POINTS / 15.0 } else { MOST_POINTS };
    // The curve of a selection's runs is computed once, for all orders.
    let adjacency = composition.adjacency;
    let selections: Vec<Option<BestOf>> = composition
        .parts()
        .iter()
        .map(|part| match part.event {
            Event::Selection { runs, .. } => Some(BestOf::new(runs, orders, |alpha| {
                one_run(&part.event, adjacency, alpha, most)
            })),
            _ => None,
        })
        .collect();
    let value = |&alpha: &f64| {
        if frugal && (alpha > 64.0 || (alpha.fract() != 0.0 && (2.0 * alpha).fract() != 0.0)) {
            return f64::INFINITY;
        }
        let parts = composition.parts().iter();
        let divergence = |(part, selection): (&crate::Part, &Option<BestOf>)| match selection {
            Some(best) => best.divergence(alpha, one_run(&part.event, adjacency, alpha, most)),
            None => within(&part.event, adjacency, alpha, most),
        };
        let total: f64 = parts
            .zip(&selections)
            .map(|(part, selection)| part.count as f64 * divergence((part, selection)))
            .sum();
        let converted = convert(total, alpha);
        if converted.is_nan() { f64::INFINITY } else { converted }
    };
    Ok(orders.par_iter().map(value).reduce(|| f64::INFINITY, f64::min))
}

/// Converts a Rényi divergence of order `alpha` to ε at `delta`.
pub fn convert(divergence: f64, alpha: f64, delta: f64) -> f64 {
    divergence + ((alpha - 1.0) / alpha).ln() - (delta.ln() + alpha.ln()) / (alpha - 1.0)
}

/// The Rényi divergence of order `alpha` of one event; infinite if it would take too long to
/// compute.
pub fn divergence(event: &Event, adjacency: Adjacency, alpha: f64) -> f64 {
    within(event, adjacency, alpha, MOST_POINTS)
}

/// The divergence of one run of a selection.
fn one_run(event: &Event, adjacency: Adjacency, alpha: f64, most: f64) -> f64 {
    let Event::Selection { noise_multiplier, sampling_rate, steps, .. } = *event else {
        return f64::INFINITY;
    };
    let step = Event::PoissonGaussian { noise_multiplier, sampling_rate };
    steps as f64 * within(&step, adjacency, alpha, most)
}

fn within(event: &Event, adjacency: Adjacency, alpha: f64, most: f64) -> f64 {
    let moment = match *event {
        Event::Selection { runs, .. } => {
            let of_run = |alpha: f64| one_run(event, adjacency, alpha, most);
            let best = BestOf::new(runs, &default_orders(), of_run);
            return best.divergence(alpha, of_run(alpha));
        }
        Event::Gaussian { noise_multiplier, sensitivity } => {
            return 0.5 * alpha * (sensitivity / noise_multiplier).powi(2);
        }
        Event::Exponential { range } => return exponential::divergence(range, alpha),
        // The accountants refuse it: which direction has the larger divergence is not proved.
        Event::MixtureOfGaussians { .. } => return f64::INFINITY,
        // Its loss may be infinite: the accountants count it apart.
        Event::Threshold { .. } => return f64::INFINITY,
        Event::RandomizedResponse { epsilon, categories } => {
            let pair = Pair::Response { epsilon, categories: categories as f64 };
            log_sum(pair.atoms().into_iter().map(|(l, m)| (alpha - 1.0) * l + m.ln()))
        }
        Event::PoissonGaussian { noise_multiplier, sampling_rate } => {
            let shift = 1.0 / noise_multiplier;
            match adjacency {
                Adjacency::AddRemove if sampling_rate == 1.0 => return 0.5 * alpha * shift * shift,
                Adjacency::AddRemove if alpha.fract() == 0.0 => {
                    whole_order(sampling_rate, shift, alpha)
                }
                Adjacency::AddRemove => {
                    by_quadrature(&Pair::Shifted { sampling_rate, shift }, alpha, most)
                }
                Adjacency::ReplaceOne if sampling_rate == 1.0 => {
                    return 2.0 * alpha * shift * shift;
                }
                Adjacency::ReplaceOne => {
                    by_quadrature(&Pair::Opposed { sampling_rate, shift }, alpha, most)
                }
            }
        }
    };
    // The sums are exact to about 1e-13; round up.
    (moment / (alpha - 1.0)).max(0.0) * (1.0 + 1e-12) + 1e-15
}

/// ln Σ_k C(α, k) q^k (1 − q)^{α−k} e^{(k² − k)s²/2}, from expanding the α-th power of the mixture.
fn whole_order(sampling_rate: f64, shift: f64, alpha: f64) -> f64 {
    let mut log_binomial = 0.0;
    log_sum((0..=alpha as u64).map(|k| {
        let k = k as f64;
        if k > 0.0 {
            log_binomial += ((alpha - k + 1.0) / k).ln();
        }
        log_binomial
            + k * sampling_rate.ln()
            + (alpha - k) * (-sampling_rate).ln_1p()
            + 0.5 * (k * k - k) * shift * shift
    }))
}

/// ln E_P[e^{(α−1)·loss}] by the trapezoidal rule. For an integrand that is analytic in a strip of
/// half-width d around the real line its relative error is e^{−2πd/h}. The loss is analytic up to
/// π/s from the line, and e^{(α−1)·loss} grows at most by e^{απ·…}: with h = min(1/8, 1/(8s)) the
/// error is below 1e-15.
fn by_quadrature(pair: &Pair, alpha: f64, most: f64) -> f64 {
    let shift = pair.mean(1);
    let step = (0.125 / shift).min(0.125);
    // Tilted by e^{(α−1)·loss} the mass lies between 0 and αs, or up to (2α − 1)s if Q has a
    // component at −s.
    let (low, high) = match pair {
        Pair::Shifted { .. } => (-12.0, alpha * shift + 12.0),
        _ => (-shift - 12.0, 2.0 * alpha * shift + 12.0),
    };
    let points = ((high - low) / step).ceil();
    if points > most {
        return f64::INFINITY;
    }
    log_sum((0..=points as usize).map(|i| {
        let z = low + step * i as f64;
        let components = (0..pair.components()).map(|c| (pair.mean(c), pair.p_weight(c)));
        let densities = components.filter(|(_, w)| *w > 0.0);
        let log_density = log_sum(densities.map(|(m, w)| w.ln() - 0.5 * (z - m) * (z - m)));
        log_density + (alpha - 1.0) * pair.loss(z)
    })) + (step * density(0.0)).ln()
}

/// Orders that need more points are skipped: with such a large shift, such a high order is never
/// the best one.
const MOST_POINTS: f64 = 60_000.0;

/// ln Σ e^term, in one pass.
fn log_sum(terms: impl Iterator<Item = f64>) -> f64 {
    let (mut top, mut sum) = (f64::NEG_INFINITY, 0.0);
    for term in terms {
        if term <= top {
            sum += (term - top).exp();
        } else {
            sum = sum * (top - term).exp() + 1.0;
            top = term;
        }
    }
    if sum > 0.0 { top + f64::ln(sum) } else { f64::NEG_INFINITY }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quadrature_agrees_with_the_binomial_sum_at_whole_orders() {
        for (sampling_rate, sigma) in
            [(0.001, 0.7), (0.04, 1.5), (0.5, 3.0), (1e-6, 0.4), (0.9, 0.2)]
        {
            let pair = Pair::Shifted { sampling_rate, shift: 1.0 / sigma };
            for alpha in [2.0, 3.0, 8.0, 20.0] {
                let (a, b) = (
                    whole_order(sampling_rate, 1.0 / sigma, alpha),
                    by_quadrature(&pair, alpha, MOST_POINTS),
                );
                assert!(
                    (a - b).abs() < 1e-11 * (1.0 + a.abs()),
                    "q={sampling_rate} σ={sigma} α={alpha}: {a} {b}"
                );
            }
        }
    }

    #[test]
    fn replacing_costs_more_than_removing() {
        let event = Event::PoissonGaussian { noise_multiplier: 1.0, sampling_rate: 0.01 };
        let removed = divergence(&event, Adjacency::AddRemove, 4.0);
        let replaced = divergence(&event, Adjacency::ReplaceOne, 4.0);
        assert!(replaced > removed, "{removed} {replaced}");
    }
}
