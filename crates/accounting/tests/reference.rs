//! Published settings, compared with two other accountants (fixtures/make_accounting.py).

use undertone_accounting::{Accountant, Composition, epsilon, rdp};

struct Row {
    composition: Composition,
    delta: f64,
    prv_estimate: f64,
    rdp: f64,
}

fn rows() -> Vec<Row> {
    let text = include_str!("fixtures/accounting.csv");
    text.lines()
        .skip(1)
        .map(|line| {
            let v: Vec<f64> = line.split(',').map(|x| x.parse().unwrap()).collect();
            Row {
                composition: Composition::dp_sgd(v[0], v[1], v[2] as u64),
                delta: v[3],
                prv_estimate: v[5],
                rdp: v[7],
            }
        })
        .collect()
}

#[test]
fn the_certified_interval_holds_the_cross_checked_estimate() {
    for row in rows() {
        let bounds = epsilon(&row.composition, row.delta, Accountant::Auto).unwrap().epsilon;
        assert!(
            bounds.contains(row.prv_estimate),
            "{:?}: {bounds:?}, not {}",
            row.composition,
            row.prv_estimate
        );
        assert!(bounds.gap() <= 1e-3 * bounds.upper.max(1.0), "{:?}: {bounds:?}", row.composition);
        // The estimate itself is more accurate than the width of the interval suggests.
        assert!(
            (bounds.estimate - row.prv_estimate).abs() < 5e-4 * bounds.upper.max(1.0),
            "{bounds:?}"
        );
    }
}

#[test]
fn renyi_accounting_agrees() {
    for row in rows() {
        let upper = epsilon(&row.composition, row.delta, Accountant::Rdp).unwrap().epsilon.upper;
        assert!((upper - row.rdp).abs() < 1e-5, "{:?}: {upper}, not {}", row.composition, row.rdp);
    }
}

#[test]
fn renyi_accounting_is_never_below_the_certified_interval() {
    for row in rows() {
        let certified = epsilon(&row.composition, row.delta, Accountant::Prv).unwrap().epsilon;
        let renyi = rdp::epsilon(&row.composition, row.delta, &rdp::default_orders()).unwrap();
        assert!(renyi.upper >= certified.lower);
    }
}

/// Settings known to make other accountants overflow, hang or return nonsense.
#[test]
fn settings_that_break_other_accountants() {
    let settings = [
        (0.8, 0.125, 1_000, 1e-5),
        (1.0, 0.2, 500, 1e-5),
        (1.0, 0.01, 1_000, 1.13e-18),
        (0.6, 0.05, 10, 1.13e-18),
    ];
    for (sigma, q, steps, delta) in settings {
        let composition = Composition::dp_sgd(sigma, q, steps);
        let bounds = epsilon(&composition, delta, Accountant::Auto).unwrap().epsilon;
        assert!(bounds.gap() <= 1e-3 * bounds.upper.max(1.0), "σ={sigma} q={q}: {bounds:?}");
    }
    // q = 0.2606, 18,800 steps: the noise multiplier for ε = 4.
    let calibrated = undertone_accounting::calibrate::noise_multiplier(
        4.0,
        1e-5,
        0.2606,
        18_800,
        Accountant::Auto,
    )
    .unwrap();
    let e = calibrated.answer.epsilon;
    assert!(e.upper <= 4.0 && e.lower > 3.99, "σ = {}: {e:?}", calibrated.noise);
}
