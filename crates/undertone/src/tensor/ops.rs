//! The operations, each on the host or on a device.

use super::cpu::activation::Activation;
use super::cpu::attention::AttentionShape;
use super::cpu::dropout::Dropout;
use super::cpu::{self, cache::HostCache};
use super::device::{self, DeviceCache};
use super::{Host, Matrix, Place, Result};
use candle_core::Tensor;

pub use super::cpu::norm::Kind as NormKind;
pub use super::output::product;

/// What normalisation computed, and what its backward pass needs.
#[derive(Clone, Debug)]
pub struct Normalised {
    /// γ ⊙ x̂ + β.
    pub output: Matrix,
    /// x̂.
    pub normalised: Matrix,
    /// 1/deviation of each row.
    pub inverse_deviation: Matrix,
}

fn host(matrix: &Matrix) -> &Host {
    let Matrix::Host(host) = matrix else {
        panic!("all operands of an operation are at one place")
    };
    host
}

fn tensor(matrix: &Matrix) -> &Tensor {
    let Matrix::Device(tensor) = matrix else {
        panic!("all operands of an operation are at one place")
    };
    tensor
}

/// Normalises each row of `x`, or of `x + residual`.
pub fn normalise(
    kind: NormKind,
    x: &Matrix,
    residual: Option<&Matrix>,
    weight: &Matrix,
    bias: Option<&Matrix>,
    epsilon: f32,
) -> Result<Normalised> {
    match x {
        Matrix::Host(x) => {
            let bias = bias.map(|bias| host(bias).dense());
            let done = cpu::norm::forward(
                kind,
                x,
                residual.map(host),
                &host(weight).dense(),
                bias.as_deref(),
                epsilon,
            );
            Ok(Normalised {
                output: Matrix::Host(done.output),
                normalised: Matrix::Host(done.normalised),
                inverse_deviation: Matrix::Host(done.inverse_deviation),
            })
        }
        Matrix::Device(x) => device::norm_forward(
            kind,
            x,
            residual.map(tensor),
            tensor(weight),
            bias.map(tensor),
            epsilon,
        ),
    }
}

/// Gradient of the input of [`normalise`].
pub fn normalise_backward(
    kind: NormKind,
    normalised: &Matrix,
    inverse_deviation: &Matrix,
    weight: &Matrix,
    output_gradient: &Matrix,
) -> Result<Matrix> {
    match normalised {
        Matrix::Host(normalised) => Ok(Matrix::Host(cpu::norm::backward(
            kind,
            normalised,
            &host(inverse_deviation).dense(),
            &host(weight).dense(),
            host(output_gradient),
        ))),
        Matrix::Device(normalised) => device::norm_backward(
            kind,
            normalised,
            tensor(inverse_deviation),
            tensor(weight),
            tensor(output_gradient),
        )
        .map(Matrix::Device),
    }
}

/// f(x).
pub fn activate(kind: Activation, x: &Matrix) -> Result<Matrix> {
    match x {
        Matrix::Host(x) => Ok(Matrix::Host(cpu::activation::forward(kind, x))),
        Matrix::Device(x) => device::activation(kind, x).map(Matrix::Device),
    }
}

/// f′(x) ⊙ dy.
pub fn activate_backward(kind: Activation, x: &Matrix, output_gradient: &Matrix) -> Result<Matrix> {
    match x {
        Matrix::Host(x) => {
            Ok(Matrix::Host(cpu::activation::backward(kind, x, host(output_gradient))))
        }
        Matrix::Device(x) => {
            Ok(Matrix::Device((device::activation_derivative(kind, x)? * tensor(output_gradient))?))
        }
    }
}

/// f(gate) ⊙ up.
pub fn gate(kind: Activation, gate: &Matrix, up: &Matrix) -> Result<Matrix> {
    match gate {
        Matrix::Host(gate) => {
            Ok(Matrix::Host(cpu::activation::gated_forward(kind, gate, host(up))))
        }
        Matrix::Device(gate) => Ok(Matrix::Device((device::activation(kind, gate)? * tensor(up))?)),
    }
}

/// Gradients of the gate and of up.
pub fn gate_backward(
    kind: Activation,
    gate: &Matrix,
    up: &Matrix,
    output_gradient: &Matrix,
) -> Result<(Matrix, Matrix)> {
    match gate {
        Matrix::Host(gate) => {
            let (dgate, dup) =
                cpu::activation::gated_backward(kind, gate, host(up), host(output_gradient));
            Ok((Matrix::Host(dgate), Matrix::Host(dup)))
        }
        Matrix::Device(gate) => {
            let dy = tensor(output_gradient);
            let dgate = ((device::activation_derivative(kind, gate)? * tensor(up))? * dy)?;
            let dup = (device::activation(kind, gate)? * dy)?;
            Ok((Matrix::Device(dgate), Matrix::Device(dup)))
        }
    }
}

/// Mixed values, and what the backward pass needs to compute the probabilities again.
pub fn attend(qkv: &Matrix, shape: &AttentionShape) -> Result<(Matrix, Matrix)> {
    cpu::attention::check(shape, qkv.rows());
    match qkv {
        Matrix::Host(qkv) => {
            let (output, log_sums) = cpu::attention::forward(qkv, shape);
            Ok((Matrix::Host(output), Matrix::Host(log_sums)))
        }
        Matrix::Device(qkv) => {
            let output = device::attention(qkv, shape)?;
            Ok((Matrix::Device(output.clone()), Matrix::Device(output)))
        }
    }
}

/// Gradient of queries, keys and values side by side.
pub fn attend_backward(
    qkv: &Matrix,
    output: &Matrix,
    log_sums: &Matrix,
    output_gradient: &Matrix,
    shape: &AttentionShape,
) -> Result<Matrix> {
    match qkv {
        Matrix::Host(qkv) => Ok(Matrix::Host(cpu::attention::backward(
            qkv,
            host(output),
            host(log_sums),
            host(output_gradient),
            shape,
        ))),
        Matrix::Device(qkv) => {
            device::attention_backward(qkv, tensor(output_gradient), shape).map(Matrix::Device)
        }
    }
}

/// Keys and values of one layer for every sequence that is being continued.
#[derive(Clone, Debug)]
pub enum KeyValueCache {
    /// In main memory.
    Host(HostCache),
    /// On a device.
    Device(DeviceCache),
}

impl KeyValueCache {
    /// Nothing seen yet of so many sequences.
    pub fn new(place: &Place, sequences: usize) -> Self {
        match place {
            Place::Host => Self::Host(HostCache::new(sequences)),
            Place::Device(_) => Self::Device(DeviceCache::new(sequences)),
        }
    }

    /// Sequence `i` becomes a copy of what sequence `origins[i]` was; sequences may so be dropped,
    /// repeated and reordered.
    pub fn select(&mut self, origins: &[usize]) {
        match self {
            Self::Host(cache) => cache.select(origins),
            Self::Device(cache) => cache.select(origins),
        }
    }

    /// Remembers the new tokens and lets each see everything up to itself.
    pub fn attend(&mut self, qkv: &Matrix, shape: &AttentionShape) -> Result<Matrix> {
        match (self, qkv) {
            (Self::Host(cache), Matrix::Host(qkv)) => Ok(Matrix::Host(cache.attend(qkv, shape))),
            (Self::Device(cache), Matrix::Device(qkv)) => {
                cache.attend(qkv, shape).map(Matrix::Device)
            }
            _ => panic!("a cache lives where its layer computes"),
        }
    }
}

/// Rotary position embedding of the heads in the leading columns; `direction` −1 undoes it.
pub fn rotate(
    x: Matrix,
    columns: usize,
    frequencies: &[f32],
    positions: &[u32],
    direction: f32,
) -> Result<Matrix> {
    match x {
        Matrix::Host(mut x) => {
            cpu::rotary::turn(&mut x, columns, frequencies, positions, direction);
            Ok(Matrix::Host(x))
        }
        Matrix::Device(x) => {
            device::rotate(&x, columns, frequencies, positions, direction).map(Matrix::Device)
        }
    }
}

/// a + b.
pub fn add(a: &Matrix, b: &Matrix) -> Result<Matrix> {
    match a {
        Matrix::Host(a) => Ok(Matrix::Host(cpu::rows::add(a, host(b)))),
        Matrix::Device(a) => Ok(Matrix::Device((a + tensor(b))?)),
    }
}

/// Each row times its factor; a factor of 0 leaves zeros whatever the row holds.
pub fn scale_rows(x: &Matrix, factors: &[f32]) -> Result<Matrix> {
    match x {
        Matrix::Host(x) => Ok(Matrix::Host(cpu::rows::scale_rows(x, factors))),
        Matrix::Device(x) => {
            let erase = factors.contains(&0.0);
            let factors = Tensor::from_slice(factors, (factors.len(), 1), x.device())?;
            let scaled = x.broadcast_mul(&factors)?;
            if !erase {
                return Ok(Matrix::Device(scaled));
            }
            let kept = factors.ne(0.0)?.broadcast_as(scaled.shape())?;
            Ok(Matrix::Device(kept.where_cond(&scaled, &scaled.zeros_like()?)?))
        }
    }
}

/// Each column times its factor.
pub fn scale_columns(x: &Matrix, factors: &[f32]) -> Result<Matrix> {
    match x {
        Matrix::Host(x) => Ok(Matrix::Host(cpu::rows::scale_columns(x, factors))),
        Matrix::Device(x) => {
            let factors = Tensor::from_slice(factors, (1, factors.len()), x.device())?;
            Ok(Matrix::Device(x.broadcast_mul(&factors)?))
        }
    }
}

/// Row `i` of the result is row `indices[i]` of the table.
pub fn gather(table: &Matrix, indices: &[u32]) -> Result<Matrix> {
    match table {
        Matrix::Host(table) => Ok(Matrix::Host(cpu::rows::gather(table, indices))),
        Matrix::Device(table) => Ok(Matrix::Device(
            table.contiguous()?.index_select(&device::indices(indices, table)?, 0)?,
        )),
    }
}

/// A matrix of `rows` rows in which row `i` of `x` was added at `indices[i]`.
pub fn scatter(x: &Matrix, indices: &[u32], rows: usize) -> Result<Matrix> {
    match x {
        Matrix::Host(x) => Ok(Matrix::Host(cpu::rows::scatter(x, indices, rows))),
        Matrix::Device(x) => {
            let zeros = Tensor::zeros((rows, x.dims()[1]), candle_core::DType::F32, x.device())?;
            Ok(Matrix::Device(zeros.index_add(
                &device::indices(indices, x)?,
                &x.contiguous()?,
                0,
            )?))
        }
    }
}

/// Adds row `i` of `x` to row `indices[i]` of the matrix.
pub fn scatter_onto(onto: Matrix, x: &Matrix, indices: &[u32]) -> Result<Matrix> {
    match onto {
        Matrix::Host(mut onto) => {
            cpu::rows::scatter_onto(&mut onto, host(x), indices);
            Ok(Matrix::Host(onto))
        }
        Matrix::Device(onto) => {
            let x = tensor(x).contiguous()?;
            Ok(Matrix::Device(onto.index_add(&device::indices(indices, &x)?, &x, 0)?))
        }
    }
}

/// Sum of each column, as one row.
pub fn column_sums(x: &Matrix) -> Result<Matrix> {
    match x {
        Matrix::Host(x) => Ok(Matrix::Host(cpu::rows::column_sums(x))),
        Matrix::Device(x) => Ok(Matrix::Device(x.sum_keepdim(0)?)),
    }
}

/// Sum of each column of a ⊙ b, as one row.
pub fn column_sums_of_product(a: &Matrix, b: &Matrix) -> Result<Matrix> {
    match a {
        Matrix::Host(a) => Ok(Matrix::Host(cpu::rows::column_sums_of_product(a, host(b)))),
        Matrix::Device(a) => Ok(Matrix::Device((a * tensor(b))?.sum_keepdim(0)?)),
    }
}

/// The cross-entropy of each row, and with `weights` the gradient of Σ weightᵢ · lossᵢ.
pub fn cross_entropy(
    logits: &Matrix,
    targets: &[u32],
    weights: Option<&[f32]>,
) -> Result<(Vec<f32>, Option<Matrix>)> {
    match logits {
        Matrix::Host(logits) => {
            let (losses, gradient) = cpu::loss::cross_entropy(logits, targets, weights);
            Ok((losses, gradient.map(Matrix::Host)))
        }
        Matrix::Device(logits) => device::cross_entropy(logits, targets, weights),
    }
}

/// Softmax of each row.
pub fn softmax(logits: &Matrix) -> Result<Matrix> {
    match logits {
        Matrix::Host(logits) => Ok(Matrix::Host(cpu::loss::softmax(logits))),
        Matrix::Device(logits) => device::softmax(logits).map(Matrix::Device),
    }
}

/// x ⊙ mask; the backward pass is the same function of the gradient.
pub fn drop_out(dropout: Dropout, x: &Matrix) -> Result<Matrix> {
    match x {
        Matrix::Host(x) => Ok(Matrix::Host(cpu::dropout::apply(dropout, x))),
        Matrix::Device(x) => device::drop_out(dropout, x).map(Matrix::Device),
    }
}
