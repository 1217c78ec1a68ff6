//! The clipped sum over all ranks.

use super::clip::Clipped;
use super::sum::ClippedSum;
use crate::collective::{self, Ranks};
use crate::error::Result;
use crate::model::{self, Gradients, ParameterId, Parameters};
use crate::tensor::{self, Matrix};

impl ClippedSum {
    /// Replaces each rank's sum by the sum over all ranks, added in rank order. Afterward, the sums
    /// are bit-identical on all ranks.
    pub fn all_reduce(&mut self, ranks: &Ranks, parameters: &Parameters) -> Result<()> {
        if ranks.are_one() && ranks.gpus().is_none() {
            return Ok(());
        }
        all_reduce(self.gradients_mut(), ranks, parameters)?;
        self.all_reduce_beside(ranks, parameters)
    }

    /// Like [`Self::all_reduce`], but only for what accompanies the clipped gradients: the clipping
    /// statistics and the unclipped gradients. The clipped gradients themselves must then be
    /// [reduce-scattered](Self::reduce_scatter).
    pub fn all_reduce_beside(&mut self, ranks: &Ranks, parameters: &Parameters) -> Result<()> {
        if ranks.are_one() {
            return Ok(());
        }
        if let Some(unclipped) = self.unclipped_mut() {
            all_reduce(unclipped, ranks, parameters)?;
        }
        let of_rank = self.clipped().to_bytes();
        let mut all = Clipped::default();
        for bytes in ranks.all_gather(&of_rank)? {
            all.add(&Clipped::from_bytes(&bytes).ok_or_else(collective::Error::out_of_step)?);
        }
        self.set_clipped(all);
        Ok(())
    }
}

/// Sums gradients over all ranks. A rank without examples has none; a parameter without a gradient
/// on any rank is not connected to the loss and stays without one.
fn all_reduce(gradients: &mut Gradients, ranks: &Ranks, parameters: &Parameters) -> Result<()> {
    let trainable: Vec<ParameterId> =
        parameters.iter().filter(|(_, p)| p.trainable).map(|(id, _)| id).collect();
    let mut sums = gradients.take();
    let own: Vec<u8> = trainable.iter().map(|id| u8::from(sums[id.index()].is_some())).collect();
    let of_ranks = ranks.all_gather(&own)?;
    if of_ranks.iter().any(|of_rank| of_rank.len() != trainable.len()) {
        return Err(collective::Error::out_of_step().into());
    }
    let anywhere = |i: &usize| of_ranks.iter().any(|of_rank| of_rank[*i] == 1);
    let connected: Vec<ParameterId> =
        (0..trainable.len()).filter(anywhere).map(|i| trainable[i]).collect();
    if let Some(gpus) = ranks.gpus() {
        let own = connected.iter().map(|&id| match sums[id.index()].take() {
            Some(sum) => Ok(sum),
            None => parameters.get(id).value.zeros_like(),
        });
        let own = own.collect::<tensor::Result<Vec<Matrix>>>().map_err(model::Error::from)?;
        for (id, sum) in connected.into_iter().zip(gpus.all_reduce(&own)?) {
            gradients.add_matrix(id, sum).map_err(model::Error::from)?;
        }
        return Ok(());
    }
    let coordinates = connected.iter().map(|&id| parameters.get(id).len()).sum();
    let mut values: Vec<f32> = Vec::with_capacity(coordinates);
    for id in &connected {
        match sums[id.index()].take() {
            Some(sum) => values.extend(sum.to_vec().map_err(model::Error::from)?),
            None => values.resize(values.len() + parameters.get(*id).len(), 0.0),
        }
    }
    ranks.all_reduce(&mut values)?;
    let mut first = 0;
    for id in connected {
        let value = &parameters.get(id).value;
        let (rows, columns) = (value.rows(), value.columns());
        let sum = values[first..first + rows * columns].to_vec();
        first += rows * columns;
        let sum = Matrix::from_vec(rows, columns, sum).to_device(&value.device());
        let sum = sum.and_then(|sum| gradients.add_matrix(id, sum));
        sum.map_err(model::Error::from)?;
    }
    Ok(())
}
