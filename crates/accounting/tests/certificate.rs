//! Certificates: within one percent of the accountant, for every kind of event. The tests in
//! `checker/` cover the checker that reads them, and those of the command line run it with the
//! program.

use serde_json::Value;
use undertone_accounting::certificate::{Certified, Target, certify};
use undertone_accounting::{Accountant, Adjacency, Composition, Error, Event, epsilon, selection};

fn check(composition: &Composition, delta: f64) -> Certified {
    let upper = epsilon(composition, delta, Accountant::Auto).unwrap().epsilon.upper;
    let lower = epsilon(composition, delta, Accountant::Auto).unwrap().epsilon.lower;
    let certified = certify(composition, Target::Delta(delta)).unwrap();
    assert!(certified.epsilon >= lower, "{composition:?}: {} is below {lower}", certified.epsilon);
    assert!(
        certified.epsilon <= 1.01 * upper + 2e-6,
        "{composition:?}: {} is more than 1 % above {upper}",
        certified.epsilon
    );
    assert!(certified.delta <= delta, "{composition:?}: {:e} is above {delta:e}", certified.delta);
    certified
}

fn sampled(noise_multiplier: f64, sampling_rate: f64) -> Event {
    Event::PoissonGaussian { noise_multiplier, sampling_rate }
}

/// Published settings; benches/certificates measures those with more masses.
#[test]
fn certified_epsilon_is_within_one_percent_of_the_accountant() {
    for (noise, rate, steps, delta) in [
        (1.5, 0.04, 2250, 1e-5),
        (1.5, 0.05, 100, 1e-6),
        (2.0, 0.2, 100, 1e-6),
        (2.0, 0.001, 50_000, 1e-6),
        (0.7, 0.01, 120, 1e-5),
    ] {
        check(&Composition::dp_sgd(noise, rate, steps), delta);
    }
}

#[test]
fn every_kind_of_event_and_both_adjacencies_are_certified() {
    let gaussian = Event::Gaussian { noise_multiplier: 3.0, sensitivity: 1.0 };
    let response = Event::RandomizedResponse { epsilon: 1.0, categories: 4 };
    for adjacency in [Adjacency::AddRemove, Adjacency::ReplaceOne] {
        let empty = || Composition::new(adjacency);
        check(&empty().with(gaussian, 5), 1e-5);
        check(&empty().with(response, 3), 1e-5);
        check(&empty().with(sampled(2.0, 1.0), 4), 1e-6);
        check(&empty().with(sampled(1.2, 0.02), 50).with(sampled(1.0, 0.02), 25), 1e-5);
        check(&empty().with(sampled(1.5, 0.1), 20).with(gaussian, 1).with(response, 1), 1e-5);
    }
}

#[test]
fn the_smallest_and_the_largest_delta_are_certified() {
    check(&Composition::dp_sgd(2.0, 0.01, 20), 1e-18);
    check(&Composition::dp_sgd(1.0, 0.01, 100), 0.5);
}

/// At a given ε the certificate's δ is within a few percent of the accountant's.
#[test]
fn delta_at_a_given_epsilon() {
    let composition = Composition::dp_sgd(1.5, 0.04, 2250);
    let certified = certify(&composition, Target::Epsilon(6.8)).unwrap();
    assert_eq!(certified.certificate.epsilon, "6.8");
    assert!((0.9..1.06).contains(&(certified.delta / certified.accountant)), "{certified:?}");
}

/// The masses of each pair add up to 1, rounded up.
#[test]
fn masses_are_rounded_towards_more_loss() {
    let certified = check(&Composition::dp_sgd(1.5, 0.05, 100), 1e-6);
    let written: Value = serde_json::to_value(&certified.certificate).unwrap();
    let directions = written["directions"].as_array().unwrap();
    assert_eq!(directions.len(), 2);
    for direction in directions {
        let pair = &direction["pairs"][0];
        let integer = |v: &Value| v.as_str().unwrap().parse::<u128>().unwrap();
        let list = pair["masses"].as_array().unwrap();
        let total = list.iter().map(|entry| integer(&entry[1])).sum::<u128>();
        let total = total + integer(&pair["infinite"]);
        let unit = 1_u128 << written["scale"].as_u64().unwrap();
        assert!(total >= unit && total <= unit + list.len() as u128 + 2, "{total} {unit}");
    }
}

#[test]
fn a_selection_and_nothing_at_all_are_refused() {
    let runs = selection::NumberOfRuns::Poisson { mean: 5.0 };
    let best = Event::Selection { runs, noise_multiplier: 1.0, sampling_rate: 0.01, steps: 100 };
    let refused = |composition: Composition| {
        let error = certify(&composition, Target::Delta(1e-5)).unwrap_err();
        assert!(matches!(error, Error::NotCertifiable { .. }), "{error}");
    };
    refused(Composition::new(Adjacency::AddRemove).with(best, 1));
    refused(Composition::new(Adjacency::AddRemove));
}
