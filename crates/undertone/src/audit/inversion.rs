//! Embedding inversion: recovers the tokens of an example from its perturbed embeddings (local DP).
//!
//! The attacker knows the model, the noise distribution, and other texts from the same
//! distribution, which they can perturb as often as they like. There are two attacks:
//!
//! - *nearest neighbor*: a perturbed embedding is assigned to the token with the nearest mean
//!   embedding over the attacker's own texts, without noise; this is maximum likelihood under
//!   isotropic noise if the embeddings of a token lie close together;
//! - *trained decoder*: a linear classifier from perturbed embeddings to tokens, trained on the
//!   attacker's texts with fresh noise in every epoch.
//!
//! The embeddings of a sequence share one ℓ2 norm bound, so those of longer sequences are smaller;
//! the attacker multiplies them by the square root of the sequence length.

use super::probe;
use crate::data::{Batch, Example, pieces};
use crate::method::local::EmbeddingNoise;
use crate::model::layer::sanitizer::{Bounding, NoiseLayer, Rows};
use crate::model::sanitized::rows_alone;
use crate::model::{Error, Model, Result};
use crate::noise::Secret;
use crate::tensor::{Host, Matrix};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use undertone_run::ReleaseKind;

/// Settings of the attack.
#[derive(Clone, Copy, Debug)]
pub struct Inversion {
    /// Where in the model the noise is added.
    pub noise_layer: NoiseLayer,
    /// Noise multiplier: noise std over the ℓ2 norm bound of an example; 0 for no noise.
    pub noise: f64,
    /// Size of the attacker's vocabulary: the most frequent tokens of their own texts.
    pub vocabulary: usize,
    /// Epochs of the decoder over the attacker's texts.
    pub epochs: usize,
    /// Seed of the noise and of the decoder's initial weights.
    pub seed: u64,
}

/// Token accuracy of the attacks. The first and the last token of each sequence are left out: they
/// are special tokens, the same in every sequence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recovered {
    /// Accuracy of the nearest-neighbor attack.
    pub nearest: f64,
    /// Accuracy of the trained decoder.
    pub decoder: f64,
    /// Accuracy of the baseline that always predicts the most frequent token.
    pub guessing: f64,
    /// Number of attacked tokens.
    pub tokens: usize,
}

/// Norm-bounded embeddings `[tokens, hidden]`, before noise, and their tokens.
struct Seen {
    rows: Host,
    tokens: Vec<u32>,
    /// First row of each example, and the number of rows at the end.
    starts: Vec<usize>,
}

impl Seen {
    fn of(model: &Model, noise_layer: NoiseLayer, examples: &[Example]) -> Result<Self> {
        let mut model = model.clone();
        let mut layer = rows_alone(noise_layer, Rows::Tokens(None));
        layer.bounding = Bounding::Normalize;
        model.network.sanitizer = Some(layer);
        let (mut values, mut tokens, mut starts, mut columns) =
            (Vec::new(), Vec::new(), vec![0], 0);
        for piece in pieces(examples, 64, 4096) {
            let batch = Batch::pack(piece.iter().map(|&i| &examples[i]));
            let (rows, of) = model.bounded_rows(&batch)?;
            columns = rows.columns();
            values.extend_from_slice(&rows.dense());
            tokens.extend_from_slice(&batch.tokens);
            let first = starts[starts.len() - 1];
            starts.extend(of[1..].iter().map(|end| first + end));
        }
        if tokens.is_empty() {
            return Err(Error::Request(
                "the attack needs at least one victim's text and one of the attacker's".into(),
            ));
        }
        Ok(Self { rows: Host::from_vec(tokens.len(), columns, values), tokens, starts })
    }

    /// The released embeddings, scaled by the square root of each sequence's length.
    fn released(&self, noise: Option<&EmbeddingNoise>, first_example: u64) -> Host {
        let mut rows =
            Host::from_vec(self.rows.rows(), self.rows.columns(), self.rows.dense().into_owned());
        let columns = rows.columns();
        let mut rest = rows.values_mut();
        for (example, window) in self.starts.windows(2).enumerate() {
            let length = window[1] - window[0];
            let (own, after) = rest.split_at_mut(length * columns);
            if let Some(noise) = noise {
                noise.perturb(first_example + example as u64, 0, own);
            }
            let scale = (length as f32).sqrt();
            own.iter_mut().for_each(|x| *x *= scale);
            rest = after;
        }
        rows
    }
}

/// Trains on `known` and attacks the texts of `victims`.
pub fn invert(
    model: &Model,
    victims: &[Example],
    known: &[Example],
    settings: &Inversion,
) -> Result<Recovered> {
    let (victims, known) = (
        Seen::of(model, settings.noise_layer, victims)?,
        Seen::of(model, settings.noise_layer, known)?,
    );
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    known.tokens.iter().for_each(|&token| *counts.entry(token).or_default() += 1);
    let mut frequent: Vec<(usize, u32)> =
        counts.into_iter().map(|(token, count)| (count, token)).collect();
    frequent.sort_by_key(|&(count, token)| (std::cmp::Reverse(count), token));
    frequent.truncate(settings.vocabulary.max(1));
    let classes: BTreeMap<u32, u32> =
        frequent.iter().zip(0..).map(|(&(_, token), class)| (token, class)).collect();

    let secret = Secret::from_seed(settings.seed);
    let noise = (settings.noise > 0.0)
        .then(|| EmbeddingNoise::new(&secret, ReleaseKind::Once, vec![settings.noise]));
    let released = victims.released(noise.as_ref(), 0);
    let inner: Vec<usize> =
        victims.starts.windows(2).flat_map(|w| w[0] + 1..(w[1] - 1).max(w[0] + 1)).collect();
    let right = |predicted: &[u32]| {
        let hits = inner
            .iter()
            .filter(|&&i| classes.get(&victims.tokens[i]) == Some(&predicted[i]))
            .count();
        hits as f64 / inner.len().max(1) as f64
    };
    // The most frequent token that is neither first nor last.
    let common = inner_most_frequent(&known, &classes);
    let nearest = right(&nearest(&known, &classes, &released)?);
    let decoder = right(&decoder(&known, &classes, &released, noise.as_ref(), settings)?);
    let guessing = right(&vec![common; victims.tokens.len()]);
    Ok(Recovered { nearest, decoder, guessing, tokens: inner.len() })
}

fn inner_most_frequent(known: &Seen, classes: &BTreeMap<u32, u32>) -> u32 {
    let mut counts = vec![0; classes.len()];
    for window in known.starts.windows(2) {
        for row in window[0] + 1..(window[1] - 1).max(window[0] + 1) {
            if let Some(&class) = classes.get(&known.tokens[row]) {
                counts[class as usize] += 1;
            }
        }
    }
    (0..counts.len()).max_by_key(|&class| counts[class]).unwrap_or(0) as u32
}

/// Nearest-neighbor attack: ‖x − m‖² is smallest where ⟨x, m⟩ − ‖m‖²/2 is largest.
fn nearest(known: &Seen, classes: &BTreeMap<u32, u32>, released: &Host) -> Result<Vec<u32>> {
    let clean = known.released(None, 0);
    let columns = clean.columns();
    let (mut means, mut counts) =
        (vec![0.0_f32; classes.len() * columns], vec![0.0_f32; classes.len()]);
    for (row, token) in known.tokens.iter().enumerate() {
        let Some(&class) = classes.get(token) else { continue };
        let mean = &mut means[class as usize * columns..][..columns];
        mean.iter_mut().zip(clean.row(row)).for_each(|(sum, x)| *sum += x);
        counts[class as usize] += 1.0;
    }
    means
        .chunks_exact_mut(columns)
        .zip(&counts)
        .for_each(|(mean, n)| mean.iter_mut().for_each(|x| *x /= n.max(1.0)));
    let bias: Vec<f32> = means
        .chunks_exact(columns)
        .map(|mean| -0.5 * mean.iter().map(|x| x * x).sum::<f32>())
        .collect();
    probe::Probe { weights: Matrix::from_vec(classes.len(), columns, means), bias }.best(released)
}

/// Trained decoder: a linear classifier trained on the attacker's perturbed texts.
fn decoder(
    known: &Seen,
    classes: &BTreeMap<u32, u32>,
    released: &Host,
    noise: Option<&EmbeddingNoise>,
    settings: &Inversion,
) -> Result<Vec<u32>> {
    // The decoder treats each token independently of the example that it belongs to.
    let usable: Vec<(u32, u32)> = known
        .tokens
        .iter()
        .enumerate()
        .filter_map(|(row, token)| Some((row as u32, *classes.get(token)?)))
        .collect();
    let rows = |epoch: usize| known.released(noise, (1 << 30) + ((epoch as u64) << 24));
    let training =
        probe::Training { classes: classes.len(), epochs: settings.epochs, seed: settings.seed };
    probe::train(rows, &usable, &training)?.best(released)
}
