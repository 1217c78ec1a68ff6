//! Random settings from the whole certified range: a result or a typed error, never a panic, a NaN
//! or crossed bounds.
//!
//! UNDERTONE_SETTINGS=10000 runs 10,000 of them; the default keeps the tests quick. With more than
//! 2,000 the run also prints the slow settings and those whose intervals exceed the default
//! precision. UNDERTONE_ONLY=12,345 runs only the settings 12 and 345. (Crossed bounds trigger a
//! debug assertion in the accountant, which the test profile enables.)

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::time::{Duration, Instant};
use undertone_accounting::{Accountant, Adjacency, Composition, Error, Event, epsilon};

fn random_composition(uniform: &mut impl FnMut() -> f64) -> Composition {
    let parts = match (uniform() * 4.0) as u32 {
        0 | 1 => 1,
        2 => 1 + (uniform() * 5.0) as usize,
        _ => 1_000_f64.powf(uniform()) as usize,
    };
    let adjacency = if uniform() < 0.5 { Adjacency::AddRemove } else { Adjacency::ReplaceOne };
    let steps = (1e7_f64.powf(uniform()) / parts as f64).max(1.0) as u64;
    let mut composition = Composition::new(adjacency);
    for _ in 0..parts {
        let noise_multiplier = 0.05 * 2e4_f64.powf(uniform());
        let kind = uniform();
        if kind < 0.85 {
            let sampling_rate = 1e-7_f64.powf(uniform());
            composition.push(Event::PoissonGaussian { noise_multiplier, sampling_rate }, steps);
        } else if kind < 0.93 {
            let event =
                Event::Gaussian { noise_multiplier: 3.0 * noise_multiplier, sensitivity: 1.0 };
            composition.push(event, 1 + (uniform() * 5.0) as u64);
        } else {
            let epsilon = 0.01 * 1_000_f64.powf(uniform());
            let categories = 2 + (uniform() * 20.0) as u64;
            composition.push(
                Event::RandomizedResponse { epsilon, categories },
                1 + (uniform() * 3.0) as u64,
            );
        }
    }
    composition
}

#[test]
fn every_setting_gets_a_sound_answer_or_a_typed_error() {
    let wanted =
        std::env::var("UNDERTONE_SETTINGS").ok().and_then(|n| n.parse().ok()).unwrap_or(600);
    let only: Option<Vec<usize>> = std::env::var("UNDERTONE_ONLY").ok().map(|list| {
        list.split(',').map(|i| i.trim().parse().expect("numbers of settings")).collect()
    });
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut uniform = || (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let (mut answered, mut beyond_range, mut too_large, mut wide) = (0, 0, 0, 0);
    let mut slowest = Duration::ZERO;
    for i in 0..wanted {
        let composition = random_composition(&mut uniform);
        let delta = 0.5 * 2e-18_f64.powf(uniform());
        if only.as_ref().is_some_and(|only| !only.contains(&i)) {
            continue;
        }
        let start = Instant::now();
        let answer = epsilon(&composition, delta, Accountant::Auto);
        let took = start.elapsed();
        if only.is_some() {
            let parts = composition.parts().len();
            println!("setting {i} took {took:?}: {parts} parts at δ = {delta:e}: {answer:?}");
        }
        if wanted > 2_000 && took > Duration::from_millis(1_500) {
            println!(
                "setting {i} took {took:?}: {} parts, {}",
                composition.parts().len(),
                composition.adjacency
            );
        }
        slowest = slowest.max(took);
        match answer {
            Ok(answer) => {
                answered += 1;
                let e = answer.epsilon;
                assert!(
                    e.upper.is_finite()
                        && 0.0 <= e.lower
                        && e.lower <= e.estimate
                        && e.estimate <= e.upper,
                    "setting {i}: {e:?} for {composition:?} at δ = {delta:e}"
                );
                // The promise covers ε up to 1000 and 10⁵ releases.
                let promised = e.lower <= 1e3 && composition.releases() <= 100_000;
                if promised && e.gap() > 1e-3 * e.upper.max(1.0) {
                    if wanted > 2_000 {
                        println!(
                            "setting {i} is wide: {e:?} at δ = {delta:e}, {} parts, the first {:?}",
                            composition.parts().len(),
                            composition.parts()[0]
                        );
                    }
                    wide += 1;
                }
            }
            Err(Error::LossTooLarge { .. }) => {
                // ε must really be beyond the range: Rényi accounting must not certify a smaller
                // one.
                let renyi = epsilon(&composition, delta, Accountant::Rdp).unwrap().epsilon.upper;
                assert!(
                    renyi > 1e3,
                    "setting {i}: ε ≤ {renyi} was refused for {composition:?} at δ = {delta:e}"
                );
                beyond_range += 1;
            }
            Err(Error::GridTooLarge { .. }) => {
                if wanted > 2_000 {
                    let (parts, releases) = (composition.parts().len(), composition.releases());
                    println!(
                        "setting {i} is too large: {parts} parts, {releases} releases, δ = \
                         {delta:e}"
                    );
                }
                too_large += 1;
            }
            Err(error) => panic!("setting {i}: {error} for {composition:?} at δ = {delta:e}"),
        }
    }
    println!(
        "{wanted} settings: {answered} answered ({wide} wider than 0.001·max(1, ε)), \
         {beyond_range} beyond ε = 1000, {too_large} too large, slowest {slowest:?}"
    );
    assert!(
        too_large * 100 <= wanted,
        "{too_large} of {wanted} settings were refused as too large"
    );
    assert!(wide * 50 <= answered, "{wide} of {answered} intervals are wider than promised");
}
