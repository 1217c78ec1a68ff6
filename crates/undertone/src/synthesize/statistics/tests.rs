//! Tests of `statistics.rs`.

use super::*;
use crate::data::Tally;
use crate::synthesize::Class;
use std::collections::BTreeSet;

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

fn counts(classes: &Classes, data: &Dataset) -> ClippedCounts {
    ClippedCounts::of(classes, data, &[7; 32])
}

/// Whatever the rows of a unit are, and whoever else there is, it adds 1 to one class and to one
/// length.
#[test]
fn a_unit_counts_once() {
    let mut state = 3_u64;
    let mut below = |count: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_041);
        (state >> 33) % count
    };
    for rows in 1..40 {
        let mut row = |unit| (unit, 1 + below(3) as u32, 1 + below(63) as usize);
        let others: Vec<(u32, u32, usize)> = (0..20).map(|i| row(i % 4)).collect();
        let own: Vec<(u32, u32, usize)> = (0..rows).map(|_| row(4)).collect();
        let without = counts(&classes(), &data(4, &others));
        let with = counts(&classes(), &data(5, &[others, own].concat()));
        for (with, without) in
            [(&with.classes, &without.classes), (&with.lengths, &without.lengths)]
        {
            let mut moved: Vec<f64> = with.iter().zip(without).map(|(a, b)| a - b).collect();
            moved.retain(|&difference| difference != 0.0);
            assert_eq!(moved, [1.0]);
        }
    }
    // An audit's canary has its own prompt and no class.
    let other = counts(&classes(), &data(1, &[(0, 8, 5)]));
    assert_eq!((other.classes.iter().sum(), other.lengths.iter().sum()), (0.0, 1.0));
    // Any of the rows may be the one that counts.
    let rows = [(0, 1, 1), (0, 2, 2), (0, 3, 3)];
    let classes_counted = (0..60).map(|key| {
        let counts = ClippedCounts::of(&classes(), &data(1, &rows), &[key; 32]);
        counts.classes.iter().position(|&count| count == 1.0).unwrap()
    });
    assert_eq!(classes_counted.collect::<BTreeSet<_>>().len(), 3);
    // Units with a row in common, which have other rows, too, do not all choose the same.
    let rows: Vec<(u32, u32, usize)> =
        (0..40).flat_map(|unit| [(unit, 1, 1), (unit, 2, 2 + unit as usize)]).collect();
    let common = counts(&classes(), &data(40, &rows)).classes[0];
    assert!((8.0..32.0).contains(&common), "{common} of 40");
}

#[test]
fn units_are_counted_by_class_and_length() {
    let rows = [(0, 1, 1), (1, 3, 2), (1, 3, 2), (2, 3, 63), (3, 1, 1)];
    let of_three = counts(&classes(), &data(4, &rows)).exact();
    assert_eq!(of_three.classes, [2.0, 0.0, 2.0]);
    let lengths = &of_three.lengths;
    assert_eq!((lengths[0], lengths[31], lengths.iter().sum()), (3.0, 1.0, 4.0));
    let single = Classes { classes: classes().classes[..1].to_vec(), ..classes() };
    let of_one = counts(&single, &data(4, &rows)).exact();
    assert!(of_one.classes.is_empty(), "with one class, its count is not released");
}

/// Every number gets Gaussian noise of the recorded std, which differs for each secret.
#[test]
fn every_count_gets_the_recorded_noise() {
    let event = Event::Gaussian { noise_multiplier: 3.0, sensitivity: 2_f64.sqrt() };
    let counts = counts(&classes(), &data(2, &[(0, 1, 4), (1, 2, 9)]));
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
