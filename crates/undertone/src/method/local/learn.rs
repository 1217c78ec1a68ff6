//! Training on perturbed embeddings.

use super::calibration::calibration;
use super::discriminant::discriminant;
use super::moments::{Known, Moments};
use super::prepare::Perturbation;
use crate::data::{Batch, Example, Target, micro_batches_in_order};
use crate::gradient::ClippedSum;
use crate::method::MicroBatch;
use crate::model::sanitized::set;
use crate::model::{ForwardOptions, Model, Result, Weighting};
use crate::tensor::Host;
use undertone_run::LearnerKind;

/// Norm-bounded embeddings of examples before noise. With all layers below the noise frozen, they
/// do not change, so they are computed once.
#[derive(Debug, Default)]
pub struct Cache {
    rows: Vec<Option<Box<[f32]>>>,
    bytes: usize,
}

/// Number of examples whose embeddings are computed in one forward pass.
const SEQUENCES: usize = 16;

/// Maximum memory of a [`Cache`].
const MOST_BYTES: usize = 2 << 30;

impl Cache {
    /// The norm-bounded rows of a micro-batch, either cached or computed.
    fn rows(&mut self, model: &Model, piece: &[usize], batch: &Batch) -> Result<Host> {
        let largest = piece.iter().copied().max().unwrap_or(0);
        if self.rows.len() <= largest {
            self.rows.resize(largest + 1, None);
        }
        if piece.iter().all(|&i| self.rows[i].is_some()) {
            let columns = model
                .network
                .sanitizer
                .as_ref()
                .map_or(0, |layer| layer.width(model.network.head.width()));
            let values: Vec<f32> =
                piece.iter().filter_map(|&i| self.rows[i].as_deref()).flatten().copied().collect();
            return Ok(Host::from_vec(values.len() / columns.max(1), columns, values));
        }
        let (rows, starts) = model.bounded_rows(batch)?;
        let columns = rows.columns();
        let dense = rows.dense();
        for (&i, window) in piece.iter().zip(starts.windows(2)) {
            let bytes = 4 * columns * (window[1] - window[0]);
            if self.rows[i].is_none() && self.bytes + bytes <= MOST_BYTES {
                self.rows[i] = Some(dense[window[0] * columns..window[1] * columns].into());
                self.bytes += bytes;
            }
        }
        drop(dense);
        Ok(rows)
    }
}

impl Perturbation {
    /// The known noise of an epoch's releases.
    fn known(&self, epoch: usize, width: usize) -> Known {
        let std = self.stds[epoch.min(self.stds.len() - 1)];
        let of_column = |j: usize| self.config.direction.as_ref().map_or(1.0, |d| f64::from(d[j]));
        Known {
            variances: (0..width).map(|j| (std * of_column(j)).powi(2)).collect(),
            labels: self.labels.as_ref().map(|labels| labels.flipped()),
        }
    }

    /// Moments of the releases of all examples in an epoch.
    fn moments(
        &self,
        model: &Model,
        examples: &[Example],
        cache: &mut Cache,
        epoch: usize,
    ) -> Result<Moments> {
        let classes = model.network.head.out.outputs;
        let mut moments: Option<Moments> = None;
        let all: Vec<usize> = (0..examples.len()).collect();
        for piece in micro_batches_in_order(&all, SEQUENCES) {
            let batch = Batch::pack(piece.iter().map(|&i| &examples[i]));
            let bounded = cache.rows(model, &piece, &batch)?;
            let Some(layer) = &model.network.sanitizer else { break };
            let indices: Vec<u64> = piece.iter().map(|&i| i as u64).collect();
            let starts = layer.starts(&batch.starts);
            let released = layer.released(bounded, &starts, Some(&self.noise.of(&indices, epoch)));
            let of_rows = |(target, window): (&Target, &[usize])| {
                let class = if let Target::Class(class) = target { *class } else { 0 };
                vec![class; window[1] - window[0]]
            };
            let labels: Vec<u32> =
                batch.targets.iter().zip(starts.windows(2)).flat_map(of_rows).collect();
            moments
                .get_or_insert_with(|| Moments::new(released.columns(), classes))
                .add(&released, &labels)?;
        }
        Ok(moments.unwrap_or_else(|| Moments::new(1, classes)))
    }

    /// Fits the linear discriminant in closed form.
    pub fn fit(&self, model: &mut Model, examples: &[Example], cache: &mut Cache) -> Result<()> {
        let moments = self.moments(model, examples, cache, 0)?;
        let fitted = discriminant(&moments, &self.known(0, moments.width()));
        let out = model.network.head.out.clone();
        set(model, out.weight, fitted.weights)?;
        if let Some(bias) = out.bias {
            set(model, bias, fitted.bias)?;
        }
        Ok(())
    }

    /// Sets the calibration, which maps noisy rows to estimates of clean ones, before an epoch of
    /// gradient training.
    pub fn calibrate(
        &self,
        model: &mut Model,
        examples: &[Example],
        cache: &mut Cache,
        epoch: usize,
    ) -> Result<()> {
        let Some(layer) =
            model.network.sanitizer.as_ref().and_then(|layer| layer.calibration.clone())
        else {
            return Ok(());
        };
        let moments = self.moments(model, examples, cache, epoch)?;
        let (weight, bias) = calibration(&moments, &self.known(epoch, moments.width()));
        set(model, layer.weight, weight)?;
        if let Some(id) = layer.bias {
            set(model, id, bias)?;
        }
        Ok(())
    }

    /// Adds the gradients of a micro-batch to the sum and returns the loss of each example.
    pub fn accumulate(
        &self,
        model: &Model,
        batch: &MicroBatch,
        cache: Option<&mut Cache>,
        sum: &mut ClippedSum,
    ) -> Result<Vec<f32>> {
        let packed = Batch::pack(batch.indices.iter().map(|&i| &batch.examples[i]));
        let indices: Vec<u64> = batch.indices.iter().map(|&i| i as u64).collect();
        let noise = self.noise.of(&indices, batch.epoch);
        // Plain learning uses the randomized labels directly, as published.
        let corrects = self.learn != LearnerKind::Plain;
        let labels = self.labels.as_ref().filter(|_| corrects).map(|labels| labels.flipped());
        let options =
            ForwardOptions { dropout_seed: batch.dropout_seed, noise: Some(&noise), labels };
        let losses = match cache {
            Some(cache) => {
                let bounded = cache.rows(model, batch.indices, &packed)?;
                model.train_above(&packed, bounded, Weighting::SumOfUnits, &options, sum)?
            }
            None => model.train_with(&packed, Weighting::SumOfUnits, &options, sum)?,
        };
        losses.by_example()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::local::{EmbeddingNoise, RandomizedLabels};
    use crate::model::TaskHead;
    use crate::model::architecture::{Architecture, Dimensions};
    use crate::model::layer::sanitizer::{Bounding, NoiseLayer, Rows};
    use crate::model::sanitized::{SanitizerConfig, attach};
    use crate::noise::Secret;
    use undertone_run::{PerturbationFacts, ReleaseKind};

    /// As published, randomized labels are used directly; other learners take into account how
    /// often a label is wrong.
    #[test]
    fn plain_learning_does_not_correct_for_flipped_labels() {
        let dimensions = Dimensions {
            layers: 1,
            hidden: 16,
            heads: 4,
            inner: 8,
            vocabulary: 20,
            positions: 20,
            key_heads: None,
        };
        let labels = ["a".to_owned(), "b".to_owned()];
        let mut model = Architecture::Bert
            .random(dimensions, TaskHead::SequenceClassification, &labels, 5)
            .unwrap();
        let config = SanitizerConfig {
            noise_layer: NoiseLayer::Output,
            rows: Rows::First,
            dims: Vec::new(),
            activation: None,
            centered: false,
            decoded: true,
            squash: None,
            bounding: Bounding::Normalize,
            norm: 1.0,
            direction: None,
            calibrated: false,
            noise_std: 0.1,
        };
        attach(&mut model, &config).unwrap();
        let examples: Vec<Example> = (0..4)
            .map(|i| Example {
                tokens: vec![1, 2 + i, 3],
                target: Target::Class(i % 2),
                unit: i,
                ..Example::default()
            })
            .collect();
        let losses = |learn: LearnerKind, flipped: bool| {
            let secret = Secret::from_seed(1);
            let perturbation = Perturbation {
                noise: EmbeddingNoise::new(&secret, ReleaseKind::Once, vec![0.1]),
                labels: flipped.then(|| RandomizedLabels::new(&secret, 0.5, 2)),
                config: config.clone(),
                learn,
                stds: vec![0.1],
                facts: PerturbationFacts::default(),
            };
            let batch = MicroBatch {
                indices: &[0, 1, 2, 3],
                examples: &examples,
                epoch: 0,
                dropout_seed: None,
            };
            let mut sum = ClippedSum::new(&model.parameters);
            perturbation.accumulate(&model, &batch, None, &mut sum).unwrap()
        };
        let plain = losses(LearnerKind::Plain, true);
        assert_eq!(plain, losses(LearnerKind::Plain, false));
        assert_ne!(plain, losses(LearnerKind::Gradient, true));
    }
}
