//! Disentangled attention (DeBERTa): in addition to q·k, scores include the product of each query
//! with relative-position keys and of each key with relative-position queries. Both are obtained
//! from one table of relative-position embeddings, shared by all blocks, through the block's own
//! projections.

use super::attention::Attention;
use super::head::OfRows;
use super::linear::Linear;
use super::norm::Norm;
use crate::factor::{Factor, Receiver};
use crate::parameters::ParameterId;
use crate::pass::Pass;
use std::ops::Range;
use std::sync::Arc;
use undertone_tensor::{self as tensor, Matrix, Output, Relative, RelativeGradients, Result};

/// The relative-position embeddings.
#[derive(Clone, Debug)]
pub struct Disentangled {
    /// `[2 · span, hidden]`.
    pub table: ParameterId,
    /// Normalization of the table's rows.
    pub norm: Option<Norm>,
    /// Distances from −span to span − 1 have a row each.
    pub span: usize,
    /// If large distances share rows: the number of buckets and the distance of the last one.
    pub buckets: Option<(usize, usize)>,
}

/// Inputs for attention, and what the backward pass needs.
#[derive(Clone, Debug)]
pub struct Saved {
    /// The rows of the table needed for the distances that occur.
    rows: Range<usize>,
    /// The bucket of each distance, relative to the first of these rows.
    buckets: Vec<u32>,
    /// Keys and queries for these rows, `[rows, heads · width]`.
    keys: Matrix,
    queries: Matrix,
    /// Products of the queries with those keys, and of the keys with those queries, `[tokens, heads
    /// · rows]`.
    of_queries: Matrix,
    of_keys: Matrix,
}

impl Saved {
    pub fn terms(&self) -> Relative<'_> {
        Relative {
            buckets: &self.buckets,
            of_queries: &self.of_queries,
            of_keys: Some(&self.of_keys),
            head_stride: self.rows.len(),
            bucket_stride: 1,
        }
    }
}

/// Columns of a head's queries and keys in `[q | k | v]`.
fn columns(attention: &Attention, head: usize) -> [Range<usize>; 2] {
    let (width, heads) = (attention.width, attention.heads);
    [head * width..(head + 1) * width, (heads + head) * width..(heads + head + 1) * width]
}

impl Disentangled {
    /// The row of the table for the distance query − key.
    pub fn row(&self, query: usize, key: usize) -> usize {
        let distance = query as i64 - key as i64;
        let bucket = match self.buckets {
            None => distance,
            Some((count, most_distant)) => {
                let middle = count / 2;
                let far = distance.unsigned_abs() as usize;
                if far <= middle {
                    distance
                } else {
                    // Rounded to f32 where the reference is, before the ceiling is taken.
                    let middle_f32 = middle as f32;
                    let octaves = (far as f32 / middle_f32).ln();
                    let all = ((most_distant - 1) as f64 / middle as f64) as f32;
                    let steps = (octaves / all.ln() * (middle - 1) as f32).ceil() as i64;
                    distance.signum() * (steps + middle as i64)
                }
            }
        };
        (bucket + self.span as i64).clamp(0, 2 * self.span as i64 - 1) as usize
    }

    /// The normalized rows of the table.
    fn embeddings(&self, pass: &Pass, rows: Range<usize>) -> Result<Matrix> {
        let rows = pass.parameters.value(self.table).row_range(rows)?;
        match &self.norm {
            Some(norm) => Ok(norm.forward(pass, &rows, None)?.0),
            None => Ok(rows),
        }
    }

    /// The query and key projections.
    fn layers(attention: &Attention) -> (&Linear, &Linear) {
        let layers = attention.projections.layers();
        (&layers[0], &layers[1])
    }

    /// The relative-position terms of the scores, computed from queries and keys. No dropout is
    /// applied to them in training.
    pub fn forward(&self, pass: &Pass, attention: &Attention, qkv: &Matrix) -> Result<Saved> {
        let lengths = pass.starts.windows(2).map(|window| window[1] - window[0]);
        let longest = lengths.max().unwrap_or(1).max(1);
        let rows = self.row(0, longest - 1)..self.row(longest - 1, 0) + 1;
        let behind = (1..longest).rev().map(|distance| self.row(0, distance));
        let all = behind.chain((0..longest).map(|distance| self.row(distance, 0)));
        let buckets = all.map(|row| (row - rows.start) as u32).collect();
        let quiet = Pass { dropout_seed: None, keep: false, panels: None, ..*pass };
        let embeddings = self.embeddings(&quiet, rows.clone())?;
        let (query_layer, key_layer) = Self::layers(attention);
        let keys = key_layer.forward(&quiet, &embeddings)?.0;
        let queries = query_layer.forward(&quiet, &embeddings)?.0;
        let (count, heads) = (rows.len(), attention.heads);
        let scale = attention.shape(pass).scale();
        let mut of_queries = Output::new(&qkv.device(), qkv.rows(), heads * count);
        let mut of_keys = Output::new(&qkv.device(), qkv.rows(), heads * count);
        for head in 0..heads {
            let [q, k] = columns(attention, head);
            let block = head * count..(head + 1) * count;
            let (of_head, q, k) = (q.clone(), qkv.column_range(q)?, qkv.column_range(k)?);
            let (key, query) =
                (keys.column_range(of_head.clone())?, queries.column_range(of_head)?);
            of_queries.add_product(block.clone(), scale, q.plain(), key.transposed())?;
            of_keys.add_product(block, scale, k.plain(), query.transposed())?;
        }
        let (of_queries, of_keys) = (of_queries.finish()?, of_keys.finish()?);
        Ok(Saved { rows, buckets, keys, queries, of_queries, of_keys })
    }

    /// Emits the factors of the table, its normalization and the projections, and returns the
    /// terms' contribution to the gradients of queries and keys.
    pub fn backward(
        &self,
        pass: &Pass,
        attention: &Attention,
        (qkv, saved): (&Matrix, &Saved),
        gradients: &RelativeGradients,
        receiver: &mut dyn Receiver,
    ) -> Result<[Matrix; 2]> {
        let Some(key_terms) = &gradients.of_keys else {
            unreachable!("disentangled attention has terms of keys")
        };
        let (count, scale) = (saved.rows.len(), attention.shape(pass).scale());
        let of_head =
            |terms: &Matrix, head: usize| terms.column_range(head * count..(head + 1) * count);
        let width = attention.heads * attention.width;
        let mut more = [(); 2].map(|()| Output::new(&qkv.device(), qkv.rows(), width));
        for head in 0..attention.heads {
            let block = columns(attention, head)[0].clone();
            let (key, query) = (
                saved.keys.column_range(block.clone())?,
                saved.queries.column_range(block.clone())?,
            );
            let (of_query, of_key) =
                (of_head(&gradients.of_queries, head)?, of_head(key_terms, head)?);
            more[0].add_product(block.clone(), scale, of_query.plain(), key.plain())?;
            more[1].add_product(block, scale, of_key.plain(), query.plain())?;
        }
        let [of_queries, of_keys] = more;
        if self.is_trained(pass, attention) {
            let device = qkv.device();
            let (mut keys, mut queries) = (Vec::new(), Vec::new());
            for window in pass.starts.windows(2) {
                let own = |matrix: &Matrix| matrix.row_range(window[0]..window[1]);
                let mut key = Output::new(&device, count, width);
                let mut query = Output::new(&device, count, width);
                for head in 0..attention.heads {
                    let [q, k] = columns(attention, head);
                    let block = q.clone();
                    let of_query = own(&of_head(&gradients.of_queries, head)?)?;
                    let of_key = own(&of_head(key_terms, head)?)?;
                    let (q, k) = (own(&qkv.column_range(q)?)?, own(&qkv.column_range(k)?)?);
                    key.add_product(block.clone(), scale, of_query.transposed(), q.plain())?;
                    query.add_product(block, scale, of_key.transposed(), k.plain())?;
                }
                keys.push(key.finish()?);
                queries.push(query.finish()?);
            }
            if let (Some(keys), Some(queries)) = (stack(&keys)?, stack(&queries)?) {
                self.backward_table(pass, attention, &saved.rows, (&queries, &keys), receiver)?;
            }
        }
        Ok([of_queries.finish()?, of_keys.finish()?])
    }

    /// Whether any parameter that determines the relative-position keys and queries is trainable.
    fn is_trained(&self, pass: &Pass, attention: &Attention) -> bool {
        let (query, key) = Self::layers(attention);
        let of_layers = query.parameters().chain(key.parameters());
        self.parameters().chain(of_layers).any(|id| pass.parameters.is_trainable(id))
    }

    /// Backpropagates the gradients of the rows' queries and keys, which are separate for each
    /// sequence, to the projections and the table.
    fn backward_table(
        &self,
        pass: &Pass,
        attention: &Attention,
        rows: &Range<usize>,
        (queries, keys): (&Matrix, &Matrix),
        receiver: &mut dyn Receiver,
    ) -> Result<()> {
        let quiet = Pass { dropout_seed: None, keep: true, panels: None, ..*pass };
        let sequences = pass.starts.len() - 1;
        let again: Vec<u32> =
            (0..sequences).flat_map(|_| rows.start as u32..rows.end as u32).collect();
        let lasts = pass.starts.windows(2).map(|window| (window[1] - 1) as u32);
        let tokens = lasts.flat_map(|last| std::iter::repeat_n(last, rows.len()));
        let tokens = Arc::new(tokens.collect::<Vec<u32>>());
        let stored = tensor::gather(pass.parameters.value(self.table), &again)?;
        let (embeddings, of_norm) = match &self.norm {
            Some(norm) => {
                let (embeddings, saved) = norm.forward(&quiet, &stored, None)?;
                (embeddings, Some(saved))
            }
            None => (stored, None),
        };
        let mut gradient = Output::new(&keys.device(), keys.rows(), embeddings.columns());
        let (query_layer, key_layer) = Self::layers(attention);
        for (layer, above) in [(query_layer, queries), (key_layer, keys)] {
            let saved = layer.forward(&quiet, &embeddings)?.1;
            let mut receiver = OfRows { rows: Some(tokens.clone()), receiver: &mut *receiver };
            layer.backward(&quiet, saved, above, Some(&mut gradient), &mut receiver)?;
        }
        let mut gradient = gradient.finish()?;
        if let (Some(norm), Some(saved)) = (&self.norm, of_norm) {
            let of_rows = Some(tokens.clone());
            gradient = norm.backward_of_rows(&quiet, saved, &gradient, of_rows, receiver)?;
        }
        if !pass.parameters.is_trainable(self.table) {
            return Ok(());
        }
        receiver.receive(Factor::Rows {
            parameter: self.table,
            indices: again,
            output_gradient: gradient,
            tokens: Some(tokens),
        })
    }

    /// The table and the parameters of its normalization.
    pub fn parameters(&self) -> impl Iterator<Item = ParameterId> {
        let norm = self.norm.iter().flat_map(|norm| [Some(norm.weight), norm.bias]).flatten();
        std::iter::once(self.table).chain(norm)
    }
}

/// Stacks matrices of the same shape vertically.
fn stack(parts: &[Matrix]) -> Result<Option<Matrix>> {
    let Some(first) = parts.first() else { return Ok(None) };
    let rows = first.rows();
    let indices = |i: usize| -> Vec<u32> { (i * rows..(i + 1) * rows).map(|r| r as u32).collect() };
    let mut all = tensor::scatter(first, &indices(0), parts.len() * rows)?;
    for (i, part) in parts.iter().enumerate().skip(1) {
        all = tensor::scatter_onto(all, part, &indices(i))?;
    }
    Ok(Some(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the dimensions of DeBERTa-v3; transformers 5.22.2:
    /// `make_log_bucket_position(torch.arange(512), 256, 512)`.
    #[test]
    fn distances_have_the_rows_that_transformers_gives_them() {
        let table = ParameterId(0);
        let layer = Disentangled { table, norm: None, span: 256, buckets: Some((256, 512)) };
        let row = |distance: usize| layer.row(distance, 0) - 256;
        assert!((0..129).all(|distance| row(distance) == distance));
        let firsts: Vec<usize> = (129..512).filter(|&d| row(d) != row(d - 1)).collect();
        assert_eq!(firsts.len(), 127);
        let some: Vec<usize> = firsts.iter().copied().step_by(16).collect();
        assert_eq!(some, [129, 153, 182, 216, 258, 307, 365, 434]);
        assert_eq!((row(511), row(2000)), (255, 255));
        assert!((0..512).all(|d| layer.row(0, d) == 256 - row(d)));
    }
}
