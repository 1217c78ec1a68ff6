//! Attention by padding: sequences are gathered into a rectangle, masked, and the real rows taken
//! out again.

use crate::tensor::AttentionShape;
use candle_core::{D, Result, Tensor};

/// Everything the forward and backward pass share.
struct Rectangle {
    sequences: usize,
    longest: usize,
    /// For each place of the rectangle, the packed row that it shows; where there is none, the row
    /// of zeros behind the last. No number of another sequence may come there, not even times zero:
    /// it might be a NaN.
    from_packed: Tensor,
    /// For each packed row, its place in the rectangle.
    to_packed: Tensor,
    /// 0 where a key may be seen, a very negative number where not: [sequences, 1, rows, keys].
    hidden: Tensor,
}

impl Rectangle {
    fn new(shape: &AttentionShape, beside: &Tensor) -> Result<Self> {
        let device = beside.device();
        let lengths: Vec<usize> = shape.starts.windows(2).map(|w| w[1] - w[0]).collect();
        let (sequences, longest) = (lengths.len(), lengths.iter().copied().max().unwrap_or(0));
        let nothing = shape.starts.last().copied().unwrap_or(0) as u32;
        let mut from_packed = vec![nothing; sequences * longest];
        let mut to_packed = Vec::new();
        let mut hidden = vec![0.0_f32; sequences * longest * longest];
        for (s, (&length, &start)) in lengths.iter().zip(shape.starts).enumerate() {
            for i in 0..length {
                from_packed[s * longest + i] = (start + i) as u32;
                to_packed.push((s * longest + i) as u32);
            }
            for i in 0..longest {
                for j in 0..longest {
                    if j >= length || (shape.causal && j > i) {
                        hidden[(s * longest + i) * longest + j] = -1e30;
                    }
                }
            }
        }
        Ok(Self {
            sequences,
            longest,
            from_packed: Tensor::from_vec(from_packed, sequences * longest, device)?,
            to_packed: Tensor::from_slice(&to_packed, to_packed.len(), device)?,
            hidden: Tensor::from_vec(hidden, (sequences, 1, longest, longest), device)?,
        })
    }

    /// Columns of a packed matrix as [sequences, heads, rows, width]; zero where there is no row.
    fn heads(&self, packed: &Tensor, first: usize, heads: usize, width: usize) -> Result<Tensor> {
        let rows = packed.narrow(1, first, heads * width)?.contiguous()?;
        let nothing = Tensor::zeros((1, heads * width), rows.dtype(), rows.device())?;
        Tensor::cat(&[&rows, &nothing], 0)?
            .index_select(&self.from_packed, 0)?
            .reshape((self.sequences, self.longest, heads, width))?
            .transpose(1, 2)?
            .contiguous()
    }

    /// The way back.
    fn packed(&self, heads: &Tensor) -> Result<Tensor> {
        let (_, count, _, width) = heads.dims4()?;
        heads
            .transpose(1, 2)?
            .contiguous()?
            .reshape((self.sequences * self.longest, count * width))?
            .index_select(&self.to_packed, 0)
    }
}

/// Each head of keys as often as heads of queries use it.
fn repeat(x: &Tensor, times: usize) -> Result<Tensor> {
    let (b, heads, rows, width) = x.dims4()?;
    x.unsqueeze(2)?.broadcast_as((b, heads, times, rows, width))?.contiguous()?.reshape((
        b,
        heads * times,
        rows,
        width,
    ))
}

/// The transpose of [`repeat`].
fn gather_repeats(x: &Tensor, times: usize) -> Result<Tensor> {
    let (b, heads, rows, width) = x.dims4()?;
    x.reshape((b, heads / times, times, rows, width))?.sum(2)
}

struct Parts {
    rectangle: Rectangle,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    probabilities: Tensor,
    /// Dropout's factors, if there are any.
    mask: Option<Tensor>,
}

fn parts(qkv: &Tensor, shape: &AttentionShape) -> Result<Parts> {
    let rectangle = Rectangle::new(shape, qkv)?;
    let (width, times) = (shape.width, shape.heads / shape.key_heads);
    let query = rectangle.heads(qkv, 0, shape.heads, width)?;
    let key = repeat(&rectangle.heads(qkv, shape.key(0), shape.key_heads, width)?, times)?;
    let value = repeat(&rectangle.heads(qkv, shape.value(0), shape.key_heads, width)?, times)?;
    let scores = (query.matmul(&key.t()?.contiguous()?)? * f64::from(shape.scale()))?;
    let scores = scores.broadcast_add(&rectangle.hidden)?;
    let exponentials = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?)?.exp()?;
    let probabilities = exponentials.broadcast_div(&exponentials.sum_keepdim(D::Minus1)?)?;
    let mask = shape.dropout.map(|_| dropout_mask(shape, &rectangle, qkv)).transpose()?;
    Ok(Parts { rectangle, query, key, value, probabilities, mask })
}

/// The same factors that the kernel on the host draws.
fn dropout_mask(shape: &AttentionShape, rectangle: &Rectangle, beside: &Tensor) -> Result<Tensor> {
    let longest = rectangle.longest;
    let mut factors = vec![0.0_f32; rectangle.sequences * shape.heads * longest * longest];
    for (s, window) in shape.starts.windows(2).enumerate() {
        let length = window[1] - window[0];
        for head in 0..shape.heads {
            let Some(mask) = shape.mask(window[0], head) else { continue };
            for i in 0..length {
                for j in 0..length {
                    factors[((s * shape.heads + head) * longest + i) * longest + j] =
                        mask.factor((i * length + j) as u32);
                }
            }
        }
    }
    Tensor::from_vec(factors, (rectangle.sequences, shape.heads, longest, longest), beside.device())
}

pub fn attention(qkv: &Tensor, shape: &AttentionShape) -> Result<Tensor> {
    if qkv.dims()[0] == 0 {
        return qkv.narrow(1, 0, shape.heads * shape.width);
    }
    let parts = parts(qkv, shape)?;
    let probabilities = match &parts.mask {
        Some(mask) => (&parts.probabilities * mask)?,
        None => parts.probabilities,
    };
    parts.rectangle.packed(&probabilities.matmul(&parts.value)?)
}

pub fn attention_backward(
    qkv: &Tensor,
    output_gradient: &Tensor,
    shape: &AttentionShape,
) -> Result<Tensor> {
    if qkv.dims()[0] == 0 {
        return Ok(qkv.clone());
    }
    let times = shape.heads / shape.key_heads;
    let Parts { rectangle, query, key, value, probabilities, mask } = parts(qkv, shape)?;
    let gradient = rectangle.heads(output_gradient, 0, shape.heads, shape.width)?;
    let mut dp = gradient.matmul(&value.t()?.contiguous()?)?;
    let mut kept = probabilities.clone();
    if let Some(mask) = &mask {
        dp = (dp * mask)?;
        kept = (kept * mask)?;
    }
    let along = (&probabilities * &dp)?.sum_keepdim(D::Minus1)?;
    let ds = ((&probabilities * dp.broadcast_sub(&along)?)? * f64::from(shape.scale()))?;
    let dq = ds.matmul(&key)?;
    let dk = gather_repeats(&ds.t()?.contiguous()?.matmul(&query)?, times)?;
    let dv = gather_repeats(&kept.t()?.contiguous()?.matmul(&gradient)?, times)?;
    Tensor::cat(&[rectangle.packed(&dq)?, rectangle.packed(&dk)?, rectangle.packed(&dv)?], 1)
}
