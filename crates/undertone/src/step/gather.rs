//! All-gather: assembles whole parameters from the slices held by the ranks, bucket by bucket.

use super::learner::Learner;
use crate::collective::{self, Ranks, Shards, Slice, part_length};
use crate::error::Result;
use crate::model::{self, ParameterId, Parameters};
use crate::tensor::{Host, Matrix};

/// Sends the new weights of each rank's slices to all ranks.
pub(super) fn gather_values(
    ranks: &Ranks,
    shards: &Shards,
    own: Vec<Matrix>,
    parameters: &mut Parameters,
) -> Result<()> {
    let mut whole: Vec<Option<Host>> = vec![None; parameters.len()];
    let mut devices = Vec::new();
    for (id, parameter) in parameters.iter_mut().filter(|(_, parameter)| parameter.trainable) {
        devices.push((id, parameter.value.device()));
        let [rows, columns] = parameter.value.shape();
        whole[id.index()] = Some(match &mut parameter.value {
            // Taken out of the parameter so that it is not shared and can be changed in place.
            value @ Matrix::Host(_) => {
                let taken = std::mem::replace(value, Matrix::zeros(0, 0));
                taken.to_host().map_err(model::Error::from)?
            }
            Matrix::Cuda(_) => Host::build(rows, columns, |_| ()),
        });
    }
    gather(ranks, shards, own, &mut whole)?;
    for (id, device) in devices {
        let Some(host) = whole[id.index()].take() else { continue };
        let value = Matrix::Host(host).to_device(&device);
        parameters.get_mut(id).value = value.map_err(model::Error::from)?;
    }
    Ok(())
}

/// The released gradients of all ranks, by parameter.
pub(super) fn gather_gradients(
    ranks: &Ranks,
    shards: &Shards,
    own: Vec<Matrix>,
    parameters: &Parameters,
) -> Result<Vec<Option<Matrix>>> {
    let empty = |value: &Matrix| Host::build(value.rows(), value.columns(), |_| ());
    let mut whole: Vec<Option<Host>> =
        parameters.iter().map(|(_, p)| p.trainable.then(|| empty(&p.value))).collect();
    gather(ranks, shards, own, &mut whole)?;
    let on_device = |((_, parameter), host): ((ParameterId, &model::Parameter), Option<Host>)| {
        let matrix = host.map(|host| Matrix::Host(host).to_device(&parameter.value.device()));
        Ok(matrix.transpose().map_err(model::Error::from)?)
    };
    parameters.iter().zip(whole).map(on_device).collect()
}

/// Writes the slices of all ranks into whole parameters; `own` holds the slices of this rank.
fn gather(
    ranks: &Ranks,
    shards: &Shards,
    own: Vec<Matrix>,
    whole: &mut [Option<Host>],
) -> Result<()> {
    let mut own = own.into_iter();
    for bucket in shards.buckets() {
        let longest = bucket.iter().map(|part| part_length(part)).max().unwrap_or(0);
        let mut values = Vec::with_capacity(longest);
        for _ in &bucket[ranks.rank()] {
            let slice = own.next().ok_or_else(collective::Error::out_of_step)?;
            values.extend_from_slice(&slice.to_host().map_err(model::Error::from)?.dense());
        }
        values.resize(longest, 0.0);
        let all = ranks.all_gather_f32(&values)?;
        for (rank, part) in bucket.iter().enumerate() {
            let mut at = rank * longest;
            for Slice { parameter, range } in part {
                let host = whole[parameter.index()].as_mut();
                let host = host.ok_or_else(collective::Error::out_of_step)?;
                let numbers = &all[at..at + range.len()];
                host.values_mut()[range.clone()].copy_from_slice(numbers);
                at += range.len();
            }
        }
    }
    Ok(())
}

/// The state that each rank holds for the coordinates it updates, besides their weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    FirstMoment,
    SecondMoment,
    /// The average of the weights.
    Average,
    /// The filtered gradient.
    Filtered,
    /// The weights before the last step, for the filter.
    Previous,
}

impl Learner {
    /// The values of this rank's i-th slice.
    fn kept(&self, kept: Kept, i: usize, slice: &Slice) -> Result<Vec<f32>> {
        let moments = self.optimizer.moments(slice);
        let gradient = match kept {
            Kept::FirstMoment => moments.map(|(first, _)| first),
            Kept::SecondMoment => moments.map(|(_, second)| second),
            Kept::Average => self.average.as_ref().and_then(|average| average.values().get(i)),
            Kept::Filtered => self.filter.as_ref().and_then(|filter| filter.filtered().get(i)),
            Kept::Previous => {
                let filter = self.filter.as_ref();
                let whole = filter.and_then(|filter| filter.previous(slice.parameter));
                let whole = whole.ok_or_else(collective::Error::out_of_step)?;
                let own = slice.of(whole).and_then(|own| own.to_vec());
                return Ok(own.map_err(model::Error::from)?);
            }
        };
        let gradient = gradient.ok_or_else(collective::Error::out_of_step)?;
        Ok(gradient.to_vec().map_err(model::Error::from)?)
    }

    /// The values of a whole parameter, gathered on rank 0; other ranks get an empty vector. All
    /// ranks must call this.
    pub(crate) fn collect(&self, kept: Kept, id: ParameterId) -> Result<Vec<f32>> {
        let (ranks, shards) = self.sharding();
        let mut own = Vec::new();
        let all = shards.own();
        for (i, slice) in all.iter().enumerate().filter(|(_, slice)| slice.parameter == id) {
            own.extend(self.kept(kept, i, slice)?);
        }
        if ranks.are_one() {
            return Ok(own);
        }
        let parts = ranks.gather(bytemuck::cast_slice(&own))?;
        if !ranks.is_first() {
            return Ok(Vec::new());
        }
        let mut whole = vec![0.0; self.model.parameters.get(id).len()];
        for (rank, bytes) in parts.iter().enumerate() {
            let mut left = bytes.as_chunks().0;
            for slice in shards.of_rank(rank).filter(|slice| slice.parameter == id) {
                let now = left.split_off(..slice.range.len());
                let now = now.ok_or_else(collective::Error::out_of_step)?;
                for (place, number) in whole[slice.range.clone()].iter_mut().zip(now) {
                    *place = f32::from_ne_bytes(*number);
                }
            }
        }
        Ok(whole)
    }

    /// This rank's slices of a parameter's values, in the form used by updates: with a single
    /// process, the whole parameter in its own shape.
    pub(crate) fn own_slices(&self, id: ParameterId, numbers: &[f32]) -> Vec<(Slice, Host)> {
        let (ranks, shards) = self.sharding();
        let [rows, columns] = self.model.parameters.value(id).shape();
        let own = shards.own().into_iter().filter(|slice| slice.parameter == id);
        own.map(|slice| {
            let shape = if ranks.are_one() { [rows, columns] } else { slice.shape() };
            let part = numbers[slice.range.clone()].to_vec();
            (slice, Host::from_vec(shape[0], shape[1], part))
        })
        .collect()
    }

    /// Restores the moments of a parameter: this rank's slices of them.
    pub(crate) fn restore_moments(&mut self, id: ParameterId, first: &[f32], second: &[f32]) {
        let slices = self.own_slices(id, first).into_iter().zip(self.own_slices(id, second));
        for ((slice, first), (_, second)) in slices {
            self.optimizer.restore_moments(&slice, first, second);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Collective;
    use crate::data::{Batch, Example, Target};
    use crate::model::architecture::{Architecture, Dimensions};
    use crate::model::{Model, TaskHead};
    use crate::step::optimizer::Settings;
    use crate::step::{Cost, StepSettings};
    use std::sync::{Arc, Barrier, Mutex};

    /// The messages sent, by sender and receiver.
    type Sent = Vec<Vec<Vec<u8>>>;

    /// Ranks implemented as threads of one process.
    #[derive(Debug)]
    struct Threads {
        rank: usize,
        shared: Arc<(Barrier, Mutex<Sent>)>,
    }

    impl Collective for Threads {
        fn rank(&self) -> usize {
            self.rank
        }

        fn size(&self) -> usize {
            self.shared.1.lock().unwrap().len()
        }

        fn exchange(&self, outgoing: &[&[u8]]) -> collective::Result<Vec<Vec<u8>>> {
            let (barrier, sent) = &*self.shared;
            let own = outgoing.iter().map(|bytes| bytes.to_vec()).collect();
            sent.lock().unwrap()[self.rank] = own;
            barrier.wait();
            let received = sent.lock().unwrap().iter().map(|of| of[self.rank].clone()).collect();
            barrier.wait();
            Ok(received)
        }

        fn share_secret(&self, secret: [u8; 32]) -> collective::Result<[u8; 32]> {
            Ok(secret)
        }
    }

    fn in_threads<T: Send>(ranks: usize, each: impl Fn(Ranks) -> T + Sync) -> Vec<T> {
        let shared = Arc::new((Barrier::new(ranks), Mutex::new(vec![Vec::new(); ranks])));
        let (shared, each) = (&shared, &each);
        std::thread::scope(|scope| {
            let start = |rank| {
                let ranks = Ranks::of(Threads { rank, shared: shared.clone() });
                scope.spawn(move || each(ranks))
            };
            let all: Vec<_> = (0..ranks).map(start).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    fn model() -> Model {
        let dimensions = Dimensions {
            layers: 1,
            hidden: 24,
            heads: 2,
            inner: 50,
            vocabulary: 60,
            positions: 12,
            key_heads: None,
        };
        let labels = ["a".to_owned(), "b".to_owned()];
        let head = TaskHead::SequenceClassification;
        Architecture::Bert.random(dimensions, head, &labels, 3).unwrap()
    }

    fn step(learner: &mut Learner, number: u64) {
        let example = |unit: u32| Example {
            tokens: (0..5).map(|t| (unit * 31 + t * 7 + number as u32) % 60).collect(),
            target: Target::Class(unit % 2),
            unit,
            ..Example::default()
        };
        let rank = learner.sharding().0.rank() as u32;
        let settings =
            StepSettings { number, noise_multiplier: 0.0, divisor: 2.0, learning_rate: 1e-2 };
        let step = learner.begin_step(settings).unwrap();
        let mut sum = learner.empty_sum();
        learner.accumulate(&step, &Batch::pack(&[example(rank)]), None, &mut sum).unwrap();
        learner.release(sum, step, Cost::NonPrivate).unwrap();
    }

    /// Weights and both moments of every parameter, as gathered on rank 0.
    fn state(learner: &Learner) -> Vec<Vec<f32>> {
        let ids = learner.trainable().into_iter();
        ids.flat_map(|id| {
            let weights = learner.model.parameters.value(id).to_vec().unwrap();
            let [first, second] = [Kept::FirstMoment, Kept::SecondMoment]
                .map(|kept| learner.collect(kept, id).unwrap());
            [weights, first, second]
        })
        .collect()
    }

    fn sharded(ranks: &Ranks, bucket: usize) -> Learner {
        let learner = Learner::new(model(), Settings::default(), None);
        let parameters = &learner.model.parameters;
        let shards = Shards::in_buckets(parameters, ranks.rank(), ranks.size(), bucket);
        learner.in_shards(ranks, shards)
    }

    fn restore(learner: &mut Learner, state: &[Vec<f32>]) {
        learner.optimizer.restore(2);
        for (id, of) in learner.trainable().into_iter().zip(state.chunks_exact(3)) {
            let [rows, columns] = learner.model.parameters.value(id).shape();
            let weights = Matrix::from_vec(rows, columns, of[0].clone());
            learner.model.parameters.get_mut(id).value = weights;
            learner.restore_moments(id, &of[1], &of[2]);
        }
    }

    /// Many buckets give the same bits as one, and the state of two ranks can be resumed with one,
    /// two or three ranks.
    #[test]
    fn buckets_change_nothing_and_any_number_of_ranks_goes_on() {
        let run = |bucket: usize| {
            in_threads(2, |ranks| {
                let mut learner = sharded(&ranks, bucket);
                (0..2).for_each(|number| step(&mut learner, number));
                state(&learner)
            })
            .swap_remove(0)
        };
        let (whole, many) = (run(usize::MAX), run(700));
        assert!(whole == many && whole[1].iter().any(|&m| m != 0.0));
        for ranks in [1, 2, 3] {
            let again = in_threads(ranks, |ranks| {
                let mut learner = sharded(&ranks, 900);
                restore(&mut learner, &whole);
                let kept = state(&learner);
                step(&mut learner, 2);
                (kept, learner.optimizer.state_len())
            });
            assert!(again[0].0 == whole, "{ranks} ranks");
            let all: usize = again.iter().map(|(_, len)| len).sum();
            let (trainable, _) = model().parameters.count();
            assert_eq!(all, 2 * trainable);
        }
    }
}
