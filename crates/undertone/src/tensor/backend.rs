//! The contract between the operations that layers use ([`super::ops`]) and what computes them.
//!
//! A backend has matrices of its own kind in memory of its own. Every operation exists for every
//! backend, which the compiler checks; it takes operands of one backend, whose shapes were checked.
//! The choice between backends is a `match` on the first operand ([`on_backend`]), so calls are
//! static.

use super::error::{Error, Result, Shape};
use super::{
    Activation, AttentionShape, CoordinateWeights, Dropout, GradientMeans, GradientStatistic, Host,
    Matrix, NoisyGradient, NormKind, Normalised, Operand, Panels, ParameterUpdate, Relative,
    RelativeGradients, RowWeights, UpdateState,
};
use std::marker::PhantomData;
use std::ops::Range;

/// Rows of a batch, one range for each unit.
pub(crate) type Ranges<'a> = &'a [Range<usize>];

/// A block of columns of a matrix under construction.
pub(crate) struct Block {
    pub columns: Range<usize>,
    /// Whether it holds numbers already, to which more are added.
    pub written: bool,
}

pub(crate) trait Backend: Sized + 'static {
    /// Rows and columns of `f32`; cloning shares them.
    type Matrix: Clone + std::fmt::Debug;
    /// One of the devices that this backend computes on.
    type Device;
    /// Keys and values of earlier tokens, for each sequence.
    type Cache;
    /// A matrix under construction.
    type Draft;
    /// One f64 for each privacy unit.
    type PerUnit;

    /// The matrix, if it belongs to this backend.
    fn of(matrix: &Matrix) -> Option<&Self::Matrix>;
    /// The matrix itself, if it belongs to this backend.
    fn take(matrix: Matrix) -> Option<Self::Matrix>;
    fn wrap(matrix: Self::Matrix) -> Matrix;

    fn shape(matrix: &Self::Matrix) -> Shape;
    fn from_host(host: &Host, device: &Self::Device) -> Result<Self::Matrix>;
    fn to_host(matrix: &Self::Matrix) -> Result<Host>;
    /// Whether both are the same rows and columns of the same memory.
    fn is_same(one: &Self::Matrix, other: &Self::Matrix) -> bool;
    fn row_range(matrix: &Self::Matrix, rows: Range<usize>) -> Result<Self::Matrix>;
    fn column_range(matrix: &Self::Matrix, columns: Range<usize>) -> Result<Self::Matrix>;
    /// The same numbers, row after row, in rows of another length; copied if they are not dense.
    fn reshape(matrix: &Self::Matrix, shape: Shape) -> Result<Self::Matrix>;

    fn normalise(
        kind: NormKind,
        x: &Self::Matrix,
        residual: Option<&Self::Matrix>,
        weight: &Self::Matrix,
        bias: Option<&Self::Matrix>,
        epsilon: f32,
    ) -> Result<Normalised<Self::Matrix>>;
    fn normalise_backward(
        kind: NormKind,
        normalised: &Self::Matrix,
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
    /// (1 − (y / c)²) ⊙ dy, where y is what [`Self::soft_cap`] returned.
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

    /// The mixed values, and what the backward pass needs to compute the probabilities again.
    fn attend(qkv: &Self::Matrix, shape: &AttentionShape) -> Result<(Self::Matrix, Self::Matrix)>;
    fn attend_backward(
        qkv: &Self::Matrix,
        output: &Self::Matrix,
        log_sums: &Self::Matrix,
        output_gradient: &Self::Matrix,
        shape: &AttentionShape,
    ) -> Result<Self::Matrix>;

    /// [`Self::attend`] with terms of relative positions in the scores.
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
    /// How many sequences a cache has.
    fn cached_sequences(cache: &Self::Cache) -> usize;
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
    /// Row i times the weights of row `indices[i]`, or of row i: coordinate by coordinate.
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
    /// The same of several matrices of as many rows.
    fn vector_sums(xs: &[&Self::Matrix], factors: &[f32]) -> Result<Vec<Self::Matrix>>;
    fn column_sums_of_product(a: &Self::Matrix, b: &Self::Matrix) -> Result<Self::Matrix>;

    /// The loss of each row as a column, and with weights the gradient of their weighted sum.
    fn cross_entropy(
        logits: &Self::Matrix,
        targets: &[u32],
        weights: Option<&[f32]>,
    ) -> Result<(Self::Matrix, Option<Self::Matrix>)>;
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

    /// Activations of this shape, nothing of which is written yet.
    fn draft(device: &Self::Device, shape: Shape) -> Self::Draft;
    /// A sum of gradients, in f32 whatever activations are.
    fn draft_sum(device: &Self::Device, shape: Shape) -> Self::Draft;
    /// A finished matrix, to the whole of which more is added.
    fn draft_onto(matrix: Self::Matrix) -> Self::Draft;
    /// Writes one row to all rows of an unwritten block.
    fn fill_rows(draft: &mut Self::Draft, block: &Block, row: &Self::Matrix) -> Result<()>;
    /// Adds a matrix to a block of all columns, or copies it there.
    fn add_matrix(draft: &mut Self::Draft, block: &Block, matrix: &Self::Matrix) -> Result<()>;
    /// Adds `scale · left · right` to a block.
    fn add_product(
        draft: &mut Self::Draft,
        block: &Block,
        scale: f32,
        left: Operand<Self::Matrix>,
        right: Operand<Self::Matrix>,
    ) -> Result<()>;
    /// Adds leftᵀ · diag(weights) · right to a block of all columns. A row of weight 0 adds
    /// nothing, whatever it holds, and what another row adds does not depend on whether there is
    /// one.
    fn add_weighted_product(
        draft: &mut Self::Draft,
        block: &Block,
        left: &Self::Matrix,
        weights: &RowWeights,
        right: &Self::Matrix,
    ) -> Result<()>;
    /// The finished matrix, all of whose columns were written.
    fn finish(draft: Self::Draft) -> Result<Self::Matrix>;

    /// A weight laid out once for many products with few rows, where that pays.
    fn panels(_: Operand<Self::Matrix>) -> Option<Panels> {
        None
    }
    /// Whether products with so many rows use [`Self::panels`].
    fn uses_panels(_rows: usize) -> bool {
        false
    }
    /// Adds `left · right` to a block, and says whether it did.
    fn add_panels(_: &mut Self::Draft, _: &Block, _: &Self::Matrix, _: &Panels) -> bool {
        false
    }

    /// Zeros, one for each unit, beside a matrix.
    fn per_unit(beside: &Self::Matrix, units: usize) -> Result<Self::PerUnit>;
    /// Computes what was put off.
    fn compute_per_unit(_: &mut Self::PerUnit) -> Result<()> {
        Ok(())
    }
    fn computed_per_unit(values: &mut Self::PerUnit) -> Result<Vec<f64>>;

    /// Adds `times` an upper bound of Σ_k ‖Σ_t e_{k,t} ⊗ a_t‖² for each unit.
    fn products(
        onto: (&mut Self::PerUnit, f64),
        a: &Self::Matrix,
        es: &[&Self::Matrix],
        ranges: Ranges,
    ) -> Result<()>;
    /// The same of one e, under weights w of the columns of a and u of those of e.
    fn product_under(
        onto: (&mut Self::PerUnit, f64),
        a: (&Self::Matrix, &[f32]),
        e: (&Self::Matrix, &[f32]),
        ranges: Ranges,
    ) -> Result<()>;
    fn inner_products(
        onto: (&mut Self::PerUnit, f64),
        one: (&Self::Matrix, &Self::Matrix, Ranges),
        other: (&Self::Matrix, &Self::Matrix, Ranges),
    ) -> Result<()>;
    /// The squared norm of a table's gradient, to whose row `indices[t]` e_t is added.
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
        one: (&[u32], &Self::Matrix, Ranges),
        other: (&[u32], &Self::Matrix, Ranges),
    ) -> Result<()>;
    /// Adds to each of the sums a bound of Σ w ⊙ G² under its weights, of G = Σ_t l_t ⊗ r_t.
    fn weighted_products(
        onto: &mut [(&mut Self::PerUnit, f64)],
        factors: (&Self::Matrix, &Self::Matrix),
        ranges: Ranges,
        weights: &[&CoordinateWeights],
    ) -> Result<()>;
    /// The same of a table's gradient.
    fn weighted_table(
        onto: (&mut Self::PerUnit, f64),
        indices: &[u32],
        e: &Self::Matrix,
        ranges: Ranges,
        weights: &CoordinateWeights,
    ) -> Result<()>;
    /// The squared norm of each row, under weights of the columns.
    fn squared_rows(
        onto: (&mut Self::PerUnit, f64),
        rows: &Self::Matrix,
        weights: Option<&CoordinateWeights>,
    ) -> Result<()>;
    /// For each pair the sums of the rows of each range, of e or of a ⊙ e.
    fn row_sums(
        pairs: &[(Option<&Self::Matrix>, &Self::Matrix)],
        ranges: Ranges,
    ) -> Result<Vec<Self::Matrix>>;
}

/// Where an operation runs: with its first operand, and the others must be there too.
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

    /// Beside an output of this device and shape.
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

/// `on_backend!(operation, first, |B, at| body)` evaluates the body with the type `B` the backend
/// of the first operand, and `at` what finds the others there.
macro_rules! on_backend {
    ($operation:expr, $first:expr, |$B:ident, $at:ident| $body:expr) => {
        match $first {
            $crate::tensor::Matrix::Host(_) => {
                type $B = $crate::tensor::cpu::Cpu;
                let $at = $crate::tensor::backend::At::<$B>::new($operation, $first);
                $body
            }
            $crate::tensor::Matrix::Cuda(_) => {
                type $B = $crate::tensor::cuda::Cuda;
                let $at = $crate::tensor::backend::At::<$B>::new($operation, $first);
                $body
            }
        }
    };
}
pub(crate) use on_backend;
