//! The privacy curve δ(ε), and the equivalent trade-off curve.

use crate::accountant::{has_selection, is_unsampled, unsampled_mu};
use crate::pld::{self, Precision};
use crate::{Accountant, Bounds, Composition, Result, delta, gaussian};
use serde::Serialize;

/// A point of the privacy curve δ(ε).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CurvePoint {
    /// ε at which the curve is evaluated.
    pub epsilon: f64,
    /// Bounds on δ at this ε.
    pub delta: Bounds,
}

/// δ at each of the given ε ≥ 0.
pub fn curve(
    composition: &Composition,
    epsilons: &[f64],
    accountant: Accountant,
) -> Result<Vec<CurvePoint>> {
    let one_by_one = is_unsampled(composition) || has_selection(composition);
    if !matches!(accountant, Accountant::Auto | Accountant::Prv) || one_by_one {
        return epsilons
            .iter()
            .map(|&epsilon| {
                let found = if epsilon == 0.0 && is_unsampled(composition) {
                    gaussian::delta(unsampled_mu(composition), 0.0)
                } else {
                    delta(composition, epsilon, accountant)?.delta
                };
                Ok(CurvePoint { epsilon, delta: found })
            })
            .collect();
    }
    composition.validate()?;
    let deltas = pld::curve(composition, epsilons, Precision::default())?;
    Ok(epsilons.iter().zip(deltas).map(|(&epsilon, delta)| CurvePoint { epsilon, delta }).collect())
}

/// A point of the trade-off curve of membership inference: whether one privacy unit is in the data.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TradeOffPoint {
    /// False-positive rate: the share of absent units that the attack calls present, in [0, 1].
    pub false_positive_rate: f64,
    /// The largest true-positive rate of any attack with this false-positive rate.
    pub true_positive_rate: Bounds,
}

/// The trade-off curve of a composition: the most powerful membership inference at each
/// false-positive rate.
///
/// A mechanism with privacy curve δ(ε) allows exactly those attacks whose true- and false-positive
/// rates (TPR, FPR) satisfy, for every ε ≥ 0,
///
/// ```text
/// TPR ≤ δ(ε) + e^ε FPR      and      1 − FPR ≤ δ(ε) + e^ε (1 − TPR),
/// ```
///
/// so the largest TPR is the minimum of both right-hand sides over ε. For the upper bound a list of
/// ε is enough. For the lower bound, note that δ decreases and e^ε increases: between two
/// consecutive a < b of the list neither side is below its value with δ(b) and e^a.
pub fn trade_off(
    composition: &Composition,
    false_positive_rates: &[f64],
    accountant: Accountant,
) -> Result<Vec<TradeOffPoint>> {
    let far = crate::epsilon(composition, 1e-9, accountant)?.epsilon.upper.max(1e-3);
    const POINTS: usize = 160;
    // Denser near 0, where the curve bends.
    let epsilons: Vec<f64> =
        (1..=POINTS).map(|i| far * (i as f64 / POINTS as f64).powf(1.5)).collect();
    let points = curve(composition, &epsilons, accountant)?;
    Ok(false_positive_rates
        .iter()
        .map(|&fpr| {
            let mut upper = 1.0_f64;
            let mut lower = 1.0_f64;
            let mut estimate = 1.0_f64;
            let mut from = 0.0_f64;
            for point in &points {
                let e = point.epsilon;
                let least = |d: f64, e: f64| {
                    (d + e.exp() * fpr).min(1.0 - (-e).exp() * (1.0 - fpr - d).max(0.0))
                };
                upper = upper.min(least(point.delta.upper, e));
                estimate = estimate.min(least(point.delta.estimate, e));
                lower = lower.min(least(point.delta.lower, from));
                from = e;
            }
            // Beyond the list δ may be 0.
            lower = lower.min((from.exp() * fpr).min(1.0 - (-from).exp() * (1.0 - fpr)));
            let (lower, upper) = (lower.clamp(fpr, 1.0), upper.clamp(fpr, 1.0));
            TradeOffPoint {
                false_positive_rate: fpr,
                true_positive_rate: Bounds { lower, estimate: estimate.clamp(lower, upper), upper },
            }
        })
        .collect())
}
