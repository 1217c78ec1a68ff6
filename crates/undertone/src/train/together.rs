//! Running on several ranks: which plans support it, joint counts, distributed evaluation, and the
//! check that all ranks have the same weights.

use super::steps::Run;
use super::tally::Tally;
use crate::collective::{self, Ranks};
use crate::error::{Error, Result};
use crate::evaluate::{Limits, Meter, Metrics, UnitValues, predict_on_ranks};
use crate::gradient::ClippedSum;
use crate::model;
use crate::plan::{Method, Plan};
use sha2::{Digest, Sha256};
use undertone_run::LearnerKind;

/// Rejects several ranks for work that each of them would merely duplicate.
pub(super) fn check_plan(plan: &Plan, ranks: &Ranks) -> Result<()> {
    if ranks.are_one() {
        return Ok(());
    }
    let problem = match &plan.method {
        Method::Local(local) if local.settings.learn == LearnerKind::Discriminant => {
            "a discriminant is fitted by one process: start a single one, or choose \
             privacy.local.learn = \"gradient\""
        }
        Method::Local(local) if local.adapt.is_some() => {
            "privacy.local.adapt runs in one process: start a single one, or omit it"
        }
        _ => return Ok(()),
    };
    Err(collective::Error::Refused(problem.to_owned()).into())
}

impl Run {
    /// Adds up the counts of all ranks, which must include each example of the sample exactly once.
    /// The sums themselves are reduced when they are released, except those that stay on the GPUs,
    /// which are reduced here.
    pub(super) fn add_up(
        &self,
        sum: &mut ClippedSum,
        tally: Tally,
        chosen: &[usize],
    ) -> Result<Tally> {
        let all = tally.of_all(&self.ranks, chosen.len())?;
        let (ranks, parameters) = (&self.ranks, &self.learner.model.parameters);
        match ranks.gpus() {
            Some(_) => sum.all_reduce(ranks, parameters)?,
            None => sum.all_reduce_beside(ranks, parameters)?,
        }
        Ok(all)
    }

    /// The names reported by all ranks. A rank without examples reports all names.
    pub(super) fn found_by_all(&self, own: Vec<String>) -> Result<Vec<String>> {
        if self.ranks.are_one() {
            return Ok(own);
        }
        let damaged = |_| collective::Error::out_of_step();
        let mut common = own.clone();
        for bytes in self.ranks.all_gather(&serde_json::to_vec(&own).map_err(damaged)?)? {
            let names: Vec<String> = serde_json::from_slice(&bytes).map_err(damaged)?;
            common.retain(|name| names.contains(name));
        }
        Ok(common)
    }

    /// Refuses to continue if a rank's weights differ from those of rank 0, for example because its
    /// processor computes different results. Each rank's gradients are based on its own weights.
    pub(super) fn check_that_weights_agree(&self) -> Result<()> {
        if self.ranks.are_one() {
            return Ok(());
        }
        let mut hash = Sha256::new();
        for id in self.learner.trainable() {
            let values = self.learner.model.parameters.value(id).to_vec();
            let values = values.map_err(model::Error::from)?;
            hash.update(bytemuck::cast_slice::<f32, u8>(&values));
        }
        let all = self.ranks.all_gather(&hash.finalize())?;
        match all.iter().position(|own| *own != all[0]) {
            None => Ok(()),
            Some(rank) => Err(collective::Error::System(format!(
                "after step {} the weights of rank {rank} are not those of rank 0: its machine \
                 computes differently",
                self.done
            ))
            .into()),
        }
    }

    /// Metrics of the model on the validation file, and the values of its units. Each rank predicts
    /// some of the batches; all ranks get the same metrics as a single process would.
    pub(super) fn metrics_of_validation(&self) -> Result<Option<(Metrics, UnitValues)>> {
        let Some(validation) = &self.validation else { return Ok(None) };
        let model = &self.learner.model;
        let head = &model.network.head;
        let mut meter = Meter::new(head.task_head, head.out.outputs);
        let mut values = UnitValues::new(head.task_head);
        for examples in validation.for_evaluation().chunks(1024) {
            let predictions =
                predict_on_ranks(&self.ranks, model, examples, Limits::default(), false)?;
            for (example, prediction) in examples.iter().zip(&predictions) {
                meter.add(example, prediction);
                values.add(example, prediction);
            }
        }
        Ok(Some((meter.metrics(), values)))
    }
}

/// Sends a value from rank 0 to all ranks, as JSON.
pub(super) fn shared<T: serde::Serialize + serde::de::DeserializeOwned>(
    ranks: &Ranks,
    of_first: impl FnOnce() -> Result<T>,
) -> Result<T> {
    if ranks.are_one() {
        return of_first();
    }
    let damaged = |_| Error::Ranks(collective::Error::out_of_step());
    if ranks.is_first() {
        let own = of_first()?;
        ranks.broadcast(serde_json::to_vec(&own).map_err(damaged)?)?;
        return Ok(own);
    }
    serde_json::from_slice(&ranks.broadcast(Vec::new())?).map_err(damaged)
}
