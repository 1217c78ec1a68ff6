//! Scaled dot-product attention of each head h of each sequence:
//!
//! S = Q Kᵀ · scale, P = softmax of the rows of S (over the keys visible to a row), Y = (P ⊙ M) V,
//!
//! where M is the dropout mask. In the backward pass, with Ŷ the gradient of Y: V̂ = (P ⊙ M)ᵀ Ŷ, P̂
//! = (Ŷ Vᵀ) ⊙ M, Ŝ_ij = P_ij (P̂_ij − Σ_k P_ik P̂_ik), Q̂ = Ŝ K · scale, K̂ = Ŝᵀ Q · scale. With
//! soft-capping, S is c · tanh(S / c), and Ŝ is multiplied by 1 − (S / c)². Relative positions add
//! one term of the query's row and one of the key's row to S, whose gradients are sums of Ŝ.

use super::Wide;
use undertone_tensor::{AttentionShape, Relative, RelativeGradients};

/// One head of one sequence: its first columns, its probabilities and its mask.
struct Head {
    start: usize,
    length: usize,
    query: usize,
    key: usize,
    value: usize,
    probabilities: Wide,
    /// Derivative of each score with respect to the scaled dot product.
    slopes: Wide,
    mask: Wide,
}

fn scale(shape: &AttentionShape) -> f64 {
    shape.scores.scale.map_or_else(|| 1.0 / (shape.width as f64).sqrt(), f64::from)
}

/// The column of a head's term for a query and a key.
fn column(relative: &Relative<Wide>, head: usize, query: usize, key: usize) -> usize {
    let bucket = relative.buckets[query + relative.buckets.len() / 2 - key] as usize;
    head * relative.head_stride + bucket * relative.bucket_stride
}

fn heads(qkv: &Wide, relative: Option<&Relative<Wide>>, shape: &AttentionShape) -> Vec<Head> {
    let (width, group) = (shape.width, shape.heads / shape.key_heads);
    let mut all = Vec::new();
    for window in shape.starts.windows(2) {
        let (start, length) = (window[0], window[1] - window[0]);
        for h in 0..shape.heads {
            let query = h * width;
            let key = (shape.heads + h / group) * width;
            let value = key + shape.key_heads * width;
            let mut probabilities = Wide::zeros(length, length);
            let mut slopes = Wide::zeros(length, length);
            for i in 0..length {
                let near = |j: usize| shape.scores.window.is_none_or(|w| i.abs_diff(j) < w);
                let visible = |j: &usize| near(*j) && (!shape.causal || *j <= i);
                let score = |j: usize| {
                    let products =
                        (0..width).map(|c| qkv[(start + i, query + c)] * qkv[(start + j, key + c)]);
                    let mut s = products.sum::<f64>() * scale(shape);
                    if let Some(relative) = relative {
                        let column = column(relative, h, i, j);
                        s += relative.of_queries[(start + i, column)];
                        s += relative.of_keys.map_or(0.0, |keys| keys[(start + j, column)]);
                    }
                    match shape.scores.soft_cap.map(f64::from) {
                        None => (s, 1.0),
                        Some(cap) => (cap * (s / cap).tanh(), 1.0 - (s / cap).tanh().powi(2)),
                    }
                };
                let scores: Vec<_> = (0..length).filter(visible).map(|j| (j, score(j))).collect();
                let largest = scores.iter().map(|s| s.1.0).fold(f64::NEG_INFINITY, f64::max);
                let total: f64 = scores.iter().map(|s| (s.1.0 - largest).exp()).sum();
                for (j, (score, slope)) in scores {
                    probabilities[(i, j)] = (score - largest).exp() / total;
                    slopes[(i, j)] = slope;
                }
            }
            let mask = Wide::from_fn(length, length, |i, j| match shape.dropout {
                None => 1.0,
                Some(dropout) => {
                    let dropout = dropout.fork((start * shape.heads + h) as u64);
                    f64::from(dropout.factor((i * length + j) as u32))
                }
            });
            all.push(Head { start, length, query, key, value, probabilities, slopes, mask });
        }
    }
    all
}

pub fn forward(qkv: &Wide, relative: Option<&Relative<Wide>>, shape: &AttentionShape) -> Wide {
    let mut output = Wide::zeros(qkv.rows, shape.heads * shape.width);
    for head in heads(qkv, relative, shape) {
        for i in 0..head.length {
            for j in 0..head.length {
                let p = head.probabilities[(i, j)] * head.mask[(i, j)];
                for c in 0..shape.width {
                    output[(head.start + i, head.query + c)] +=
                        p * qkv[(head.start + j, head.value + c)];
                }
            }
        }
    }
    output
}

pub fn backward(
    qkv: &Wide,
    relative: Option<&Relative<Wide>>,
    dy: &Wide,
    shape: &AttentionShape,
) -> RelativeGradients<Wide> {
    let columns = relative.map_or(0, |relative| relative.of_queries.columns);
    let mut of_queries = Wide::zeros(qkv.rows, columns);
    let mut of_keys = Wide::zeros(qkv.rows, columns);
    let mut gradient = Wide::zeros(qkv.rows, qkv.columns);
    let scale = scale(shape);
    for (n, head) in heads(qkv, relative, shape).into_iter().enumerate() {
        let Head { start, length, query, key, value, probabilities, slopes, mask } = head;
        for i in 0..length {
            let dp: Vec<f64> = (0..length)
                .map(|j| {
                    let products = (0..shape.width)
                        .map(|c| dy[(start + i, query + c)] * qkv[(start + j, value + c)]);
                    mask[(i, j)] * products.sum::<f64>()
                })
                .collect();
            let along: f64 = (0..length).map(|k| probabilities[(i, k)] * dp[k]).sum();
            for j in 0..length {
                let p = probabilities[(i, j)];
                let ds = p * (dp[j] - along) * slopes[(i, j)];
                if let Some(relative) = relative {
                    let column = column(relative, n % shape.heads, i, j);
                    of_queries[(start + i, column)] += ds;
                    of_keys[(start + j, column)] += ds;
                }
                for c in 0..shape.width {
                    gradient[(start + j, value + c)] +=
                        p * mask[(i, j)] * dy[(start + i, query + c)];
                    gradient[(start + i, query + c)] += scale * ds * qkv[(start + j, key + c)];
                    gradient[(start + j, key + c)] += scale * ds * qkv[(start + i, query + c)];
                }
            }
        }
    }
    RelativeGradients { qkv: gradient, of_queries, of_keys: Some(of_keys) }
}
