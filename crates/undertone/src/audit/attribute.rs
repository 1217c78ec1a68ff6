//! Attribute inference on perturbed embeddings (local DP): predicts an attribute of an example,
//! such as a person's sex or the topic of a letter, from its released embedding.
//!
//! The attacker has examples from the same distribution with known attributes, perturbs them as the
//! data holder does, trains a linear classifier with fresh noise in every epoch, and predicts the
//! attribute of the victims' examples.

use super::probe;
use super::statistics::{Interval, proportion};
use crate::data::{Batch, Example, Target, pieces};
use crate::method::local::EmbeddingNoise;
use crate::model::layer::sanitizer::{Bounding, NoiseLayer, Rows};
use crate::model::sanitized::rows_alone;
use crate::model::{Error, Model, Result};
use crate::noise::Secret;
use crate::tensor::Host;
use serde::{Deserialize, Serialize};
use undertone_run::ReleaseKind;

/// Settings of the attack.
#[derive(Clone, Copy, Debug)]
pub struct Attribute {
    /// Where in the model the noise is added.
    pub noise_layer: NoiseLayer,
    /// The embeddings of an example that are released; the attacker averages them.
    pub rows: Rows,
    /// Noise multiplier: noise std over the ℓ2 norm bound of an example; 0 for no noise.
    pub noise: f64,
    /// Number of values that the attribute can take.
    pub classes: usize,
    /// Epochs over the attacker's examples.
    pub epochs: usize,
    /// Seed of the noise and of the classifier's initial weights.
    pub seed: u64,
    /// Confidence level of the interval, in (0, 1).
    pub confidence: f64,
}

/// Accuracy of the attack.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Inferred {
    /// Fraction of examples whose attribute was predicted correctly.
    pub right: Interval,
    /// Accuracy of the baseline that always predicts the most frequent value.
    pub guessing: f64,
    /// Number of attacked examples.
    pub records: usize,
}

/// Norm-bounded embeddings of examples, before noise, and the attribute of each example.
struct Seen {
    rows: Host,
    starts: Vec<usize>,
    classes: Vec<u32>,
}

impl Seen {
    fn of(model: &Model, settings: &Attribute, examples: &[Example]) -> Result<Self> {
        let mut model = model.clone();
        let mut layer = rows_alone(settings.noise_layer, settings.rows);
        layer.bounding = Bounding::Normalize;
        model.network.sanitizer = Some(layer);
        let (mut values, mut starts, mut classes, mut columns) =
            (Vec::new(), vec![0], Vec::new(), 0);
        for piece in pieces(examples, 64, 4096) {
            for &i in &piece {
                match examples[i].target {
                    Target::Class(class) if (class as usize) < settings.classes => {
                        classes.push(class)
                    }
                    _ => {
                        return Err(Error::Request(
                            "an example has no attribute, or one outside of the classes".into(),
                        ));
                    }
                }
            }
            let batch = Batch::pack(piece.iter().map(|&i| &examples[i]));
            let (rows, of) = model.bounded_rows(&batch)?;
            columns = rows.columns();
            values.extend_from_slice(&rows.dense());
            let first = starts[starts.len() - 1];
            starts.extend(of[1..].iter().map(|end| first + end));
        }
        if classes.is_empty() {
            return Err(Error::Request(
                "the attack needs at least one victim's example and one of the attacker's".into(),
            ));
        }
        let count = values.len() / columns.max(1);
        Ok(Self { rows: Host::from_vec(count, columns, values), starts, classes })
    }

    /// The released embedding of each example: the sum of its rows divided by √rows, so that the
    /// noise has the std of a single row.
    fn released(&self, noise: Option<&EmbeddingNoise>, first_example: u64) -> Host {
        let columns = self.rows.columns();
        let mut means = Vec::with_capacity(self.classes.len() * columns);
        let rows = self.rows.dense();
        for (example, window) in self.starts.windows(2).enumerate() {
            let mut own = rows[window[0] * columns..window[1] * columns].to_vec();
            if let Some(noise) = noise {
                noise.perturb(first_example + example as u64, 0, &mut own);
            }
            let scale = 1.0 / ((window[1] - window[0]).max(1) as f32).sqrt();
            let mut mean = vec![0.0; columns];
            own.chunks_exact(columns)
                .for_each(|row| mean.iter_mut().zip(row).for_each(|(m, x)| *m += scale * x));
            means.extend(mean);
        }
        Host::from_vec(self.classes.len(), columns, means)
    }
}

/// Trains on `known` and attacks `victims`; the target class of an example is its attribute.
pub fn infer(
    model: &Model,
    victims: &[Example],
    known: &[Example],
    settings: &Attribute,
) -> Result<Inferred> {
    let (victims, known) = (Seen::of(model, settings, victims)?, Seen::of(model, settings, known)?);
    let secret = Secret::from_seed(settings.seed);
    let noise = (settings.noise > 0.0)
        .then(|| EmbeddingNoise::new(&secret, ReleaseKind::Once, vec![settings.noise]));
    let examples: Vec<(u32, u32)> =
        known.classes.iter().zip(0..).map(|(&class, row)| (row, class)).collect();
    let rows = |epoch: usize| known.released(noise.as_ref(), (1 << 30) + ((epoch as u64) << 24));
    let training =
        probe::Training { classes: settings.classes, epochs: settings.epochs, seed: settings.seed };
    let predicted =
        probe::train(rows, &examples, &training)?.best(&victims.released(noise.as_ref(), 0))?;
    let records = victims.classes.len();
    let right = predicted
        .iter()
        .zip(&victims.classes)
        .filter(|(predicted, truth)| predicted == truth)
        .count();
    let most = |class: u32| known.classes.iter().filter(|&&other| other == class).count();
    let common = (0..settings.classes as u32).max_by_key(|&class| most(class)).unwrap_or(0);
    let guessed = victims.classes.iter().filter(|&&class| class == common).count();
    Ok(Inferred {
        right: proportion(right as u64, records as u64, settings.confidence),
        guessing: guessed as f64 / records as f64,
        records,
    })
}
