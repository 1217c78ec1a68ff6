//! Weights computed from public gradients.

use super::*;

/// All weights of an allocator whose weights are known before the first step.
fn weights_of(tuning: &Tuning, fixed: FixedWeights) -> Vec<f64> {
    let learner = after(0, 0.5, tuning, move |_| AllocationMethod::Proved(Box::new(fixed.clone())));
    let allocation = learner.method().unwrap().allocator().allocation(1.0);
    coordinates(&learner, &allocation).iter().map(|c| c.weight).collect()
}

/// AdaClip's weights from public examples follow the definition, (E g²)^(−½) over the clipped
/// gradients of single examples. Here these are computed one by one, with all examples in the first
/// step.
#[test]
fn public_second_moments_are_those_of_single_examples() {
    let (clip, examples) = (Clip::Flat(0.05), public(9));
    let section = adaclip_by(ImportanceForm::Element);
    let weights =
        weights_of(&Tuning::Head, of_public(&Tuning::Head, &clip, &examples, Some(&section), 1));
    let dp_sgd = |p: &Parameters| AllocationMethod::Proved(Box::new(DpSgd::new(&clip, p)));
    let mut learner = after(0, 1.0, &Tuning::Head, dp_sgd);
    let step = steps::begun(&mut learner, 1.0);
    let mut squares = vec![0.0; weights.len()];
    for example in &examples.examples {
        let mut sum = learner.empty_sum();
        learner.accumulate(&step, &Batch::pack([example]), None, &mut sum).unwrap();
        let trained = learner.model.parameters.iter().filter(|(_, p)| p.trainable);
        let gradient: Vec<f32> =
            trained.flat_map(|(id, _)| sum.get(id).unwrap().to_vec().unwrap()).collect();
        squares.iter_mut().zip(gradient).for_each(|(s, g)| *s += f64::from(g).powi(2));
    }
    let mean = squares.iter().sum::<f64>() / squares.len() as f64;
    let weight = |s: &f64| (s / mean).max(1e-12).powf(-0.5).clamp(0.05, 20.0);
    let expected: Vec<f64> = squares.iter().map(weight).collect();
    let whole = expected.iter().sum::<f64>() / expected.len() as f64;
    assert!(weights.iter().any(|w| *w > 1.2) && weights.iter().any(|w| *w < 0.8));
    for (weight, expected) in weights.iter().zip(expected) {
        assert!((weight * whole / expected - 1.0).abs() < 1e-4, "{weight} {expected}");
    }
}

/// Weights are a function of the public file, the model and the seed. After a few steps LoRA's A
/// has a gradient, although it has none at first.
#[test]
fn public_weights_are_reproducible_and_reach_every_tensor() {
    let clip = Clip::Automatic;
    let section = adaclip_by(ImportanceForm::Element);
    for adaclip in [None, Some(&section)] {
        let of = |examples: &Dataset, seed| {
            weights_of(&lora(), of_public(&lora(), &clip, examples, adaclip, seed))
        };
        let (some, others) = (public(40), public(23));
        assert_eq!(of(&some, 1), of(&some, 1));
        assert_eq!(of(&some, 1), of(&some, 2), "the seed matters to masks and new weights only");
        assert_ne!(of(&some, 1), of(&others, 1));
    }
    // A flat exponent and a wide range, so that no weight is clamped.
    let wide = AdaclipSection { exponent: 0.25, range: (1e-4, 1e4), ..section };
    let weights = weights_of(&lora(), of_public(&lora(), &clip, &public(40), Some(&wide), 1));
    let model = model(&lora());
    let mut start = 0;
    for (_, parameter) in model.parameters.iter().filter(|(_, p)| p.trainable) {
        let own = &weights[start..start + parameter.len()];
        start += parameter.len();
        if !parameter.name.contains("lora_") {
            continue;
        }
        let spread = own.iter().any(|w| (w / own[0] - 1.0).abs() > 1e-3);
        assert!(spread, "{} has the same weight everywhere", parameter.name);
    }
}
