//! Weights of ANADP and AdaClip computed from the gradients of a *public* file.
//!
//! A copy of the model is fine-tuned on the first examples of the file, without noise, and then
//! discarded. Along the way, the gradients of the examples are observed, clipped in the same way as
//! in the run. A few steps are needed: while LoRA's B (or an adapter's second layer) is zero, its A
//! has no gradient, and ANADP's |g ω| of B itself is zero.
//!
//! The weights are a function of the public file, the pretrained model and the initial values of
//! new parameters. They do not depend on the training file, so they cost no privacy, and the ledger
//! lists the file as an assumption. They are the same in all steps: [`FixedWeights`].

use super::adaclip::SecondMoments;
use super::dp_sgd::DpSgd;
use super::fixed_weights::FixedWeights;
use super::importance::{Importance, ImportanceSettings};
use crate::data::{Batch, Dataset, Example};
use crate::error::{Error, Result};
use crate::gradient::{Clip, ClippedSum, Weights};
use crate::method::TrainingEvent;
use crate::model::Model;
use crate::noise::{Noise, Secret, purpose};
use crate::step::AllocationMethod;
use crate::step::{Cost, Learner, Protection, Step, StepSettings, optimizer};
use undertone_run::{AdaclipSection, ImportanceForm};

/// Number of public examples to observe, starting at the beginning of the file.
const EXAMPLES: usize = 512;
/// Number of examples per step on the copy of the model.
const BATCH: usize = 16;

/// The public examples, and the run for which weights are computed.
pub struct PublicGradients<'a> {
    /// The initial model of the run.
    pub model: &'a Model,
    pub examples: &'a Dataset,
    /// Gradient clipping of the run.
    pub clip: &'a Clip,
    /// The run's optimizer, used for the copy.
    pub optimizer: optimizer::Settings,
    /// The run's learning rate, used for the copy.
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
        self.walk(callback, &mut |learner, step, examples| {
            let sum = clipped_sum(learner, step, examples)?;
            let parameters = &learner.model.parameters;
            for (id, parameter) in parameters.iter().filter(|(_, parameter)| parameter.trainable) {
                let observed = importance.observe_raw(id, sum.get(id), &parameter.value);
                observed.map_err(crate::model::Error::from)?;
            }
            Ok(())
        })?;
        Ok(self.fixed(&importance.weights().unwrap_or_default()))
    }

    /// AdaClip's allocator: weights from the mean of g² over the public examples, using per-example
    /// gradients.
    pub fn adaclip(
        &self,
        settings: &AdaclipSection,
        callback: &mut dyn FnMut(TrainingEvent),
    ) -> Result<FixedWeights> {
        let form = settings.form.unwrap_or(ImportanceForm::Factored);
        let mut moments = SecondMoments::new(form, &self.model.parameters);
        self.walk(callback, &mut |learner, step, examples| {
            for example in examples.chunks(1) {
                let sum = clipped_sum(learner, step, example)?;
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

    /// Fine-tunes a copy of the model; `watch` is called with it and its examples before every
    /// step.
    fn walk(&self, callback: &mut dyn FnMut(TrainingEvent), watch: &mut Watch) -> Result<()> {
        let Self { examples: public, secret, .. } = self;
        if public.examples.is_empty() {
            return Err(Error::plan("the public file of importance has no examples"));
        }
        let copy = self.model.clone();
        let method = AllocationMethod::Proved(Box::new(DpSgd::new(self.clip, &copy.parameters)));
        // Public gradients need no noise; a separate key keeps the run's noise key out of here.
        let noise = Noise::with_key(&secret.key(purpose::PUBLIC_GRADIENTS));
        let mut learner = Learner::new(copy, self.optimizer, Some(Protection { method, noise }));
        let key = secret.key(purpose::PUBLIC_GRADIENTS);
        let all: Vec<usize> = (0..public.examples.len().min(EXAMPLES)).collect();
        for (step, chosen) in all.chunks(BATCH).enumerate() {
            let number = step as u64;
            let examples = match &public.masking {
                Some(masking) => masking.in_step(&public.examples, chosen, key, number),
                None => chosen.iter().map(|&i| public.examples[i].clone()).collect(),
            };
            let (divisor, learning_rate) = (chosen.len() as f64, self.learning_rate);
            let settings = StepSettings { number, noise_multiplier: 0.0, divisor, learning_rate };
            let step = learner.begin_step(settings)?;
            watch(&learner, &step, &examples)?;
            let sum = clipped_sum(&learner, &step, &examples)?;
            learner.release(sum, step, Cost::NonPrivate)?;
            let done = chosen.last().map_or(0, |last| last + 1);
            callback(TrainingEvent::PublicGradients { done, examples: all.len() });
        }
        Ok(())
    }
}

/// A callback that receives a learner, a step that has begun, and its examples.
type Watch<'a> = dyn FnMut(&Learner, &Step, &[Example]) -> Result<()> + 'a;

/// The sum of the clipped gradients of some examples.
fn clipped_sum(learner: &Learner, step: &Step, examples: &[Example]) -> Result<ClippedSum> {
    let mut sum = learner.empty_sum();
    learner.accumulate(step, &Batch::pack(examples), None, &mut sum)?;
    Ok(sum)
}
