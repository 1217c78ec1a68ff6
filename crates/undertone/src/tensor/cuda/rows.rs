//! Operations on whole rows: sums, gathering and scattering; and dropout.

use super::launch::{Argument, Grid, arguments};
use super::matrix::CudaMatrix;
use super::source::Source;
use crate::tensor::Dropout;
use crate::tensor::error::Result;

/// A new matrix of the shape of `x`, which a kernel writes row by row from `x`, its stride, and
/// further arguments that come before the output and the number of columns.
fn rowwise(name: &'static str, x: &CudaMatrix, further: &[Argument]) -> Result<CudaMatrix> {
    let (gpu, rows, columns) = (x.gpu(), x.rows(), x.columns());
    let y = CudaMatrix::new(gpu, rows, columns)?;
    let arguments = [arguments![x, x.stride()], further, arguments![&y, columns]].concat();
    // SAFETY: both have these rows and columns; the output is new. What is further has, by the
    // callers below, a number for each row or column, or the shape of x.
    unsafe { gpu.launch(Source::Rows.kernel(name), Grid::rows(rows, columns), &arguments)? };
    Ok(y)
}

/// a + b.
pub fn add(a: &CudaMatrix, b: &CudaMatrix) -> Result<CudaMatrix> {
    rowwise("add", a, arguments![b, b.stride()])
}

/// Each row times its factor; a factor of 0 leaves zeros whatever the row holds.
pub fn scale_rows(x: &CudaMatrix, factors: &[f32]) -> Result<CudaMatrix> {
    rowwise("scale_rows", x, arguments![&x.gpu().upload(factors)?])
}

/// Each column times its factor.
pub fn scale_columns(x: &CudaMatrix, factors: &[f32]) -> Result<CudaMatrix> {
    rowwise("scale_columns", x, arguments![&x.gpu().upload(factors)?])
}

/// x ⊙ mask; the backward pass is the same function of the gradient.
pub fn drop_out(dropout: Dropout, x: &CudaMatrix) -> Result<CudaMatrix> {
    let kept = 1.0 / (1.0 - dropout.rate);
    rowwise("drop_out", x, arguments![dropout.seed, dropout.rate, kept])
}

/// Row `i` of the result is row `indices[i]` of the table.
pub fn gather(table: &CudaMatrix, indices: &[u32]) -> Result<CudaMatrix> {
    let (gpu, rows, columns) = (table.gpu(), indices.len(), table.columns());
    let y = CudaMatrix::new(gpu, rows, columns)?;
    let indices = gpu.upload(indices)?;
    let arguments = arguments![table, table.stride(), &indices, &y, columns];
    // SAFETY: every index is a row of the table; the output is new.
    unsafe { gpu.launch(Source::Rows.kernel("gather"), Grid::rows(rows, columns), arguments)? };
    Ok(y)
}

/// The rows in the order of their targets: which they are, where those of each target begin, and
/// the targets.
fn by_target(indices: &[u32]) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
    let mut order: Vec<u32> = (0..indices.len() as u32).collect();
    order.sort_by_key(|&row| indices[row as usize]);
    let (mut starts, mut targets) = (Vec::new(), Vec::new());
    for (place, &row) in order.iter().enumerate() {
        let target = indices[row as usize];
        if targets.last() != Some(&target) {
            starts.push(place as u32);
            targets.push(target);
        }
    }
    starts.push(order.len() as u32);
    (order, starts, targets)
}

/// Adds row `i` of `x` at `indices[i]`, in the order of the rows.
pub fn scatter_onto(onto: CudaMatrix, x: &CudaMatrix, indices: &[u32]) -> Result<CudaMatrix> {
    let onto = onto.exclusive()?;
    let (gpu, columns) = (x.gpu(), x.columns());
    let (order, starts, targets) = by_target(indices);
    let grid =
        Grid { blocks: (targets.len(), columns.div_ceil(256)), threads: (256, 1), shared: 0 };
    let (order, starts) = (gpu.upload(&order)?, gpu.upload(&starts)?);
    let targets = gpu.upload(&targets)?;
    let arguments = arguments![x, x.stride(), &order, &starts, &targets, &onto, columns];
    // SAFETY: every target is a row of the matrix, and occurs once; nobody else has its numbers.
    unsafe { gpu.launch(Source::Rows.kernel("scatter"), grid, arguments)? };
    Ok(onto)
}

/// A matrix of `rows` rows in which row `i` of `x` was added at `indices[i]`.
pub fn scatter(x: &CudaMatrix, indices: &[u32], rows: usize) -> Result<CudaMatrix> {
    scatter_onto(CudaMatrix::zeros(x.gpu(), rows, x.columns())?, x, indices)
}

/// Rows whose sum one block computes, as in the kernel.
const ROWS: usize = 512;

/// Sum of each column of a, or of a ⊙ b.
pub fn column_sums(a: &CudaMatrix, b: Option<&CudaMatrix>) -> Result<CudaMatrix> {
    let (gpu, rows, columns) = (a.gpu(), a.rows(), a.columns());
    let parts = rows.div_ceil(ROWS);
    let partial = CudaMatrix::new(gpu, parts, columns)?;
    let grid = Grid { blocks: (columns.div_ceil(32), parts), threads: (32, 8), shared: 0 };
    let b_stride = b.map_or(0, CudaMatrix::stride);
    let arguments = arguments![a, a.stride(), b, b_stride, rows, columns, &partial];
    // SAFETY: both operands have these rows and columns; the output is new and has a row for each
    // part.
    unsafe { gpu.launch(Source::Rows.kernel("column_sums"), grid, arguments)? };
    if parts == 1 {
        return Ok(partial);
    }
    let sums = CudaMatrix::new(gpu, 1, columns)?;
    let grid = Grid { blocks: (columns.div_ceil(128), 1), threads: (128, 1), shared: 0 };
    let arguments = arguments![&partial, parts, columns, &sums];
    // SAFETY: there are so many parts of so many columns; the output is new.
    unsafe { gpu.launch(Source::Rows.kernel("add_partials"), grid, arguments)? };
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_one_target_stay_in_order() {
        let (order, starts, targets) = by_target(&[7, 2, 7, 2, 2, 9]);
        assert_eq!(order, [1, 3, 4, 0, 2, 5]);
        assert_eq!((starts, targets), (vec![0, 3, 5, 6], vec![2, 7, 9]));
        assert_eq!(by_target(&[]), (vec![], vec![0], vec![]));
    }
}
