//! Properties that hold for all parameters.

use proptest::prelude::*;
use undertone_accounting::calibrate::noise_multiplier;
use undertone_accounting::{Accountant, Adjacency, Bounds, Composition, Event, epsilon};

#[derive(Debug, Clone, Copy)]
struct Setting {
    sigma: f64,
    q: f64,
    steps: u64,
    delta: f64,
    adjacency: Adjacency,
}

fn settings() -> impl Strategy<Value = Setting> {
    (0.3f64..5.0, -5.0f64..0.0, 0.0f64..4.0, -10.0f64..-1.0, any::<bool>()).prop_map(
        |(sigma, q, steps, delta, replace)| {
            let adjacency = if replace { Adjacency::ReplaceOne } else { Adjacency::AddRemove };
            Setting {
                sigma,
                q: 10f64.powf(q),
                steps: 10f64.powf(steps) as u64,
                delta: 10f64.powf(delta),
                adjacency,
            }
        },
    )
}

fn compose(s: &Setting) -> Composition {
    let event = Event::PoissonGaussian { noise_multiplier: s.sigma, sampling_rate: s.q };
    Composition::new(s.adjacency).with(event, s.steps)
}

/// `None` if ε is beyond the certified range.
fn ask(composition: &Composition, delta: f64) -> Option<Bounds> {
    let bounds = epsilon(composition, delta, Accountant::Auto).ok()?.epsilon;
    assert!(bounds.lower <= bounds.estimate && bounds.estimate <= bounds.upper, "{bounds:?}");
    Some(bounds)
}

/// Whether the intervals allow `less` ≤ `more`.
fn ordered(less: Option<Bounds>, more: Option<Bounds>) -> bool {
    match (less, more) {
        (Some(less), Some(more)) => less.lower <= more.upper * (1.0 + 1e-12),
        _ => true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn more_noise_less_sampling_fewer_steps_or_a_larger_delta_cost_no_more(
        s in settings(), factor in 1.01f64..3.0,
    ) {
        let here = ask(&compose(&s), s.delta);
        let quieter = ask(&compose(&Setting { sigma: s.sigma * factor, ..s }), s.delta);
        prop_assert!(ordered(quieter, here));
        let rarer = ask(&compose(&Setting { q: s.q / factor, ..s }), s.delta);
        prop_assert!(ordered(rarer, here));
        let longer = ask(&compose(&Setting { steps: s.steps + 1 + s.steps / 3, ..s }), s.delta);
        prop_assert!(ordered(here, longer));
        let laxer = ask(&compose(&s), (s.delta * factor).min(0.5));
        prop_assert!(ordered(laxer, here));
    }

    #[test]
    fn replacing_costs_at_least_as_much_as_removing(s in settings()) {
        let removed = ask(&compose(&Setting { adjacency: Adjacency::AddRemove, ..s }), s.delta);
        let replaced = ask(&compose(&Setting { adjacency: Adjacency::ReplaceOne, ..s }), s.delta);
        prop_assert!(ordered(removed, replaced));
    }

    #[test]
    fn the_order_of_parts_does_not_matter(a in settings(), b in settings()) {
        let event = |s: &Setting| {
            Event::PoissonGaussian { noise_multiplier: s.sigma, sampling_rate: s.q }
        };
        let part = |s: &Setting| (event(s), s.steps);
        let ((ea, na), (eb, nb)) = (part(&a), part(&b));
        let ab = ask(&Composition::new(a.adjacency).with(ea, na).with(eb, nb), a.delta);
        let ba = ask(&Composition::new(a.adjacency).with(eb, nb).with(ea, na), a.delta);
        match (ab, ba) {
            (Some(ab), Some(ba)) => {
                prop_assert!((ab.upper - ba.upper).abs() <= 1e-9 * ab.upper.max(1.0));
                prop_assert!((ab.lower - ba.lower).abs() <= 1e-9 * ab.upper.max(1.0));
            }
            (ab, ba) => prop_assert_eq!(ab.is_some(), ba.is_some()),
        }
    }

    #[test]
    fn splitting_a_phase_changes_nothing(s in settings(), share in 0.1f64..0.9) {
        let event = Event::PoissonGaussian { noise_multiplier: s.sigma, sampling_rate: s.q };
        let first = (s.steps as f64 * share) as u64;
        let split = Composition::new(s.adjacency).with(event, first).with(event, s.steps - first);
        prop_assert_eq!(ask(&split, s.delta), ask(&compose(&s), s.delta));
        // The same must hold if the accountant cannot know that both halves are the same.
        let noise_multiplier = s.sigma * (1.0 + 1e-13);
        let nearly = Event::PoissonGaussian { noise_multiplier, sampling_rate: s.q };
        let halves = Composition::new(s.adjacency).with(event, first);
        let seen = ask(&halves.with(nearly, s.steps - first), s.delta);
        let whole = ask(&compose(&s), s.delta);
        prop_assert!(ordered(seen, whole) && ordered(whole, seen));
    }

    #[test]
    fn renyi_is_never_certainly_below(s in settings()) {
        let renyi = epsilon(&compose(&s), s.delta, Accountant::Rdp).unwrap().epsilon;
        if let Some(certified) = ask(&compose(&s), s.delta) {
            prop_assert!(certified.lower <= renyi.upper * (1.0 + 1e-9));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

    #[test]
    fn calibrated_noise_meets_the_target_and_little_less_does_not(
        target in 0.2f64..20.0, q in -4.0f64..0.0, steps in 0.0f64..4.0,
    ) {
        let (q, steps) = (10f64.powf(q), 10f64.powf(steps) as u64);
        let calibrated = noise_multiplier(target, 1e-6, q, steps, Accountant::Auto).unwrap();
        prop_assert!(calibrated.answer.epsilon.upper <= target);
        if calibrated.noise > 0.051 {
            let less = Composition::dp_sgd(calibrated.noise * 0.99, q, steps);
            if let Some(bounds) = ask(&less, 1e-6) {
                let nearly = target * (1.0 - 2e-3) - 2e-3;
                prop_assert!(bounds.upper > nearly, "{} {bounds:?}", calibrated.noise);
            }
        }
    }
}
