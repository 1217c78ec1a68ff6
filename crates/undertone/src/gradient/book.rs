//! The book of one backward pass: factors as they come, and each unit's squared norm in each group.

use super::clip::{Clip, Clipped};
use super::group::Groups;
use super::sum::ClippedSum;
use super::unit::UnitRows;
use crate::model::{Factor, ParameterId, Receiver};
use crate::tensor::unit_norms::{self as norms, inner_products, table_with_product, table_with_table};
use crate::tensor::{Matrix, Result};
use std::collections::HashMap;
use std::ops::Range;

/// Receives the factors of a backward pass over one batch.
pub struct Book<'a> {
    units: UnitRows,
    groups: &'a Groups,
    /// For each group and unit, an upper bound of the squared norm.
    squared: Vec<Vec<f64>>,
    kept: Vec<Factor>,
    /// Neighbouring products of one input and group, whose norms are computed together.
    waiting: Option<Waiting>,
    /// Gradients of vectors, one row for each unit: small enough to be formed.
    vectors: HashMap<ParameterId, Matrix>,
}

impl<'a> Book<'a> {
    /// An empty book for a batch with these units.
    pub fn new(units: UnitRows, groups: &'a Groups) -> Self {
        let squared = vec![vec![0.0; units.count()]; groups.count()];
        Self { units, groups, squared, kept: Vec::new(), waiting: None, vectors: HashMap::new() }
    }

    /// Squared norms, for each group and unit.
    pub fn squared_norms(&mut self) -> Result<&[Vec<f64>]> {
        self.settle()?;
        Ok(&self.squared)
    }

    /// Computes the norms of the products that wait.
    fn settle(&mut self) -> Result<()> {
        if let Some(Waiting { group, input, ranges, output_gradients }) = self.waiting.take() {
            let squared = norms::products(&input, &output_gradients, &ranges)?;
            self.enter(group, false, &squared);
        }
        Ok(())
    }

    /// Clips every unit and adds all of them to the sum.
    pub fn close(mut self, clip: &Clip, sum: &mut ClippedSum) -> Result<Clipped> {
        self.settle()?;
        let (factors, clipped) = clip.factors(&self.squared);
        for factor in self.kept {
            let Some(group) = self.groups.of(factor.parameter()) else { continue };
            let ranges = self.units.ranges(tokens(&factor));
            sum.add(&factor, &ranges, &factors[group])?;
        }
        for (parameter, rows) in self.vectors {
            let Some(group) = self.groups.of(parameter) else { continue };
            sum.add_vectors(parameter, &rows, &factors[group])?;
        }
        sum.count(&clipped);
        Ok(clipped)
    }

    fn enter(&mut self, group: usize, twice: bool, amounts: &[f64]) {
        let times = if twice { 2.0 } else { 1.0 };
        for (squared, amount) in self.squared[group].iter_mut().zip(amounts) {
            *squared += times * amount;
        }
    }

    /// A parameter that takes part twice, such as a tied embedding, has the gradient G₁ + G₂: ‖G₁ + G₂‖² has the term 2⟨G₁, G₂⟩.
    fn enter_with_earlier(&mut self, group: usize, factor: &Factor) -> Result<()> {
        let earlier = self.kept.iter().filter(|kept| kept.parameter() == factor.parameter());
        let mut amounts = Vec::new();
        for kept in earlier {
            amounts.push(inner(&self.units, kept, factor)?);
        }
        amounts.iter().for_each(|amounts| self.enter(group, true, amounts));
        Ok(())
    }

    /// A vector's gradients are formed, one row for each unit.
    fn enter_vectors(&mut self, group: usize, parameter: ParameterId, mut rows: Matrix) -> Result<()> {
        if let Some(earlier) = self.vectors.remove(&parameter) {
            let before = squared_rows(&earlier)?;
            rows = crate::tensor::add(&earlier, &rows)?;
            self.squared[group].iter_mut().zip(before).for_each(|(squared, before)| *squared -= before);
        }
        let after = squared_rows(&rows)?;
        self.enter(group, false, &after);
        self.vectors.insert(parameter, rows);
        Ok(())
    }
}

impl Receiver for Book<'_> {
    fn receive(&mut self, factor: Factor) -> Result<()> {
        let Some(group) = self.groups.of(factor.parameter()) else { return Ok(()) };
        let ranges = self.units.ranges(tokens(&factor));
        match &factor {
            Factor::Product { input, output_gradient, .. } => match &mut self.waiting {
                Some(waiting) if waiting.takes(group, input, &ranges) => {
                    waiting.output_gradients.push(output_gradient.clone());
                }
                _ => {
                    self.settle()?;
                    let output_gradients = vec![output_gradient.clone()];
                    self.waiting = Some(Waiting { group, input: input.clone(), ranges, output_gradients });
                }
            },
            Factor::Rows { indices, output_gradient, .. } => {
                let squared = norms::table_rows(indices, output_gradient, &ranges)?;
                self.enter(group, false, &squared);
            }
            Factor::Sum { parameter, output_gradient, .. } => {
                let rows = norms::row_sums(None, output_gradient, &ranges)?;
                return self.enter_vectors(group, *parameter, rows);
            }
            Factor::Scale { parameter, input, output_gradient, .. } => {
                let rows = norms::row_sums(Some(input), output_gradient, &ranges)?;
                return self.enter_vectors(group, *parameter, rows);
            }
        }
        self.enter_with_earlier(group, &factor)?;
        self.kept.push(factor);
        Ok(())
    }
}

/// Products whose inputs are the same, such as those of queries, keys and values.
struct Waiting {
    group: usize,
    input: Matrix,
    ranges: Vec<Range<usize>>,
    output_gradients: Vec<Matrix>,
}

impl Waiting {
    fn takes(&self, group: usize, input: &Matrix, ranges: &[Range<usize>]) -> bool {
        self.group == group && self.input.is_same(input) && self.ranges == ranges
    }
}

fn tokens(factor: &Factor) -> Option<&[u32]> {
    match factor {
        Factor::Product { tokens, .. } | Factor::Sum { tokens, .. } | Factor::Scale { tokens, .. } => {
            tokens.as_ref().map(|tokens| tokens.as_slice())
        }
        Factor::Rows { .. } => None,
    }
}

/// The squared length of each row, with room for the rounding of its numbers.
fn squared_rows(rows: &Matrix) -> Result<Vec<f64>> {
    let (columns, values) = (rows.columns(), rows.to_vec()?);
    let squared = |row: &[f32]| row.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() * (1.0 + 1e-6);
    Ok(values.chunks_exact(columns.max(1)).map(squared).collect())
}

/// A product as the pair (l, r) with gradient Σ_s l_s ⊗ r_s in the layout of the weight, and the rows of each unit.
fn sides<'f>(units: &UnitRows, factor: &'f Factor) -> Option<(&'f Matrix, &'f Matrix, Vec<Range<usize>>)> {
    let Factor::Product { input, output_gradient, inputs_first, .. } = factor else { return None };
    let ranges = units.ranges(tokens(factor));
    Some(if *inputs_first { (input, output_gradient, ranges) } else { (output_gradient, input, ranges) })
}

/// For each unit the inner product of the gradients of two uses of one parameter.
fn inner(units: &UnitRows, one: &Factor, other: &Factor) -> Result<Vec<f64>> {
    let table = |factor: &Factor| units.ranges(tokens(factor));
    match (one, other) {
        (
            Factor::Rows { indices, output_gradient, .. },
            Factor::Rows { indices: other_indices, output_gradient: f, .. },
        ) => table_with_table((indices, output_gradient, &table(one)), (other_indices, f, &table(other))),
        (Factor::Rows { indices, output_gradient, .. }, product)
        | (product, Factor::Rows { indices, output_gradient, .. }) => {
            let Some((left, right, ranges)) = sides(units, product) else {
                return Ok(vec![0.0; units.count()]);
            };
            let rows = units.ranges(None);
            table_with_product((indices, output_gradient, &rows), (left, right, &ranges))
        }
        _ => {
            let (Some((l, r, ranges)), Some((m, s, others))) = (sides(units, one), sides(units, other))
            else {
                return Ok(vec![0.0; units.count()]);
            };
            inner_products((r, l, &ranges), (s, m, &others))
        }
    }
}
