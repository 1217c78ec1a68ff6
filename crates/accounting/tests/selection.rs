//! Private selection: the stated guarantee against attacks, beside other releases, and its limits.

use undertone_accounting::selection::{NumberOfRuns, selection};
use undertone_accounting::{
    Accountant, Adjacency, Composition, Error, Event, delta, epsilon, normal_tail,
};

const GEOMETRIC: NumberOfRuns = NumberOfRuns::NegativeBinomial { eta: 1.0, gamma: 0.1 };

/// One run is one release of x + N(0, σ²), and its score is the release itself.
fn toy(runs: NumberOfRuns, noise_multiplier: f64) -> Composition {
    let event = Event::Selection { runs, noise_multiplier, sampling_rate: 1.0, steps: 1 };
    Composition::new(Adjacency::AddRemove).with(event, 1)
}

/// E[x^K].
fn generating(runs: NumberOfRuns, x: f64) -> f64 {
    let (mut power, mut sum) = (1.0, 0.0);
    for p in runs.probabilities().take(5_000) {
        sum += p * power;
        power *= x;
    }
    sum
}

/// The best attack by a threshold on the released maximum does not beat the stated (ε, δ), on
/// either side and in either direction. Without the cost of selection, it would.
#[test]
fn no_threshold_beats_the_stated_guarantee() {
    let sigma = 2.0;
    let mut beaten = 0;
    for runs in [
        GEOMETRIC,
        NumberOfRuns::NegativeBinomial { eta: 0.0, gamma: 0.01 },
        NumberOfRuns::NegativeBinomial { eta: 4.0, gamma: 0.2 },
        NumberOfRuns::Poisson { mean: 20.0 },
    ] {
        for chosen in [0.1, 1e-2, 1e-4] {
            let whole = epsilon(&toy(runs, sigma), chosen, Accountant::Auto).unwrap();
            assert_eq!(whole.accountant, Accountant::Rdp);
            let alone = Event::Gaussian { noise_multiplier: sigma, sensitivity: 1.0 };
            let alone = Composition::new(Adjacency::AddRemove).with(alone, 1);
            let alone = epsilon(&alone, chosen, Accountant::Auto).unwrap().epsilon.upper;
            for i in -100..=200 {
                let threshold = 0.1 * f64::from(i);
                // P[best ≤ t] without and with the unit, which moves the release by 1.
                let [without, with] = [0.0, 1.0]
                    .map(|x| generating(runs, 1.0 - normal_tail((threshold - x) / sigma)));
                for (first, second) in [
                    (without, with),
                    (with, without),
                    (1.0 - without, 1.0 - with),
                    (1.0 - with, 1.0 - without),
                ] {
                    let excess = |epsilon: f64| first - epsilon.exp() * second - chosen;
                    assert!(excess(whole.epsilon.upper) <= 1e-12, "{runs:?}, {threshold}");
                    beaten += usize::from(excess(alone) > 1e-6);
                }
            }
        }
    }
    assert!(beaten > 0, "selecting costs something");
}

/// The same attack on draws of the mechanism as it runs: K from a uniform number, then the best of
/// K releases.
#[test]
fn draws_of_the_mechanism_keep_to_the_guarantee() {
    let (sigma, chosen, trials) = (1.5, 0.01, 60_000_u32);
    let stated = epsilon(&toy(GEOMETRIC, sigma), chosen, Accountant::Auto).unwrap().epsilon.upper;
    let mut state = 11_u64;
    let mut uniform = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    };
    let mut best = |x: f64| {
        let runs = GEOMETRIC.draw(uniform());
        let mut most = f64::NEG_INFINITY;
        for _ in 0..runs {
            let normal =
                (-2.0 * uniform().ln()).sqrt() * (2.0 * std::f64::consts::PI * uniform()).cos();
            most = most.max(x + sigma * normal);
        }
        most
    };
    let with: Vec<f64> = (0..trials).map(|_| best(1.0)).collect();
    let without: Vec<f64> = (0..trials).map(|_| best(0.0)).collect();
    for i in -20..60 {
        let threshold = 0.1 * f64::from(i);
        let above = |draws: &[f64]| {
            draws.iter().filter(|x| **x > threshold).count() as f64 / f64::from(trials)
        };
        let (with, without) = (above(&with), above(&without));
        let error = 5.0 * (0.25 / f64::from(trials)).sqrt();
        for (first, second) in [(with, without), (1.0 - without, 1.0 - with)] {
            assert!(first - error <= stated.exp() * (second + error) + chosen, "{threshold}");
        }
        // The draws follow the distribution that the proof assumes.
        let exact = 1.0 - generating(GEOMETRIC, 1.0 - normal_tail(threshold / sigma));
        assert!((without - exact).abs() < error, "{threshold}: {without}, not {exact}");
    }
}

/// A selection among equal runs is covered by one such run; a selection among different runs by one
/// that is no better than any of them.
#[test]
fn candidates_are_covered_by_one_event() {
    let candidate = Composition::dp_sgd(1.1, 0.01, 500);
    let (event, stated) =
        selection(GEOMETRIC, &[candidate.clone(), candidate.clone()], 1e-5).unwrap();
    let exact = Event::Selection {
        runs: GEOMETRIC,
        noise_multiplier: 1.1,
        sampling_rate: 0.01,
        steps: 500,
    };
    assert_eq!(event, exact);
    let other = Composition::dp_sgd(1.9, 0.04, 120);
    let (_, both) = selection(GEOMETRIC, &[candidate.clone(), other.clone()], 1e-5).unwrap();
    let alone = selection(GEOMETRIC, &[other], 1e-5).unwrap().1;
    assert!(both >= stated.max(alone) - 1e-9 && both < 1.3 * stated.max(alone), "{both}");
    // With a release before the first step, and a schedule.
    //
    let map = Event::PoissonGaussian { noise_multiplier: 5.0, sampling_rate: 0.05 };
    let rich = candidate.clone().with(map, 1);
    assert!(selection(GEOMETRIC, &[rich], 1e-5).unwrap().1 > stated);
    assert!(selection(GEOMETRIC, &[], 1e-5).is_err());
}

#[test]
fn a_selection_composes_and_is_labeled() {
    let event = Event::Selection {
        runs: NumberOfRuns::NegativeBinomial { eta: 0.0, gamma: 0.05 },
        noise_multiplier: 1.5,
        sampling_rate: 0.0152,
        steps: 650,
    };
    let alone = Composition::new(Adjacency::AddRemove).with(event, 1);
    let step = Event::PoissonGaussian { noise_multiplier: 1.5, sampling_rate: 0.0152 };
    let more = alone.clone().with(step, 650);
    let [alone_epsilon, more_epsilon] =
        [&alone, &more].map(|c| epsilon(c, 1e-5, Accountant::Auto).unwrap().epsilon.upper);
    assert!(more_epsilon > alone_epsilon);
    let back = delta(&alone, alone_epsilon, Accountant::Auto).unwrap();
    assert!((back.delta.upper / 1e-5 - 1.0).abs() < 1e-6 && back.certified);
    for accountant in [Accountant::Prv, Accountant::Gdp, Accountant::Gaussian] {
        let refused = epsilon(&alone, 1e-5, accountant).unwrap_err();
        assert!(matches!(refused, Error::OnlyRdp { .. }), "{refused}");
    }
    let json = serde_json::to_string(&event).unwrap();
    assert_eq!(serde_json::from_str::<Event>(&json).unwrap(), event);
    for (runs, about) in [
        (NumberOfRuns::NegativeBinomial { eta: -1.0, gamma: 0.1 }, "η"),
        (NumberOfRuns::NegativeBinomial { eta: 0.0, gamma: 1.0 }, "γ"),
        (NumberOfRuns::NegativeBinomial { eta: f64::NAN, gamma: 0.1 }, "η"),
        (NumberOfRuns::Poisson { mean: 0.0 }, "mean"),
    ] {
        let message = toy(runs, 1.0).validate().unwrap_err().to_string();
        assert!(message.contains(about), "{message}");
    }
}
