//! Sampling a token from each row of logits, and the likely tokens of each row.

use super::launch::{Grid, arguments};
use super::matrix::CudaMatrix;
use super::source::Source;
use crate::error::Result;
use crate::{Likely, parallel_map};

/// The largest number of tokens per row that is copied to the host.
const MOST: usize = 4096;

/// The tokens that are at most `below` under the largest of their row.
pub fn likely(logits: &CudaMatrix, temperature: f32, below: f32) -> Result<Vec<Likely>> {
    let (gpu, rows, columns) = (logits.gpu(), logits.rows(), logits.columns());
    let most = MOST.min(columns);
    let largest = gpu.allocate(rows * size_of::<f32>())?;
    let totals = gpu.allocate(rows * size_of::<f64>())?;
    let counts = gpu.allocate(rows * size_of::<u32>())?;
    // The k-th tokens of all rows come before the (k + 1)-th, so that a short prefix holds
    // everything.
    let tokens = gpu.allocate(rows * most * size_of::<u32>())?;
    let values = gpu.allocate(rows * most * size_of::<f32>())?;
    let arguments = arguments![
        logits,
        logits.stride(),
        columns,
        temperature,
        below,
        most,
        rows,
        &largest,
        &totals,
        &counts,
        &tokens,
        &values,
    ];
    let kernel = Source::Likely(logits.format()).kernel("likely");
    // SAFETY: the outputs are new; the first three have one value per row, the others `most`.
    unsafe { gpu.launch(kernel, Grid::wide_rows(rows), arguments)? };
    let (mut host_largest, mut host_totals) = (vec![0.0_f32; rows], vec![0.0_f64; rows]);
    let mut host_counts = vec![0_u32; rows];
    // SAFETY: each holds one value per row.
    unsafe {
        gpu.download(largest.pointer(), &mut host_largest)?;
        gpu.download(totals.pointer(), &mut host_totals)?;
        gpu.download(counts.pointer(), &mut host_counts)?;
    }
    let copied = |count: u32| Some(count as usize).filter(|count| *count <= most);
    let width = host_counts.iter().filter_map(|&count| copied(count)).max().unwrap_or(0);
    let (mut host_tokens, mut host_values) = (vec![0_u32; rows * width], vec![0.0; rows * width]);
    // SAFETY: both hold at least `width` values per row.
    unsafe {
        gpu.download(tokens.pointer(), &mut host_tokens)?;
        gpu.download(values.pointer(), &mut host_values)?;
    }
    let of_row = |row: usize, count: usize| {
        (0..count).map(|k| (host_tokens[k * rows + row], host_values[k * rows + row])).collect()
    };
    Ok(parallel_map(rows, |row| Likely {
        largest: host_largest[row],
        total: host_totals[row],
        tokens: copied(host_counts[row]).map(|count| of_row(row, count)),
    }))
}

/// Samples a token from each row; see [`crate::sample`].
pub fn sample(logits: &CudaMatrix, temperature: f32, uniforms: &[f64]) -> Result<Vec<u32>> {
    let (gpu, rows, columns) = (logits.gpu(), logits.rows(), logits.columns());
    let (uniforms, tokens) = (gpu.upload(uniforms)?, gpu.allocate(rows * size_of::<u32>())?);
    let arguments = arguments![logits, logits.stride(), columns, temperature, &uniforms, &tokens];
    let kernel = Source::Likely(logits.format()).kernel("sample");
    // SAFETY: `uniforms` and `tokens` have one value per row.
    unsafe { gpu.launch(kernel, Grid::wide_rows(rows), arguments)? };
    let mut host_tokens = vec![0_u32; rows];
    // SAFETY: as above.
    unsafe { gpu.download(tokens.pointer(), &mut host_tokens)? };
    Ok(host_tokens)
}
