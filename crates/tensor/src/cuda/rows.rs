//! Operations on whole rows: sums, gather and scatter; and dropout.

use super::format::NumberFormat;
use super::launch::{Argument, Grid, arguments};
use super::matrix::CudaMatrix;
use super::source::Source;
use crate::error::Result;
use crate::{CoordinateWeights, Dropout};

/// A new matrix with the shape and format of `x`, which a kernel computes row by row from `x`, its
/// stride, and further arguments that come before the output and the number of columns.
fn rowwise(name: &'static str, x: &CudaMatrix, further: &[Argument]) -> Result<CudaMatrix> {
    let (gpu, rows, columns) = (x.gpu(), x.rows(), x.columns());
    let y = x.like(rows, columns)?;
    let kernel = Source::Rows(x.format()).kernel(name);
    let arguments = [arguments![x, x.stride()], further, arguments![&y, columns]].concat();
    // SAFETY: both have these rows and columns; the output is new. The callers below pass further
    // arguments with one value per row or column, or with the shape of x.
    unsafe { gpu.launch(kernel, Grid::rows(rows, columns), &arguments)? };
    Ok(y)
}

/// a + b.
pub fn add(a: &CudaMatrix, b: &CudaMatrix) -> Result<CudaMatrix> {
    let b = b.in_format(a.format())?;
    rowwise("add", a, arguments![&b, b.stride()])
}

/// average + weight · (x − average), in f32.
pub fn lerp(average: CudaMatrix, x: &CudaMatrix, weight: f32) -> Result<CudaMatrix> {
    let average = average.into_f32()?.exclusive()?;
    let (gpu, rows, columns) = (x.gpu(), x.rows(), x.columns());
    let arguments = arguments![x, x.stride(), weight, &average, columns];
    let kernel = Source::Rows(x.format()).kernel("lerp_rows");
    // SAFETY: both have these rows and columns, and the average is not shared.
    unsafe { gpu.launch(kernel, Grid::rows(rows, columns), arguments)? };
    Ok(average)
}

/// Multiplies each row by its factor; a factor of 0 gives zeros, whatever the row contains.
pub fn scale_rows(x: &CudaMatrix, factors: &[f32]) -> Result<CudaMatrix> {
    rowwise("scale_rows", x, arguments![&x.gpu().constant(factors)?])
}

/// Multiplies each column by its factor, in f32.
pub fn scale_columns(x: &CudaMatrix, factors: &[f32]) -> Result<CudaMatrix> {
    let (gpu, rows, columns) = (x.gpu(), x.rows(), x.columns());
    let y = x.like_f32(rows, columns)?;
    let factors = gpu.constant(factors)?;
    let arguments = arguments![x, x.stride(), &factors, &y, columns];
    let kernel = Source::Rows(x.format()).kernel("scale_columns");
    // SAFETY: both have these rows and columns, with one factor per column; the output is new.
    unsafe { gpu.launch(kernel, Grid::rows(rows, columns), arguments)? };
    Ok(y)
}

/// Multiplies row i elementwise by the weights of row `indices[i]`, or of row i without indices.
pub fn weigh_rows(
    x: &CudaMatrix,
    indices: Option<&[u32]>,
    weights: &CoordinateWeights,
) -> Result<CudaMatrix> {
    let indices = indices.map(|indices| x.gpu().constant(indices)).transpose()?;
    let weights = weights.on_gpu(x.gpu())?;
    rowwise("weigh_rows", x, arguments![indices.as_deref(), &weights])
}

/// x ⊙ mask; the backward pass applies the same function to the gradient.
pub fn drop_out(dropout: Dropout, x: &CudaMatrix) -> Result<CudaMatrix> {
    let kept = 1.0 / (1.0 - dropout.rate);
    rowwise("drop_out", x, arguments![dropout.seed, dropout.rate, kept])
}

/// Row `i` of the result is row `indices[i]` of the table, in the format of activations.
pub fn gather(table: &CudaMatrix, indices: &[u32]) -> Result<CudaMatrix> {
    let (gpu, rows, columns) = (table.gpu(), indices.len(), table.columns());
    let format = NumberFormat::of_activations(table.precision());
    let y = CudaMatrix::new(table.device(), format, rows, columns)?;
    let kernel = Source::Convert.kernel(NumberFormat::pair("gather", table.format(), format));
    let indices = gpu.constant(indices)?;
    let arguments = arguments![table, table.stride(), &indices, &y, columns];
    // SAFETY: every index is a row of the table; the output is new.
    unsafe { gpu.launch(kernel, Grid::rows(rows, columns), arguments)? };
    Ok(y)
}

/// Rows summed in one piece. If many rows have the same target, such as those of a segment
/// embedding, pieces are summed in parallel, and then the piece sums.
const PIECE: usize = 128;

/// Rows sorted by target and split into pieces.
#[derive(Debug, PartialEq)]
struct Pieces {
    /// Row indices in sorted order.
    order: Vec<u32>,
    /// The start of each piece in `order`, followed by the length of `order`.
    starts: Vec<u32>,
    /// The first piece of each target, followed by the number of pieces.
    firsts: Vec<u32>,
    targets: Vec<u32>,
}

impl Pieces {
    fn new(indices: &[u32]) -> Self {
        let mut order: Vec<u32> = (0..indices.len() as u32).collect();
        order.sort_by_key(|&row| indices[row as usize]);
        let (mut starts, mut firsts, mut targets) = (Vec::new(), Vec::new(), Vec::new());
        let mut place = 0;
        for same in
            order.chunk_by(|&left, &right| indices[left as usize] == indices[right as usize])
        {
            targets.push(indices[same[0] as usize]);
            firsts.push(starts.len() as u32);
            for piece in same.chunks(PIECE) {
                starts.push(place);
                place += piece.len() as u32;
            }
        }
        starts.push(place);
        firsts.push(starts.len() as u32 - 1);
        Self { order, starts, firsts, targets }
    }

    fn count(&self) -> usize {
        self.starts.len() - 1
    }
}

/// Adds row `i` of `x` to row `indices[i]`, in the order of the rows.
pub fn scatter_onto(onto: CudaMatrix, x: &CudaMatrix, indices: &[u32]) -> Result<CudaMatrix> {
    let onto = onto.into_f32()?.exclusive()?;
    let (gpu, columns) = (x.gpu(), x.columns());
    let pieces = Pieces::new(indices);
    let grid =
        |blocks| Grid { blocks: (blocks, columns.div_ceil(256)), threads: (256, 1), shared: 0 };
    let scatter = Source::Rows(x.format()).kernel("scatter");
    let (order, starts) = (gpu.upload(&pieces.order)?, gpu.upload(&pieces.starts)?);
    let targets = gpu.upload(&pieces.targets)?;
    if pieces.count() == pieces.targets.len() {
        let arguments = arguments![x, x.stride(), &order, &starts, &targets, &onto, columns];
        // SAFETY: every target is a row of the matrix and occurs once; the matrix is not shared.
        unsafe { gpu.launch(scatter, grid(pieces.count()), arguments)? };
        return Ok(onto);
    }
    let sums = CudaMatrix::zeros(x.device(), NumberFormat::F32, pieces.count(), columns)?;
    let places: Vec<u32> = (0..pieces.count() as u32).collect();
    let (places, firsts) = (gpu.upload(&places)?, gpu.upload(&pieces.firsts)?);
    let of_pieces = arguments![x, x.stride(), &order, &starts, &places, &sums, columns];
    let of_targets = arguments![&sums, columns, &firsts, &targets, &onto, columns];
    let scatter_sums = Source::Rows(x.format()).kernel("scatter_sums");
    // SAFETY: there is a new row of sums for each piece; every target is a row of the matrix and
    // occurs once, and the matrix is not shared.
    unsafe {
        gpu.launch(scatter, grid(pieces.count()), of_pieces)?;
        gpu.launch(scatter_sums, grid(pieces.targets.len()), of_targets)?;
    }
    Ok(onto)
}

/// A matrix of `rows` rows in which row `i` of `x` is added to row `indices[i]`.
pub fn scatter(x: &CudaMatrix, indices: &[u32], rows: usize) -> Result<CudaMatrix> {
    let zeros = CudaMatrix::zeros(x.device(), NumberFormat::F32, rows, x.columns())?;
    scatter_onto(zeros, x, indices)
}

/// Rows that one block sums, as in the kernel.
const ROWS: usize = 512;

/// Sum of each column of a, or of a ⊙ b; with factors, over rows multiplied by their factors.
pub fn column_sums(
    a: &CudaMatrix,
    b: Option<&CudaMatrix>,
    factors: Option<&[f32]>,
) -> Result<CudaMatrix> {
    let (gpu, rows, columns) = (a.gpu(), a.rows(), a.columns());
    let parts = rows.div_ceil(ROWS);
    let partial = a.like_f32(parts, columns)?;
    let b = b.map(|b| b.in_format(a.format())).transpose()?;
    let b = b.as_ref();
    let grid = Grid { blocks: (columns.div_ceil(32), parts), threads: (32, 8), shared: 0 };
    let b_stride = b.map_or(0, CudaMatrix::stride);
    let factors = factors.map(|factors| gpu.constant(factors)).transpose()?;
    let factors = factors.as_deref();
    let arguments = arguments![a, a.stride(), b, b_stride, factors, rows, columns, &partial];
    // SAFETY: both operands have these rows and columns; the output is new and has one row per
    // part.
    unsafe { gpu.launch(Source::Rows(a.format()).kernel("column_sums"), grid, arguments)? };
    if parts == 1 {
        return Ok(partial);
    }
    let sums = a.like_f32(1, columns)?;
    let grid = Grid { blocks: (columns.div_ceil(128), 1), threads: (128, 1), shared: 0 };
    let arguments = arguments![&partial, parts, columns, &sums];
    // SAFETY: the input has this many parts and columns; the output is new.
    unsafe { gpu.launch(Source::Rows(a.format()).kernel("add_partials"), grid, arguments)? };
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_one_target_stay_in_order_and_pieces_are_short() {
        let pieces = Pieces::new(&[7, 2, 7, 2, 2, 9]);
        assert_eq!(pieces.order, [1, 3, 4, 0, 2, 5]);
        assert_eq!((pieces.starts, pieces.targets), (vec![0, 3, 5, 6], vec![2, 7, 9]));
        assert_eq!(pieces.firsts, [0, 1, 2, 3]);
        assert_eq!(Pieces::new(&[]).starts, [0]);
        let pieces = Pieces::new(&[vec![4; 2 * PIECE + 1], vec![1; PIECE]].concat());
        let piece = PIECE as u32;
        assert_eq!(pieces.starts, [0, piece, 2 * piece, 3 * piece, 3 * piece + 1]);
        assert_eq!((pieces.firsts, pieces.targets), (vec![0, 1, 4], vec![1, 4]));
    }
}
