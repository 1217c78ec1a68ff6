//! Encoders that do not depend on the private examples: fitted on public text, or random.

use super::moments::{Known, Moments, eigen};
use crate::data::{Batch, Example, micro_batches};
use crate::model::folder::Random;
use crate::model::layer::linear::{Linear, Saved};
use crate::model::layer::sanitizer::{NoiseLayer, Rows, Sanitizer};
use crate::model::sanitized::{rows_alone, set};
use crate::model::{Gradients, Model, Pass, Result};
use crate::step::optimizer::{Optimizer, Settings};
use crate::step::{Coordinates, GradientRelease};
use crate::tensor::{self, Activation, Host, Matrix};
use nalgebra::DMatrix;

/// Hidden states of public texts, `[rows, hidden]`.
pub struct PublicRows {
    pub rows: Host,
}

/// Maximum number of rows used: more rows do not improve the fit.
const MOST_ROWS: usize = 60_000;

impl PublicRows {
    /// The rows of each text that a sanitizer at this layer would release, without noise and
    /// without the norm bound.
    pub fn of(
        model: &Model,
        noise_layer: NoiseLayer,
        rows: Rows,
        examples: &[Example],
    ) -> Result<Self> {
        let mut model = model.clone();
        // One row per token, without padding.
        let rows = if rows.are_of_tokens() { Rows::Tokens(None) } else { rows };
        let pooler = model.network.sanitizer.as_ref().and_then(|layer| layer.pooler.clone());
        model.network.sanitizer = Some(Sanitizer { pooler, ..rows_alone(noise_layer, rows) });
        let all: Vec<usize> = (0..examples.len()).collect();
        let (mut values, mut columns) = (Vec::new(), 0);
        for piece in micro_batches(&all, examples, 64, 4096) {
            let encoded = model.bounded_rows(&Batch::pack(piece.iter().map(|&i| &examples[i])))?.0;
            columns = encoded.columns();
            values.extend_from_slice(&encoded.dense());
            if values.len() >= MOST_ROWS * columns {
                break;
            }
        }
        Ok(Self { rows: Host::from_vec(values.len() / columns.max(1), columns, values) })
    }

    /// The mean row.
    pub fn center(&self) -> Result<Vec<f32>> {
        Ok(self.moments()?.mean().iter().map(|&x| x as f32).collect())
    }

    fn moments(&self) -> Result<Moments> {
        let mut moments = Moments::new(self.rows.columns(), 1);
        moments.add(&self.rows, &vec![0; self.rows.rows()])?;
        Ok(moments)
    }

    /// The first principal components, `[count, hidden]`.
    pub fn principal(&self, count: usize) -> Result<Vec<f32>> {
        let moments = self.moments()?;
        let known = Known { variances: vec![0.0; moments.width()], labels: None };
        let (_, vectors) = eigen(moments.covariance(&known));
        let kept = (0..count)
            .flat_map(|i| vectors.column(i).iter().map(|&x| x as f32).collect::<Vec<_>>());
        Ok(kept.collect())
    }
}

/// A random projection `[count, width]`, with orthonormal rows if count ≤ width.
pub fn orthogonal(seed: u64, count: usize, width: usize) -> Vec<f32> {
    let values = Random::new(seed, 1.0).normal(count * width, 1.0);
    let drawn = DMatrix::from_row_slice(count, width, &values).map(f64::from);
    let rows = if count <= width {
        drawn.transpose().qr().q().transpose()
    } else {
        drawn / (width as f64).sqrt()
    };
    (0..count).flat_map(|i| rows.row(i).iter().map(|&x| x as f32).collect::<Vec<_>>()).collect()
}

/// Sets a one-layer encoder to the projection W(x − c), and its decoder, if there is one, to Wᵀ z +
/// c.
pub fn set_projection(model: &mut Model, rows: &[f32], center: Option<&[f32]>) -> Result<()> {
    let Some(layer) = model.network.sanitizer.clone() else { return Ok(()) };
    let (width, count) = (layer.encoder[0].inputs, layer.encoder[0].outputs);
    set(model, layer.encoder[0].weight, rows.to_vec())?;
    if let Some(decoder) = layer.decoder.first() {
        let turned =
            (0..width).flat_map(|j| (0..count).map(move |i| rows[i * width + j])).collect();
        set(model, decoder.weight, turned)?;
        if let (Some(bias), Some(center)) = (decoder.bias, center) {
            set(model, bias, center.to_vec())?;
        }
    }
    Ok(())
}

/// Initializes a stacked autoencoder with random values.
pub fn set_random(model: &mut Model, seed: u64) -> Result<()> {
    let Some(layer) = model.network.sanitizer.clone() else { return Ok(()) };
    let mut random = Random::new(seed, 1.0);
    for linear in layer.encoder.iter().chain(&layer.decoder) {
        let values =
            random.normal(linear.inputs * linear.outputs, (linear.inputs as f32).sqrt().recip());
        set(model, linear.weight, values)?;
    }
    Ok(())
}

/// The activation between layer `i` of the encoder and decoder and the layer before it.
fn activation_before(model: &Model, layers: &[Linear], i: usize) -> Option<Activation> {
    let sanitizer = model.network.sanitizer.as_ref()?;
    let inside_a_stack = i > 0 && i != layers.len() / 2;
    let of_the_code = i > 0 && i == layers.len() / 2 && sanitizer.activates_code;
    sanitizer.activation.filter(|_| inside_a_stack || of_the_code)
}

/// The forward pass through encoder and decoder: the state before each layer and after the last
/// one, and what the backward pass needs.
fn encode(
    model: &Model,
    pass: &Pass,
    layers: &[Linear],
    x: Matrix,
) -> Result<(Vec<Matrix>, Vec<Saved>)> {
    let (mut states, mut saved) = (vec![x], Vec::new());
    for (i, layer) in layers.iter().enumerate() {
        let last = states[states.len() - 1].clone();
        let input = match activation_before(model, layers, i) {
            Some(activation) => tensor::activate(activation, &last)?,
            None => last,
        };
        let (y, kept) = layer.forward(pass, &input)?;
        states.push(y);
        saved.push(kept);
    }
    Ok((states, saved))
}

/// Fits the encoder and decoder to reconstruct public rows, by Adam on the mean squared error. The
/// center is not changed.
pub fn fit_autoencoder(
    model: &mut Model,
    public: &PublicRows,
    center: &[f32],
    epochs: usize,
) -> Result<()> {
    let Some(layer) = model.network.sanitizer.clone() else { return Ok(()) };
    let layers: Vec<Linear> = layer.encoder.iter().chain(&layer.decoder).cloned().collect();
    let ids: Vec<_> = layers.iter().flat_map(|l| [Some(l.weight), l.bias]).flatten().collect();
    let before: Vec<bool> = model.parameters.iter().map(|(_, p)| p.trainable).collect();
    for (id, parameter) in model.parameters.iter_mut() {
        parameter.trainable = ids.contains(&id);
    }
    let mut optimizer = Optimizer::new(Settings { weight_decay: 0.0, ..Settings::default() });
    let coordinates = Coordinates::of(&model.parameters);
    const BATCH: usize = 512;
    let batches = public.rows.rows().div_ceil(BATCH);
    for step in 0..epochs * batches {
        let first = (step % batches) * BATCH;
        let rows = public.rows.row_range(first..(first + BATCH).min(public.rows.rows()));
        let mut x = Host::from_vec(rows.rows(), rows.columns(), rows.dense().into_owned());
        for row in x.values_mut().chunks_exact_mut(center.len()) {
            row.iter_mut().zip(center).for_each(|(x, c)| *x -= c);
        }
        let x = Matrix::Host(x).to_device(model.device())?;
        let mut gradients = Gradients::new(&model.parameters);
        {
            let pass = Pass::plain(&model.parameters);
            let (states, saved) = encode(model, &pass, &layers, x.clone())?;
            let count = x.rows() as f32;
            let minus = tensor::scale_rows(&x, &vec![-1.0; x.rows()])?;
            let error = tensor::add(&states[states.len() - 1], &minus)?;
            let mut error = tensor::scale_rows(&error, &vec![2.0 / count; x.rows()])?;
            for (i, (linear, saved)) in layers.iter().zip(saved).enumerate().rev() {
                error = linear.backward_alone(&pass, saved, &error, &mut gradients)?;
                if let Some(activation) = activation_before(model, &layers, i) {
                    error = tensor::activate_backward(activation, &states[i], &error)?;
                }
            }
        }
        let release =
            GradientRelease { step: 0, noise: None, coordinates: &coordinates, divisor: 1.0 };
        let learning_rate = 2e-3 * (1.0 - step as f64 / (epochs * batches) as f64);
        optimizer.step(&mut model.parameters, gradients.take(), &release, learning_rate)?;
    }
    // The decoder was fitted to centered rows, but hidden states are not centered.
    if let Some(bias) = layer.decoder.last().and_then(|l| l.bias) {
        let shifted =
            model.parameters.value(bias).to_vec()?.iter().zip(center).map(|(b, c)| b + c).collect();
        set(model, bias, shifted)?;
    }
    for ((_, parameter), trainable) in model.parameters.iter_mut().zip(before) {
        parameter.trainable = trainable;
    }
    Ok(())
}

/// Fraction of the rows' variance lost by encoder and decoder, in [0, 1]; `None` without a decoder.
pub fn reconstruction_error(model: &Model, public: &PublicRows) -> Result<Option<f64>> {
    let Some(layer) = model.network.sanitizer.as_ref().filter(|layer| !layer.decoder.is_empty())
    else {
        return Ok(None);
    };
    let center = public.center()?;
    let taken = match layer.center {
        Some(id) => model.parameters.value(id).to_vec()?,
        None => vec![0.0; center.len()],
    };
    let layers: Vec<Linear> = layer.encoder.iter().chain(&layer.decoder).cloned().collect();
    let pass = Pass::plain(&model.parameters);
    let (mut lost, mut all) = (0.0, 0.0);
    for first in (0..public.rows.rows()).step_by(4096) {
        let rows = public.rows.row_range(first..(first + 4096).min(public.rows.rows()));
        let mut x = Host::from_vec(rows.rows(), rows.columns(), rows.dense().into_owned());
        for row in x.values_mut().chunks_exact_mut(taken.len()) {
            row.iter_mut().zip(&taken).for_each(|(x, c)| *x -= c);
        }
        let (states, _) =
            encode(model, &pass, &layers, Matrix::Host(x).to_device(model.device())?)?;
        let back = states[states.len() - 1].to_host()?;
        for i in 0..rows.rows() {
            for ((x, y), c) in rows.row(i).iter().zip(back.row(i)).zip(&center) {
                lost += f64::from(x - y).powi(2);
                all += f64::from(x - c).powi(2);
            }
        }
    }
    Ok(Some(lost / all.max(1e-30)))
}
