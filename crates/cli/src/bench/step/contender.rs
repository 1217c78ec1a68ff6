//! A learner to be timed.

use super::{Kind, StepBench};
use crate::failure::{Failure, Outcome};
use clap::ValueEnum;
use std::time::Instant;
use undertone::data::Batch;
use undertone::gradient::Clip;
use undertone::method::central::{
    Anadp, DpSgd, ImportanceForm, ImportanceSettings, PublishedAnadp, RapFt, ReleasedRelevanceMap,
    RelevanceMap,
};
use undertone::method::local::EmbeddingNoise;
use undertone::model::layer::sanitizer::{Bounding, NoiseLayer, Rows, Sanitizer};
use undertone::model::sanitized::rows_alone;
use undertone::model::{ForwardOptions, Model, Parameters, Weighting};
use undertone::noise::{Noise, Secret};
use undertone::step::AllocationMethod::{self, Proved, Published};
use undertone::step::optimizer::Settings;
use undertone::step::{Cost, Learner, Protection, StepSettings};
use undertone::tensor::Host;
use undertone_run::ReleaseKind;

#[derive(Clone, Copy, ValueEnum)]
pub enum Method {
    /// Non-private: no clipping, no noise
    None,
    /// DP-SGD: per-example clipping, Gaussian noise
    DpSgd,
    /// DP-SGD with per-layer clipping
    DpSgdPerLayer,
    /// ANADP: noise by importance, in the default form for the trainable parameters
    Anadp,
    /// ANADP with element-wise importance
    AnadpElement,
    /// ANADP as published, with element-wise importance
    AnadpPaper,
    /// Rap-FT: two groups by relevance, with an arbitrary mask, which does not affect the time
    RapFt,
    /// DP-Forward as published: normalizes and perturbs token embeddings after `--after` blocks,
    /// trains all parameters
    DpForwardPaper,
    /// DP-Forward with the layers below the noise frozen
    DpForward,
    /// DP-Forward with the frozen layers computed once, before timing starts
    DpForwardCached,
}

impl Method {
    fn is_local(self) -> bool {
        matches!(self, Method::DpForwardPaper | Method::DpForward | Method::DpForwardCached)
    }
}

pub struct Contender {
    learner: Learner,
    method: Method,
    noise: EmbeddingNoise,
    /// The output below the noise, computed once.
    rows: Option<Host>,
}

impl Contender {
    pub fn new(bench: &StepBench, method: Method, batch: &Batch) -> Result<Self, Failure> {
        let mut model = bench.model()?;
        if method.is_local() || bench.after.is_some() {
            cut(bench, method, &mut model)?;
        }
        model.to_device(&bench.device.device()?)?;
        if matches!(bench.tuning, Kind::Lora | Kind::Adapter) {
            model.round_frozen()?;
        }
        model.recompute = bench.recompute;
        let protection = allocator(bench, method, &model.parameters)
            .map(|method| Protection { method, noise: Noise::new(&Secret::from_seed(1)) });
        let learner = Learner::new(model, Settings::default(), protection);
        let noise = EmbeddingNoise::new(&Secret::from_seed(1), ReleaseKind::Once, vec![1.0]);
        let rows = match method {
            Method::DpForwardCached => Some(learner.model.bounded_rows(batch)?.0),
            _ => None,
        };
        Ok(Self { learner, method, noise, rows })
    }

    /// Duration of one step in milliseconds.
    pub fn step(&mut self, batch: &Batch, number: u64, update: bool) -> Result<f64, Failure> {
        let Self { learner, method, noise, rows } = self;
        let units = batch.sequences();
        let indices: Vec<u64> = (0..units as u64).collect();
        let noise = noise.of(&indices, 0);
        let options = ForwardOptions { noise: Some(&noise), ..ForwardOptions::default() };
        let start = Instant::now();
        let divisor = units as f64;
        let mut begun = learner.begin_step(StepSettings {
            number,
            noise_multiplier: 1.0,
            divisor,
            learning_rate: 1e-6,
        })?;
        let mut sum = learner.empty_sum();
        match (rows, method.is_local()) {
            (Some(rows), _) => {
                let model = &learner.model;
                model.train_above(
                    batch,
                    rows.clone(),
                    Weighting::SumOfUnits,
                    &options,
                    &mut sum,
                )?;
            }
            (None, true) => {
                learner.model.train_with(batch, Weighting::SumOfUnits, &options, &mut sum)?;
            }
            (None, false) => {
                learner.accumulate(&begun, batch, None, &mut sum)?;
            }
        }
        if update {
            learner.observe_raw(&sum, &mut begun)?;
            learner.release(sum, begun, Cost::NonPrivate)?;
        }
        learner.model.device().synchronize().map_err(undertone::model::Error::from)?;
        Ok(1e3 * start.elapsed().as_secs_f64())
    }

    /// GPU memory in use, in bytes; `None` on the CPU.
    pub fn device_memory(&self) -> Option<u64> {
        self.learner.model.device().memory_in_use()
    }
}

/// The clipping and noise of methods that perturb gradients.
fn allocator(
    bench: &StepBench,
    method: Method,
    parameters: &Parameters,
) -> Option<AllocationMethod> {
    let form = if matches!(bench.tuning, Kind::Full) {
        ImportanceForm::Factored
    } else {
        ImportanceForm::Element
    };
    match method {
        Method::None | Method::DpForwardPaper | Method::DpForward | Method::DpForwardCached => None,
        Method::DpSgd => Some(Proved(Box::new(DpSgd::new(&Clip::Automatic, parameters)))),
        Method::DpSgdPerLayer => {
            Some(Proved(Box::new(DpSgd::new(&Clip::PerLayer(1.0), parameters))))
        }
        Method::Anadp => Some(Proved(Box::new(Anadp::new(
            &Clip::Automatic,
            ImportanceSettings::usual(form),
            parameters,
        )))),
        Method::AnadpElement => Some(Proved(Box::new(Anadp::new(
            &Clip::Automatic,
            ImportanceSettings::usual(ImportanceForm::Element),
            parameters,
        )))),
        Method::RapFt => {
            let odd = |i: usize| (i as f32 * 0.618).fract();
            let of = parameters.iter().map(|(_, p)| match p.trainable {
                true => (0..p.len()).map(odd).collect(),
                false => Vec::new(),
            });
            let map = ReleasedRelevanceMap::of_public(RelevanceMap { of: of.collect() });
            Some(Proved(Box::new(RapFt::new(&Clip::Automatic, &map, 0.7, parameters))))
        }
        Method::AnadpPaper => {
            let settings = ImportanceSettings::usual(ImportanceForm::Element);
            Some(Published(Box::new(PublishedAnadp::new(&Clip::Automatic, settings, parameters))))
        }
    }
}

/// Freezes the layers below the cut, unless everything is trained, and adds the noise there.
fn cut(bench: &StepBench, method: Method, model: &mut Model) -> Outcome {
    let after = bench.after.unwrap_or(bench.shape.layers / 2);
    if after > bench.shape.layers {
        return Err(Failure::arguments(format!(
            "--after {after}: there are {} blocks",
            bench.shape.layers
        )));
    }
    if !matches!(method, Method::DpForwardPaper) {
        let network = &model.network;
        let mut below: Vec<_> = network.embeddings.parameters().collect();
        below.extend(network.blocks[..after].iter().flat_map(|block| block.parameters()));
        below.into_iter().for_each(|id| model.parameters.get_mut(id).trainable = false);
    }
    if method.is_local() {
        let layer = rows_alone(NoiseLayer::After(after), Rows::Tokens(None));
        model.network.sanitizer = Some(Sanitizer { bounding: Bounding::Normalize, ..layer });
    }
    Ok(())
}
