//! Tests of `statistics.rs`.

use super::*;
use crate::data::{Example, Tally};
use crate::synthesize::Class;

/// Three classes with prompts [1], [2] and [3].
fn classes() -> Classes {
    let class = |n: u32| Class { values: vec![n.to_string()], tokens: vec![n] };
    Classes {
        columns: vec!["code".to_owned()],
        classes: (1..4).map(class).collect(),
        found: Vec::new(),
        max_tokens: 64,
    }
}

fn data(units: usize, examples: &[(u32, u32, usize)]) -> Dataset {
    let example = |&(unit, class, length): &(u32, u32, usize)| Example {
        tokens: [vec![class], vec![9; length]].concat(),
        target: Target::Next { from: 1 },
        unit,
        ..Example::default()
    };
    Dataset {
        examples: examples.iter().map(example).collect(),
        labels: None,
        units,
        most_per_unit: 8,
        masking: None,
        skipped: 0,
        tally: Tally::default(),
    }
}

/// Whatever the rows of a unit are, it adds vectors of ℓ2 norm at most 1 and ℓ1 norm 1 to each
/// histogram; a unit whose rows are all alike attains the bound.
#[test]
fn a_unit_weighs_one() {
    let norms = |counts: &ClippedCounts| -> [f64; 2] {
        [&counts.classes, &counts.lengths].map(|all| all.iter().map(|x| x * x).sum::<f64>().sqrt())
    };
    let mut state = 3_u64;
    let mut below = |count: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_041);
        (state >> 33) % count
    };
    for rows in 1..40 {
        let row = |_| (0, 1 + below(3) as u32, 1 + below(63) as usize);
        let rows: Vec<(u32, u32, usize)> = (0..rows).map(row).collect();
        let counts = ClippedCounts::of(&classes(), &data(1, &rows));
        for (all, norm) in [&counts.classes, &counts.lengths].iter().zip(norms(&counts)) {
            assert!((all.iter().sum::<f64>() - 1.0).abs() < 1e-12 && norm <= 1.0 + 1e-12);
        }
    }
    let alike = ClippedCounts::of(&classes(), &data(1, &[(0, 2, 5); 7]));
    assert!(norms(&alike).iter().all(|norm| (norm - 1.0).abs() < 1e-12), "{alike:?}");
    // An audit's canary has its own prompt and no class.
    let other = ClippedCounts::of(&classes(), &data(1, &[(0, 8, 5)]));
    assert_eq!(norms(&other), [0.0, 1.0]);
}

#[test]
fn units_are_counted_by_class_and_length() {
    let rows = [(0, 1, 1), (1, 3, 2), (1, 1, 3), (2, 3, 63)];
    let counts = ClippedCounts::of(&classes(), &data(3, &rows)).exact();
    assert_eq!(counts.classes, [1.5, 0.0, 1.5]);
    assert_eq!((counts.lengths[0], counts.lengths[1], counts.lengths[31]), (1.5, 0.5, 1.0));
    let single = Classes { classes: classes().classes[..1].to_vec(), ..classes() };
    let counts = ClippedCounts::of(&single, &data(3, &rows)).exact();
    assert!(counts.classes.is_empty(), "with one class, its count is not released");
}

/// Every number gets Gaussian noise of the recorded std, which differs for each secret.
#[test]
fn every_count_gets_the_recorded_noise() {
    let event = Event::Gaussian { noise_multiplier: 3.0, sensitivity: 2_f64.sqrt() };
    let counts = ClippedCounts::of(&classes(), &data(2, &[(0, 1, 4), (1, 2, 9)]));
    let noised = |seed: u64, std: f64| {
        let (noise, recorded) =
            (Noise::new(&Secret::from_seed(seed)), Recorded::in_tests(event, 1));
        counts.clone().noised(&noise, std, recorded, None)
    };
    assert!(noised(1, 2.9).is_err(), "less noise than recorded");
    let exact = counts.clone().exact();
    let exact: Vec<f64> = [exact.classes, exact.lengths].concat();
    let mut noise = Vec::new();
    for seed in 0..400 {
        let released = noised(seed, 3.0).unwrap();
        assert_eq!(released.noise_std, Some(3.0));
        let noisy = [released.classes, released.lengths].concat();
        noise.push(noisy.iter().zip(&exact).map(|(a, b)| a - b).collect::<Vec<f64>>());
    }
    for (at, _) in exact.iter().enumerate() {
        let own: Vec<f64> = noise.iter().map(|all| all[at]).collect();
        let mean = own.iter().sum::<f64>() / 400.0;
        let variance = own.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 399.0;
        // Six standard errors.
        assert!(mean.abs() < 6.0 * 3.0 / 20.0, "{at}: mean {mean}");
        assert!((variance / 9.0 - 1.0).abs() < 6.0 * (2.0_f64 / 399.0).sqrt(), "{at}");
        // No two counts have the same noise.
        let next: Vec<f64> = noise.iter().map(|all| all[(at + 1) % exact.len()]).collect();
        let product: f64 = own.iter().zip(&next).map(|(a, b)| a * b).sum::<f64>() / 400.0;
        assert!(product.abs() < 6.0 * 9.0 / 20.0, "{at}: correlation {product}");
    }
}
