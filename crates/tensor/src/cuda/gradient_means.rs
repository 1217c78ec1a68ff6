//! Row and column means of a statistic of gradients, and products of standard deviations.

use super::device::Gpu;
use super::format::NumberFormat;
use super::launch::{Grid, arguments};
use super::matrix::CudaMatrix;
use super::memory::Buffer;
use super::source::Source;
use crate::error::Result;
use crate::gradient_means::{GradientMeans, GradientStatistic, NoisyGradient};
use crate::update::Stds;
use std::sync::Arc;

/// Rows that one block sums, as in the kernel.
const ROWS: usize = 512;

/// Standard deviations on the GPU: per row and column, per coordinate, or one for all.
struct StdsOnGpu {
    rows: Option<Arc<Buffer>>,
    columns: Option<Arc<Buffer>>,
    each: Option<Buffer>,
    same: f32,
}

impl StdsOnGpu {
    fn new(gpu: &'static Gpu, stds: &Stds, count: usize) -> Result<Self> {
        let none = Self { rows: None, columns: None, each: None, same: 0.0 };
        Ok(match stds {
            Stds::Same(same) => Self { same: *same, ..none },
            Stds::Product { rows, columns } => {
                let [rows, columns] = [rows, columns].map(|numbers| gpu.upload(numbers));
                Self { rows: Some(Arc::new(rows?)), columns: Some(Arc::new(columns?)), ..none }
            }
            Stds::Each(write) => {
                let mut numbers = vec![0.0; count];
                write(0, &mut numbers);
                Self { each: Some(gpu.upload(&numbers)?), ..none }
            }
        })
    }
}

/// One standard deviation per coordinate, dense, computed from those of rows and columns.
pub(super) fn product_of_stds(gpu: &'static Gpu, rows: &[f32], columns: &[f32]) -> Result<Buffer> {
    let all = gpu.allocate(rows.len() * columns.len() * size_of::<f32>())?;
    let (count, width) = (rows.len(), columns.len());
    let (rows, columns) = (gpu.upload(rows)?, gpu.upload(columns)?);
    let arguments = arguments![&rows, &columns, &all, width];
    let kernel = Source::GradientMeans.kernel("product_of_stds");
    // SAFETY: `rows` and `columns` have these lengths; the output is new.
    unsafe { gpu.launch(kernel, Grid::rows(count, width), arguments)? };
    Ok(all)
}

/// Sums being computed for one gradient: the locations of its row sums and partial column sums.
struct Pending {
    shape: [usize; 2],
    rows: usize,
    partial: usize,
}

/// The means of all gradients, downloaded together.
pub(super) fn gradient_means(
    statistic: GradientStatistic,
    gradients: &[NoisyGradient<CudaMatrix>],
) -> Result<Vec<GradientMeans>> {
    let Some(first) = gradients.first() else { return Ok(Vec::new()) };
    let gpu = first.gradient.gpu();
    let (mut pending, mut numbers) = (Vec::new(), 0);
    for NoisyGradient { gradient, .. } in gradients {
        let shape = [gradient.rows(), gradient.columns()];
        let partial = numbers + shape[0];
        pending.push(Pending { shape, rows: numbers, partial });
        numbers = partial + shape[0].div_ceil(ROWS) * shape[1];
    }
    let sums = gpu.zeros(numbers * size_of::<f32>())?;
    // Keep the standard deviations alive until the sums have been downloaded.
    let mut kept = Vec::new();
    for (noisy, Pending { shape: [rows, columns], rows: at, partial }) in
        gradients.iter().zip(&pending)
    {
        let gradient = noisy.gradient.in_format(NumberFormat::F32)?;
        let value = noisy.value.in_format(NumberFormat::F32)?;
        let stds = StdsOnGpu::new(gpu, &noisy.stds, rows * columns)?;
        let address = |place: &usize| sums.pointer() + (place * size_of::<f32>()) as u64;
        let arguments = arguments![
            statistic == GradientStatistic::Sensitivity,
            &gradient,
            gradient.stride(),
            &value,
            value.stride(),
            stds.rows.as_deref(),
            stds.columns.as_deref(),
            stds.each.as_ref(),
            stds.same,
            1.0 / noisy.divisor,
            *rows,
            *columns,
            address(at),
            address(partial),
        ];
        let kernel = |name| Source::GradientMeans.kernel(name);
        let by_columns = (columns.div_ceil(32), rows.div_ceil(ROWS));
        let by_columns = Grid { blocks: by_columns, threads: (32, 8), shared: 0 };
        // SAFETY: gradient and value have these rows and columns, and there is a standard deviation
        // for each row and column, for each coordinate, or for all; the sums have room for one
        // value per row and per part of each column.
        unsafe {
            gpu.launch(kernel("sums_of_rows"), Grid::rows(*rows, *columns), arguments)?;
            gpu.launch(kernel("sums_of_columns"), by_columns, arguments)?;
        }
        kept.push((gradient, value, stds));
    }
    let mut host_sums = vec![0.0_f32; numbers];
    // SAFETY: the buffer holds this many values.
    unsafe { gpu.download(sums.pointer(), &mut host_sums)? };
    drop(kept);
    let mean = |sum: f64, count: usize| sum / count.max(1) as f64;
    let means = pending.iter().map(|Pending { shape: [rows, columns], rows: at, partial }| {
        let of_rows = host_sums[*at..at + rows].iter().map(|&sum| mean(f64::from(sum), *columns));
        let mut of_columns = vec![0.0_f64; *columns];
        for part in
            host_sums[*partial..partial + rows.div_ceil(ROWS) * columns].chunks((*columns).max(1))
        {
            of_columns.iter_mut().zip(part).for_each(|(sum, x)| *sum += f64::from(*x));
        }
        let of_columns = of_columns.into_iter().map(|sum| mean(sum, *rows));
        GradientMeans { rows: of_rows.collect(), columns: of_columns.collect() }
    });
    Ok(means.collect())
}
