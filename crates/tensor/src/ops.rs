//! The operations that layers are built from; each runs on the device of its operands.

use super::backend::{Backend, on_backend};
use super::error::{Error, Result, count, fits};
use super::{
    Activation, AttentionShape, CoordinateWeights, Dropout, Matrix, NormKind, Normalized, Relative,
    RelativeGradients,
};

/// Checks that two operands have the same shape.
fn same_shape(operation: &'static str, left: &Matrix, right: &Matrix) -> Result<()> {
    let (left, right) = (left.shape(), right.shape());
    fits(left == right, operation, left, right, "both must have the same shape")
}

/// Checks that a row of parameters has one value per column.
fn is_row(operation: &'static str, x: &Matrix, row: &Matrix) -> Result<()> {
    let (x, row) = (x.shape(), row.shape());
    let rule = "the second must be a single row with the same number of columns";
    fits(row == [1, x[1]], operation, x, row, rule)
}

/// Checks that every index is below `limit`.
fn indices_below(
    operation: &'static str,
    matrix: &Matrix,
    what: &'static str,
    indices: &[u32],
    limit: usize,
) -> Result<()> {
    match indices.iter().find(|&&index| index as usize >= limit) {
        None => Ok(()),
        Some(&index) => {
            let (matrix, index) = (matrix.shape(), index as usize);
            Err(Error::Index { operation, matrix, what, index })
        }
    }
}

/// Normalizes each row of `x`, or of `x + residual`.
pub fn normalize(
    kind: NormKind,
    x: &Matrix,
    residual: Option<&Matrix>,
    weight: &Matrix,
    bias: Option<&Matrix>,
    epsilon: f32,
) -> Result<Normalized> {
    const NAME: &str = "normalization";
    residual.map_or(Ok(()), |residual| same_shape(NAME, x, residual))?;
    is_row(NAME, x, weight)?;
    bias.map_or(Ok(()), |bias| is_row(NAME, x, bias))?;
    on_backend!(NAME, x, |B, at| {
        let (residual, bias) = (at.option(residual)?, at.option(bias)?);
        let done = B::normalize(kind, at.get(x)?, residual, at.get(weight)?, bias, epsilon)?;
        Ok(Normalized {
            output: B::wrap(done.output),
            normalized: B::wrap(done.normalized),
            inverse_std: B::wrap(done.inverse_std),
        })
    })
}

/// Gradient with respect to the input of [`normalize`].
pub fn normalize_backward(
    kind: NormKind,
    normalized: &Matrix,
    inverse_std: &Matrix,
    weight: &Matrix,
    output_gradient: &Matrix,
) -> Result<Matrix> {
    const NAME: &str = "backward pass of a normalization";
    same_shape(NAME, normalized, output_gradient)?;
    is_row(NAME, normalized, weight)?;
    let stds = inverse_std.rows() * inverse_std.columns();
    count(NAME, normalized.shape(), "standard deviations", stds, normalized.rows())?;
    on_backend!(NAME, normalized, |B, at| {
        let (hat, inverse) = (at.get(normalized)?, at.get(inverse_std)?);
        let (weight, gradient) = (at.get(weight)?, at.get(output_gradient)?);
        Ok(B::wrap(B::normalize_backward(kind, hat, inverse, weight, gradient)?))
    })
}

/// f(x).
pub fn activate(kind: Activation, x: &Matrix) -> Result<Matrix> {
    on_backend!("activation", x, |B, at| Ok(B::wrap(B::activate(kind, at.get(x)?)?)))
}

/// f′(x) ⊙ dy.
pub fn activate_backward(kind: Activation, x: &Matrix, output_gradient: &Matrix) -> Result<Matrix> {
    const NAME: &str = "backward pass of an activation";
    same_shape(NAME, x, output_gradient)?;
    on_backend!(NAME, x, |B, at| {
        Ok(B::wrap(B::activate_backward(kind, at.get(x)?, at.get(output_gradient)?)?))
    })
}

/// Soft-capping: c · tanh(x / c), which is bounded by −c and c.
pub fn soft_cap(x: &Matrix, cap: f32) -> Result<Matrix> {
    on_backend!("soft-capping", x, |B, at| Ok(B::wrap(B::soft_cap(at.get(x)?, cap)?)))
}

/// Gradient with respect to the input of [`soft_cap`], computed from its output.
pub fn soft_cap_backward(capped: &Matrix, output_gradient: &Matrix, cap: f32) -> Result<Matrix> {
    const NAME: &str = "backward pass of soft-capping";
    same_shape(NAME, capped, output_gradient)?;
    on_backend!(NAME, capped, |B, at| {
        Ok(B::wrap(B::soft_cap_backward(at.get(capped)?, at.get(output_gradient)?, cap)?))
    })
}

/// f(gate) ⊙ up.
pub fn gate(kind: Activation, gate: &Matrix, up: &Matrix) -> Result<Matrix> {
    const NAME: &str = "gated activation";
    same_shape(NAME, gate, up)?;
    on_backend!(NAME, gate, |B, at| Ok(B::wrap(B::gate(kind, at.get(gate)?, at.get(up)?)?)))
}

/// Gradients with respect to `gate` and `up`.
pub fn gate_backward(
    kind: Activation,
    gate: &Matrix,
    up: &Matrix,
    output_gradient: &Matrix,
) -> Result<(Matrix, Matrix)> {
    const NAME: &str = "backward pass of a gated activation";
    same_shape(NAME, gate, up)?;
    same_shape(NAME, gate, output_gradient)?;
    on_backend!(NAME, gate, |B, at| {
        let gradient = at.get(output_gradient)?;
        let (gate, up) = B::gate_backward(kind, at.get(gate)?, at.get(up)?, gradient)?;
        Ok((B::wrap(gate), B::wrap(up)))
    })
}

/// The attention output `[tokens, heads · width]`, and what the backward pass needs to recompute
/// the probabilities.
pub fn attend(qkv: &Matrix, shape: &AttentionShape) -> Result<(Matrix, Matrix)> {
    const NAME: &str = "attention";
    check_attention(NAME, qkv, shape)?;
    on_backend!(NAME, qkv, |B, at| {
        let (output, log_sums) = B::attend(at.get(qkv)?, shape)?;
        Ok((B::wrap(output), B::wrap(log_sums)))
    })
}

/// Gradient with respect to queries, keys and values, side by side.
pub fn attend_backward(
    qkv: &Matrix,
    output: &Matrix,
    log_sums: &Matrix,
    output_gradient: &Matrix,
    shape: &AttentionShape,
) -> Result<Matrix> {
    const NAME: &str = "backward pass of attention";
    check_attention(NAME, qkv, shape)?;
    let mixed = [qkv.rows(), shape.heads * shape.width];
    let rule = "the output has a column for each feature of each head";
    fits(output.shape() == mixed, NAME, qkv.shape(), output.shape(), rule)?;
    same_shape(NAME, output, output_gradient)?;
    on_backend!(NAME, qkv, |B, at| {
        let (output, log_sums) = (at.get(output)?, at.get(log_sums)?);
        let gradient = at.get(output_gradient)?;
        Ok(B::wrap(B::attend_backward(at.get(qkv)?, output, log_sums, gradient, shape)?))
    })
}

/// [`attend`] with relative-position terms in the scores.
pub fn attend_relative(
    qkv: &Matrix,
    relative: &Relative,
    shape: &AttentionShape,
) -> Result<(Matrix, Matrix)> {
    const NAME: &str = "attention with relative positions";
    check_relative(NAME, qkv, relative, shape)?;
    on_backend!(NAME, qkv, |B, at| {
        let of_keys = at.option(relative.of_keys)?;
        let Relative { buckets, head_stride, bucket_stride, .. } = *relative;
        let of_queries = at.get(relative.of_queries)?;
        let relative = Relative { buckets, of_queries, of_keys, head_stride, bucket_stride };
        let (output, log_sums) = B::attend_relative(at.get(qkv)?, &relative, shape)?;
        Ok((B::wrap(output), B::wrap(log_sums)))
    })
}

/// Gradients with respect to the inputs of [`attend_relative`].
pub fn attend_relative_backward(
    qkv: &Matrix,
    relative: &Relative,
    output: &Matrix,
    log_sums: &Matrix,
    output_gradient: &Matrix,
    shape: &AttentionShape,
) -> Result<RelativeGradients> {
    const NAME: &str = "backward pass of attention with relative positions";
    check_relative(NAME, qkv, relative, shape)?;
    let mixed = [qkv.rows(), shape.heads * shape.width];
    let rule = "the output has a column for each feature of each head";
    fits(output.shape() == mixed, NAME, qkv.shape(), output.shape(), rule)?;
    same_shape(NAME, output, output_gradient)?;
    on_backend!(NAME, qkv, |B, at| {
        let of_keys = at.option(relative.of_keys)?;
        let Relative { buckets, head_stride, bucket_stride, .. } = *relative;
        let of_queries = at.get(relative.of_queries)?;
        let relative = Relative { buckets, of_queries, of_keys, head_stride, bucket_stride };
        let (output, log_sums) = (at.get(output)?, at.get(log_sums)?);
        let gradient = at.get(output_gradient)?;
        let qkv = at.get(qkv)?;
        let gradients =
            B::attend_relative_backward(qkv, &relative, output, log_sums, gradient, shape)?;
        Ok(RelativeGradients {
            qkv: B::wrap(gradients.qkv),
            of_queries: B::wrap(gradients.of_queries),
            of_keys: gradients.of_keys.map(B::wrap),
        })
    })
}

fn check_relative(
    operation: &'static str,
    qkv: &Matrix,
    relative: &Relative,
    shape: &AttentionShape,
) -> Result<()> {
    check_attention(operation, qkv, shape)?;
    let rule = "queries and keys must have one row per token and the same number of columns";
    let wanted = [qkv.rows(), relative.of_queries.columns()];
    for terms in std::iter::once(relative.of_queries).chain(relative.of_keys) {
        fits(terms.shape() == wanted, operation, qkv.shape(), terms.shape(), rule)?;
    }
    relative.check(operation, shape.starts, shape.heads, wanted[1])
}

fn check_attention(operation: &'static str, qkv: &Matrix, shape: &AttentionShape) -> Result<()> {
    shape.check(operation, qkv.rows())?;
    let wanted = [qkv.rows(), shape.columns()];
    let rule = "there must be columns for queries, keys and values side by side";
    fits(qkv.shape() == wanted, operation, qkv.shape(), wanted, rule)
}

/// Applies rotary position embedding to the heads in the leading columns; `direction` −1 inverts
/// it.
pub fn rotate(
    x: Matrix,
    columns: usize,
    frequencies: &[f32],
    positions: &[u32],
    direction: f32,
) -> Result<Matrix> {
    const NAME: &str = "rotary embedding";
    let (shape, width) = (x.shape(), 2 * frequencies.len());
    if columns > shape[1] || width == 0 || !columns.is_multiple_of(width) {
        let problem = format!("heads of {width} features in {columns} of {} columns", shape[1]);
        return Err(Error::Layout { operation: NAME, problem });
    }
    count(NAME, shape, "positions", positions.len(), shape[0])?;
    on_backend!(NAME, &x, |B, at| {
        Ok(B::wrap(B::rotate(at.take(x)?, columns, frequencies, positions, direction)?))
    })
}

/// a + b.
pub fn add(a: &Matrix, b: &Matrix) -> Result<Matrix> {
    const NAME: &str = "sum";
    same_shape(NAME, a, b)?;
    on_backend!(NAME, a, |B, at| Ok(B::wrap(B::add(at.get(a)?, at.get(b)?)?)))
}

/// average + weight · (x − average): updates a moving average with x.
pub fn lerp(average: Matrix, x: &Matrix, weight: f32) -> Result<Matrix> {
    const NAME: &str = "moving average";
    same_shape(NAME, &average, x)?;
    on_backend!(NAME, &average, |B, at| {
        Ok(B::wrap(B::lerp(at.take(average)?, at.get(x)?, weight)?))
    })
}

/// Multiplies each row by its factor; a factor of 0 gives zeros, whatever the row contains.
pub fn scale_rows(x: &Matrix, factors: &[f32]) -> Result<Matrix> {
    const NAME: &str = "scaling of rows";
    count(NAME, x.shape(), "factors", factors.len(), x.rows())?;
    on_backend!(NAME, x, |B, at| Ok(B::wrap(B::scale_rows(at.get(x)?, factors)?)))
}

/// Multiplies each column by its factor.
pub fn scale_columns(x: &Matrix, factors: &[f32]) -> Result<Matrix> {
    const NAME: &str = "scaling of columns";
    count(NAME, x.shape(), "factors", factors.len(), x.columns())?;
    on_backend!(NAME, x, |B, at| Ok(B::wrap(B::scale_columns(at.get(x)?, factors)?)))
}

/// Row `i` of the result is row `indices[i]` of the table.
pub fn gather(table: &Matrix, indices: &[u32]) -> Result<Matrix> {
    const NAME: &str = "gathering of rows";
    indices_below(NAME, table, "row", indices, table.rows())?;
    on_backend!(NAME, table, |B, at| Ok(B::wrap(B::gather(at.get(table)?, indices)?)))
}

/// A matrix of `rows` rows in which row `i` of `x` is added to row `indices[i]`.
pub fn scatter(x: &Matrix, indices: &[u32], rows: usize) -> Result<Matrix> {
    const NAME: &str = "scattering of rows";
    count(NAME, x.shape(), "indices", indices.len(), x.rows())?;
    indices_below(NAME, x, "row", indices, rows)?;
    on_backend!(NAME, x, |B, at| Ok(B::wrap(B::scatter(at.get(x)?, indices, rows)?)))
}

/// Adds row `i` of `x` to row `indices[i]` of the matrix.
pub fn scatter_onto(onto: Matrix, x: &Matrix, indices: &[u32]) -> Result<Matrix> {
    const NAME: &str = "scattering of rows";
    let rule = "both must have the same number of columns";
    fits(onto.columns() == x.columns(), NAME, onto.shape(), x.shape(), rule)?;
    count(NAME, x.shape(), "indices", indices.len(), x.rows())?;
    indices_below(NAME, &onto, "row", indices, onto.rows())?;
    on_backend!(NAME, &onto, |B, at| {
        Ok(B::wrap(B::scatter_onto(at.take(onto)?, at.get(x)?, indices)?))
    })
}

/// Sum of each column, as one row.
pub fn column_sums(x: &Matrix) -> Result<Matrix> {
    on_backend!("sum of columns", x, |B, at| Ok(B::wrap(B::column_sums(at.get(x)?)?)))
}

/// Sum of each column over rows multiplied by their factors, as one row; a row with factor 0 is
/// ignored, whatever it contains.
pub fn weighted_column_sums(x: &Matrix, factors: &[f32]) -> Result<Matrix> {
    const NAME: &str = "weighted sum of columns";
    count(NAME, x.shape(), "factors", factors.len(), x.rows())?;
    on_backend!(NAME, x, |B, at| Ok(B::wrap(B::weighted_column_sums(at.get(x)?, factors)?)))
}

/// [`weighted_column_sums`] of several matrices with the same number of rows.
pub fn vector_sums(xs: &[&Matrix], factors: &[f32]) -> Result<Vec<Matrix>> {
    const NAME: &str = "weighted sum of columns";
    let Some(first) = xs.first() else { return Ok(Vec::new()) };
    for x in xs {
        count(NAME, x.shape(), "factors", factors.len(), x.rows())?;
    }
    on_backend!(NAME, first, |B, at| {
        let xs = xs.iter().map(|x| at.get(x)).collect::<Result<Vec<_>>>()?;
        Ok(B::vector_sums(&xs, factors)?.into_iter().map(B::wrap).collect())
    })
}

/// Sum of each column of a ⊙ b, as one row.
pub fn column_sums_of_product(a: &Matrix, b: &Matrix) -> Result<Matrix> {
    const NAME: &str = "sum of columns of a product";
    same_shape(NAME, a, b)?;
    on_backend!(NAME, a, |B, at| {
        Ok(B::wrap(B::column_sums_of_product(at.get(a)?, at.get(b)?)?))
    })
}

/// The cross-entropy of each row as a column and, if `weights` are given, the gradient of Σ weightᵢ
/// · lossᵢ.
pub fn cross_entropy(
    logits: &Matrix,
    targets: &[u32],
    weights: Option<&[f32]>,
) -> Result<(Matrix, Option<Matrix>)> {
    const NAME: &str = "cross-entropy";
    count(NAME, logits.shape(), "targets", targets.len(), logits.rows())?;
    indices_below(NAME, logits, "class", targets, logits.columns())?;
    if let Some(weights) = weights {
        count(NAME, logits.shape(), "weights", weights.len(), logits.rows())?;
    }
    on_backend!(NAME, logits, |B, at| {
        let (losses, gradient) = B::cross_entropy(at.get(logits)?, targets, weights)?;
        Ok((B::wrap(losses), gradient.map(B::wrap)))
    })
}

/// Multiplies row i elementwise by the weights of row `indices[i]` of a parameter, or of row i
/// without indices.
pub fn weigh_rows(
    x: &Matrix,
    indices: Option<&[u32]>,
    weights: &CoordinateWeights,
) -> Result<Matrix> {
    const NAME: &str = "weights of coordinates";
    let rows = weights.values().len() / x.columns().max(1);
    if let Some(indices) = indices {
        count(NAME, x.shape(), "indices", indices.len(), x.rows())?;
        indices_below(NAME, x, "row", indices, rows)?;
    } else {
        count(NAME, x.shape(), "weights", weights.values().len(), x.rows() * x.columns())?;
    }
    on_backend!(NAME, x, |B, at| Ok(B::wrap(B::weigh_rows(at.get(x)?, indices, weights)?)))
}

/// Softmax of each row.
pub fn softmax(logits: &Matrix) -> Result<Matrix> {
    on_backend!("softmax", logits, |B, at| Ok(B::wrap(B::softmax(at.get(logits)?)?)))
}

/// x ⊙ mask; the backward pass applies the same function to the gradient.
pub fn drop_out(dropout: Dropout, x: &Matrix) -> Result<Matrix> {
    on_backend!("dropout", x, |B, at| Ok(B::wrap(B::drop_out(dropout, at.get(x)?)?)))
}
