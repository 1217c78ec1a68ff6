//! Noise and optimiser on the GPU: the numbers are those of the CPU, bit by bit.

use super::format::NumberFormat;
use super::launch::{Grid, arguments};
use super::matrix::CudaMatrix;
use super::memory::Buffer;
use super::source::Source;
use crate::tensor::error::Result;
use crate::tensor::update::{NoiseOfRelease, ParameterUpdate, Rule, Stds, UpdateState};

/// Threads of a block; each has sixteen coordinates.
const THREADS: usize = 128;
const COORDINATES: usize = 16;

/// Kinds of rules, as the kernel numbers them.
const SGD: u64 = 0;
const ADAMW: u64 = 1;
const CORRECTED: u64 = 2;

pub(super) fn release_and_update(
    state: UpdateState<CudaMatrix>,
    update: &ParameterUpdate,
) -> Result<UpdateState<CudaMatrix>> {
    let UpdateState { sum, value, first, second } = state;
    let [sum, value] = [sum.in_format(NumberFormat::F32)?, value.in_format(NumberFormat::F32)?];
    let [sum, value] = [sum.exclusive()?, value.exclusive()?];
    let [first, second] = [first.exclusive()?, second.exclusive()?];
    let gpu = value.gpu();
    let count = value.rows() * value.columns();
    let stds = match update.noise.map(|noise| noise.stds) {
        Some(Stds::Each(write)) => {
            let mut stds = vec![0.0_f32; count];
            write(0, &mut stds);
            Some(gpu.upload(&stds)?)
        }
        _ => None,
    };
    let std = match update.noise.map(|noise| noise.stds) {
        Some(Stds::Same(std)) => std,
        _ => 0.0,
    };
    let key = update.noise.map_or([0; 4], |noise| noise.noise.key_pairs());
    let (step, coordinate) =
        update.noise.map_or((0, 0), |NoiseOfRelease { step, first, .. }| (step, first));
    let keep = 1.0 - update.learning_rate * update.decay;
    let (kind, momentum, betas, epsilon, corrections) = match update.rule {
        Rule::Sgd { momentum } => (SGD, momentum, (0.0, 0.0), 0.0, (1.0, 1.0)),
        Rule::Adam { betas, epsilon, corrections, corrected } => {
            (if corrected { CORRECTED } else { ADAMW }, 0.0, betas, epsilon, corrections)
        }
    };
    let arguments = arguments![
        &sum,
        stds.as_ref().map_or(0, Buffer::pointer),
        &value,
        &first,
        &second,
        count,
        key[0],
        key[1],
        key[2],
        key[3],
        step,
        coordinate,
        std,
        1.0 / update.divisor,
        update.noise.is_some(),
        kind,
        momentum,
        betas.0,
        betas.1,
        epsilon,
        keep,
        update.learning_rate,
        update.learning_rate / corrections.0,
        1.0 / corrections.1,
        update.gradient_std.unwrap_or(0.0),
    ];
    // A round of 256 coordinates has sixteen threads, the last round too.
    let threads = count.div_ceil(16 * COORDINATES) * 16;
    let grid =
        Grid { blocks: (threads.div_ceil(THREADS), 1), threads: (THREADS as u32, 1), shared: 0 };
    // SAFETY: all four are dense, of `count` numbers, and nobody else has them; there are as many
    // standard deviations, or none.
    unsafe { gpu.launch(Source::Update.kernel("release_and_update"), grid, arguments)? };
    Ok(UpdateState { sum, value, first, second })
}
