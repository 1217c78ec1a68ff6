//! Ghost clipping with book-keeping: keeps the factors of one backward pass and adds up each unit's
//! squared gradient norm in each clipping group.

use super::clip::{Bounds, Clipped};
use super::groups::{ClippingGroups, ParameterGroups, Part};
use super::second_pass::{SecondPass, prepare};
use super::sum::ClippedSum;
use super::unit::UnitRows;
use super::weights::Weights;
use crate::model::{Factor, ParameterId, Receiver};
use crate::tensor::unit_norms::{self as norms, UnitSums};
use crate::tensor::{Matrix, Result};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Receives the factors of the backward pass over one batch, computes per-unit (per-example) norms
/// from them by the ghost norm formula, and forms the clipped sum from the kept factors, without a
/// second backward pass.
pub struct GhostClipping<'a> {
    units: UnitRows,
    groups: &'a ClippingGroups,
    /// For each group and unit an upper bound of the squared norm.
    squared: Vec<UnitSums>,
    kept: Vec<Factor>,
    /// In a pass for norms alone, parameters whose factors were dropped; those of tied ones are
    /// kept.
    dropped: Option<HashSet<ParameterId>>,
    tied: Vec<ParameterId>,
    /// Consecutive matrix products of the same input and group, whose norms are computed together:
    /// the input's Gram matrix is shared.
    pending: Option<SharedInput>,
    /// Per-unit gradients of vector parameters (biases, norm scales), `[units, coordinates]`.
    vectors: HashMap<ParameterId, Matrix>,
}

impl<'a> GhostClipping<'a> {
    /// Without factors yet, for a batch with these units.
    pub fn new(units: UnitRows, groups: &'a ClippingGroups) -> Self {
        let squared = (0..groups.count()).map(|_| UnitSums::new(units.count())).collect();
        Self {
            units,
            groups,
            squared,
            kept: Vec::new(),
            dropped: None,
            tied: Vec::new(),
            pending: None,
            vectors: HashMap::new(),
        }
    }

    /// For norms alone: factors are dropped, all but those of parameters that are used twice
    /// (`tied`), and come again in a [second pass](Self::second_pass).
    pub fn of_norms(units: UnitRows, groups: &'a ClippingGroups, tied: Vec<ParameterId>) -> Self {
        Self { dropped: Some(HashSet::new()), tied, ..Self::new(units, groups) }
    }

    /// The squared norms, `[groups][units]`.
    pub fn squared_norms(&mut self) -> Result<Vec<Vec<f64>>> {
        self.compute_pending()?;
        self.squared.iter_mut().map(UnitSums::computed).collect()
    }

    /// Computes the norms of the pending matrix products.
    fn compute_pending(&mut self) -> Result<()> {
        if let Some(SharedInput { group, input, ranges, output_gradients }) = self.pending.take() {
            self.squared[group].add_products(1.0, &input, &output_gradients, &ranges)?;
        }
        Ok(())
    }

    /// Clips every unit's gradient, and adds the clipped gradients to `sum`.
    pub fn clip_and_sum(mut self, bounds: &Bounds, sum: &mut ClippedSum) -> Result<Clipped> {
        let kept = std::mem::take(&mut self.kept);
        let (mut rest, clipped) = self.clip_and_sum_vectors(bounds, sum)?;
        kept.iter().try_for_each(|factor| rest.add(factor))?;
        Ok(clipped)
    }

    /// After a pass for [norms alone](Self::of_norms): clips every unit's gradient, and returns
    /// what adds the factors of a second backward pass to `sum`.
    pub fn second_pass<'s>(
        self,
        bounds: &Bounds,
        sum: &'s mut ClippedSum,
    ) -> Result<SecondPass<'a, 's>> {
        assert!(self.dropped.is_some(), "the factors of a first pass were kept");
        Ok(self.clip_and_sum_vectors(bounds, sum)?.0)
    }

    /// Adds the clipped gradients of vector parameters, which are kept in every pass.
    fn clip_and_sum_vectors<'s>(
        mut self,
        bounds: &Bounds,
        sum: &'s mut ClippedSum,
    ) -> Result<(SecondPass<'a, 's>, Clipped)> {
        let (factors, clipped) = bounds.factors(&self.squared_norms()?);
        let of_units: Vec<Range<usize>> =
            (0..self.units.count()).map(|unit| unit..unit + 1).collect();
        let mut together = vec![Vec::new(); factors.len()];
        for (&parameter, rows) in &self.vectors {
            match self.groups.of(parameter) {
                None => {}
                Some(ParameterGroups::Plain(group) | ParameterGroups::Weighted(group, _)) => {
                    together[*group].push((parameter, rows));
                }
                Some(ParameterGroups::Split(sides)) => {
                    let factor = ClippedSum::vectors(parameter, rows);
                    for (group, mask) in sides {
                        sum.add_masked(&factor, &of_units, &factors[*group], mask)?;
                    }
                }
            }
        }
        for (vectors, factors) in together.iter().zip(&factors) {
            sum.add_vectors(vectors, factors)?;
        }
        sum.count(&clipped);
        let Self { units, groups, .. } = self;
        Ok((SecondPass { units, groups, factors, sum }, clipped))
    }

    /// Keeps a factor for the sum, or drops it if it will come again. One of a tied parameter is
    /// kept, since the norm has a cross term with the next one.
    fn keep(&mut self, factor: Factor) -> Result<()> {
        let parameter = factor.parameter();
        match &mut self.dropped {
            Some(dropped) if !self.tied.contains(&parameter) => {
                if !dropped.insert(parameter) {
                    let told = "a parameter is used twice, and its first use was not kept";
                    return Err(crate::tensor::Error::Unsupported(told.into()));
                }
                // What is put off keeps factors alive.
                self.squared.iter_mut().try_for_each(UnitSums::compute)
            }
            _ => {
                self.kept.push(factor);
                Ok(())
            }
        }
    }

    /// A parameter that is used twice, such as a tied embedding, has the gradient G = G₁ + G₂, and
    /// ‖G‖² has the cross term 2⟨G₁, G₂⟩.
    fn add_cross_terms(&mut self, share: &ParameterGroups, factor: &Factor) -> Result<()> {
        let Self { units, squared, kept, .. } = self;
        for kept in kept.iter().filter(|kept| kept.parameter() == factor.parameter()) {
            match share {
                ParameterGroups::Plain(group) => {
                    add_inner(&mut squared[*group], 2.0, units, kept, factor)?;
                }
                ParameterGroups::Weighted(group, Weights::Factored { rows, columns }) => {
                    let scaled = |factor| Weights::scale_factor(rows, columns, factor);
                    let (kept, factor) = (scaled(kept)?, scaled(factor)?);
                    add_inner(&mut squared[*group], 2.0, units, &kept, &factor)?;
                }
                ParameterGroups::Weighted(_, Weights::Elements { .. })
                | ParameterGroups::Split(_) => {
                    let (table, other) = match kept {
                        Factor::Rows { .. } => (kept, factor),
                        _ => (factor, kept),
                    };
                    for part in share.parts() {
                        let Some(weights) = part.weights else { continue };
                        let table = weigh_table(table, &weights)?;
                        let sums = &mut squared[part.group];
                        add_inner(sums, 2.0 * part.scale, units, &table, other)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Vector parameters: each unit's gradient is formed, as it is no larger than one token's.
    fn add_vector_norms(
        &mut self,
        share: &ParameterGroups,
        parameter: ParameterId,
        mut rows: Matrix,
    ) -> Result<()> {
        let earlier = self.vectors.remove(&parameter);
        if let Some(earlier) = &earlier {
            rows = crate::tensor::add(earlier, &rows)?;
        }
        for Part { group, weights, scale } in share.parts() {
            let weights = weights.as_deref();
            if let Some(earlier) = &earlier {
                self.squared[group].add_squared_rows(-scale, earlier, weights)?;
            }
            self.squared[group].add_squared_rows(scale, &rows, weights)?;
        }
        self.vectors.insert(parameter, rows);
        Ok(())
    }

    /// A matrix product or an embedding table whose coordinates have no weights.
    fn add_plain_norms(&mut self, group: usize, factor: &Factor) -> Result<()> {
        let ranges = self.units.ranges(factor.tokens());
        match factor {
            Factor::Product { input, output_gradient, .. } => match &mut self.pending {
                Some(pending) if pending.takes(group, input, &ranges) => {
                    pending.output_gradients.push(output_gradient.clone());
                }
                _ => {
                    self.compute_pending()?;
                    let output_gradients = vec![output_gradient.clone()];
                    self.pending =
                        Some(SharedInput { group, input: input.clone(), ranges, output_gradients });
                }
            },
            Factor::Rows { indices, output_gradient, .. } => {
                self.squared[group].add_table(indices, output_gradient, &ranges)?;
            }
            Factor::Sum { .. } | Factor::Scale { .. } => unreachable!("vectors are formed"),
        }
        Ok(())
    }

    /// A matrix product or an embedding table with a weight for each coordinate: each unit's
    /// gradient is formed, one block at a time.
    fn add_formed_norms(&mut self, share: &ParameterGroups, factor: &Factor) -> Result<()> {
        let parts = share.parts();
        let weights: Vec<&[f32]> =
            parts.iter().filter_map(|part| part.weights.as_deref()).collect();
        match (sides(&self.units, factor), factor) {
            (Some((left, right, ranges)), _) => {
                let squared = norms::weighted_products(left, right, &ranges, &weights)?;
                for (part, squared) in parts.iter().zip(&squared) {
                    self.squared[part.group].add(part.scale, squared);
                }
            }
            (None, Factor::Rows { indices, output_gradient, .. }) => {
                let ranges = self.units.ranges(None);
                for (part, weights) in parts.iter().zip(&weights) {
                    let squared =
                        norms::weighted_table(indices, output_gradient, &ranges, weights)?;
                    self.squared[part.group].add(part.scale, &squared);
                }
            }
            _ => unreachable!("vectors are formed elsewhere"),
        }
        Ok(())
    }
}

impl Receiver for GhostClipping<'_> {
    fn receive(&mut self, mut factor: Factor) -> Result<()> {
        let groups = self.groups;
        let Some(share) = groups.of(factor.parameter()) else { return Ok(()) };
        factor = prepare(share, factor)?;
        let vectors = match &factor {
            Factor::Sum { parameter, output_gradient, .. } => {
                Some((*parameter, None, output_gradient))
            }
            Factor::Scale { parameter, input, output_gradient, .. } => {
                Some((*parameter, Some(input), output_gradient))
            }
            _ => None,
        };
        if let Some((parameter, input, output_gradient)) = vectors {
            let ranges = self.units.ranges(factor.tokens());
            let rows = norms::row_sums(input, output_gradient, &ranges)?;
            return self.add_vector_norms(share, parameter, rows);
        }
        match share {
            ParameterGroups::Plain(group) => self.add_plain_norms(*group, &factor)?,
            ParameterGroups::Weighted(group, Weights::Factored { rows, columns }) => {
                match &factor {
                    Factor::Product { input, output_gradient, inputs_first, .. } => {
                        let (inputs, outputs) =
                            if *inputs_first { (rows, columns) } else { (columns, rows) };
                        let ranges = self.units.ranges(factor.tokens());
                        let (a, e) = ((input, &inputs[..]), (output_gradient, &outputs[..]));
                        self.squared[*group].add_product_under(a, e, &ranges)?;
                    }
                    _ => self
                        .add_plain_norms(*group, &Weights::scale_factor(rows, columns, &factor)?)?,
                }
            }
            ParameterGroups::Weighted(_, Weights::Elements { .. }) | ParameterGroups::Split(_) => {
                self.add_formed_norms(share, &factor)?;
            }
        }
        self.add_cross_terms(share, &factor)?;
        self.keep(factor)
    }
}

/// The factor of w ⊙ G for an embedding table's gradient G: ⟨G, H⟩ under the weights w is ⟨w ⊙ G,
/// H⟩ without them.
fn weigh_table(table: &Factor, weights: &[f32]) -> Result<Factor> {
    let Factor::Rows { parameter, indices, output_gradient } = table else {
        let told = "only an embedding table can be tied if each of its coordinates has a weight of \
         its own; use factored weights";
        return Err(crate::tensor::Error::Unsupported(told.into()));
    };
    let columns = output_gradient.columns();
    let mut values = output_gradient.to_vec()?;
    for (row, &index) in values.chunks_exact_mut(columns.max(1)).zip(indices) {
        let weights = &weights[index as usize * columns..];
        row.iter_mut().zip(weights).for_each(|(x, w)| *x *= w);
    }
    let weighed = Matrix::from_vec(output_gradient.rows(), columns, values);
    let output_gradient = weighed.to_device(&output_gradient.device())?;
    Ok(Factor::Rows { parameter: *parameter, indices: indices.clone(), output_gradient })
}

/// Matrix products of one input, such as those of queries, keys and values.
struct SharedInput {
    group: usize,
    input: Matrix,
    ranges: Vec<Range<usize>>,
    output_gradients: Vec<Matrix>,
}

impl SharedInput {
    fn takes(&self, group: usize, input: &Matrix, ranges: &[Range<usize>]) -> bool {
        self.group == group && self.input.is_same(input) && self.ranges == ranges
    }
}

/// A matrix product as the pair (l, r) with gradient Σ_s l_s ⊗ r_s in the layout of the weight, and
/// the rows of each unit.
fn sides<'f>(
    units: &UnitRows,
    factor: &'f Factor,
) -> Option<(&'f Matrix, &'f Matrix, Vec<Range<usize>>)> {
    let Factor::Product { input, output_gradient, inputs_first, .. } = factor else { return None };
    let ranges = units.ranges(factor.tokens());
    Some(if *inputs_first {
        (input, output_gradient, ranges)
    } else {
        (output_gradient, input, ranges)
    })
}

/// Adds, for each unit, `times` the inner product ⟨G₁, G₂⟩ of the gradients of two uses of one
/// parameter.
fn add_inner(
    sums: &mut UnitSums,
    times: f64,
    units: &UnitRows,
    one: &Factor,
    other: &Factor,
) -> Result<()> {
    let table = |factor: &Factor| units.ranges(factor.tokens());
    match (one, other) {
        (
            Factor::Rows { indices, output_gradient, .. },
            Factor::Rows { indices: other_indices, output_gradient: f, .. },
        ) => sums.add_table_with_table(
            times,
            (indices, output_gradient, &table(one)),
            (other_indices, f, &table(other)),
        ),
        (Factor::Rows { indices, output_gradient, .. }, product)
        | (product, Factor::Rows { indices, output_gradient, .. }) => {
            let Some((left, right, ranges)) = sides(units, product) else { return Ok(()) };
            let rows = units.ranges(None);
            let table = (&indices[..], output_gradient, &rows[..]);
            sums.add_table_with_product(times, table, (left, right, &ranges))
        }
        _ => {
            let (Some((l, r, ranges)), Some((m, s, others))) =
                (sides(units, one), sides(units, other))
            else {
                return Ok(());
            };
            sums.add_inner_products(times, (r, l, &ranges), (s, m, &others))
        }
    }
}
