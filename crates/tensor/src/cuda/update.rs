//! Noise and optimizer on the GPU, bit-identical to the CPU.

use super::gradient_means::product_of_stds;
use super::launch::{Grid, arguments};
use super::matrix::CudaMatrix;
use super::memory::Buffer;
use super::source::Source;
use crate::error::{Error, Result};
use crate::update::{ParameterUpdate, Rule, Stds, UpdateState};

/// Threads per block, and coordinates per block: sixteen for each thread.
const THREADS: usize = 128;
const COORDINATES: usize = 16 * THREADS;

/// Update rules, as numbered in the kernel.
const SGD: u64 = 0;
const ADAMW: u64 = 1;
const CORRECTED: u64 = 2;

/// Packs two f32 values into one word of a kernel's structure.
fn both(low: f32, high: f32) -> u64 {
    u64::from(low.to_bits()) | u64::from(high.to_bits()) << 32
}

/// Updates all parameters in one launch.
pub(super) fn release_and_update(
    states: Vec<UpdateState<CudaMatrix>>,
    updates: &[ParameterUpdate],
) -> Result<Vec<UpdateState<CudaMatrix>>> {
    let Some(common) = updates.first() else { return Ok(states) };
    let step_of =
        |update: &ParameterUpdate| update.noise.map(|noise| (noise.step, noise.noise.key_pairs()));
    let same = |update: &ParameterUpdate| {
        (update.rule, update.divisor, update.learning_rate, step_of(update))
            == (common.rule, common.divisor, common.learning_rate, step_of(common))
    };
    if !updates.iter().all(same) || states.len() != updates.len() {
        let problem = "parameters of one step with different steps or rules";
        return Err(Error::Unsupported(problem.into()));
    }
    let mut words = Vec::with_capacity(12 * updates.len());
    let (mut blocks, mut kept, mut stds) = (0, Vec::with_capacity(updates.len()), Vec::new());
    for (state, update) in states.into_iter().zip(updates) {
        let [sum, value, first, second] =
            [state.sum, state.value, state.first, state.second].map(CudaMatrix::into_f32);
        let (sum, first, second) = (sum?.exclusive()?, first?.exclusive()?, second?.exclusive()?);
        // The products of the next step need the new value in bf16: round it here, where it is at
        // hand, into the memory of the old one.
        let (value, rounded) = value?.exclusive_with_rounded()?;
        let count = value.rows() * value.columns();
        let (each, std) = match update.noise.map(|noise| noise.stds) {
            Some(Stds::Each(write)) => {
                let mut numbers = vec![0.0_f32; count];
                write(0, &mut numbers);
                stds.push(value.gpu().upload(&numbers)?);
                (stds.last().map_or(0, Buffer::pointer), 0.0)
            }
            Some(Stds::Product { rows, columns }) => {
                assert_eq!(rows.len() * columns.len(), count, "a std for each coordinate");
                stds.push(product_of_stds(value.gpu(), rows, columns)?);
                (stds.last().map_or(0, Buffer::pointer), 0.0)
            }
            Some(Stds::Same(std)) => (0, std),
            None => (0, 0.0),
        };
        let keep = 1.0 - update.learning_rate * update.decay;
        words.extend([
            sum.pointer(),
            each,
            value.pointer(),
            first.pointer(),
            second.pointer(),
            rounded,
            count as u64,
            update.noise.map_or(0, |noise| noise.first),
            blocks as u64,
            both(std, keep),
            both(update.gradient_std.unwrap_or(0.0), 0.0),
            0,
        ]);
        blocks += count.div_ceil(COORDINATES);
        kept.push(UpdateState { sum, value, first, second });
    }
    let gpu = kept[0].value.gpu();
    let words = gpu.upload(&words)?;
    let key = common.noise.map_or([0; 4], |noise| noise.noise.key_pairs());
    let (kind, momentum, betas, epsilon, corrections) = match common.rule {
        Rule::Sgd { momentum } => (SGD, momentum, (0.0, 0.0), 0.0, (1.0, 1.0)),
        Rule::Adam { betas, epsilon, corrections, corrected } => {
            (if corrected { CORRECTED } else { ADAMW }, 0.0, betas, epsilon, corrections)
        }
    };
    let arguments = arguments![
        &words,
        updates.len(),
        key[0],
        key[1],
        key[2],
        key[3],
        common.noise.map_or(0, |noise| noise.step),
        1.0 / common.divisor,
        common.noise.is_some(),
        kind,
        momentum,
        betas.0,
        betas.1,
        epsilon,
        common.learning_rate,
        common.learning_rate / corrections.0,
        1.0 / corrections.1,
    ];
    let grid = Grid { blocks: (blocks, 1), threads: (THREADS as u32, 1), shared: 0 };
    // SAFETY: the words form one structure of twelve for each parameter, whose four matrices are
    // dense, have `count` values and are not shared; there are `count` standard deviations, or
    // none, and `count` bf16 values, or none.
    unsafe { gpu.launch(Source::Update.kernel("release_and_update"), grid, arguments)? };
    Ok(kept)
}
