//! The optimizer's state, the noise and the update are divided among ranks. The results are
//! bit-identical to those of a learner that has the sum of all ranks and updates everything itself.

use super::*;
use crate::ranks::in_ranks;
use undertone::collective::Ranks;
use undertone::gradient::ClippedSum;

const SIGMA: f64 = 0.7;

/// The sum over this rank's share of the examples; in step 2 rank 0 has none.
fn own_sum(learner: &Learner, ranks: &Ranks, step: &Step) -> ClippedSum {
    let number = step.settings().number;
    let size = ranks.size() as u32;
    let own = examples().into_iter().filter(|example| match number {
        2 => example.unit % (size - 1) + 1 == ranks.rank() as u32,
        _ => example.unit % size == ranks.rank() as u32,
    });
    let mut sum = learner.empty_sum();
    learner.accumulate(step, &Batch::pack(&own.collect::<Vec<_>>()), None, &mut sum).unwrap();
    sum
}

fn bits(learner: &Learner) -> Vec<u64> {
    trained(learner).iter().map(|weight| weight.to_bits()).collect()
}

/// Two learners with the same model: one updates everything, the other only its shard.
fn compare(ranks: &Ranks, name: &str, settings: Settings, tuning: &Tuning, make: Option<&Make>) {
    let learner = || {
        let model = model(tuning);
        let noise = Noise::new(&Secret::from_seed(4));
        let protection =
            make.map(|make| Protection { method: make(&model.parameters), noise: noise.clone() });
        Learner::new(model, settings, protection)
    };
    let (mut whole, mut sharded) = (learner(), learner().over(ranks));
    for number in 0..4 {
        let of_step =
            StepSettings { number, noise_multiplier: SIGMA, divisor: 8.0, learning_rate: 1e-2 };
        let mut step = whole.begin_step(of_step).unwrap();
        let mut sum = own_sum(&whole, ranks, &step);
        sum.all_reduce(ranks, &whole.model.parameters).unwrap();
        let clipped = sum.clipped().clone();
        whole.observe_raw(&sum, &mut step).unwrap();
        let (effective, bound) = (step.noise_multiplier(), step.adaptive_bound());
        whole.release(sum, step, Cost::NonPrivate).unwrap();
        let mut step = sharded.begin_step(of_step).unwrap();
        let mut sum = own_sum(&sharded, ranks, &step);
        sum.all_reduce_beside(ranks, &sharded.model.parameters).unwrap();
        assert_eq!(sum.clipped().units, clipped.units);
        sharded.observe_raw(&sum, &mut step).unwrap();
        assert_eq!(step.noise_multiplier(), effective, "{name}");
        assert_eq!(step.adaptive_bound(), bound, "{name}");
        sharded.release(sum, step, Cost::NonPrivate).unwrap();
        let context = format!("{name}, {:?}, {} ranks, step {number}", settings.kind, ranks.size());
        assert!(bits(&whole) == bits(&sharded), "{context}");
    }
    // Each value of the optimizer's state is on one rank, and the ranks have equal shares.
    let own = sharded.optimizer.state_len();
    let all: usize = ranks
        .all_gather(&own.to_le_bytes())
        .unwrap()
        .iter()
        .map(|bytes| usize::from_le_bytes(bytes.as_slice().try_into().unwrap()))
        .sum();
    assert_eq!(all, whole.optimizer.state_len(), "{name}");
    // Two moments, and cuts only at multiples of 256 coordinates.
    let share = all as f64 / ranks.size() as f64;
    assert!((own as f64 - share).abs() < 2.0 * 256.0, "{name}: {own} of {all}");
}

#[test]
fn every_method_has_the_same_bits_in_shards() {
    let kinds = [OptimizerKind::Adamw, OptimizerKind::AdamCorrected, OptimizerKind::Sgd];
    for ranks in [2, 3] {
        let folder = tempfile::tempdir().unwrap();
        in_ranks(ranks, folder.path(), |ranks| {
            for kind in kinds {
                let settings = Settings { kind, ..Settings::default() };
                for (name, tuning, _, make) in methods() {
                    compare(&ranks, name, settings, &tuning, Some(&make));
                }
                for tuning in [Tuning::Full, lora()] {
                    let banded: Make = Box::new(|parameters| {
                        let method = BandedDpSgd::new(&Clip::Flat(0.5), 3, parameters);
                        AllocationMethod::Proved(Box::new(method))
                    });
                    compare(&ranks, "correlated noise", settings, &tuning, Some(&banded));
                    compare(&ranks, "non-private", settings, &tuning, None);
                }
            }
            ranks.leave();
        });
    }
}

/// Reduce-scatter and all-gather together send 8 p (N − 1)/N bytes; a method that learns from
/// releases gathers these as well. Padding parts to equal length adds up to 256 coordinates.
#[test]
fn an_update_sends_no_more_than_an_all_reduce() {
    for ranks in [2, 3] {
        let folder = tempfile::tempdir().unwrap();
        in_ranks(ranks, folder.path(), |ranks| {
            for (learns, exchanges) in [(false, 2), (true, 3)] {
                let model = model(&Tuning::Full);
                let method = AllocationMethod::Proved(match learns {
                    false => Box::new(DpSgd::new(&Clip::Flat(0.5), &model.parameters)),
                    true => {
                        let section = AdaclipSection::default();
                        Box::new(Adaclip::new(&Clip::Flat(0.5), section, &model.parameters))
                    }
                });
                let protection = Protection { method, noise: Noise::new(&Secret::from_seed(4)) };
                let learner = Learner::new(model, Settings::default(), Some(protection));
                let mut learner = learner.over(&ranks);
                let (number, noise_multiplier, divisor) = (0, 1.0, 8.0);
                let settings =
                    StepSettings { number, noise_multiplier, divisor, learning_rate: 1e-2 };
                let step = learner.begin_step(settings).unwrap();
                let sum = own_sum(&learner, &ranks, &step);
                let before = ranks.bytes_sent();
                learner.release(sum, step, Cost::NonPrivate).unwrap();
                let sent = ranks.bytes_sent() - before;
                let (trainable, _) = learner.model.parameters.count();
                let (p, n) = (trainable as u64, ranks.size() as u64);
                let least = exchanges * 4 * p / n * (n - 1);
                let most = exchanges * 4 * (p / n + 256 + 16) * (n - 1);
                assert!((least..=most).contains(&sent), "{sent}, not {least} to {most}");
            }
            ranks.leave();
        });
    }
}
