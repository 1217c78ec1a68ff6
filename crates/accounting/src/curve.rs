//! The privacy curve δ(ε), and the equivalent trade-off curve.

use crate::accountant::{is_unsampled, needs_rdp, unsampled_mu};
use crate::normal::UNIT;
use crate::pld::{self, Directions, Precision};
use crate::{Accountant, Bounds, Composition, Result, delta, gaussian, threshold};
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
    if !is_numerical(composition, accountant) {
        return epsilons
            .iter()
            .map(|&epsilon| {
                let bounds = if let Some(split) = threshold::split(composition) {
                    let at = |others: &Composition, at: f64| {
                        Ok(curve(others, &[at], accountant)?[0].delta)
                    };
                    split.delta(epsilon, at)?
                } else if epsilon == 0.0 && is_unsampled(composition) {
                    gaussian::delta(unsampled_mu(composition), 0.0)
                } else {
                    delta(composition, epsilon, accountant)?.delta
                };
                Ok(CurvePoint { epsilon, delta: bounds })
            })
            .collect();
    }
    composition.validate()?;
    let deltas = pld::curve(composition, epsilons, Precision::default())?;
    Ok(epsilons.iter().zip(deltas).map(|(&epsilon, delta)| CurvePoint { epsilon, delta }).collect())
}

/// Whether the numerical accountant is used, which computes the whole curve in a few passes.
fn is_numerical(composition: &Composition, accountant: Accountant) -> bool {
    matches!(accountant, Accountant::Auto | Accountant::Prv)
        && !is_unsampled(composition)
        && !needs_rdp(composition)
        && threshold::split(composition).is_none()
}

/// A point of the trade-off curve of membership inference: whether one privacy unit is in the data.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TradeOffPoint {
    /// False-positive rate: the share of absent units that the attack classifies as present, in [0,
    /// 1].
    pub false_positive_rate: f64,
    /// The largest true-positive rate of any attack with this false-positive rate.
    pub true_positive_rate: Bounds,
}

/// The trade-off curve of a composition: the most powerful membership inference at each
/// false-positive rate.
///
/// Let δ₁(ε) be the privacy curve if the unit is present and δ₀(ε) the curve if it is absent; they
/// differ where sampling is involved. An attack with true- and false-positive rates (TPR, FPR)
/// exists if and only if, for every ε ≥ 0,
///
/// ```text
/// TPR ≤ δ₁(ε) + e^ε FPR      and      1 − FPR ≤ δ₀(ε) + e^ε (1 − TPR),
/// ```
///
/// so the largest TPR is the minimum of both right-hand sides over ε. (Using the larger of δ₀ and
/// δ₁ in both would give the hull of the curve and its mirror image, which is too large.) A list of
/// ε suffices for the upper bound. For the lower bound, note that δ decreases and e^ε increases:
/// between two consecutive a < b of the list, neither side falls below its value with δ(b) and e^a.
pub fn trade_off(
    composition: &Composition,
    false_positive_rates: &[f64],
    accountant: Accountant,
) -> Result<Vec<TradeOffPoint>> {
    let far = crate::epsilon(composition, 1e-9, accountant)?.epsilon.upper.max(1e-3);
    const POINTS: usize = 200;
    // The points are denser near 0, where the curve bends: if the unit is absent, sampled losses
    // are small.
    let spaced =
        |power: f64| (1..=POINTS).map(move |i| far * (i as f64 / POINTS as f64).powf(power));
    let mut epsilons: Vec<f64> = spaced(1.5).chain(spaced(4.0)).collect();
    epsilons.sort_by(f64::total_cmp);
    epsilons.dedup();
    let deltas = match is_numerical(composition, accountant) {
        true => pld::curve_of_each_direction(composition, &epsilons, Precision::default())?,
        // Closed forms are symmetric, and the other accountants bound both directions at once.
        false => curve(composition, &epsilons, accountant)?
            .iter()
            .map(|point| Directions::alike(point.delta))
            .collect(),
    };
    let at = |&fpr: &f64| TradeOffPoint {
        false_positive_rate: fpr,
        true_positive_rate: largest_true_positive_rate(fpr, &epsilons, &deltas),
    };
    Ok(false_positive_rates.iter().map(at).collect())
}

fn largest_true_positive_rate(fpr: f64, epsilons: &[f64], deltas: &[Directions]) -> Bounds {
    // Both right-hand sides, solved for TPR, rounded by 16 units toward `side`.
    let least = |present: f64, absent: f64, e: f64, side: f64| {
        let slack = 16.0 * side * UNIT;
        let by_presence = (present + e.exp() * fpr) * (1.0 + slack);
        let by_absence = 1.0 - (-e).exp() * (1.0 - fpr - absent).max(0.0) + slack;
        by_presence.min(by_absence)
    };
    let (mut lower, mut estimate, mut upper) = (1.0_f64, 1.0_f64, 1.0_f64);
    let mut from = 0.0_f64;
    for (&e, Directions { present, absent }) in epsilons.iter().zip(deltas) {
        upper = upper.min(least(present.upper, absent.upper, e, 1.0));
        estimate = estimate.min(least(present.estimate, absent.estimate, e, 0.0));
        lower = lower.min(least(present.lower, absent.lower, from, -1.0));
        from = e;
    }
    // Beyond the list δ may be 0.
    lower = lower.min(least(0.0, 0.0, from, -1.0));
    let (lower, upper) = (lower.clamp(fpr, 1.0), upper.clamp(fpr, 1.0));
    Bounds { lower, estimate: estimate.clamp(lower, upper), upper }
}
