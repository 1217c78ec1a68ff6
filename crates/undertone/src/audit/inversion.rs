//! Embedding inversion: which tokens did a record have, judged by what its owner released?
//!
//! The attacker knows the model, the noise, and other texts of the same kind, which they can perturb as often as they like. Two attacks:
//!
//! - *nearest neighbour*: the mean row of each token over the attacker's own texts, without noise; a released row is taken for the token whose mean is nearest, which is the likeliest one
//!   under even noise if rows of a token lie close together;
//! - *trained decoder*: a linear classifier from noisy rows to tokens, trained on the attacker's texts with fresh noise in every pass.
//!
//! Rows of a sequence share one norm, so a longer sequence has shorter rows; the attacker undoes that by the root of the sequence's length.

use crate::data::{Batch, Example, micro_batches};
use crate::mechanism::forward::{RecordNoise, Release};
use crate::mechanism::{Coordinates, Secret};
use crate::model::folder::Random;
use crate::model::layer::linear::Linear;
use crate::model::layer::sanitiser::{Bounding, Rows, Spot};
use crate::model::sanitised::rows_alone;
use crate::model::{Error, Gradients, Model, Origin, Parameter, Parameters, Pass, Result};
use crate::tensor::{self, Host, Matrix};
use crate::train::optimiser::{Optimiser, Settings};
use serde::Serialize;
use std::collections::BTreeMap;

/// What is attacked, and how hard.
#[derive(Clone, Copy, Debug)]
pub struct Inversion {
    /// Where the noise is.
    pub spot: Spot,
    /// Deviation of the noise over the norm of a record; 0 for none.
    pub noise: f64,
    /// Tokens that the attacker tells apart: the most frequent ones of their own texts.
    pub vocabulary: usize,
    /// Passes over the attacker's texts when a decoder is trained.
    pub epochs: usize,
    /// Draws the noise.
    pub seed: u64,
}

/// How often an attack was right, over tokens that are neither the first nor the last of their sequence: those are the same everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Recovered {
    /// Share of tokens that the nearest mean names.
    pub nearest: f64,
    /// Share of tokens that a trained decoder names.
    pub decoder: f64,
    /// Share of tokens that saying the most frequent one names.
    pub guessing: f64,
    /// How many tokens were attacked.
    pub tokens: usize,
}

/// Rows that a sanitiser would bound, and their tokens.
struct Seen {
    rows: Host,
    tokens: Vec<u32>,
    /// Where each record's rows begin.
    starts: Vec<usize>,
}

impl Seen {
    fn of(model: &Model, spot: Spot, examples: &[Example]) -> Result<Self> {
        let mut model = model.clone();
        let mut layer = rows_alone(spot, Rows::Tokens(None));
        layer.bounding = Bounding::Normalise;
        model.network.sanitiser = Some(layer);
        let all: Vec<usize> = (0..examples.len()).collect();
        let (mut values, mut tokens, mut starts, mut columns) = (Vec::new(), Vec::new(), vec![0], 0);
        for piece in micro_batches(&all, examples, 64, 4096) {
            let batch = Batch::pack(piece.iter().map(|&i| &examples[i]));
            let (rows, of) = model.bounded_rows(&batch)?;
            columns = rows.columns();
            values.extend_from_slice(&rows.dense());
            tokens.extend_from_slice(&batch.tokens);
            let first = starts[starts.len() - 1];
            starts.extend(of[1..].iter().map(|end| first + end));
        }
        if tokens.is_empty() {
            return Err(Error::Request("there are no texts to attack, or none to attack with".into()));
        }
        Ok(Self { rows: Host::from_vec(tokens.len(), columns, values), tokens, starts })
    }

    /// The rows as they are released, each brought to the scale of a sequence of one token.
    fn released(&self, noise: Option<&RecordNoise>, first_record: u64) -> Host {
        let mut rows = Host::from_vec(self.rows.rows(), self.rows.columns(), self.rows.dense().into_owned());
        let columns = rows.columns();
        let mut rest = rows.values_mut();
        for (record, window) in self.starts.windows(2).enumerate() {
            let length = window[1] - window[0];
            let (own, after) = rest.split_at_mut(length * columns);
            if let Some(noise) = noise {
                noise.perturb(first_record + record as u64, 0, own);
            }
            let scale = (length as f32).sqrt();
            own.iter_mut().for_each(|x| *x *= scale);
            rest = after;
        }
        rows
    }
}

/// Attacks the texts of `victims` with what can be learnt from `known`.
pub fn invert(model: &Model, victims: &[Example], known: &[Example], asked: &Inversion) -> Result<Recovered> {
    let (victims, known) = (Seen::of(model, asked.spot, victims)?, Seen::of(model, asked.spot, known)?);
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    known.tokens.iter().for_each(|&token| *counts.entry(token).or_default() += 1);
    let mut frequent: Vec<(usize, u32)> = counts.into_iter().map(|(token, count)| (count, token)).collect();
    frequent.sort_by_key(|&(count, token)| (std::cmp::Reverse(count), token));
    frequent.truncate(asked.vocabulary.max(1));
    let classes: BTreeMap<u32, u32> =
        frequent.iter().zip(0..).map(|(&(_, token), class)| (token, class)).collect();

    let secret = Secret::from_seed(asked.seed);
    let noise = (asked.noise > 0.0).then(|| RecordNoise::new(&secret, Release::Once, vec![asked.noise]));
    let released = victims.released(noise.as_ref(), 0);
    let inner: Vec<usize> =
        victims.starts.windows(2).flat_map(|w| w[0] + 1..(w[1] - 1).max(w[0] + 1)).collect();
    let right = |said: &[u32]| {
        let hits = inner.iter().filter(|&&i| classes.get(&victims.tokens[i]) == Some(&said[i])).count();
        hits as f64 / inner.len().max(1) as f64
    };
    // The most frequent token that is not one of those.
    let common = inner_most_frequent(&known, &classes);
    let nearest = right(&nearest(&known, &classes, &released)?);
    let decoder = right(&decoder(&known, &classes, &released, noise.as_ref(), asked)?);
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

/// The class whose score is largest, row by row: scores are products with `weights` [classes, columns] plus a bias.
fn best(rows: &Host, weights: &Matrix, bias: &[f32]) -> Result<Vec<u32>> {
    let mut said = Vec::with_capacity(rows.rows());
    for first in (0..rows.rows()).step_by(2048) {
        let some = Matrix::Host(rows.row_range(first..(first + 2048).min(rows.rows())));
        let scores = tensor::product(1.0, some.plain(), weights.transposed())?.to_host()?;
        for i in 0..scores.rows() {
            let with_bias = scores.row(i).iter().zip(bias).map(|(s, b)| s + b).enumerate();
            said.push(with_bias.max_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(class, _)| class as u32));
        }
    }
    Ok(said)
}

/// ‖x − m‖² is least where ⟨x, m⟩ − ‖m‖²/2 is largest.
fn nearest(known: &Seen, classes: &BTreeMap<u32, u32>, released: &Host) -> Result<Vec<u32>> {
    let clean = known.released(None, 0);
    let columns = clean.columns();
    let (mut means, mut counts) = (vec![0.0_f32; classes.len() * columns], vec![0.0_f32; classes.len()]);
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
    let bias: Vec<f32> =
        means.chunks_exact(columns).map(|mean| -0.5 * mean.iter().map(|x| x * x).sum::<f32>()).collect();
    best(released, &Matrix::from_vec(classes.len(), columns, means), &bias)
}

/// A linear classifier that is trained on the attacker's texts under noise like that of the records.
fn decoder(
    known: &Seen,
    classes: &BTreeMap<u32, u32>,
    released: &Host,
    noise: Option<&RecordNoise>,
    asked: &Inversion,
) -> Result<Vec<u32>> {
    let columns = released.columns();
    let mut parameters = Parameters::default();
    let mut random = Random::new(asked.seed, 0.02);
    let mut push = |name: &str, rows: usize, columns: usize, values: Vec<f32>| {
        let value = Matrix::from_vec(rows, columns, values);
        let shape = if rows == 1 { vec![columns] } else { vec![rows, columns] };
        parameters.push(Parameter { name: name.into(), shape, value, trainable: true, origin: Origin::Base })
    };
    let weight = push("weight", classes.len(), columns, random.normal(classes.len() * columns, 0.01));
    let bias = push("bias", 1, classes.len(), vec![0.0; classes.len()]);
    let linear = Linear {
        name: "decoder".into(),
        weight,
        bias: Some(bias),
        inputs: columns,
        outputs: classes.len(),
        inputs_first: false,
        lora: None,
    };
    let mut optimiser = Optimiser::new(Settings { weight_decay: 0.0, ..Settings::default() }, &parameters);
    let coordinates = Coordinates::of(&parameters);
    // Records are cut anew in every pass: the order of tokens matters to nobody.
    let usable: Vec<(u32, u32)> = known
        .tokens
        .iter()
        .enumerate()
        .filter_map(|(row, token)| Some((row as u32, *classes.get(token)?)))
        .collect();
    const BATCH: usize = 512;
    let batches = usable.len().div_ceil(BATCH).max(1);
    let steps = asked.epochs * batches;
    for epoch in 0..asked.epochs {
        let rows = known.released(noise, (1 << 30) + ((epoch as u64) << 24));
        let rows = Matrix::Host(rows);
        for (i, some) in usable.chunks(BATCH).enumerate() {
            let (indices, targets): (Vec<u32>, Vec<u32>) = some.iter().copied().unzip();
            let x = tensor::gather(&rows, &indices)?;
            let mut gradients = Gradients::new(&parameters);
            let pass = Pass::plain(&parameters);
            let (logits, saved) = linear.forward(&pass, &x)?;
            let weights = vec![1.0 / targets.len() as f32; targets.len()];
            if let (_, Some(gradient)) = tensor::cross_entropy(&logits, &targets, Some(&weights))? {
                linear.backward(&pass, saved, &gradient, None, &mut gradients)?;
            }
            let release =
                crate::mechanism::Release { step: 0, noise: None, coordinates: &coordinates, divisor: 1.0 };
            let rate = 1e-2 * (1.0 - (epoch * batches + i) as f64 / steps as f64);
            optimiser.step(&mut parameters, gradients.take(), &release, rate)?;
        }
    }
    best(released, parameters.value(weight), &parameters.value(bias).to_vec()?)
}
