//! Inserts the sanitizer into the model before training: encoder, direction of the noise, trainable
//! parameters.

use super::embedding_noise::EmbeddingNoise;
use super::encoder::{
    PublicRows, fit_autoencoder, orthogonal, reconstruction_error, set_projection, set_random,
};
use super::labels::RandomizedLabels;
use super::mvg::{Condition, direction, example_shift, mapped, sufficient_epsilon};
use super::plan::{LocalPlan, budgets};
use super::settings::LocalSettings;
use super::{adapt, adapt_privately};
use crate::data::{Batch, PoissonSampler, Target};
use crate::error::{Error, Result};
use crate::explain::contribution::{AttentionMap, attention_of, positional, token_contributions};
use crate::method::{Prepared, TrainingEvent};
use crate::model::folder::Random;
use crate::model::layer::attention::Projections;
use crate::model::layer::sanitizer::{NoiseLayer, Rows};
use crate::model::sanitized::{SanitizerConfig, attach, set, with_decoder};
use crate::model::{Model, ParameterId};
use crate::noise::{Noise, Secret, purpose};
use crate::plan::Plan;
use crate::replay::{ReleaseId, Tape};
use crate::step::{Recorded, RunLedger};
use undertone_accounting::Event;
use undertone_accounting::schedule::Passes;
use undertone_run::{
    AttentionSource, DataSection, EncoderKind, LearnerKind, MvgSection, PerturbationFacts,
    Resolved, TrainingSection,
};

/// The perturbation of a run's embeddings and labels.
#[derive(Debug)]
pub struct Perturbation {
    /// The noise of the embeddings.
    pub noise: EmbeddingNoise,
    /// Randomized response on the labels.
    pub labels: Option<RandomizedLabels>,
    /// The sanitizer's configuration, which is saved with the model.
    pub config: SanitizerConfig,
    /// How the part above the noise is trained.
    pub learn: LearnerKind,
    /// Standard deviations of the noise by epoch.
    pub stds: Vec<f64>,
    /// Facts for the run's summary.
    pub facts: PerturbationFacts,
}

/// Arguments of [`prepare`] besides the method's plan.
pub struct Parts<'a> {
    pub run: &'a Plan,
    pub prepared: &'a mut Prepared,
    pub resolved: &'a mut Resolved,
    pub secret: &'a Secret,
    /// `None` if no private data is available, so that nothing is released.
    pub ledger: Option<&'a mut RunLedger>,
    /// Records releases before noise is added, or replays another run.
    pub tape: Option<&'a Tape>,
    pub callback: &'a mut dyn FnMut(TrainingEvent),
}

/// Records a release that is made before training.
fn record(
    ledger: &mut Option<&mut RunLedger>,
    index: u64,
    event: Event,
    count: u64,
) -> Result<Recorded> {
    match ledger {
        Some(ledger) => ledger.record(index, event, count),
        None => Err(Error::plan(
            "adapt.share and attention = \"atten-dp\" use private examples, which are not \
             available here; omit them",
        )),
    }
}

/// Inserts the sanitizer into the model, after adapting the model if the plan says so.
pub fn prepare(plan: &LocalPlan, parts: Parts) -> Result<Perturbation> {
    let Parts { run, prepared, resolved, secret, mut ledger, tape, callback } = parts;
    let settings = &plan.settings;
    let mut config = config_of(settings, plan.mvg().is_some(), prepared.public.text.is_some());
    let trainable: Vec<bool> = prepared.model.parameters.iter().map(|(_, p)| p.trainable).collect();
    if let (Some(calibrated), Some(asked)) = (resolved.adaptation, &plan.adapt) {
        // A run that is interrupted here has saved no weights; on resuming, it computes the same
        // ones.
        let recorded = record(&mut ledger, 0, calibrated.event(), calibrated.steps)?;
        let (model, data) = (&mut prepared.model, &prepared.data);
        let adaptation = (asked, &calibrated, recorded);
        adapt_privately::adapt_privately(model, data, adaptation, secret, tape, callback)?;
    }
    let before: Vec<ParameterId> = prepared.model.network.head.parameters().collect();
    attach(&mut prepared.model, &config)?;
    let public = match &prepared.public.text {
        Some(public) => {
            let examples = &public.examples;
            Some(PublicRows::of(&prepared.model, settings.noise_layer, settings.rows, examples)?)
        }
        None => None,
    };
    let seed = secret.number(purpose::SANITIZER);
    set_encoder(&mut prepared.model, settings, public.as_ref(), seed)?;
    if plan.is_published() && !settings.decodes {
        set_classifier(&mut prepared.model, secret.number(purpose::CLASSIFIER))?;
    }
    let mut facts = PerturbationFacts {
        width: config.dims.last().copied().unwrap_or(prepared.model.network.head.width()),
        ..PerturbationFacts::default()
    };
    if let Some(public) = &public {
        facts.reconstruction_error = reconstruction_error(&prepared.model, public)?;
    }
    if let Some(mvg) = plan.mvg() {
        let columns = Columns { plan, mvg, data: &run.data, training: &run.training, tape };
        let noise = columns.noise(prepared, resolved, secret, &mut ledger)?;
        let quietest = noise.iter().copied().fold(f64::INFINITY, f64::min);
        facts.loudest_over_quietest = Some(noise.iter().copied().fold(0.0, f64::max) / quietest);
        let by_column = if plan.is_published() {
            // As published, column j has noise C σ_j, and all columns together move by this number
            // of standard deviations.
            if let Some(releases) = &mut resolved.releases {
                releases.sensitivity = example_shift(&noise);
            }
            let norm = f64::from(settings.norm);
            let condition = |form| Some(sufficient_epsilon(&noise, norm, plan.delta, form));
            facts.sufficient_epsilon = condition(Condition::Theorem);
            facts.printed_epsilon = condition(Condition::Printed);
            noise.iter().map(|&s| s as f32).collect()
        } else {
            direction(&noise)
        };
        config.direction = Some(by_column.clone());
        if let Some(layer) = &mut prepared.model.network.sanitizer {
            layer.direction = Some(by_column);
        }
    }
    let norm = f64::from(settings.norm);
    let stds: Vec<f64> = resolved.noise_multipliers.iter().map(|noise| noise * norm).collect();
    config.noise_std = stds.last().copied().unwrap_or(0.0) as f32;
    if let (Some(adaptation), Some(asked)) = (&prepared.public.adaptation, &plan.adapt) {
        let (model, examples) = (&mut prepared.model, &adaptation.examples);
        adapt::adapt(model, examples, asked, config.noise_std, secret, callback)?;
    }
    set_trainable(&mut prepared.model, &trainable, plan.is_published(), settings.encoder);
    if plan.is_published() {
        // A task head that was replaced by a new classifier is not trained.
        let now: Vec<ParameterId> = prepared.model.network.head.parameters().collect();
        for id in before.into_iter().filter(|id| !now.contains(id)) {
            prepared.model.parameters.get_mut(id).trainable = false;
        }
    }
    let classes = prepared.model.network.head.out.outputs as u32;
    let labels =
        settings.label_epsilon.map(|epsilon| RandomizedLabels::new(secret, epsilon, classes));
    if let Some(labels) = &labels {
        for (index, example) in prepared.data.examples.iter_mut().enumerate() {
            if let Target::Class(class) = &mut example.target {
                if let Some(tape) = tape {
                    *class = tape.pass_label(index as u64, *class);
                }
                *class = labels.answer(index as u64, *class);
            }
        }
    }
    let noise = EmbeddingNoise::new(secret, settings.release, stds.clone()).on(tape.cloned());
    Ok(Perturbation { noise, labels, config, learn: settings.learn, stds, facts })
}

fn config_of(settings: &LocalSettings, mvg: bool, public: bool) -> SanitizerConfig {
    let decoded = settings.decodes;
    // Hidden states that are passed to the next layers are not centered.
    let encoded = settings.encoder != EncoderKind::None && settings.encoder != EncoderKind::Trained;
    SanitizerConfig {
        noise_layer: settings.noise_layer,
        rows: settings.rows,
        dims: settings.dims.clone(),
        activation: settings.activation,
        centered: public && (encoded || !decoded),
        decoded,
        squash: mvg.then_some(settings.norm),
        bounding: settings.bounding,
        norm: settings.norm,
        direction: None,
        calibrated: settings.learn == LearnerKind::Gradient,
        noise_std: 0.0,
    }
}

fn set_encoder(
    model: &mut Model,
    settings: &LocalSettings,
    public: Option<&PublicRows>,
    seed: u64,
) -> Result<()> {
    let Some(layer) = model.network.sanitizer.clone() else { return Ok(()) };
    let center = public.map(PublicRows::center).transpose()?;
    if let (Some(id), Some(center)) = (layer.center, &center) {
        set(model, id, center.clone())?;
    }
    let Some(first) = layer.encoder.first() else { return Ok(()) };
    let rows = match (settings.encoder, public) {
        (EncoderKind::None, _) => return Ok(()),
        (EncoderKind::Trained, _) | (EncoderKind::Autoencoder, None) => {
            return Ok(set_random(model, seed)?);
        }
        (EncoderKind::Autoencoder, Some(public)) => {
            // A discriminant on the releases needs no decoder, but fitting the encoder does.
            let mut twin = with_decoder(model)?;
            set_random(&mut twin, seed)?;
            let epochs = 1 + 200_000 / public.rows.rows().max(1);
            fit_autoencoder(&mut twin, public, &center.unwrap_or_default(), epochs)?;
            for linear in layer.encoder.iter().chain(&layer.decoder) {
                for id in [Some(linear.weight), linear.bias].into_iter().flatten() {
                    let values =
                        twin.parameters.value(id).to_vec().map_err(crate::model::Error::from)?;
                    set(model, id, values)?;
                }
            }
            return Ok(());
        }
        (EncoderKind::Pca, Some(_)) if first.outputs > first.inputs => {
            return Err(Error::plan(format!(
                "pca has at most as many components as hidden states have columns, {}; lower dims, \
                 or choose encoder = \"orthogonal\"",
                first.inputs
            )));
        }
        (EncoderKind::Pca, Some(public)) => public.principal(first.outputs)?,
        (EncoderKind::Pca | EncoderKind::Orthogonal, _) => {
            orthogonal(seed, first.outputs, first.inputs)
        }
    };
    Ok(set_projection(model, &rows, center.as_deref())?)
}

/// Initializes a new classifier with random weights, as Hugging Face initializes a new task head.
fn set_classifier(model: &mut Model, seed: u64) -> Result<()> {
    let out = model.network.head.out.clone();
    let values = Random::new(seed, 1.0).normal(out.inputs * out.outputs, 0.02);
    Ok(set(model, out.weight, values)?)
}

/// Sets which parameters are trainable: above the noise, those selected by the tuning, the decoder
/// and the task head; below the noise, none in proved mode.
pub fn set_trainable(model: &mut Model, tuned: &[bool], paper: bool, encoder: EncoderKind) {
    let Some(layer) = model.network.sanitizer.clone() else { return };
    let below = owner_parameters(model);
    let above: Vec<ParameterId> =
        layer.decoder.iter().flat_map(|l| [Some(l.weight), l.bias]).flatten().collect();
    let head: Vec<ParameterId> = model.network.head.parameters().collect();
    // As published, the autoencoder keeps training, whether or not it was fitted on public text
    // first.
    let learns = paper && matches!(encoder, EncoderKind::Trained | EncoderKind::Autoencoder);
    let encoders: Vec<ParameterId> =
        layer.encoder.iter().flat_map(|l| [Some(l.weight), l.bias]).flatten().collect();
    for (id, parameter) in model.parameters.iter_mut() {
        parameter.trainable = tuned.get(id.index()).copied().unwrap_or(false);
        if above.contains(&id) || head.contains(&id) || (learns && encoders.contains(&id)) {
            parameter.trainable = true;
        }
        if !paper && below.contains(&id) {
            parameter.trainable = false;
        }
    }
    // A single row attends only to itself, so queries and keys have no gradient.
    if !layer.rows.are_of_tokens() {
        let blocks = &model.network.blocks[model.cut()..];
        let looks = blocks.iter().filter_map(|block| match &block.attention.projections {
            Projections::Split(three) => Some([three[0].clone(), three[1].clone()]),
            Projections::Fused(_) => None,
        });
        for linear in looks.flatten().collect::<Vec<_>>() {
            for id in linear.parameters() {
                model.parameters.get_mut(id).trainable = false;
            }
        }
    }
    // In proved mode, only the sanitizer's task head is trained. As published, the model is trained
    // end to end.
    if !paper
        && layer.decoder.is_empty()
        && model.parameters.find("sanitizer.head.weight").is_some()
    {
        for (_, parameter) in model.parameters.iter_mut() {
            parameter.trainable = parameter.name.starts_with("sanitizer.head.");
        }
    }
}

/// Parameters of the owner's half: all those used to compute an embedding before noise.
pub fn owner_parameters(model: &Model) -> Vec<ParameterId> {
    let network = &model.network;
    let mut ids: Vec<ParameterId> = network.embeddings.parameters().collect();
    ids.extend(network.blocks[..model.cut()].iter().flat_map(|block| block.parameters()));
    if let Some(layer) = &network.sanitizer {
        ids.extend(layer.parameters_below());
        if !matches!(layer.noise_layer, NoiseLayer::After(_)) {
            ids.extend(
                network.last_norm.iter().flat_map(|norm| [Some(norm.weight), norm.bias]).flatten(),
            );
        }
    }
    ids
}

/// Inputs for computing the noise of MVG's columns.
struct Columns<'a> {
    plan: &'a LocalPlan,
    mvg: &'a MvgSection,
    data: &'a DataSection,
    training: &'a TrainingSection,
    tape: Option<&'a Tape>,
}

impl Columns<'_> {
    /// σ of each column, from the tokens' budgets and contributions.
    fn noise(
        &self,
        prepared: &Prepared,
        resolved: &Resolved,
        secret: &Secret,
        ledger: &mut Option<&mut RunLedger>,
    ) -> Result<Vec<f64>> {
        let last_token = self.plan.settings.rows == Rows::Last;
        let tokens = self.data.max_tokens.min(prepared.model.network.max_positions);
        let averaged = self.plan.settings.averages_heads;
        let combined = |map: AttentionMap| if averaged { map.averaged() } else { map };
        let map = match self.mvg.attention {
            AttentionSource::Position => combined(positional(&prepared.model, tokens, last_token)?),
            AttentionSource::Raw | AttentionSource::AttenDp => {
                let (map, examples) = self.mean_attention(prepared, secret, tokens, last_token)?;
                // Averaged first: a single distribution needs less noise than one for each head.
                let mut map = combined(map);
                if let Some(event @ Event::Gaussian { noise_multiplier, .. }) = resolved.before {
                    let recorded =
                        record(ledger, u64::from(resolved.adaptation.is_some()), event, 1)?;
                    recorded.covers(noise_multiplier)?;
                    add_noise(&mut map, examples, noise_multiplier, secret, self.tape);
                    map.normalize();
                } else if !self.plan.is_published() {
                    return Err(Error::plan(
                        "an attention map of private examples needs an entry in the ledger",
                    ));
                }
                map
            }
        };
        let contributions = token_contributions(&prepared.model, &map)?;
        let epochs = self.training.epochs;
        let passes = Passes::over(resolved.units as u64, self.training.batch, epochs)?;
        let steps = passes.steps_per_epoch * u64::from(epochs);
        let sampling_rate = passes.sampling_rate;
        let delta = self.plan.delta;
        let noise = budgets(self.mvg).noise_multipliers(map.tokens, delta, sampling_rate, steps)?;
        Ok(mapped(&contributions, &noise))
    }

    /// The mean attention map of a sample of examples, and the size of the sample.
    fn mean_attention(
        &self,
        prepared: &Prepared,
        secret: &Secret,
        tokens: usize,
        last_token: bool,
    ) -> Result<(AttentionMap, usize)> {
        let data = &prepared.data;
        let wanted = self.mvg.attention_examples.min(data.examples.len()).max(1);
        // The sample, and so its size, does not depend on the content of the examples.
        let sampling_rate = wanted as f64 / data.examples.len().max(1) as f64;
        let key = secret.key(purpose::ATTENTION_SAMPLE);
        let mut chosen = PoissonSampler::new(data.examples.len(), sampling_rate, key)?.step(0);
        if chosen.is_empty() {
            chosen.push(0);
        }
        let heads = prepared.model.network.blocks.last().map_or(0, |block| block.attention.heads);
        let mut map = AttentionMap::zeros(heads, tokens);
        for piece in chosen.chunks(32) {
            let batch = Batch::pack(piece.iter().map(|&i| &data.examples[i]));
            for weights in attention_of(&prepared.model, &batch, last_token)? {
                map.add(&weights, 1.0 / chosen.len() as f64);
            }
        }
        Ok((map, chosen.len()))
    }
}

/// Adds Gaussian noise to a mean of attention maps. An example's map is one probability
/// distribution per head (or the mean over the heads, which is one distribution), so replacing an
/// example moves the mean by at most √(2 heads)/examples in ℓ2 norm.
fn add_noise(
    map: &mut AttentionMap,
    examples: usize,
    noise_multiplier: f64,
    secret: &Secret,
    tape: Option<&Tape>,
) {
    let sensitivity = (2.0 * map.heads as f64).sqrt() / examples.max(1) as f64 * (1.0 + 1e-5);
    let mut weights: Vec<f32> = map.weights.iter().map(|&w| w as f32).collect();
    let std = ((noise_multiplier * sensitivity) as f32).next_up();
    if let Some(tape) = tape {
        tape.pass_slice(ReleaseId::AttentionMap, 0, &mut weights, std);
    }
    let noise = Noise::with_key(&secret.key(purpose::ATTENTION));
    noise.add(0, 0, std, 1.0, &mut weights);
    map.weights = weights.iter().map(|&w| f64::from(w)).collect();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Method, Plan};

    /// ATTEN_DP's map gets the noise that its ε requires: the shift of the mean by one example, in
    /// standard deviations, is that of a Gaussian mechanism with this ε.
    #[test]
    fn the_attention_map_gets_the_noise_of_its_epsilon() {
        let run = r#"
            [model]
            path = "bert"
            [data]
            task = "classification"
            train = "train.tsv"
            text = "sentence"
            [privacy]
            method = "mvg"
            mode = "paper"
            delta = 1e-5
            [privacy.mvg]
            attention = "atten-dp"
            attention_epsilon = 0.7
            [training]
            epochs = 3
            batch = 32
            learning_rate = 2e-5
        "#;
        let plan = Plan::parse(run, &[]).unwrap();
        let Method::Local(local) = &plan.method else { panic!("a local method") };
        let resolved = local.calibrate(&plan.training, 67_349, 2).unwrap();
        let Some(Event::Gaussian { noise_multiplier, sensitivity }) = resolved.before else {
            panic!("the map is released")
        };
        let spent = undertone_accounting::gaussian::epsilon(sensitivity / noise_multiplier, 1e-5);
        assert!(spent.upper <= 0.7 && spent.upper > 0.7 - 1e-6, "{spent:?}");
        // Twelve heads or their average, with a mean over 500 examples. Each head of an example is
        // a probability distribution, and two distributions are at most √2 apart.
        for heads in [12, 1] {
            let examples = 500;
            let mut map = AttentionMap::zeros(heads, 24_000 / heads);
            add_noise(&mut map, examples, noise_multiplier, &Secret::from_seed(1), None);
            let squares: f64 = map.weights.iter().map(|w| w * w).sum();
            let std = (squares / map.weights.len() as f64).sqrt();
            let shift = (2.0 * heads as f64).sqrt() / examples as f64;
            let epsilon = undertone_accounting::gaussian::epsilon(shift / std, 1e-5).upper;
            assert!((epsilon - 0.7).abs() < 0.02, "{heads}: {epsilon}");
        }
    }
}
