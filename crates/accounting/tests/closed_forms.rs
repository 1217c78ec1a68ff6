//! Compositions whose ε or δ is known in closed form.

use undertone_accounting::calibrate::noise_multiplier;
use undertone_accounting::{
    Accountant, Adjacency, Composition, Event, delta, epsilon, gaussian, trade_off,
};

fn gaussians(noise_multiplier: f64, sensitivity: f64, count: u64) -> Composition {
    Composition::new(Adjacency::AddRemove)
        .with(Event::Gaussian { noise_multiplier, sensitivity }, count)
}

#[test]
fn without_sampling_the_answer_is_the_exact_gaussian() {
    for (sigma, steps, delta_target) in
        [(1.0, 1, 1e-5), (3.0, 20, 1e-9), (0.5, 2, 0.1), (50.0, 1_000, 1e-18)]
    {
        let mu = (steps as f64).sqrt() / sigma;
        let exact = gaussian::epsilon(mu, delta_target);
        for composition in [Composition::dp_sgd(sigma, 1.0, steps), gaussians(sigma, 1.0, steps)] {
            let answer = epsilon(&composition, delta_target, Accountant::Auto).unwrap();
            assert_eq!(answer.accountant, Accountant::Gaussian);
            assert!((answer.epsilon.upper - exact.upper).abs() < 1e-9 * exact.upper.max(1.0));
            assert!(answer.epsilon.gap() < 1e-9 * exact.upper.max(1.0));
            // The numerical accountant must agree within its own bounds.
            let numerical = epsilon(&composition, delta_target, Accountant::Prv).unwrap().epsilon;
            assert!(
                numerical.lower <= exact.upper && exact.lower <= numerical.upper,
                "{numerical:?} {exact:?}"
            );
        }
    }
}

/// Uncompensated summation would lose all terms but the first.
#[test]
fn a_thousand_hardly_visible_gaussians_count() {
    let mut composition = gaussians(1.0, 1.0, 1);
    let mut others = 0.0;
    for i in 1..1000 {
        let sigma = 1e8 * (1.0 + 1e-6 * f64::from(i));
        composition =
            composition.with(Event::Gaussian { noise_multiplier: sigma, sensitivity: 1.0 }, 1);
        others += sigma.powi(-2);
    }
    for delta_target in [1e-18, 1e-5, 0.3] {
        let bounds = epsilon(&composition, delta_target, Accountant::Auto).unwrap().epsilon;
        let exact = gaussian::epsilon((1.0 + others).sqrt(), delta_target);
        assert!(bounds.upper >= exact.estimate, "{bounds:?} {exact:?}");
    }
}

#[test]
fn k_gaussians_are_one_with_less_noise() {
    for k in [1, 2, 10, 1_000] {
        let many = epsilon(&gaussians(4.0, 1.0, k), 1e-6, Accountant::Auto).unwrap().epsilon.upper;
        let single = gaussians(4.0 / (k as f64).sqrt(), 1.0, 1);
        let single = epsilon(&single, 1e-6, Accountant::Auto).unwrap().epsilon.upper;
        assert!((many - single).abs() < 1e-9 * single, "{k}: {many} {single}");
    }
}

#[test]
fn the_local_figures_of_the_forward_methods() {
    // Local DP on SST-2: three fresh releases at σ = 0.39, which the papers report as ε = 8. Noise
    // std σC at sensitivity 2C, and noise std σ·2C.
    let fresh = epsilon(&gaussians(0.39, 2.0, 3), 1e-5, Accountant::Auto).unwrap().epsilon.upper;
    let wider = epsilon(&gaussians(0.39, 1.0, 3), 1e-5, Accountant::Auto).unwrap().epsilon.upper;
    assert!((fresh - 76.5).abs() < 0.1 && (wider - 28.1).abs() < 0.1, "{fresh} {wider}");
}

#[test]
fn responses_alone_are_exact() {
    for (epsilon_of_one, categories, count) in [(1.0, 2, 1), (0.5, 10, 3), (2.0, 4, 20)] {
        let event = Event::RandomizedResponse { epsilon: epsilon_of_one, categories };
        let composition = Composition::new(Adjacency::ReplaceOne).with(event, count);
        let bounds = epsilon(&composition, 1e-12, Accountant::Auto).unwrap().epsilon;
        assert!(bounds.gap() < 1e-6, "{bounds:?}");
        assert!(bounds.upper <= epsilon_of_one * count as f64 + 1e-9, "pure ε adds up: {bounds:?}");
    }
}

#[test]
fn a_response_beside_a_gaussian_is_the_mixture_of_shifted_curves() {
    let response = Event::RandomizedResponse { epsilon: 1.0, categories: 2 };
    let composition = gaussians(2.0, 1.0, 1).with(response, 1);
    let truth_probability = 1.0_f64.exp() / (1.0_f64.exp() + 1.0);
    let at = |e: f64| {
        // Conditioning on the response: loss +1 or −1. Below 0: δ(−e) = 1 − e^{−e} + e^{−e} δ(e).
        let curve = |e: f64| {
            if e >= 0.0 {
                gaussian::delta(0.5, e).estimate
            } else {
                1.0 - e.exp() + e.exp() * gaussian::delta(0.5, -e).estimate
            }
        };
        truth_probability * curve(e - 1.0) + (1.0 - truth_probability) * curve(e + 1.0)
    };
    for e in [0.5, 1.0, 2.0, 3.0] {
        let bounds = delta(&composition, e, Accountant::Prv).unwrap().delta;
        assert!(
            bounds.lower <= at(e) * (1.0 + 1e-9) && at(e) <= bounds.upper * (1.0 + 1e-9),
            "{e}: {bounds:?} {}",
            at(e)
        );
    }
}

#[test]
fn noise_for_a_target_is_found_exactly_without_sampling() {
    let calibrated = noise_multiplier(2.0, 1e-6, 1.0, 9, Accountant::Auto).unwrap();
    let mu = gaussian::largest_mu(2.0, 1e-6).unwrap();
    assert!((calibrated.noise - 3.0 / mu).abs() < 1e-9);
    assert!(calibrated.answer.epsilon.upper <= 2.0);
}

#[test]
fn trade_off_of_the_gaussian_is_its_closed_form() {
    // f(α) = Φ(Φ⁻¹(1 − α) − μ): at μ = 1 and a false-positive rate of 5 % the power is 25.95 %.
    let points =
        trade_off(&gaussians(1.0, 1.0, 1), &[0.0, 0.05, 0.5, 1.0], Accountant::Auto).unwrap();
    let power = points[1].true_positive_rate;
    assert!(power.lower < 0.259_511 && power.upper > 0.259_511, "{power:?}");
    assert!(power.gap() < 0.03, "{power:?}");
    assert!(points[0].true_positive_rate.upper < 1e-6);
    assert_eq!(points[3].true_positive_rate.lower, 1.0);
    let half = points[2].true_positive_rate;
    assert!(half.lower < 0.841_344 && half.upper > 0.841_344, "{half:?}");
}

/// P(N > z).
fn upper_tail(z: f64) -> f64 {
    0.5 * libm::erfc(z / 2.0_f64.sqrt())
}

/// δ(ε) of one event with a unit added or removed, in closed form.
fn delta_of_one_event(sigma: f64, rate: f64, epsilon: f64) -> f64 {
    let (shift, excess) = (1.0 / sigma, epsilon.exp_m1() / rate);
    let z = if excess > -1.0 { excess.ln_1p() / shift + 0.5 * shift } else { f64::NEG_INFINITY };
    rate * upper_tail(z - shift) - (epsilon.exp_m1() + rate) * upper_tail(z)
}

/// δ(ε) of two events: the second one's curve, averaged over the loss of the first.
fn delta_of_two_events(sigma: f64, rate: f64, epsilon: f64) -> f64 {
    let shift = 1.0 / sigma;
    let density = |z: f64| (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let step = 1e-3;
    (-12_000..=16_000)
        .map(|i| {
            let z = step * f64::from(i);
            let mass = step * ((1.0 - rate) * density(z) + rate * density(z - shift));
            let loss = (rate * (shift * z - 0.5 * shift * shift).exp_m1()).ln_1p();
            mass * delta_of_one_event(sigma, rate, epsilon - loss)
        })
        .sum()
}

/// Here one large loss is likelier than two that add up to it, and no tilt lifts δ above the
/// rounding error of a transform.
#[test]
fn rare_large_losses_have_narrow_bounds_that_hold_the_closed_form() {
    type Curve = fn(f64, f64, f64) -> f64;
    let curves: [(u64, Curve); 2] = [(1, delta_of_one_event), (2, delta_of_two_events)];
    for (count, curve) in curves {
        for (sigma, rate, delta_target) in [
            (0.68, 2.7e-6, 1.8e-18),
            (0.6, 1e-6, 1e-17),
            (0.473, 2.2e-7, 4e-17),
            (0.605, 7.8e-7, 4.6e-16),
        ] {
            let composition = Composition::dp_sgd(sigma, rate, count);
            let bounds = epsilon(&composition, delta_target, Accountant::Prv).unwrap().epsilon;
            let (most, least) =
                (curve(sigma, rate, bounds.lower), curve(sigma, rate, bounds.upper));
            assert!(
                least <= delta_target * (1.0 + 1e-6) && delta_target <= most * (1.0 + 1e-6),
                "{count} of σ = {sigma}, q = {rate}: δ = {delta_target:e} is not in {least:e} … \
                 {most:e} at {bounds:?}"
            );
            assert!(bounds.gap() <= 1e-3, "{count} of σ = {sigma}, q = {rate}: {bounds:?}");
        }
    }
}

/// The losses of a Gaussian have no lower bound; with the unit absent, they have no upper bound.
#[test]
fn hardly_sampled_parts_beside_gaussians_change_nothing_in_either_direction() {
    for (mu, delta_target) in [(3.4, 4.6e-16), (6.0, 1e-12), (0.3, 1e-9)] {
        let sampled = Event::PoissonGaussian { noise_multiplier: 40.0, sampling_rate: 1e-6 };
        let composition = gaussians(1.0 / mu, 1.0, 1).with(sampled, 3);
        let bounds = epsilon(&composition, delta_target, Accountant::Prv).unwrap().epsilon;
        let exact = gaussian::epsilon(mu, delta_target);
        assert!(
            bounds.lower <= exact.upper + 1e-6 && exact.lower - 1e-6 <= bounds.upper,
            "{bounds:?} {exact:?}"
        );
        assert!(bounds.gap() <= 1e-3 * bounds.upper.max(1.0), "{bounds:?}");
    }
}

/// The default width of an interval, 0.001, is as large as these targets.
#[test]
fn small_targets_do_not_cost_more_noise_than_they_need() {
    for target in [0.001, 0.002, 0.02, 0.3] {
        let calibrated = noise_multiplier(target, 1e-5, 0.01, 100, Accountant::Auto).unwrap();
        assert!(calibrated.answer.epsilon.upper <= target);
        // δ(ε) certifies that 1 % less noise is too little.
        let composition = Composition::dp_sgd(0.99 * calibrated.noise, 0.01, 100);
        let spent = delta(&composition, target, Accountant::Auto).unwrap();
        assert!(spent.delta.lower > 1e-5, "σ = {}: {spent:?}", calibrated.noise);
    }
}

/// The analytic Gaussian mechanism by its own algorithm (Balle and Wang, 2018, which DP-Forward's
/// aMGM adopts for matrices): σ = α Δ/√(2ε), with α from a bisection of its two functions.
#[test]
fn the_analytic_gaussian_mechanism_has_the_largest_mu() {
    let phi = |x: f64| 0.5 * libm::erfc(-x / std::f64::consts::SQRT_2);
    for (epsilon, delta) in [(0.1, 1e-5), (1.0, 1e-5), (8.0, 1e-5), (2.0, 1e-8), (0.5, 0.3)] {
        let e: f64 = epsilon;
        let above = |u: f64| phi((e * u).sqrt()) - e.exp() * phi(-(e * (u + 2.0)).sqrt());
        let below = |v: f64| phi(-(e * v).sqrt()) - e.exp() * phi(-(e * (v + 2.0)).sqrt());
        let split = phi(0.0) - e.exp() * phi(-(2.0 * e).sqrt());
        let bisect = |keeps: &dyn Fn(f64) -> bool| {
            let (mut low, mut high) = (0.0, 1e4);
            for _ in 0..200 {
                let middle = 0.5 * (low + high);
                if keeps(middle) { low = middle } else { high = middle }
            }
            low
        };
        let alpha = if delta >= split {
            let u = bisect(&|u| above(u) <= delta);
            (1.0 + u / 2.0).sqrt() - (u / 2.0).sqrt()
        } else {
            let v = bisect(&|v| below(v) > delta);
            (1.0 + v / 2.0).sqrt() + (v / 2.0).sqrt()
        };
        let sigma = alpha / (2.0 * e).sqrt();
        let mu = gaussian::largest_mu(e, delta).unwrap();
        assert!((sigma * mu - 1.0).abs() < 1e-6, "ε = {e}, δ = {delta}: {sigma} and 1/{mu}");
    }
}

/// (σ, q) of one step, from nearly no overlap to nearly no loss.
const ONE_STEP: [(f64, f64); 5] = [(0.2, 0.1), (0.5, 0.01), (1.0, 0.3), (0.8, 0.9), (3.0, 0.5)];

/// A unit added or removed: the best attack classifies everything above some z as present.
#[test]
fn trade_off_of_one_sampled_step_is_its_closed_form() {
    for (sigma, rate) in ONE_STEP {
        let composition = Composition::dp_sgd(sigma, rate, 1);
        let thresholds: Vec<f64> = (-12..=12).map(|i| 0.25 * f64::from(i)).collect();
        let false_positives: Vec<f64> = thresholds.iter().map(|&z| upper_tail(z)).collect();
        let points = trade_off(&composition, &false_positives, Accountant::Auto).unwrap();
        for (z, point) in thresholds.iter().zip(points) {
            let truth = (1.0 - rate) * upper_tail(*z) + rate * upper_tail(z - 1.0 / sigma);
            let power = point.true_positive_rate;
            assert!(
                power.lower <= truth + 1e-12 && truth <= power.upper + 1e-12,
                "σ = {sigma}, q = {rate}, FPR {}: {truth} is not in {power:?}",
                point.false_positive_rate
            );
            assert!(power.gap() < 0.03, "σ = {sigma}, q = {rate}: {power:?}");
            assert!((power.estimate - truth).abs() < 0.005, "σ = {sigma}, q = {rate}: {power:?}");
        }
    }
    // The hull of the curve and its mirror image would give 0.5986.
    let half = trade_off(&Composition::dp_sgd(0.2, 0.1, 1), &[0.5], Accountant::Auto).unwrap()[0];
    assert!((half.true_positive_rate.estimate - 0.55).abs() < 1e-3, "{half:?}");
}

/// The same step seen from the other side: an attack that classifies everything below some z as
/// absent has the mirrored rates, and at a rate of 0.5 detects 0.5556 of the absent units.
#[test]
fn the_mirrored_trade_off_is_its_closed_form_too() {
    let (sigma, rate, z) = (0.2, 0.1, 0.139_710_298_881_861_5);
    let composition = Composition::dp_sgd(sigma, rate, 1);
    let (false_positives, truth) =
        (upper_tail(z), (1.0 - rate) * upper_tail(z) + rate * upper_tail(z - 1.0 / sigma));
    assert!((1.0 - false_positives - 0.555_555_6).abs() < 1e-6 && (truth - 0.5).abs() < 1e-6);
    let point = trade_off(&composition, &[false_positives], Accountant::Auto).unwrap()[0];
    assert!((point.true_positive_rate.estimate - 0.5).abs() < 2e-3, "{point:?}");
}

/// A unit replaced: the pair is its own mirror image.
#[test]
fn trade_off_of_one_replaced_unit_is_its_closed_form() {
    for (sigma, rate) in ONE_STEP {
        let event = Event::PoissonGaussian { noise_multiplier: sigma, sampling_rate: rate };
        let composition = Composition::new(Adjacency::ReplaceOne).with(event, 1);
        let thresholds: Vec<f64> = (-8..=8).map(|i| 0.35 * f64::from(i)).collect();
        let of = |z: f64, mean: f64| (1.0 - rate) * upper_tail(z) + rate * upper_tail(z - mean);
        let false_positives: Vec<f64> = thresholds.iter().map(|&z| of(z, -1.0 / sigma)).collect();
        let points = trade_off(&composition, &false_positives, Accountant::Auto).unwrap();
        for (z, point) in thresholds.iter().zip(points) {
            let (truth, power) = (of(*z, 1.0 / sigma), point.true_positive_rate);
            assert!(
                power.lower <= truth + 1e-12 && truth <= power.upper + 1e-12,
                "σ = {sigma}, q = {rate}: {truth} is not in {power:?}"
            );
            assert!((power.estimate - truth).abs() < 0.01, "σ = {sigma}, q = {rate}: {power:?}");
        }
    }
}
