//! The contract between the operations that layers use ([`super::ops`]) and the backends that
//! compute them.
//!
//! Each backend has its own matrix type in its own memory. The compiler checks that every backend
//! implements every operation. Operands all belong to one backend, and their shapes have already
//! been checked. A backend is selected by a `match` on the first operand ([`on_backend`]), so calls
//! are dispatched statically.

use super::error::{Error, Result, Shape};
use super::unit_norms::SquareWeights;
use super::{
    Activation, AttentionShape, CoordinateWeights, Dropout, GradientMeans, GradientStatistic, Host,
    Likely, Matrix, NoisyGradient, NormKind, Normalized, Operand, Panels, ParameterUpdate,
    Relative, RelativeGradients, RowWeights, UpdateState,
};
use std::marker::PhantomData;
use std::ops::Range;

/// Row ranges of a batch, one per unit.
pub(crate) type Ranges<'a> = &'a [Range<usize>];

/// A block of columns of a matrix under construction.
pub(crate) struct Block {
    pub columns: Range<usize>,
    /// Whether the block already holds values, to which new ones are added.
    pub written: bool,
}

pub(crate) trait Backend: Sized + 'static {
    /// A matrix of `f32`; cloning shares the data.
    type Matrix: Clone + std::fmt::Debug;
    /// A device of this backend.
    type Device;
    /// Keys and values of earlier tokens, per sequence.
    type Cache;
    /// A matrix under construction.
    type Draft;
    /// One f64 per privacy unit.
    type PerUnit;

    /// Borrows the matrix, if it belongs to this backend.
    fn of(matrix: &Matrix) -> Option<&Self::Matrix>;
    /// Takes the matrix, if it belongs to this backend.
    fn take(matrix: Matrix) -> Option<Self::Matrix>;
    fn wrap(matrix: Self::Matrix) -> Matrix;

    fn shape(matrix: &Self::Matrix) -> Shape;
    fn from_host(host: &Host, device: &Self::Device) -> Result<Self::Matrix>;
    fn to_host(matrix: &Self::Matrix) -> Result<Host>;
    /// Whether both are views of the same rows and columns of the same memory.
    fn is_same(left: &Self::Matrix, right: &Self::Matrix) -> bool;
    fn row_range(matrix: &Self::Matrix, rows: Range<usize>) -> Result<Self::Matrix>;
    fn column_range(matrix: &Self::Matrix, columns: Range<usize>) -> Result<Self::Matrix>;
    /// Reshapes in row-major order; copies if the rows are not contiguous.
    fn reshape(matrix: &Self::Matrix, shape: Shape) -> Result<Self::Matrix>;

    fn normalize(
        kind: NormKind,
        x: &Self::Matrix,
        residual: Option<&Self::Matrix>,
        weight: &Self::Matrix,
        bias: Option<&Self::Matrix>,
        epsilon: f32,
    ) -> Result<Normalized<Self::Matrix>>;
    fn normalize_backward(
        kind: NormKind,
        normalized: &Self::Matrix,
        inverse_std: &Self::Matrix,
        weight: &Self::Matrix,
        output_gradient: &Self::Matrix,
    ) -> Result<Self::Matrix>;

    fn activate(kind: Activation, x: &Self::Matrix) -> Result<Self::Matrix>;
    fn activate_backward(
        kind: Activation,
        x: &Self::Matrix,
        output_gradient: &Self::Matrix,
    ) -> Result<Self::Matrix>;
    /// c · tanh(x / c).
    fn soft_cap(x: &Self::Matrix, cap: f32) -> Result<Self::Matrix>;
    /// (1 − (y / c)²) ⊙ dy, where y is the output of [`Self::soft_cap`].
    fn soft_cap_backward(
        capped: &Self::Matrix,
        output_gradient: &Self::Matrix,
        cap: f32,
    ) -> Result<Self::Matrix>;
    fn gate(kind: Activation, gate: &Self::Matrix, up: &Self::Matrix) -> Result<Self::Matrix>;
    fn gate_backward(
        kind: Activation,
        gate: &Self::Matrix,
        up: &Self::Matrix,
        output_gradient: &Self::Matrix,
    ) -> Result<(Self::Matrix, Self::Matrix)>;

    /// The attention output, and what the backward pass needs to recompute the probabilities.
    fn attend(qkv: &Self::Matrix, shape: &AttentionShape) -> Result<(Self::Matrix, Self::Matrix)>;
    fn attend_backward(
        qkv: &Self::Matrix,
        output: &Self::Matrix,
        log_sums: &Self::Matrix,
        output_gradient: &Self::Matrix,
        shape: &AttentionShape,
    ) -> Result<Self::Matrix>;

    /// [`Self::attend`] with relative-position terms in the scores.
    fn attend_relative(
        qkv: &Self::Matrix,
        relative: &Relative<Self::Matrix>,
        shape: &AttentionShape,
    ) -> Result<(Self::Matrix, Self::Matrix)>;
    fn attend_relative_backward(
        qkv: &Self::Matrix,
        relative: &Relative<Self::Matrix>,
        output: &Self::Matrix,
        log_sums: &Self::Matrix,
        output_gradient: &Self::Matrix,
        shape: &AttentionShape,
    ) -> Result<RelativeGradients<Self::Matrix>>;

    fn new_cache(sequences: usize) -> Self::Cache;
    /// Number of sequences in a cache.
    fn cached_sequences(cache: &Self::Cache) -> usize;
    fn add_sequences(cache: &mut Self::Cache, count: usize);
    fn select(cache: &mut Self::Cache, origins: &[usize]);
    fn attend_cached(
        cache: &mut Self::Cache,
        qkv: &Self::Matrix,
        shape: &AttentionShape,
    ) -> Result<Self::Matrix>;

    fn rotate(
        x: Self::Matrix,
        columns: usize,
        frequencies: &[f32],
        positions: &[u32],
        direction: f32,
    ) -> Result<Self::Matrix>;

    fn add(a: &Self::Matrix, b: &Self::Matrix) -> Result<Self::Matrix>;
    /// average + weight · (x − average), in f32.
    fn lerp(average: Self::Matrix, x: &Self::Matrix, weight: f32) -> Result<Self::Matrix>;
    fn scale_rows(x: &Self::Matrix, factors: &[f32]) -> Result<Self::Matrix>;
    fn scale_columns(x: &Self::Matrix, factors: &[f32]) -> Result<Self::Matrix>;
    /// Multiplies row i elementwise by the weights of row `indices[i]`, or of row i without
    /// indices.
    fn weigh_rows(
        x: &Self::Matrix,
        indices: Option<&[u32]>,
        weights: &CoordinateWeights,
    ) -> Result<Self::Matrix>;
    fn gather(table: &Self::Matrix, indices: &[u32]) -> Result<Self::Matrix>;
    fn scatter(x: &Self::Matrix, indices: &[u32], rows: usize) -> Result<Self::Matrix>;
    fn scatter_onto(onto: Self::Matrix, x: &Self::Matrix, indices: &[u32]) -> Result<Self::Matrix>;
    fn column_sums(x: &Self::Matrix) -> Result<Self::Matrix>;
    fn weighted_column_sums(x: &Self::Matrix, factors: &[f32]) -> Result<Self::Matrix>;
    /// [`Self::weighted_column_sums`] of several matrices with the same number of rows.
    fn vector_sums(xs: &[&Self::Matrix], factors: &[f32]) -> Result<Vec<Self::Matrix>>;
    fn column_sums_of_product(a: &Self::Matrix, b: &Self::Matrix) -> Result<Self::Matrix>;

    /// The loss of each row as a column and, if `weights` are given, the gradient of the weighted
    /// sum of losses.
    fn cross_entropy(
        logits: &Self::Matrix,
        targets: &[u32],
        weights: Option<&[f32]>,
    ) -> Result<(Self::Matrix, Option<Self::Matrix>)>;
    /// See [`super::likely`].
    fn likely(logits: &Self::Matrix, temperature: f32, below: f32) -> Result<Vec<Likely>>;
    /// See [`super::sample`].
    fn sample(logits: &Self::Matrix, temperature: f32, uniforms: &[f64]) -> Result<Vec<u32>>;
    fn softmax(logits: &Self::Matrix) -> Result<Self::Matrix>;
    fn drop_out(dropout: Dropout, x: &Self::Matrix) -> Result<Self::Matrix>;

    /// Adds noise to each parameter's sum and updates the parameter; see [`super::update`].
    fn release_and_update(
        states: Vec<UpdateState<Self::Matrix>>,
        updates: &[ParameterUpdate],
    ) -> Result<Vec<UpdateState<Self::Matrix>>>;

    /// Means of a statistic over rows and columns; see [`super::gradient_means`].
    fn gradient_means(
        statistic: GradientStatistic,
        gradients: &[NoisyGradient<Self::Matrix>],
    ) -> Result<Vec<GradientMeans>>;

    /// An unwritten matrix of activations of this shape.
    fn draft(device: &Self::Device, shape: Shape) -> Self::Draft;
    /// An unwritten sum of gradients, in f32 regardless of the format of activations.
    fn draft_sum(device: &Self::Device, shape: Shape) -> Self::Draft;
    /// A finished matrix, to all of which more is added.
    fn draft_onto(matrix: Self::Matrix) -> Self::Draft;
    /// Writes one row to all rows of an unwritten block.
    fn fill_rows(draft: &mut Self::Draft, block: &Block, row: &Self::Matrix) -> Result<()>;
    /// Adds a matrix to a block of all columns, or copies it if the block is unwritten.
    fn add_matrix(draft: &mut Self::Draft, block: &Block, matrix: &Self::Matrix) -> Result<()>;
    /// Adds `scale · left · right` to a block.
    fn add_product(
        draft: &mut Self::Draft,
        block: &Block,
        scale: f32,
        left: Operand<Self::Matrix>,
        right: Operand<Self::Matrix>,
    ) -> Result<()>;
    /// Adds leftᵀ · diag(weights) · right to a block of all columns. A row of weight 0 contributes
    /// nothing, whatever it contains, and its presence does not change what any other row
    /// contributes.
    fn add_weighted_product(
        draft: &mut Self::Draft,
        block: &Block,
        left: &Self::Matrix,
        weights: &RowWeights,
        right: &Self::Matrix,
    ) -> Result<()>;
    /// The finished matrix; all of its columns have been written.
    fn finish(draft: Self::Draft) -> Result<Self::Matrix>;

    /// Packs a weight once for many products with few rows, where that pays off.
    fn panels(_: Operand<Self::Matrix>) -> Option<Panels> {
        None
    }
    /// Whether products with this many rows use [`Self::panels`].
    fn uses_panels(_rows: usize) -> bool {
        false
    }
    /// Adds `left · right` to a block and returns whether it did.
    fn add_panels(_: &mut Self::Draft, _: &Block, _: &Self::Matrix, _: &Panels) -> bool {
        false
    }

    /// Zeros, one per unit, on the device of `beside`.
    fn per_unit(beside: &Self::Matrix, units: usize) -> Result<Self::PerUnit>;
    /// Flushes deferred work.
    fn compute_per_unit(_: &mut Self::PerUnit) -> Result<()> {
        Ok(())
    }
    fn computed_per_unit(values: &mut Self::PerUnit) -> Result<Vec<f64>>;

    /// Adds `times` an upper bound on Σ_k ‖Σ_t e_{k,t} ⊗ a_t‖² for each unit.
    fn products(
        onto: (&mut Self::PerUnit, f64),
        a: &Self::Matrix,
        es: &[&Self::Matrix],
        ranges: Ranges,
    ) -> Result<()>;
    /// [`Self::products`] for one e, with weights w for the columns of a and u for those of e.
    fn product_under(
        onto: (&mut Self::PerUnit, f64),
        a: (&Self::Matrix, &[f32]),
        e: (&Self::Matrix, &[f32]),
        ranges: Ranges,
    ) -> Result<()>;
    fn inner_products(
        onto: (&mut Self::PerUnit, f64),
        left: (&Self::Matrix, &Self::Matrix, Ranges),
        right: (&Self::Matrix, &Self::Matrix, Ranges),
    ) -> Result<()>;
    /// The squared norm of a table's gradient, in which e_t is added to row `indices[t]`.
    fn table(
        onto: (&mut Self::PerUnit, f64),
        indices: &[u32],
        e: &Self::Matrix,
        ranges: Ranges,
    ) -> Result<()>;
    fn table_with_product(
        onto: (&mut Self::PerUnit, f64),
        table: (&[u32], &Self::Matrix, Ranges),
        product: (&Self::Matrix, &Self::Matrix, Ranges),
    ) -> Result<()>;
    fn table_with_table(
        onto: (&mut Self::PerUnit, f64),
        left: (&[u32], &Self::Matrix, Ranges),
        right: (&[u32], &Self::Matrix, Ranges),
    ) -> Result<()>;
    /// Adds to each sum a bound on Σ w ⊙ G² under its weights, where G = Σ_t l_t ⊗ r_t.
    fn weighted_products(
        onto: &mut [(&mut Self::PerUnit, f64)],
        factors: (&Self::Matrix, &Self::Matrix),
        ranges: Ranges,
        weights: &[&CoordinateWeights],
    ) -> Result<()>;
    /// [`Self::weighted_products`] for a table's gradient.
    fn weighted_table(
        onto: (&mut Self::PerUnit, f64),
        indices: &[u32],
        e: &Self::Matrix,
        ranges: Ranges,
        weights: &CoordinateWeights,
    ) -> Result<()>;
    /// The squared norm of each row, with weights of its coordinates.
    fn squared_rows(
        onto: (&mut Self::PerUnit, f64),
        rows: &Self::Matrix,
        weights: SquareWeights,
    ) -> Result<()>;
    /// Σ_t l_t ⊗ r_t over the rows of each range, as one row of f32 per range.
    fn unit_gradients(
        left: &Self::Matrix,
        right: &Self::Matrix,
        ranges: Ranges,
    ) -> Result<Self::Matrix>;
    /// For each pair, the sum over the rows of each range of e, or of a ⊙ e.
    fn row_sums(
        pairs: &[(Option<&Self::Matrix>, &Self::Matrix)],
        ranges: Ranges,
    ) -> Result<Vec<Self::Matrix>>;
}

/// The backend on which an operation runs: that of its first operand. The other operands must be
/// there too.
pub(crate) struct At<B> {
    operation: &'static str,
    device: &'static str,
    shape: Shape,
    backend: PhantomData<B>,
}

impl<B: Backend> At<B> {
    pub fn new(operation: &'static str, first: &Matrix) -> Self {
        Self::beside(operation, first.device().name(), first.shape())
    }

    /// For an output on this device and with this shape.
    pub fn beside(operation: &'static str, device: &'static str, shape: Shape) -> Self {
        Self { operation, device, shape, backend: PhantomData }
    }

    pub fn get<'m>(&self, matrix: &'m Matrix) -> Result<&'m B::Matrix> {
        B::of(matrix).ok_or_else(|| self.mixed(matrix.device().name(), matrix.shape()))
    }

    pub fn option<'m>(&self, matrix: Option<&'m Matrix>) -> Result<Option<&'m B::Matrix>> {
        matrix.map(|matrix| self.get(matrix)).transpose()
    }

    pub fn operand<'m>(&self, operand: Operand<'m>) -> Result<Operand<'m, B::Matrix>> {
        let Operand { matrix, transposed } = operand;
        Ok(Operand { matrix: self.get(matrix)?, transposed })
    }

    pub fn take(&self, matrix: Matrix) -> Result<B::Matrix> {
        let (device, shape) = (matrix.device().name(), matrix.shape());
        B::take(matrix).ok_or_else(|| self.mixed(device, shape))
    }

    fn mixed(&self, device: &'static str, shape: Shape) -> Error {
        Error::MixedDevices {
            operation: self.operation,
            left: self.shape,
            left_device: self.device,
            right: shape,
            right_device: device,
        }
    }
}

/// `on_backend!(operation, first, |B, at| body)` evaluates `body` with `B` bound to the backend
/// type of the first operand and `at` to an `At` that extracts the other operands for that backend.
macro_rules! on_backend {
    ($operation:expr, $first:expr, |$B:ident, $at:ident| $body:expr) => {
        match $first {
            $crate::Matrix::Host(_) => {
                type $B = $crate::cpu::Cpu;
                let $at = $crate::backend::At::<$B>::new($operation, $first);
                $body
            }
            $crate::Matrix::Cuda(_) => {
                type $B = $crate::cuda::Cuda;
                let $at = $crate::backend::At::<$B>::new($operation, $first);
                $body
            }
        }
    };
}
pub(crate) use on_backend;
