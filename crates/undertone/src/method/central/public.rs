//! Weights of ANADP and AdaClip from the gradients of a *public* file.
//!
//! A copy of the model is fine-tuned on the first examples of the file, without noise, and thrown
//! away; along the way the gradients of the examples are looked at, clipped as those of the run
//! are. A few steps are needed: while LoRA's B (or an adapter's second layer) is zero, its A has no
//! gradient, and ANADP's |g ω| of B itself is zero.
//!
//! The weights are a function of the public file, of the pretrained model and of the initial values
//! of new parameters. They do not depend on the training file, so they cost no privacy, and the
//! ledger names the file as an assumption. They stay the same in all steps: [`FixedWeights`].

use super::adaclip::SecondMoments;
use super::allocation::AllocationMethod;
use super::dp_sgd::DpSgd;
use super::fixed_weights::FixedWeights;
use super::importance::{Importance, ImportanceSettings};
use crate::data::{Batch, Dataset, Example};
use crate::error::{Error, Result};
use crate::gradient::{Clip, ClippedSum, Weights};
use crate::model::Model;
use crate::noise::{Noise, Secret, purpose};
use crate::train::{Learner, Protection, Step, TrainingEvent, optimiser};
use undertone_run::{AdaclipSection, ImportanceForm};

/// Number of public examples that are looked at, from the first of the file on.
const EXAMPLES: usize = 512;
/// Number of examples of a step on the copy of the model.
const BATCH: usize = 16;

/// The public examples, and the run that weights are computed for.
pub struct PublicGradients<'a> {
    /// The model that the run begins from.
    pub model: &'a Model,
    pub examples: &'a Dataset,
    /// Clipping of the run.
    pub clip: &'a Clip,
    /// The run's optimiser, for the copy.
    pub optimiser: optimiser::Settings,
    /// The run's learning rate, for the copy.
    pub learning_rate: f64,
    pub secret: &'a Secret,
}

impl PublicGradients<'_> {
    /// ANADP's allocator: equations 3 to 7 on the public batches.
    pub fn anadp(
        &self,
        settings: ImportanceSettings,
        callback: &mut dyn FnMut(TrainingEvent),
    ) -> Result<FixedWeights> {
        let mut importance = Importance::new(settings, &self.model.parameters);
        self.walk(callback, &mut |learner, examples| {
            let sum = clipped_sum(learner, examples)?;
            let parameters = &learner.model.parameters;
            for (id, parameter) in parameters.iter().filter(|(_, one)| one.trainable) {
                let found = importance.observe_raw(id, sum.get(id), &parameter.value);
                found.map_err(crate::model::Error::from)?;
            }
            Ok(())
        })?;
        Ok(self.fixed(&importance.weights().unwrap_or_default()))
    }

    /// AdaClip's allocator: weights from the mean of g² over the public examples, each with the
    /// gradient of its own.
    pub fn adaclip(
        &self,
        settings: &AdaclipSection,
        callback: &mut dyn FnMut(TrainingEvent),
    ) -> Result<FixedWeights> {
        let form = settings.form.unwrap_or(ImportanceForm::Factored);
        let mut moments = SecondMoments::new(form, &self.model.parameters);
        self.walk(callback, &mut |learner, examples| {
            for example in examples.chunks(1) {
                let sum = clipped_sum(learner, example)?;
                let seen = moments.observe(&sum, &learner.model.parameters);
                seen.map_err(crate::model::Error::from)?;
            }
            Ok(())
        })?;
        Ok(self.fixed(&moments.weights(settings).unwrap_or_default()))
    }

    fn fixed(&self, weights: &[Option<Weights>]) -> FixedWeights {
        FixedWeights::new(self.clip, weights, &self.model.parameters)
    }

    /// Fine-tunes a copy of the model; `watch` sees it and its examples before every step.
    fn walk(
        &self,
        callback: &mut dyn FnMut(TrainingEvent),
        watch: &mut dyn FnMut(&Learner, &[Example]) -> Result<()>,
    ) -> Result<()> {
        let Self { examples: public, secret, .. } = self;
        if public.examples.is_empty() {
            return Err(Error::plan("the public file of importance has no examples"));
        }
        let copy = self.model.clone();
        let method = AllocationMethod::Proved(Box::new(DpSgd::new(self.clip, &copy.parameters)));
        // Public gradients need no noise; a key of its own keeps that of the run out of here.
        let noise = Noise::with_key(&secret.key(purpose::PUBLIC_GRADIENTS));
        let mut learner = Learner::new(copy, self.optimiser, Some(Protection { method, noise }));
        let key = secret.key(purpose::PUBLIC_GRADIENTS);
        let all: Vec<usize> = (0..public.examples.len().min(EXAMPLES)).collect();
        for (step, chosen) in all.chunks(BATCH).enumerate() {
            let number = step as u64;
            let examples = match &public.masking {
                Some(masking) => masking.in_step(&public.examples, chosen, key, number),
                None => chosen.iter().map(|&i| public.examples[i].clone()).collect(),
            };
            watch(&learner, &examples)?;
            let sum = clipped_sum(&learner, &examples)?;
            let (divisor, learning_rate) = (chosen.len() as f64, self.learning_rate);
            let step = Step { number, noise_multiplier: 0.0, divisor, learning_rate };
            learner.update(sum, &step)?;
            let done = chosen.last().map_or(0, |last| last + 1);
            callback(TrainingEvent::PublicGradients { done, examples: all.len() });
        }
        Ok(())
    }
}

/// The sum of the clipped gradients of some examples.
fn clipped_sum(learner: &Learner, examples: &[Example]) -> Result<ClippedSum> {
    let mut sum = learner.empty_sum();
    learner.accumulate(&Batch::pack(examples), None, &mut sum)?;
    Ok(sum)
}
