//! Ghost clipping with book-keeping: keeps the factors of one backward pass and accumulates each
//! unit's squared gradient norm in each clipping group.

use super::clip::{Bounds, Clipped};
use super::groups::{ClippingGroups, ParameterGroups};
use super::kept_gradients::{Holding, KeepGradients, KeptGradients};
use super::second_pass::{ClippedUnits, prepare};
use super::sum::ClippedSum;
use super::unit::UnitRows;
use super::weights::Weights;
use crate::model::{Factor, ParameterId, Receiver};
use crate::tensor::unit_norms::{self as norms, UnitSums};
use crate::tensor::{CoordinateWeights, Matrix, Result};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Maximum number of vector-parameter factors that are formed together: small, since they keep
/// activations alive, and even, since a norm's weight and bias share a gradient.
const MOST_VECTORS: usize = 4;

/// Receives the factors of the backward pass over one batch, computes per-unit (per-example) norms
/// from them, and forms the clipped sum from what it keeps, without a second backward pass. For
/// small parameters it keeps the per-unit gradients, whose norms are then exact; for others it
/// keeps the factors, whose norms come from the ghost norm formula.
pub struct GhostClipping<'a> {
    units: UnitRows,
    groups: &'a ClippingGroups,
    /// Upper bounds on the squared norms, for each group and unit.
    squared: Vec<UnitSums>,
    /// Selects which gradients are kept, and the choice for each parameter whose factor has
    /// arrived.
    keep: KeepGradients,
    held: HashMap<ParameterId, Holding>,
    kept: Vec<Factor>,
    /// In a norms-only pass, the parameters whose factors were dropped; factors of tied parameters
    /// are kept.
    dropped: Option<HashSet<ParameterId>>,
    tied: Vec<ParameterId>,
    /// Consecutive matrix products with the same input and group. Their norms are computed
    /// together, since they share the input's Gram matrix.
    pending: Option<SharedInput>,
    /// Factors of vector parameters whose per-unit gradients will be formed together.
    pending_vectors: Vec<Factor>,
    kept_gradients: KeptGradients,
}

impl<'a> GhostClipping<'a> {
    /// Starts ghost clipping, without factors yet, for a batch with these units.
    pub fn new(units: UnitRows, groups: &'a ClippingGroups) -> Self {
        let squared = (0..groups.count()).map(|_| UnitSums::new(units.count())).collect();
        Self {
            units,
            groups,
            squared,
            keep: KeepGradients::default(),
            held: HashMap::new(),
            kept: Vec::new(),
            dropped: None,
            tied: Vec::new(),
            pending: None,
            pending_vectors: Vec::new(),
            kept_gradients: KeptGradients::default(),
        }
    }

    /// Changes which gradients are kept; by default, those of small parameters.
    pub fn keeping(self, keep: KeepGradients) -> Self {
        Self { keep, ..self }
    }

    /// Keeps gradients of small parameters and computes only the norms of the others. Their factors
    /// are dropped, except those of parameters that are used twice (`tied`), and are received again
    /// in a [second pass](ClippedUnits::second_pass) if there are any.
    pub fn of_norms(units: UnitRows, groups: &'a ClippingGroups, tied: Vec<ParameterId>) -> Self {
        Self { dropped: Some(HashSet::new()), tied, ..Self::new(units, groups) }
    }

    /// The squared norms, `[groups][units]`.
    pub fn squared_norms(&mut self) -> Result<Vec<Vec<f64>>> {
        self.compute_pending()?;
        self.form_vectors()?;
        self.kept_gradients.add_norms(self.groups, &mut self.squared)?;
        self.squared.iter_mut().map(UnitSums::computed).collect()
    }

    /// Computes the norms of the pending matrix products.
    fn compute_pending(&mut self) -> Result<()> {
        if let Some(SharedInput { group, input, ranges, output_gradients }) = self.pending.take() {
            self.squared[group].add_products(1.0, &input, &output_gradients, &ranges)?;
        }
        Ok(())
    }

    /// Clips every unit's gradient and adds the clipped gradients to `sum`.
    pub fn clip_and_sum(self, bounds: &Bounds, sum: &mut ClippedSum) -> Result<Clipped> {
        self.clip(bounds)?.sum(sum)
    }

    /// Computes the clipping factors of all units from their norms.
    pub fn clip(mut self, bounds: &Bounds) -> Result<ClippedUnits<'a>> {
        let (factors, clipped) = bounds.factors(&self.squared_norms()?);
        let Self { units, groups, kept, dropped, kept_gradients, .. } = self;
        let needs_second_pass = dropped.is_some_and(|dropped| !dropped.is_empty());
        let kept = if needs_second_pass { Vec::new() } else { kept };
        Ok(ClippedUnits {
            units,
            groups,
            kept,
            kept_gradients,
            needs_second_pass,
            factors,
            clipped,
        })
    }

    /// Keeps a factor for the sum, or drops it if it will be received again. A factor of a tied
    /// parameter is kept, since the norm has a cross term with the next factor.
    fn keep(&mut self, factor: Factor) -> Result<()> {
        let parameter = factor.parameter();
        match &mut self.dropped {
            Some(dropped) if !self.tied.contains(&parameter) => {
                if !dropped.insert(parameter) {
                    let problem = "a parameter is used twice, and its first use was not kept";
                    return Err(crate::tensor::Error::Unsupported(problem.into()));
                }
                // Flush deferred work, which would keep factors alive.
                self.squared.iter_mut().try_for_each(UnitSums::compute)
            }
            _ => {
                self.kept.push(factor);
                Ok(())
            }
        }
    }

    /// Adds the cross terms of a parameter that is used twice, such as a tied embedding: it has the
    /// gradient G = G₁ + G₂, and ‖G‖² contains the cross term 2⟨G₁, G₂⟩.
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

    /// Defers a factor of a vector parameter, so that several are formed together.
    fn add_vector(&mut self, factor: Factor) -> Result<()> {
        if self.pending_vectors.first().is_some_and(|first| first.tokens() != factor.tokens()) {
            self.form_vectors()?;
        }
        self.pending_vectors.push(factor);
        if self.pending_vectors.len() == MOST_VECTORS { self.form_vectors() } else { Ok(()) }
    }

    /// Forms each unit's gradient of the vector parameters, which is no larger than that of one
    /// token.
    fn form_vectors(&mut self) -> Result<()> {
        let pending = std::mem::take(&mut self.pending_vectors);
        let Some(first) = pending.first() else { return Ok(()) };
        let ranges = self.units.ranges(first.tokens());
        let sides: Vec<_> = pending
            .iter()
            .map(|factor| match factor {
                Factor::Sum { output_gradient, .. } => (None, output_gradient),
                Factor::Scale { input, output_gradient, .. } => (Some(input), output_gradient),
                Factor::Product { .. } | Factor::Rows { .. } => unreachable!("matrices"),
            })
            .collect();
        for (factor, rows) in pending.iter().zip(norms::row_sums(&sides, &ranges)?) {
            self.kept_gradients.add(factor.parameter(), rows)?;
        }
        Ok(())
    }

    /// Forms each unit's gradient of a parameter and keeps it.
    fn form(&mut self, factor: Factor) -> Result<()> {
        let ranges = self.units.ranges(factor.tokens());
        let gradients = match &factor {
            Factor::Sum { .. } | Factor::Scale { .. } => return self.add_vector(factor),
            Factor::Product { .. } => {
                let factor = factor.clone().rounded()?;
                let Some((left, right, ranges)) = sides(&self.units, &factor) else {
                    return Ok(());
                };
                norms::gradients(left, right, &ranges)?
            }
            Factor::Rows { indices, output_gradient, .. } => {
                // One table per unit, stacked vertically.
                let [rows, columns] = self.groups.shape(factor.parameter());
                let mut indices = indices.clone();
                for (unit, range) in ranges.iter().enumerate() {
                    let first = (unit * rows) as u32;
                    indices[range.clone()].iter_mut().for_each(|index| *index += first);
                }
                let tables =
                    crate::tensor::scatter(output_gradient, &indices, ranges.len() * rows)?;
                tables.reshape_to_columns(rows * columns)?
            }
        };
        self.kept_gradients.add(factor.parameter(), gradients)
    }

    /// Adds the norms of a matrix product or an embedding table with unweighted coordinates.
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

    /// Adds the norms of a matrix product or an embedding table with a weight for each coordinate:
    /// each unit's gradient is formed, one block at a time.
    fn add_formed_norms(&mut self, share: &ParameterGroups, factor: &Factor) -> Result<()> {
        let parts = share.parts();
        let weights: Vec<&CoordinateWeights> =
            parts.iter().filter_map(|part| part.weights.as_deref()).collect();
        match (sides(&self.units, factor), factor) {
            (Some((left, right, ranges)), _) => {
                // The parts of a parameter belong to different groups, each with its own sum.
                let mut onto: Vec<(&mut UnitSums, f64)> = Vec::new();
                for (group, sums) in self.squared.iter_mut().enumerate() {
                    let part = parts.iter().find(|part| part.group == group);
                    onto.extend(part.map(|part| (sums, part.scale)));
                }
                let mut order: Vec<usize> = (0..parts.len()).collect();
                order.sort_by_key(|&part| parts[part].group);
                let weights: Vec<_> = order.iter().map(|&part| weights[part]).collect();
                assert_eq!(onto.len(), weights.len(), "a group for each part");
                norms::add_weighted_products(&mut onto, left, right, &ranges, &weights)?;
            }
            (None, Factor::Rows { indices, output_gradient, .. }) => {
                let ranges = self.units.ranges(factor.tokens());
                for (part, weights) in parts.iter().zip(&weights) {
                    let table = (&indices[..], output_gradient);
                    self.squared[part.group]
                        .add_weighted_table(part.scale, table, &ranges, weights)?;
                }
            }
            _ => unreachable!("vectors are formed elsewhere"),
        }
        Ok(())
    }
}

impl Receiver for GhostClipping<'_> {
    fn receive(&mut self, factor: Factor) -> Result<()> {
        let groups = self.groups;
        let Some(share) = groups.of(factor.parameter()) else { return Ok(()) };
        let (parameter, keep) = (factor.parameter(), self.keep);
        let choice = || Holding::of(&factor, groups.shape(parameter), keep);
        if *self.held.entry(parameter).or_insert_with(choice) == Holding::KeptGradients {
            return self.form(factor);
        }
        let factor = prepare(share, factor)?;
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

/// The factor of w ⊙ G for an embedding table's gradient G: ⟨G, H⟩ under the weights w equals ⟨w ⊙
/// G, H⟩ without weights.
fn weigh_table(table: &Factor, weights: &CoordinateWeights) -> Result<Factor> {
    let Factor::Rows { parameter, indices, output_gradient, tokens } = table else {
        let problem = "only an embedding table can be tied if each of its coordinates has a weight of \
         its own; use factored weights";
        return Err(crate::tensor::Error::Unsupported(problem.into()));
    };
    let output_gradient = crate::tensor::weigh_rows(output_gradient, Some(indices), weights)?;
    let (indices, tokens) = (indices.clone(), tokens.clone());
    Ok(Factor::Rows { parameter: *parameter, indices, output_gradient, tokens })
}

/// Matrix products that share one input, such as those of queries, keys and values.
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

/// A matrix product as the pair (l, r) with gradient Σ_s l_s ⊗ r_s in the layout of the weight,
/// together with the rows of each unit.
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

/// For each unit, adds `times` the inner product ⟨G₁, G₂⟩ of the gradients of two uses of the same
/// parameter.
fn add_inner(
    sums: &mut UnitSums,
    times: f64,
    units: &UnitRows,
    first: &Factor,
    second: &Factor,
) -> Result<()> {
    let table = |factor: &Factor| units.ranges(factor.tokens());
    match (first, second) {
        (
            Factor::Rows { indices, output_gradient, .. },
            Factor::Rows { indices: second_indices, output_gradient: f, .. },
        ) => sums.add_table_with_table(
            times,
            (indices, output_gradient, &table(first)),
            (second_indices, f, &table(second)),
        ),
        (rows @ Factor::Rows { indices, output_gradient, .. }, product)
        | (product, rows @ Factor::Rows { indices, output_gradient, .. }) => {
            let Some((left, right, ranges)) = sides(units, product) else { return Ok(()) };
            let rows = table(rows);
            let table = (&indices[..], output_gradient, &rows[..]);
            sums.add_table_with_product(times, table, (left, right, &ranges))
        }
        _ => {
            let (Some((l, r, ranges)), Some((m, s, others))) =
                (sides(units, first), sides(units, second))
            else {
                return Ok(());
            };
            sums.add_inner_products(times, (r, l, &ranges), (s, m, &others))
        }
    }
}
