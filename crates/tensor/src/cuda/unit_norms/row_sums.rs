//! Sums of the rows of each unit, which are the per-unit gradients of biases and norm weights.

use super::ends;
use crate::backend::Ranges;
use crate::cuda::format::NumberFormat;
use crate::cuda::launch::{Grid, arguments};
use crate::cuda::matrix::CudaMatrix;
use crate::cuda::source::Source;
use crate::error::Result;

/// Columns per piece of a matrix, a common matrix width.
const PIECE: usize = 768;
/// Columns per block of threads, as in the kernel.
const BLOCK: usize = 128;

/// The requested sums of one matrix e.
struct Wanted {
    e: CudaMatrix,
    of_rows: Option<CudaMatrix>,
    /// The sums of a ⊙ e, with a.
    of_products: Option<(CudaMatrix, CudaMatrix)>,
}

impl Wanted {
    /// One structure of eight words for each piece.
    fn words(&self) -> impl Iterator<Item = [u64; 8]> {
        let Self { e, of_rows, of_products } = self;
        let at = |matrix: &CudaMatrix, first: usize| {
            matrix.pointer() + (first * matrix.format().bytes()) as u64
        };
        (0..e.columns()).step_by(PIECE).map(move |first| {
            let a = of_products.as_ref().map(|(a, _)| (at(a, first), a.stride() as u64));
            let (a, a_stride) = a.unwrap_or_default();
            let products = of_products.as_ref().map_or(0, |(_, sum)| at(sum, first));
            [
                a,
                a_stride,
                at(e, first),
                e.stride() as u64,
                PIECE.min(e.columns() - first) as u64,
                of_rows.as_ref().map_or(0, |sum| at(sum, first)),
                products,
                e.columns() as u64,
            ]
        })
    }
}

/// For each pair, the sum over the rows of each range of e, or of a ⊙ e: `[ranges, columns]`, in
/// f32. Pairs of the same format share one launch; a matrix that occurs twice in a row is read
/// once.
pub fn row_sums(
    pairs: &[(Option<&CudaMatrix>, &CudaMatrix)],
    ranges: Ranges,
) -> Result<Vec<CudaMatrix>> {
    let mut wanted: Vec<Wanted> = Vec::new();
    let mut sums = Vec::with_capacity(pairs.len());
    for (a, e) in pairs {
        let sum = e.like_f32(ranges.len(), e.columns())?;
        sums.push(sum.clone());
        let last = wanted.last_mut().filter(|last| last.e.is_same(e));
        match (a.map(|a| a.in_format(e.format())).transpose()?, last) {
            (None, Some(Wanted { of_rows: of_rows @ None, .. })) => *of_rows = Some(sum),
            (Some(a), Some(Wanted { of_products: of_products @ None, .. })) => {
                *of_products = Some((a, sum));
            }
            (a, _) => {
                let (of_rows, of_products) = match a {
                    None => (Some(sum), None),
                    Some(a) => (None, Some((a, sum))),
                };
                wanted.push(Wanted { e: (*e).clone(), of_rows, of_products });
            }
        }
    }
    for format in [NumberFormat::F32, NumberFormat::Bf16] {
        let same = wanted.iter().filter(|wanted| wanted.e.format() == format);
        let words: Vec<[u64; 8]> = same.clone().flat_map(Wanted::words).collect();
        let Some(Wanted { e, .. }) = same.clone().next() else { continue };
        let gpu = e.gpu();
        let widest = same.map(|wanted| wanted.e.columns().min(PIECE)).max().unwrap_or_default();
        let (on_gpu, places) = (gpu.upload(words.as_flattened())?, gpu.constant(&ends(ranges))?);
        let arguments = arguments![&on_gpu, ranges.len(), &places];
        let blocks = (ranges.len() * words.len(), widest.div_ceil(BLOCK));
        let grid = Grid { blocks, threads: (256, 1), shared: 0 };
        let kernel = Source::UnitRows(format).kernel("unit_row_sums");
        // SAFETY: the words form one structure of eight for each piece of a matrix, and all ranges
        // lie within its rows; the outputs are new and have one row per range.
        unsafe { gpu.launch(kernel, grid, arguments)? };
    }
    Ok(sums)
}
