//! Puts the sanitiser in before a run begins: encoder, direction of the noise, and what may learn.

use super::adapt;
use super::adapt_privately::adapt_privately;
use super::encoder::{
    PublicRows, fit_autoencoder, orthogonal, reconstruction_error, set_projection, set_random,
};
use crate::data::{Batch, PoissonSampler};
use crate::explain::contribution::{AttentionMap, attention_of, positional, token_contributions};
use crate::method::local::mvg::{direction, mapped, record_shift, sufficient_epsilon};
use crate::method::local::{RandomisedLabels, EmbeddingNoise};
use crate::noise::{Noise, Secret, purpose};
use crate::model::layer::attention::Projections;
use crate::model::layer::sanitiser::Rows;
use crate::model::sanitised::{SanitiserConfig, attach, set, with_decoder};
use crate::model::{Model, ParameterId};
use crate::train::error::{Error, Result};
use crate::train::news::News;
use crate::train::plan::{
    AttentionName, EncoderName, ForwardSettings, Learn, Method, ModeName, Plan, Resolved,
};
use crate::train::prepare::Prepared;
use serde::Serialize;
use undertone_accounting::Event;
use undertone_accounting::ledger::Ledger;
use undertone_accounting::schedule::Passes;

/// What perturbs the records of a run.
#[derive(Debug)]
pub struct Perturbing {
    /// The noise of the records.
    pub noise: EmbeddingNoise,
    /// What hides the labels.
    pub labels: Option<RandomisedLabels>,
    /// The sanitiser as it is saved.
    pub config: SanitiserConfig,
    /// How the part above learns.
    pub learn: Learn,
    /// Deviation of the noise by epoch.
    pub deviations: Vec<f64>,
    /// For the summary.
    pub facts: Facts,
}

/// What a summary says about a run that perturbs records.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Facts {
    /// Columns of what is released.
    pub width: usize,
    /// The part of the variance of public rows that encoder and decoder lose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reconstruction_error: Option<f64>,
    /// Deviation of the loudest column's noise over that of the quietest's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loudest_over_quietest: Option<f64>,
    /// ε of one release by the sufficient condition of the matrix-variate Gaussian mechanism, in
    /// paper mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sufficient_epsilon: Option<f64>,
}

/// Changes the model so that records are perturbed in it.
pub fn prepare(
    plan: &Plan,
    prepared: &mut Prepared,
    resolved: &mut Resolved,
    secret: &Secret,
    ledger: &mut Ledger,
    watch: &mut dyn FnMut(News),
) -> Result<Perturbing> {
    let settings = plan.forward();
    let mvg = plan.privacy.method == Method::Mvg;
    let mut config = config_of(&settings, mvg, prepared.public_text.is_some());
    let trainable: Vec<bool> = prepared.model.parameters.iter().map(|(_, p)| p.trainable).collect();
    if let (Some(found), Some(asked)) = (resolved.adaptation, &plan.privacy.forward.adapt) {
        // A run that broke off here has kept no weights, and comes to the same ones again.
        if ledger.entries() == 0 {
            ledger.append(found.event(), found.steps)?;
        }
        adapt_privately(&mut prepared.model, &prepared.data, asked, &found, secret, watch)?;
    }
    attach(&mut prepared.model, &config)?;
    let public = match &prepared.public_text {
        Some(public) => {
            Some(PublicRows::of(&prepared.model, settings.spot, settings.rows, &public.examples)?)
        }
        None => None,
    };
    set_encoder(
        &mut prepared.model,
        &settings,
        public.as_ref(),
        secret.number(purpose::SANITISER),
    )?;
    let mut facts = Facts {
        width: config.dims.last().copied().unwrap_or(prepared.model.network.head.width()),
        ..Facts::default()
    };
    if let Some(public) = &public {
        facts.reconstruction_error = reconstruction_error(&prepared.model, public)?;
    }
    if mvg {
        let noise = column_noise(plan, prepared, resolved, secret, ledger)?;
        let quietest = noise.iter().copied().fold(f64::INFINITY, f64::min);
        facts.loudest_over_quietest = Some(noise.iter().copied().fold(0.0, f64::max) / quietest);
        let found = if plan.privacy.mode == ModeName::Paper {
            // As published: column j has the noise C σ_j, and all columns together move by this
            // many deviations.
            if let Some(releases) = &mut resolved.releases {
                releases.sensitivity = record_shift(&noise);
            }
            facts.sufficient_epsilon = Some(sufficient_epsilon(
                &noise,
                f64::from(settings.norm),
                plan.privacy.delta.unwrap_or_default(),
            ));
            noise.iter().map(|&s| s as f32).collect()
        } else {
            direction(&noise)
        };
        config.direction = Some(found.clone());
        if let Some(layer) = &mut prepared.model.network.sanitiser {
            layer.direction = Some(found);
        }
    }
    let norm = f64::from(settings.norm);
    let deviations: Vec<f64> =
        resolved.noise_multipliers.iter().map(|noise| noise * norm).collect();
    config.deviation = deviations.last().copied().unwrap_or(0.0) as f32;
    if let (Some(adaptation), Some(asked)) = (&prepared.adaptation, &plan.privacy.forward.adapt) {
        adapt::adapt(
            &mut prepared.model,
            &adaptation.examples,
            asked,
            config.deviation,
            secret,
            watch,
        )?;
    }
    let paper = plan.privacy.mode == ModeName::Paper;
    set_trainable(&mut prepared.model, &trainable, paper, settings.encoder);
    let classes = prepared.model.network.head.out.outputs as u32;
    let labels =
        settings.label_epsilon.map(|epsilon| RandomisedLabels::new(secret, epsilon, classes));
    if let Some(labels) = &labels {
        for (record, example) in prepared.data.examples.iter_mut().enumerate() {
            if let crate::data::Target::Class(class) = &mut example.target {
                *class = labels.answer(record as u64, *class);
            }
        }
    }
    let noise = EmbeddingNoise::new(secret, settings.release, deviations.clone());
    Ok(Perturbing { noise, labels, config, learn: settings.learn, deviations, facts })
}

fn config_of(settings: &ForwardSettings, mvg: bool, public: bool) -> SanitiserConfig {
    let decoded = settings.learn != Learn::Discriminant;
    // Hidden states that go on into the network keep their centre.
    let encoded = settings.encoder != EncoderName::None && settings.encoder != EncoderName::Trained;
    SanitiserConfig {
        spot: settings.spot,
        rows: settings.rows,
        dims: settings.dims.clone(),
        centred: public && (encoded || !decoded),
        decoded,
        squash: mvg.then_some(settings.norm),
        bounding: settings.bounding,
        norm: settings.norm,
        direction: None,
        calibrated: settings.learn == Learn::Gradient,
        deviation: 0.0,
    }
}

fn set_encoder(
    model: &mut Model,
    settings: &ForwardSettings,
    public: Option<&PublicRows>,
    seed: u64,
) -> Result<()> {
    let Some(layer) = model.network.sanitiser.clone() else { return Ok(()) };
    let centre = public.map(PublicRows::centre).transpose()?;
    if let (Some(id), Some(centre)) = (layer.centre, &centre) {
        set(model, id, centre.clone())?;
    }
    let Some(first) = layer.encoder.first() else { return Ok(()) };
    let rows = match (settings.encoder, public) {
        (EncoderName::None, _) => return Ok(()),
        (EncoderName::Trained, _) | (EncoderName::Autoencoder, None) => {
            return Ok(set_random(model, seed)?);
        }
        (EncoderName::Autoencoder, Some(public)) => {
            // A classifier that reads releases as they are has no decoder; the encoder is fitted
            // with one all the same.
            let mut twin = with_decoder(model)?;
            set_random(&mut twin, seed)?;
            let epochs = 1 + 200_000 / public.rows.rows().max(1);
            fit_autoencoder(&mut twin, public, &centre.unwrap_or_default(), epochs)?;
            for linear in layer.encoder.iter().chain(&layer.decoder) {
                for id in [Some(linear.weight), linear.bias].into_iter().flatten() {
                    let values =
                        twin.parameters.value(id).to_vec().map_err(crate::model::Error::from)?;
                    set(model, id, values)?;
                }
            }
            return Ok(());
        }
        (EncoderName::Pca, Some(_)) if first.outputs > first.inputs => {
            return Err(Error::plan(format!(
                "pca has as many directions as hidden states have columns, {}; lower dims, or \
                 choose encoder = \"orthogonal\"",
                first.inputs
            )));
        }
        (EncoderName::Pca, Some(public)) => public.principal(first.outputs)?,
        (EncoderName::Pca | EncoderName::Orthogonal, _) => {
            orthogonal(seed, first.outputs, first.inputs)
        }
    };
    Ok(set_projection(model, &rows, centre.as_deref())?)
}

/// In proved mode nothing below the noise learns; what is above does as the tuning says, and so do
/// the decoder and a classifier of the sanitiser's own.
fn set_trainable(model: &mut Model, tuned: &[bool], paper: bool, encoder: EncoderName) {
    let Some(layer) = model.network.sanitiser.clone() else { return };
    let below = owner_parameters(model);
    let above: Vec<ParameterId> =
        layer.decoder.iter().flat_map(|l| [Some(l.weight), l.bias]).flatten().collect();
    let head: Vec<ParameterId> = model.network.head.parameters().collect();
    let learns = layer.parameters_below();
    for (id, parameter) in model.parameters.iter_mut() {
        parameter.trainable = tuned.get(id.index()).copied().unwrap_or(false);
        if above.contains(&id)
            || head.contains(&id)
            || (paper && encoder == EncoderName::Trained && learns.contains(&id))
        {
            parameter.trainable = true;
        }
        if !paper && below.contains(&id) {
            parameter.trainable = false;
        }
    }
    // A row that is alone in its sequence looks at nothing else: queries and keys have nothing to
    // learn.
    if !matches!(layer.rows, Rows::Tokens(_)) {
        let blocks = &model.network.blocks[model.cut()..];
        let looks = blocks.iter().filter_map(|block| match &block.attention.projections {
            Projections::Split(three) => Some([three[0].clone(), three[1].clone()]),
            Projections::Fused(_) => None,
        });
        for linear in looks.flatten().collect::<Vec<_>>() {
            let lora = linear.lora.iter().flat_map(|lora| [lora.a, lora.b]);
            for id in [Some(linear.weight), linear.bias]
                .into_iter()
                .flatten()
                .chain(lora)
                .collect::<Vec<_>>()
            {
                model.parameters.get_mut(id).trainable = false;
            }
        }
    }
    // Replaced by a classifier of the sanitiser's own, the model's takes no part.
    if layer.decoder.is_empty() && model.parameters.find("sanitiser.head.weight").is_some() {
        for (_, parameter) in model.parameters.iter_mut() {
            parameter.trainable = parameter.name.starts_with("sanitiser.head.");
        }
    }
}

/// Everything that the owner of a record computes with.
pub fn owner_parameters(model: &Model) -> Vec<ParameterId> {
    let network = &model.network;
    let mut ids: Vec<ParameterId> = network.embeddings.parameters().collect();
    ids.extend(network.blocks[..model.cut()].iter().flat_map(|block| block.parameters()));
    if let Some(layer) = &network.sanitiser {
        ids.extend(layer.parameters_below());
        if layer.spot == crate::model::layer::sanitiser::Spot::Output {
            ids.extend(
                network.last_norm.iter().flat_map(|norm| [Some(norm.weight), norm.bias]).flatten(),
            );
        }
    }
    ids
}

/// σ of each column, from the budgets of the tokens and their contributions.
fn column_noise(
    plan: &Plan,
    prepared: &Prepared,
    resolved: &Resolved,
    secret: &Secret,
    ledger: &mut Ledger,
) -> Result<Vec<f64>> {
    let asked = &plan.privacy.mvg;
    let last_token = plan.forward().rows == Rows::Last;
    let tokens = plan.data.max_tokens.min(prepared.model.network.most_positions);
    let map = match asked.attention {
        AttentionName::Position => positional(&prepared.model, tokens, last_token)?,
        AttentionName::Raw | AttentionName::AttenDp => {
            let (mut map, records) = mean_attention(plan, prepared, secret, tokens, last_token)?;
            if let Some(event @ Event::Gaussian { noise_multiplier, .. }) = resolved.before {
                if ledger.entries() == u64::from(resolved.adaptation.is_some()) {
                    ledger.append(event, 1)?;
                }
                // A record's share of the mean is a distribution for each head, so replacing one
                // moves the map by at most √(2 heads)/records.
                let reach = (2.0 * map.heads as f64).sqrt() / records.max(1) as f64 * (1.0 + 1e-5);
                let mut weights: Vec<f32> = map.weights.iter().map(|&w| w as f32).collect();
                let deviation = (noise_multiplier * reach) as f32;
                Noise::with_key(&secret.key(purpose::ATTENTION)).add(
                    0,
                    0,
                    deviation.next_up(),
                    1.0,
                    &mut weights,
                );
                map.weights = weights.iter().map(|&w| f64::from(w)).collect();
                map.normalise();
            } else if plan.privacy.mode == ModeName::Proved {
                return Err(Error::plan(
                    "an attention map of private records needs an entry in the ledger",
                ));
            }
            map
        }
    };
    let contributions = token_contributions(&prepared.model, &map)?;
    let passes = Passes::over(resolved.units as u64, plan.training.batch, plan.training.epochs)?;
    let steps = passes.steps_per_epoch * u64::from(plan.training.epochs);
    let delta = plan.privacy.delta.unwrap_or_default();
    let noise = plan.budgets().noise_multipliers(map.tokens, delta, passes.sampling_rate, steps)?;
    Ok(mapped(&contributions, &noise))
}

/// The mean attention of some records, and of how many.
fn mean_attention(
    plan: &Plan,
    prepared: &Prepared,
    secret: &Secret,
    tokens: usize,
    last_token: bool,
) -> Result<(AttentionMap, usize)> {
    let data = &prepared.data;
    let wanted = plan.privacy.mvg.attention_examples.min(data.examples.len()).max(1);
    // Chosen without looking at them: how many there are does not depend on what is in them.
    let rate = wanted as f64 / data.examples.len().max(1) as f64;
    let mut chosen: Vec<usize> =
        PoissonSampler::new(data.examples.len(), rate, secret.key(purpose::ATTENTION_SAMPLE))?
            .step(0);
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
