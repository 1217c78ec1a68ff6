//! Attribute inference: what does a released embedding say of its record, such as a person's sex or
//! the topic of a letter?
//!
//! The attacker has records of the same kind with the attribute, perturbs them as the owner does,
//! trains a linear classifier under fresh noise in every pass, and names the attribute of released
//! records.

use super::probe;
use super::statistics::{Interval, proportion};
use crate::data::{Batch, Example, Target, pieces};
use crate::noise::Secret;
use crate::method::local::EmbeddingNoise;
use crate::model::layer::sanitiser::{Bounding, Rows, Spot};
use crate::model::sanitised::rows_alone;
use crate::model::{Error, Model, Result};
use crate::tensor::Host;
use serde::Serialize;
use undertone_run::ReleaseKind;

/// What is attacked, and how hard.
#[derive(Clone, Copy, Debug)]
pub struct Attribute {
    /// Where the noise is.
    pub spot: Spot,
    /// What is released of a record; of several rows the attacker takes the mean.
    pub rows: Rows,
    /// Deviation of the noise over the norm of a record; 0 for none.
    pub noise: f64,
    /// Values that the attribute can have.
    pub classes: usize,
    /// Passes over the attacker's records.
    pub epochs: usize,
    /// Draws the noise.
    pub seed: u64,
    /// Confidence of the interval.
    pub confidence: f64,
}

/// How often the attribute was named.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Inferred {
    /// Share of records whose attribute was named.
    pub right: Interval,
    /// Share for which the most frequent value is right.
    pub guessing: f64,
    /// How many records were attacked.
    pub records: usize,
}

/// Bounded rows of records, and the attribute of each record.
struct Seen {
    rows: Host,
    starts: Vec<usize>,
    classes: Vec<u32>,
}

impl Seen {
    fn of(model: &Model, asked: &Attribute, examples: &[Example]) -> Result<Self> {
        let mut model = model.clone();
        let mut layer = rows_alone(asked.spot, asked.rows);
        layer.bounding = Bounding::Normalise;
        model.network.sanitiser = Some(layer);
        let (mut values, mut starts, mut classes, mut columns) =
            (Vec::new(), vec![0], Vec::new(), 0);
        for piece in pieces(examples, 64, 4096) {
            for &i in &piece {
                match examples[i].target {
                    Target::Class(class) if (class as usize) < asked.classes => classes.push(class),
                    _ => {
                        return Err(Error::Request(
                            "a record has no attribute, or one that is not known".into(),
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
                "there are no records to attack, or none to attack with".into(),
            ));
        }
        let count = values.len() / columns.max(1);
        Ok(Self { rows: Host::from_vec(count, columns, values), starts, classes })
    }

    /// What is released of each record, averaged over its rows and brought to the scale of a single
    /// one.
    fn released(&self, noise: Option<&EmbeddingNoise>, first_record: u64) -> Host {
        let columns = self.rows.columns();
        let mut means = Vec::with_capacity(self.classes.len() * columns);
        let rows = self.rows.dense();
        for (record, window) in self.starts.windows(2).enumerate() {
            let mut own = rows[window[0] * columns..window[1] * columns].to_vec();
            if let Some(noise) = noise {
                noise.perturb(first_record + record as u64, 0, &mut own);
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

/// Attacks `victims` with what can be learnt from `known`; targets are the attribute.
pub fn infer(
    model: &Model,
    victims: &[Example],
    known: &[Example],
    asked: &Attribute,
) -> Result<Inferred> {
    let (victims, known) = (Seen::of(model, asked, victims)?, Seen::of(model, asked, known)?);
    let secret = Secret::from_seed(asked.seed);
    let noise =
        (asked.noise > 0.0).then(|| EmbeddingNoise::new(&secret, ReleaseKind::Once, vec![asked.noise]));
    let examples: Vec<(u32, u32)> =
        known.classes.iter().zip(0..).map(|(&class, row)| (row, class)).collect();
    let rows = |epoch: usize| known.released(noise.as_ref(), (1 << 30) + ((epoch as u64) << 24));
    let training =
        probe::Training { classes: asked.classes, epochs: asked.epochs, seed: asked.seed };
    let said =
        probe::train(rows, &examples, &training)?.best(&victims.released(noise.as_ref(), 0))?;
    let records = victims.classes.len();
    let right = said.iter().zip(&victims.classes).filter(|(said, truth)| said == truth).count();
    let most = |class: u32| known.classes.iter().filter(|&&other| other == class).count();
    let common = (0..asked.classes as u32).max_by_key(|&class| most(class)).unwrap_or(0);
    let guessed = victims.classes.iter().filter(|&&class| class == common).count();
    Ok(Inferred {
        right: proportion(right as u64, records as u64, asked.confidence),
        guessing: guessed as f64 / records as f64,
        records,
    })
}
