//! The provider's half: learning and predicting from releases. All of it is post-processing.

use super::super::RandomizedLabels;
use super::super::calibration::calibration;
use super::super::discriminant::discriminant;
use super::super::moments::{Known, Moments};
use super::super::prepare::set_trainable;
use crate::data::{Batch, Example, ShuffledEpochs, Target};
use crate::error::{Error, Result};
use crate::evaluate::{Limits, Meter, Metrics, predict};
use crate::model::folder::{LoadOptions, Reading, load, save};
use crate::model::layer::sanitizer;
use crate::model::sanitized::{SanitizerConfig, read_config, save_sanitizer, set};
use crate::model::{ForwardOptions, Model, Weighting};
use crate::noise::{Secret, purpose};
use crate::plan::{Method, Plan};
use crate::step::{Cost, Learner, StepSettings};
use crate::tensor::{Device, Host};
use std::path::Path;
use undertone_run::{LearnerKind, Releases, TrainingSection};

/// The releases of one epoch, with the labels received.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// The releases, concatenated.
    pub numbers: Vec<f32>,
    /// One label for each release.
    pub labels: Vec<u32>,
}

/// post(·), with the known parameters of the noise.
#[derive(Debug)]
pub struct ProviderHalf {
    model: Model,
    config: SanitizerConfig,
    releases: Releases,
    labels: Option<RandomizedLabels>,
    rows: usize,
    columns: usize,
}

impl ProviderHalf {
    /// Loads a folder written by [`Split::save_whole`](super::Split::save_whole) or
    /// [`ProviderHalf::save`].
    pub fn load(
        folder: &Path,
        releases: Releases,
        label_epsilon: Option<f64>,
        device: &Device,
    ) -> Result<Self> {
        let mut model = load(folder, &LoadOptions::default())?;
        let config = read_config(folder)?;
        let rows = config.as_ref().and_then(|config| config.rows.in_every_release());
        let (Some(config), Some(rows)) = (config, rows) else {
            return Err(Error::folder(folder, "has no sanitizer with releases of a fixed size"));
        };
        model.to_device(device)?;
        let hidden = model.network.head.width();
        let columns = model.network.sanitizer.as_ref().map_or(0, |layer| layer.width(hidden));
        let classes = model.network.head.out.outputs as u32;
        // The owners have the key; the provider only needs the probabilities.
        let unused = Secret::from_seed(0);
        let labels = label_epsilon.map(|epsilon| RandomizedLabels::new(&unused, epsilon, classes));
        Ok(Self { model, config, releases, labels, rows, columns })
    }

    /// Number of values in a release.
    pub fn width(&self) -> usize {
        self.rows * self.columns
    }

    /// The known noise of an epoch's releases.
    fn known(&self, epoch: usize) -> Known {
        let norm = f64::from(self.config.norm);
        let noise = &self.releases.noise_multipliers;
        let std = noise[epoch.min(noise.len() - 1)] * norm;
        let direction = |j: usize| self.config.direction.as_ref().map_or(1.0, |d| f64::from(d[j]));
        Known {
            variances: (0..self.columns).map(|j| (std * direction(j)).powi(2)).collect(),
            labels: self.labels.as_ref().map(RandomizedLabels::flipped),
        }
    }

    /// Moments of releases that arrive in chunks.
    fn moments(&self, chunks: &mut dyn Iterator<Item = Result<Received>>) -> Result<Moments> {
        let mut moments = Moments::new(self.columns, self.model.network.head.out.outputs);
        for chunk in chunks {
            let Received { numbers, labels } = chunk?;
            let classes: Vec<u32> =
                labels.iter().flat_map(|&class| std::iter::repeat_n(class, self.rows)).collect();
            if classes.is_empty() {
                continue;
            }
            let rows = Host::from_vec(classes.len(), self.columns, numbers);
            moments.add(&rows, &classes).map_err(crate::model::Error::from)?;
        }
        Ok(moments)
    }

    /// Fits the linear discriminant in closed form. The releases may come in chunks of any size and
    /// are not kept. Returns their number.
    pub fn fit(&mut self, chunks: &mut dyn Iterator<Item = Result<Received>>) -> Result<u64> {
        let moments = self.moments(chunks)?;
        let fitted = discriminant(&moments, &self.known(0));
        let out = self.model.network.head.out.clone();
        set(&mut self.model, out.weight, fitted.weights)?;
        if let Some(bias) = out.bias {
            set(&mut self.model, bias, fitted.bias)?;
        }
        Ok(moments.rows() as u64)
    }

    /// Learns by gradients: each epoch uses that epoch's releases, all of which `received` returns.
    /// Returns the number of releases in the last epoch.
    pub fn learn_by_gradients(
        mut self,
        plan: &Plan,
        received: &mut dyn FnMut(usize) -> Result<Received>,
    ) -> Result<(Self, u64)> {
        self.make_trainable(plan)?;
        let secret = Secret::from_system().map_err(Error::NoRandomness)?;
        let labels = self.labels.as_ref().map(RandomizedLabels::flipped);
        let mut learner = Learner::new(self.model.clone(), plan.optimizer(), None);
        let training = &plan.training;
        let mut count = 0;
        for epoch in 0..training.epochs as usize {
            let Received { numbers, labels: classes } = received(epoch)?;
            count = classes.len() as u64;
            if classes.is_empty() {
                continue;
            }
            self.calibrate(&mut learner.model, &numbers, &classes, epoch)?;
            let batch = (training.batch as usize).min(classes.len());
            let key = secret.key(purpose::SAMPLING);
            let mut order = ShuffledEpochs::new(classes.len(), batch, key)?;
            let per_epoch = classes.len().div_ceil(batch) as u64;
            for step in 0..per_epoch {
                let number = epoch as u64 * per_epoch + step;
                let chosen = order.step(number);
                let rate = learning_rate(training, number, per_epoch);
                let divisor = chosen.len() as f64;
                let settings =
                    StepSettings { number, noise_multiplier: 0.0, divisor, learning_rate: rate };
                let step = learner.begin_step(settings)?;
                let mut sum = learner.empty_sum();
                for piece in chosen.chunks(256) {
                    let (packed, rows) = self.packed(piece, &numbers, &classes);
                    let options = ForwardOptions {
                        dropout_seed: None,
                        noise: Some(&sanitizer::Received),
                        labels,
                    };
                    let model = &learner.model;
                    model.train_above(&packed, rows, Weighting::SumOfUnits, &options, &mut sum)?;
                }
                learner.release(sum, step, Cost::PostProcessing)?;
            }
        }
        self.model = learner.model;
        Ok((self, count))
    }

    /// Sets which parameters are trainable: those above the noise that the plan selects.
    fn make_trainable(&mut self, plan: &Plan) -> Result<()> {
        let Method::Local(local) = &plan.method else { return Ok(()) };
        self.model.apply_tuning(&plan.model.tuning, 0)?;
        let tuned: Vec<bool> = self.model.parameters.iter().map(|(_, p)| p.trainable).collect();
        set_trainable(&mut self.model, &tuned, false, local.settings.encoder);
        Ok(())
    }

    fn calibrate(
        &self,
        model: &mut Model,
        numbers: &[f32],
        classes: &[u32],
        epoch: usize,
    ) -> Result<()> {
        let layer = model.network.sanitizer.as_ref().and_then(|layer| layer.calibration.clone());
        let Some(layer) = layer else { return Ok(()) };
        let all = Received { numbers: numbers.to_vec(), labels: classes.to_vec() };
        let moments = self.moments(&mut std::iter::once(Ok(all)))?;
        let (weight, bias) = calibration(&moments, &self.known(epoch));
        set(model, layer.weight, weight)?;
        if let Some(id) = layer.bias {
            set(model, id, bias)?;
        }
        Ok(())
    }

    /// Packs some releases into a batch. The provider does not have the tokens, so they are
    /// placeholders.
    fn packed(&self, piece: &[usize], numbers: &[f32], classes: &[u32]) -> (Batch, Host) {
        let width = self.width();
        let of = |(unit, &i): (usize, &usize)| Example {
            tokens: vec![0],
            target: Target::Class(classes[i]),
            unit: unit as u32,
            ..Example::default()
        };
        let examples: Vec<Example> = piece.iter().enumerate().map(of).collect();
        let values: Vec<f32> =
            piece.iter().flat_map(|&i| numbers[i * width..(i + 1) * width].to_vec()).collect();
        let rows = Host::from_vec(piece.len() * self.rows, self.columns, values);
        (Batch::pack(&examples), rows)
    }

    /// The logits of releases, one row of class logits per release.
    pub fn logits(&self, numbers: Vec<f32>) -> Result<Vec<Vec<f32>>> {
        let released = Host::from_vec(numbers.len() / self.columns, self.columns, numbers);
        let logits = self.model.logits_of_released(released)?;
        let classes = logits.columns();
        let values = logits.to_vec().map_err(crate::model::Error::from)?;
        Ok(values.chunks_exact(classes.max(1)).map(<[f32]>::to_vec).collect())
    }

    /// Metrics on texts without noise, which are only available for a public file.
    pub fn evaluate(&self, examples: &[Example]) -> Result<Metrics> {
        let head = &self.model.network.head;
        let mut meter = Meter::new(head.task_head, head.out.outputs);
        let predictions = predict(&self.model, examples, Limits::default(), false)?;
        examples.iter().zip(&predictions).for_each(|(example, said)| meter.add(example, said));
        Ok(meter.metrics())
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Saves the trained model; the tokenizer is copied from the folder `origin`.
    pub fn save(&self, folder: &Path, origin: &Path) -> Result<()> {
        if let Some(name) = self.model.parameters.not_finite().map_err(crate::model::Error::from)? {
            return Err(Error::NotFinite(name.to_owned()));
        }
        std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
        save_sanitizer(&self.model, &self.config, folder)?;
        if let Some(reading) = Reading::of(origin)? {
            reading.save(folder)?;
        }
        Ok(save(&self.model, folder, Some(origin))?)
    }

    /// Whether a learner is fitted in closed form.
    pub fn is_closed_form(learn: LearnerKind) -> bool {
        learn == LearnerKind::Discriminant
    }
}

fn learning_rate(training: &TrainingSection, step: u64, per_epoch: u64) -> f64 {
    let steps = per_epoch * u64::from(training.epochs);
    let share = training.learning_rate_schedule.share(step, steps, training.warmup);
    training.learning_rate * share
}
