//! The operations composed of candle's.

use crate::tensor::{Activation, Dropout, NormKind, Normalised};
use candle_core::{DType, Result, Tensor};

pub fn indices(indices: &[u32], beside: &Tensor) -> Result<Tensor> {
    Tensor::from_slice(indices, indices.len(), beside.device())
}

pub fn norm_forward(
    kind: NormKind,
    x: &Tensor,
    residual: Option<&Tensor>,
    weight: &Tensor,
    bias: Option<&Tensor>,
    epsilon: f32,
) -> Result<Normalised<Tensor>> {
    let x = match residual {
        Some(residual) => (x + residual)?,
        None => x.clone(),
    };
    let centred = match kind {
        NormKind::Layer => x.broadcast_sub(&x.mean_keepdim(1)?)?,
        NormKind::RootMeanSquare => x,
    };
    let inverse = (centred.sqr()?.mean_keepdim(1)? + f64::from(epsilon))?.sqrt()?.recip()?;
    let normalised = centred.broadcast_mul(&inverse)?;
    let mut output = normalised.broadcast_mul(weight)?;
    if let Some(bias) = bias {
        output = output.broadcast_add(bias)?;
    }
    Ok(Normalised { output, normalised, inverse_std: inverse })
}

pub fn norm_backward(
    kind: NormKind,
    normalised: &Tensor,
    inverse: &Tensor,
    weight: &Tensor,
    output_gradient: &Tensor,
) -> Result<Tensor> {
    let g = output_gradient.broadcast_mul(weight)?;
    let along = normalised.broadcast_mul(&(&g * normalised)?.mean_keepdim(1)?)?;
    let inner = match kind {
        NormKind::Layer => (g.broadcast_sub(&g.mean_keepdim(1)?)? - along)?,
        NormKind::RootMeanSquare => (g - along)?,
    };
    inner.broadcast_mul(inverse)
}

const SQRT_2_OVER_PI: f64 = 0.797_884_560_802_865_4;
const CUBIC: f64 = 0.044715;

fn sigmoid(x: &Tensor) -> Result<Tensor> {
    (x.neg()?.exp()? + 1.0)?.recip()
}

fn gelu_tanh_inner(x: &Tensor) -> Result<Tensor> {
    ((x.powf(3.0)? * CUBIC)? + x)? * SQRT_2_OVER_PI
}

/// Φ(x).
fn normal_distribution(x: &Tensor) -> Result<Tensor> {
    ((x * std::f64::consts::FRAC_1_SQRT_2)?.erf()? + 1.0)? * 0.5
}

pub fn activation(kind: Activation, x: &Tensor) -> Result<Tensor> {
    match kind {
        Activation::Gelu => x * normal_distribution(x)?,
        Activation::GeluTanh => ((gelu_tanh_inner(x)?.tanh()? + 1.0)? * x)? * 0.5,
        Activation::Silu => x * sigmoid(x)?,
        Activation::Relu => x.relu(),
        Activation::Tanh => x.tanh(),
    }
}

pub fn activation_derivative(kind: Activation, x: &Tensor) -> Result<Tensor> {
    match kind {
        Activation::Gelu => {
            let density = ((x.sqr()? * -0.5)?.exp()? * 0.398_942_280_401_432_7)?;
            normal_distribution(x)? + (x * density)?
        }
        Activation::GeluTanh => {
            let t = gelu_tanh_inner(x)?.tanh()?;
            let inner = ((x.sqr()? * (3.0 * CUBIC * SQRT_2_OVER_PI))? + SQRT_2_OVER_PI)?;
            let slope = ((t.sqr()?.affine(-1.0, 1.0)? * x)? * inner)?;
            ((t + 1.0)? + slope)? * 0.5
        }
        Activation::Silu => {
            let s = sigmoid(x)?;
            let inner = ((x * s.affine(-1.0, 1.0)?)? + 1.0)?;
            s * inner
        }
        Activation::Relu => x.gt(0.0)?.to_dtype(DType::F32),
        Activation::Tanh => x.tanh()?.sqr()?.affine(-1.0, 1.0),
    }
}

pub fn rotate(
    x: &Tensor,
    columns: usize,
    frequencies: &[f32],
    positions: &[u32],
    direction: f32,
) -> Result<Tensor> {
    let (rows, all) = x.dims2()?;
    let half = frequencies.len();
    let heads = columns / (2 * half);
    let angles = positions.iter().flat_map(|&p| frequencies.iter().map(move |f| p as f32 * f));
    let (sine, cosine): (Vec<f32>, Vec<f32>) =
        angles.map(|a| (direction * a.sin(), a.cos())).unzip();
    let sine = Tensor::from_vec(sine, (rows, 1, half), x.device())?;
    let cosine = Tensor::from_vec(cosine, (rows, 1, half), x.device())?;
    let turned = x.narrow(1, 0, columns)?.contiguous()?.reshape((rows, heads, 2 * half))?;
    let (low, high) = (turned.narrow(2, 0, half)?, turned.narrow(2, half, half)?);
    let new_low = (low.broadcast_mul(&cosine)? - high.broadcast_mul(&sine)?)?;
    let new_high = (high.broadcast_mul(&cosine)? + low.broadcast_mul(&sine)?)?;
    let turned = Tensor::cat(&[new_low, new_high], 2)?.reshape((rows, columns))?;
    if columns == all {
        return Ok(turned);
    }
    Tensor::cat(&[&turned, &x.narrow(1, columns, all - columns)?.contiguous()?], 1)
}

pub fn softmax(logits: &Tensor) -> Result<Tensor> {
    let exponentials = logits.broadcast_sub(&logits.max_keepdim(1)?)?.exp()?;
    exponentials.broadcast_div(&exponentials.sum_keepdim(1)?)
}

pub fn cross_entropy(
    logits: &Tensor,
    targets: &[u32],
    weights: Option<&[f32]>,
) -> Result<(Vec<f32>, Option<Tensor>)> {
    let rows = targets.len();
    if rows == 0 {
        return Ok((Vec::new(), weights.map(|_| logits.clone())));
    }
    let targets = indices(targets, logits)?.reshape((rows, 1))?;
    let largest = logits.max_keepdim(1)?;
    let exponentials = logits.broadcast_sub(&largest)?.exp()?;
    let totals = exponentials.sum_keepdim(1)?;
    let losses = ((totals.log()? + largest)? - logits.contiguous()?.gather(&targets, 1)?)?;
    let losses = losses.flatten_all()?.to_vec1()?;
    let Some(weights) = weights else { return Ok((losses, None)) };
    let weights = Tensor::from_slice(weights, (rows, 1), logits.device())?;
    let scaled = exponentials.broadcast_div(&totals)?.broadcast_mul(&weights)?;
    let gradient = scaled.contiguous()?.scatter_add(&targets, &weights.neg()?, 1)?;
    Ok((losses, Some(gradient)))
}

pub fn drop_out(dropout: Dropout, x: &Tensor) -> Result<Tensor> {
    let (rows, columns) = x.dims2()?;
    let mask: Vec<f32> = (0..(rows * columns) as u32).map(|i| dropout.factor(i)).collect();
    x * Tensor::from_vec(mask, (rows, columns), x.device())?
}
