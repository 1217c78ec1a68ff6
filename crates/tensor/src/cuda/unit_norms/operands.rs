//! A product, a table, or a pair of them, whose tiles are computed in one launch.

use super::tasks::Tasks;
use super::{Onto, ends, rounding, shared_of_gram, slack_of_tensor_cores};
use crate::Precision;
use crate::backend::Ranges;
use crate::cuda::device::Gpu;
use crate::cuda::format::NumberFormat;
use crate::cuda::launch::{Argument, Grid, arguments};
use crate::cuda::matrix::CudaMatrix;
use crate::cuda::memory::Buffer;
use crate::cuda::source::Source;
use crate::error::Result;
use std::sync::Arc;

/// The source of the inner products X_ts of inputs.
pub(super) enum Inputs<'a> {
    /// ⟨a_t, b_s⟩.
    Matrices(&'a CudaMatrix, &'a CudaMatrix),
    /// Whether both tokens use the same row of a table.
    Table(&'a [u32], &'a [u32]),
    /// The value in row s and the column given by the index of t.
    Gathered(&'a [u32], &'a CudaMatrix),
}

/// Inputs and output gradients as the kernels read them, and the matrices that must stay alive for
/// them.
pub(super) struct Operands {
    gpu: &'static Gpu,
    precision: Precision,
    format: NumberFormat,
    /// Number of rows of each side.
    rows: [usize; 2],
    /// The Gram kernel, one for each kind of inputs, and its leading arguments.
    kernel: &'static str,
    inputs: Vec<Arc<Buffer>>,
    has_matrices: bool,
    layers: Buffer,
    count: usize,
    _matrices: Vec<CudaMatrix>,
}

impl Operands {
    pub(super) fn new(inputs: Inputs, layers: &[(CudaMatrix, CudaMatrix)]) -> Result<Self> {
        let (e, f) = &layers[0];
        let (gpu, precision, rows) = (e.gpu(), e.precision(), [e.rows(), f.rows()]);
        let mut all: Vec<&CudaMatrix> = layers.iter().flat_map(|(e, f)| [e, f]).collect();
        match &inputs {
            Inputs::Matrices(a, b) => all.extend([a, b]),
            Inputs::Gathered(_, factor) => all.push(factor),
            Inputs::Table(..) => {}
        }
        // Nothing is rounded here: if one matrix is f32, all are converted to f32.
        let wide = all.iter().any(|matrix| matrix.format() == NumberFormat::F32);
        let format = if wide { NumberFormat::F32 } else { NumberFormat::Bf16 };
        let part = |m: &CudaMatrix| [m.pointer(), m.stride() as u64, m.columns() as u64];
        let words =
            |matrices: &[CudaMatrix]| -> Vec<u64> { matrices.iter().flat_map(part).collect() };
        let mut matrices = layers
            .iter()
            .flat_map(|(e, f)| [e.in_format(format), f.in_format(format)])
            .collect::<Result<Vec<_>>>()?;
        let of_layers = gpu.upload(&words(&matrices))?;
        let has_matrices = matches!(inputs, Inputs::Matrices(..));
        let (kernel, inputs) = match inputs {
            Inputs::Matrices(a, b) => {
                let both = [a.in_format(format)?, b.in_format(format)?];
                let inputs = vec![Arc::new(gpu.upload(&words(&both))?)];
                matrices.extend(both);
                ("unit_gram", inputs)
            }
            Inputs::Table(indices, others) => {
                let indices = gpu.constant(indices)?;
                ("unit_table", vec![indices, gpu.constant(others)?])
            }
            Inputs::Gathered(indices, factor) => {
                let factor = factor.in_format(format)?;
                let inputs = vec![
                    gpu.constant(indices)?,
                    Arc::new(gpu.upload(&words(std::slice::from_ref(&factor)))?),
                ];
                matrices.push(factor);
                ("unit_table_product", inputs)
            }
        };
        Ok(Self {
            gpu,
            precision,
            format,
            rows,
            kernel,
            inputs,
            has_matrices,
            layers: of_layers,
            count: layers.len(),
            _matrices: matrices,
        })
    }

    /// Inputs and layers as the kernels read them.
    pub(super) fn input_parts(&self) -> &Buffer {
        &self.inputs[0]
    }

    pub(super) fn layer_parts(&self) -> &Buffer {
        &self.layers
    }

    /// Whether tensor cores compute the inner products.
    pub(super) fn by_tensor_cores(&self) -> bool {
        self.precision != Precision::F32
    }

    /// k, for inner products over `depth` columns or rows.
    pub(super) fn slack(&self, depth: usize) -> f64 {
        if self.by_tensor_cores() { slack_of_tensor_cores(self.format, depth) } else { 9.6e-7 }
    }

    /// The source file of the Gram kernels, and the shared memory of a block in bytes.
    pub(super) fn source(&self) -> (Source, u32) {
        if !self.by_tensor_cores() {
            return (Source::UnitNorms, 0);
        }
        (Source::UnitNormsMma(self.format), shared_of_gram(self.format) as u32)
    }

    /// ‖a_t‖ · ‖e_t‖ for each row of one side; ‖e_t‖ if the inputs are not matrices.
    pub(super) fn row_norms(&self, side: usize) -> Result<Buffer> {
        let rows = self.rows[side];
        let row_norms = self.gpu.allocate(rows * size_of::<f64>())?;
        let inputs = if self.has_matrices { self.inputs[0].pointer() } else { 0 };
        let arguments = arguments![inputs, &self.layers, self.count, side, &row_norms];
        let kernel = Source::UnitRows(self.format).kernel("unit_row_norms");
        let grid = Grid { blocks: (rows, 1), threads: (128, 1), shared: 0 };
        // SAFETY: all matrices of a side have this many rows; the output is new.
        unsafe { self.gpu.launch(kernel, grid, arguments)? };
        Ok(row_norms)
    }

    pub(super) fn gram(&self, tasks: &Tasks) -> Result<Option<Buffer>> {
        let mut leading: Vec<Argument> = self.inputs.iter().map(Argument::from).collect();
        leading.extend_from_slice(arguments![&self.layers, self.count]);
        self.partial(self.kernel, tasks, &leading)
    }

    pub(super) fn formed(&self, tasks: &Tasks) -> Result<Option<Buffer>> {
        let leading = arguments![&self.inputs[0], &self.layers];
        self.partial("unit_formed", tasks, leading)
    }

    /// Two partial sums per task, if there are any tasks.
    pub(super) fn partial(
        &self,
        name: &'static str,
        tasks: &Tasks,
        leading: &[Argument],
    ) -> Result<Option<Buffer>> {
        if tasks.count() == 0 {
            return Ok(None);
        }
        let partial = self.gpu.allocate(tasks.count() * size_of::<[f64; 2]>())?;
        let words = self.gpu.constant(&tasks.words)?;
        let arguments = [leading, arguments![&words, &partial]].concat();
        let (source, shared) = self.source();
        let grid = Grid { blocks: (tasks.count(), 1), threads: (256, 1), shared };
        // SAFETY: every task is a tile of rows that both sides have, or of columns of an existing
        // layer; the output is new and has two values per task.
        unsafe { self.gpu.launch(source.kernel(name), grid, &arguments)? };
        Ok(Some(partial))
    }

    /// Adds the bound of each unit that has tasks.
    pub(super) fn bounds(
        &self,
        onto: &Onto,
        tasks: &Tasks,
        partial: &Buffer,
        row_norms: Option<&Buffer>,
        ranges: Ranges,
        slack: f64,
    ) -> Result<()> {
        assert_eq!(onto.sums.units, ranges.len(), "a range for each unit");
        let firsts = self.gpu.constant(&tasks.firsts)?;
        let places = self.gpu.constant(&ends(ranges))?;
        let arguments = arguments![
            partial,
            &firsts,
            row_norms,
            &places,
            slack,
            rounding(self.precision),
            onto.times,
            &onto.sums.values,
        ];
        let kernel = Source::UnitRows(self.format).kernel("unit_bounds");
        let grid = Grid { blocks: (ranges.len(), 1), threads: (128, 1), shared: 0 };
        // SAFETY: there are two values per task, and all ranges are rows with a norm; there is one
        // sum per unit, and the sums are not shared.
        unsafe { self.gpu.launch(kernel, grid, arguments) }
    }

    /// Adds the bound of each unit's inner product.
    pub(super) fn inner_bounds(
        &self,
        onto: &Onto,
        ranges: Ranges,
        others: Ranges,
        row_norms: &[Buffer; 2],
        depth: usize,
    ) -> Result<()> {
        assert_eq!(onto.sums.units, ranges.len(), "a range for each unit");
        let mut tasks = Tasks::default();
        for (range, other) in ranges.iter().zip(others) {
            tasks.add_product(range, other);
            tasks.end_unit();
        }
        let partial = self.gram(&tasks)?;
        let firsts = self.gpu.constant(&tasks.firsts)?;
        let [places, other_places] =
            [self.gpu.constant(&ends(ranges))?, self.gpu.constant(&ends(others))?];
        let rounded = rounding(self.precision);
        let slack = 2.1 * self.slack(depth) + 1e-6 + rounded * (2.0 + rounded);
        let arguments = arguments![
            partial.as_ref(),
            &firsts,
            &row_norms[0],
            &places,
            &row_norms[1],
            &other_places,
            slack,
            onto.times,
            &onto.sums.values,
        ];
        let kernel = Source::UnitRows(self.format).kernel("unit_inner_bounds");
        let grid = Grid { blocks: (ranges.len(), 1), threads: (128, 1), shared: 0 };
        // SAFETY: as for norms, on both sides; without partial sums, no unit has a task.
        unsafe { self.gpu.launch(kernel, grid, arguments) }
    }
}
