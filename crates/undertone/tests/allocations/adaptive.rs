//! Adaptive clipping: the count that a step releases in addition to the gradients.

use super::*;

fn adaptive(settings: AdaptiveClip, count_std: f64) -> impl Fn(&Parameters) -> AllocationMethod {
    move |p| AllocationMethod::Proved(Box::new(AdaptiveClipping::new(settings, count_std, p)))
}

/// The clipping norm of the next step.
fn bound_of(learner: &Learner) -> f64 {
    learner.method().unwrap().allocator().allocation(1.0).bounds.thresholds()[0]
}

/// One step of a learner with adaptive clipping.
fn adaptive_step(learner: &mut Learner, batch: &Batch, number: u64, noise: f64, divisor: f64) {
    let step = StepSettings { number, noise_multiplier: noise, divisor, learning_rate: 0.0 };
    steps::take(learner, batch, step);
}

/// The step is a Gaussian mechanism on gradient and count together. With noise s on the gradient
/// and s_b on the count, a unit that moves them by C and by ½ moves the pair as far as a unit moves
/// a plain sum with σ. Fails if the count is not accounted for, or not with its full sensitivity.
#[test]
fn adaptive_clipping_pays_for_the_count() {
    for (sigma, count_std) in [(0.7, 1.0), (1.3, 3.0), (4.0, 2.5), (0.5, 100.0)] {
        let learner = after(0, sigma, &lora(), adaptive(AdaptiveClip::default(), count_std));
        let allocation = learner.method().unwrap().allocator().allocation(sigma);
        let (bound, std) = (allocation.bounds.thresholds()[0], allocation.stds[0]);
        let furthest = (bound / std).powi(2) + (0.5 / count_std).powi(2);
        assert!((furthest.sqrt() * sigma - 1.0).abs() < 1e-12, "σ = {sigma}");
        assert!(std > sigma * bound, "the gradient alone gets more noise than without the count");
        assert!((allocation.noise_multiplier() / sigma - 1.0).abs() < 1e-12);
    }
    // Noise on the count that alone costs more than the step may is refused.
    let model = model(&lora());
    let method = adaptive(AdaptiveClip::default(), 1.0)(&model.parameters);
    let protection = Protection { method, noise: Noise::new(&Secret::from_seed(4)) };
    let mut learner = Learner::new(model, Settings::default(), Some(protection));
    let settings =
        StepSettings { number: 0, noise_multiplier: 2.5, divisor: 1.0, learning_rate: 0.0 };
    assert!(learner.begin_step(settings).is_err());
}

/// The released count has the noise that is accounted for, and one unit moves it by ½.
#[test]
fn the_count_of_adaptive_clipping_is_noisy() {
    let (count_std, divisor, rate) = (2.0, 8.0, 0.2);
    let settings = AdaptiveClip { rate, ..AdaptiveClip::default() };
    let nobody = Batch::pack(&[]);
    let bound = |learner: &Learner| bound_of(learner);
    let mut learner = after(0, 1.0, &lora(), adaptive(settings, count_std));
    // ln C moves by −η (count/divisor + ½ − quantile) in each step.
    let counts: Vec<f64> = (0..3_000)
        .map(|number| {
            let before = bound(&learner);
            adaptive_step(&mut learner, &nobody, number, 1.0, divisor);
            -(bound(&learner) / before).ln() / rate * divisor
        })
        .collect();
    let n = counts.len() as f64;
    let mean = counts.iter().sum::<f64>() / n;
    let variance = counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / n;
    assert!(mean.abs() < 5.0 * count_std / n.sqrt(), "{mean}");
    let error = 5.0 * (2.0 / n).sqrt();
    assert!((variance / count_std.powi(2) - 1.0).abs() < error, "{variance}");
    // The same noise, with and without a unit.
    let all = examples();
    let moved = |count: usize| {
        let mut learner = after(0, 1.0, &lora(), adaptive(settings, count_std));
        let before = bound(&learner);
        adaptive_step(&mut learner, &Batch::pack(&all[..count]), 3, 1.0, divisor);
        -(bound(&learner) / before).ln() / rate * divisor
    };
    // The noisy count lies on a grid with a spacing of at most 1/256 of the std.
    assert!(((moved(8) - moved(7)).abs() - 0.5).abs() < count_std / 200.0);
}

/// C converges to the bound that the requested share of gradients satisfies, and a resumed run
/// restores it.
#[test]
fn adaptive_clipping_finds_the_quantile() {
    let settings = AdaptiveClip { quantile: 0.6, initial: 100.0, ..AdaptiveClip::default() };
    let mut learner = after(0, 1.0, &lora(), adaptive(settings, 1.0));
    let step = steps::begun(&mut learner, 1.0);
    let mut norms: Vec<f64> = examples()
        .iter()
        .map(|example| {
            let mut sum = learner.empty_sum();
            learner.accumulate(&step, &Batch::pack([example]), None, &mut sum).unwrap();
            sum.clipped().norms
        })
        .collect();
    norms.sort_by(f64::total_cmp);
    let (mut logs, many) = (0.0, 400);
    for number in 0..many {
        // 80 units in expectation, so that the noise of the count is small.
        let ten: Vec<Example> = (0..10_u32)
            .flat_map(|copy| {
                examples().into_iter().map(move |mut e| {
                    e.unit += 8 * copy;
                    e
                })
            })
            .collect();
        adaptive_step(&mut learner, &Batch::pack(&ten), number, 1.0, 80.0);
        if number >= many / 2 {
            logs += bound_of(&learner).ln() / (many / 2) as f64;
        }
    }
    let (norm, low, high) = (logs.exp(), norms[3] * 0.9, norms[5] * 1.1);
    assert!((low..high).contains(&norm), "{norm} of {norms:?}");
    let state = learner.method().unwrap().allocator().state();
    let mut fresh = after(0, 1.0, &lora(), adaptive(settings, 1.0));
    let all = fresh.restore_method(&|name| {
        state.iter().find(|(known, _)| known == name).map(|entry| entry.1.dense().into_owned())
    });
    assert!(all && bound_of(&fresh) == bound_of(&learner));
    assert!(!fresh.restore_method(&|_| None), "a checkpoint without C is damaged");
}
