//! Record and replay: does one unit move a release by more than the ledger assumes?
//!
//! The guarantee rests on one statement per release: *given everything released before, neighboring
//! data sets move the value to which noise is added by at most a given number of standard
//! deviations*. A [`Tape`] tests this statement on the real training loop. The first run, on one
//! data set, records every value just before its noise is added. A second run, on a neighboring
//! data set and with the same randomness, computes the same releases. At each release, the tape
//! measures the distance to the recorded value, in standard deviations of the noise about to be
//! added, and then substitutes the recorded value. From then on, both runs have released the same
//! values, so the next distance is again one *given everything released before*. At the end, the
//! second run must have written the same weights: any remaining difference did not come from a
//! release.
//!
//! (The method follows "record and replay" audits of DP libraries, arXiv 2602.17454.)

use crate::tensor::{Matrix, Result};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Identifies a release of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReleaseId {
    /// Rap-FT's noisy relevance map.
    RelevanceMap,
    /// The noisy histograms that steer the sampling of synthetic rows.
    Statistics,
    /// MVG's noisy attention map.
    AttentionMap,
    /// A step of the adaptation that precedes perturbing the embeddings.
    Adaptation(u64),
    /// The clipped sum of a training step.
    Step(u64),
    /// The perturbed embedding of an example in an epoch.
    Embedding { example: u64, epoch: usize },
    /// The randomized label of an example; its distance is 0 or 1.
    Label(u64),
}

/// The values that one run releases, before noise, and their distances from those of another run.
#[derive(Clone, Debug, Default)]
pub struct Tape(Arc<Mutex<Reel>>);

/// A tape for the steps of a learner.
#[derive(Clone, Debug)]
pub(crate) struct StepTape {
    pub tape: Tape,
    /// Maps a step number to the release that the step makes.
    pub release: fn(u64) -> ReleaseId,
}

/// The key of one piece of a release's values: a parameter, or a rank's slice of one.
type Piece = (ReleaseId, usize, usize);

#[derive(Debug, Default)]
struct Reel {
    replays: bool,
    recorded: BTreeMap<Piece, Option<Vec<f32>>>,
    /// Squared distance of each piece, in standard deviations of its noise.
    moved: BTreeMap<Piece, f64>,
}

impl Tape {
    /// An empty tape in recording mode.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same recording in replay mode, for comparison with another run.
    pub fn replay(&self) -> Self {
        let recorded = self.reel().recorded.clone();
        Self(Arc::new(Mutex::new(Reel { replays: true, recorded, moved: BTreeMap::new() })))
    }

    fn reel(&self) -> std::sync::MutexGuard<'_, Reel> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The distance of each release from the recorded one, in standard deviations of its noise. A
    /// release made by only one of the runs is at infinite distance.
    pub fn distances(&self) -> BTreeMap<ReleaseId, f64> {
        let reel = self.reel();
        let mut squares: BTreeMap<ReleaseId, f64> = BTreeMap::new();
        for piece in reel.recorded.keys() {
            let moved = reel.moved.get(piece).copied().unwrap_or(f64::INFINITY);
            *squares.entry(piece.0).or_default() += moved;
        }
        for (piece, _) in reel.moved.iter().filter(|(piece, _)| !reel.recorded.contains_key(piece))
        {
            squares.insert(piece.0, f64::INFINITY);
        }
        squares.into_iter().map(|(release, squared)| (release, squared.sqrt())).collect()
    }

    /// Processes values to which noise with these standard deviations will be added: records them,
    /// or measures their distance and returns the recorded ones. `None` stands for zeros.
    fn pass(
        &self,
        piece: Piece,
        values: Option<Vec<f32>>,
        stds: impl FnOnce(&mut [f32]),
    ) -> Option<Vec<f32>> {
        let mut reel = self.reel();
        if !reel.replays {
            reel.recorded.insert(piece, values.clone());
            return values;
        }
        let Some(before) = reel.recorded.get(&piece).cloned() else {
            reel.moved.insert(piece, f64::INFINITY);
            return values;
        };
        let squared = squared_distance(before.as_deref(), values.as_deref(), stds);
        reel.moved.insert(piece, squared);
        before
    }

    /// Like [`Tape::pass`], but in place and with one standard deviation for all values.
    pub(crate) fn pass_slice(&self, release: ReleaseId, part: usize, values: &mut [f32], std: f32) {
        let passed = self.pass((release, part, 0), Some(values.to_vec()), |out| out.fill(std));
        match passed {
            Some(passed) if passed.len() == values.len() => values.copy_from_slice(&passed),
            _ => {}
        }
    }

    /// Like [`Tape::pass`], for the sum of a parameter, or of a rank's slice of it starting at
    /// coordinate `start`.
    pub(crate) fn pass_sum(
        &self,
        (release, parameter, start): (ReleaseId, usize, usize),
        sum: &mut Option<Matrix>,
        shape_and_device: &Matrix,
        stds: impl FnOnce(&mut [f32]),
    ) -> Result<()> {
        let values = sum.as_ref().map(Matrix::to_vec).transpose()?;
        let [rows, columns] = sum.as_ref().unwrap_or(shape_and_device).shape();
        let device = shape_and_device.device();
        let passed = self.pass((release, parameter, start), values, stds);
        *sum = match passed {
            Some(values) => Some(Matrix::from_vec(rows, columns, values).to_device(&device)?),
            None => None,
        };
        Ok(())
    }

    /// Processes a label that is about to be randomized.
    pub(crate) fn pass_label(&self, example: u64, label: u32) -> u32 {
        let mut value = [label as f32];
        self.pass_slice(ReleaseId::Label(example), 0, &mut value, 1.0);
        let mut reel = self.reel();
        if let Some(moved) = reel.moved.get_mut(&(ReleaseId::Label(example), 0, 0)) {
            *moved = f64::from(u8::from(*moved > 0.0));
        }
        value[0] as u32
    }
}

/// Squared distance in standard deviations. It is infinite for a difference where there is no
/// noise, for different lengths, and for a non-finite value.
fn squared_distance(
    before: Option<&[f32]>,
    after: Option<&[f32]>,
    stds: impl FnOnce(&mut [f32]),
) -> f64 {
    let Some(length) = before.or(after).map(<[f32]>::len) else { return 0.0 };
    let zeros = vec![0.0; length];
    let (before, after) = (before.unwrap_or(&zeros), after.unwrap_or(&zeros));
    if before.len() != after.len() {
        return f64::INFINITY;
    }
    let mut std = vec![0.0; length];
    stds(&mut std);
    let squares = before.iter().zip(after).zip(&std).map(|((&a, &b), &std)| {
        let distance = (f64::from(a) - f64::from(b)).abs();
        match (distance == 0.0, distance.is_finite() && std > 0.0) {
            (true, _) => 0.0,
            (false, true) => (distance / f64::from(std)).powi(2),
            (false, false) => f64::INFINITY,
        }
    });
    squares.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(tape: &Tape, step: u64, values: &[f32], std: f32) -> Vec<f32> {
        let mut values = values.to_vec();
        tape.pass_slice(ReleaseId::Step(step), 0, &mut values, std);
        values
    }

    #[test]
    fn a_replay_measures_and_returns_what_was_recorded() {
        let tape = Tape::new();
        assert_eq!(passed(&tape, 0, &[1.0, 2.0], 0.5), [1.0, 2.0]);
        assert_eq!(passed(&tape, 1, &[3.0], 0.5), [3.0]);
        let replay = tape.replay();
        assert_eq!(passed(&replay, 0, &[1.0, 5.0], 0.5), [1.0, 2.0]);
        assert_eq!(passed(&replay, 1, &[3.0], 0.5), [3.0]);
        let distances = replay.distances();
        assert_eq!(distances[&ReleaseId::Step(0)], 6.0);
        assert_eq!(distances[&ReleaseId::Step(1)], 0.0);
    }

    #[test]
    fn whatever_noise_does_not_cover_is_infinitely_far() {
        let tape = Tape::new();
        passed(&tape, 0, &[1.0], 1.0);
        passed(&tape, 1, &[1.0], 1.0);
        passed(&tape, 2, &[1.0], 0.0);
        passed(&tape, 3, &[1.0], 1.0);
        let replay = tape.replay();
        passed(&replay, 0, &[f32::NAN], 1.0);
        passed(&replay, 1, &[1.0, 2.0], 1.0);
        passed(&replay, 2, &[1.5], 0.0);
        passed(&replay, 4, &[1.0], 1.0);
        assert_eq!(replay.distances().len(), 5);
        assert!(replay.distances().values().all(|&distance| distance == f64::INFINITY));
    }
}
