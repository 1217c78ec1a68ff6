//! Attaches a sanitizer to a model.

use crate::layer::linear::Linear;
use crate::layer::sanitizer::{Bounding, NoiseLayer, Rows, Sanitizer};
use crate::parameters::{Origin, Parameter, ParameterId};
use crate::{Error, Model, Result};
use serde::{Deserialize, Serialize};
use undertone_settings::EncoderActivation;
use undertone_tensor::{Activation, Matrix};

/// Configuration of a sanitizer, as in `sanitizer.json`; its tensors are in a separate file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SanitizerConfig {
    #[serde(rename = "spot")]
    pub noise_layer: NoiseLayer,
    pub rows: Rows,
    /// Widths of the encoder's layers; empty to release hidden states.
    pub dims: Vec<usize>,
    /// Activation function after each projection except the decoder's last; `None` for GELU only
    /// between the layers of the encoder and of the decoder, as in folders without this key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation: Option<EncoderActivation>,
    /// Whether a vector is first subtracted from each row.
    pub centered: bool,
    /// Whether the provider decodes embeddings to hidden states; otherwise the classifier reads
    /// them directly.
    pub decoded: bool,
    /// Upper end s of the range \[0, s\] to which each coordinate is clamped.
    pub squash: Option<f32>,
    pub bounding: Bounding,
    /// Norm bound C.
    pub norm: f32,
    /// √Ψ: relative noise std of each column; `None` for isotropic noise.
    pub direction: Option<Vec<f32>>,
    /// Whether perturbed embeddings are replaced by linear estimates of the noise-free embeddings.
    pub calibrated: bool,
    /// Noise std during training, before multiplication by √Ψ.
    #[serde(rename = "deviation")]
    pub noise_std: f32,
}

impl SanitizerConfig {
    /// ℓ2 sensitivity to replacing an example, in units of C: non-negative rows of norm C are at
    /// most √2 C apart, others 2 C. With [`Bounding::Box`], each coordinate moves by at most
    /// `squash`, divided by its relative noise std. `None` if nothing bounds the example.
    pub fn sensitivity(&self) -> Option<f64> {
        match (self.bounding, self.squash, &self.direction) {
            (Bounding::Box, Some(side), Some(direction)) if !self.rows.are_of_tokens() => {
                let squares: f64 = direction.iter().map(|&d| f64::from(d).powi(-2)).sum();
                Some(f64::from(side) / f64::from(self.norm) * squares.sqrt() * (1.0 + 1e-12))
            }
            (Bounding::Box, ..) => None,
            (_, Some(_), _) => Some(std::f64::consts::SQRT_2),
            (_, None, _) => Some(2.0),
        }
    }

    /// Whether norm, squash and direction lie in a range where a release under noise of 10⁻³ … 10⁶
    /// norms is finite and has all bits of its noise: the noise is drawn in `f32`, and neither it
    /// nor its grid may come near the limits of that format.
    pub fn is_in_range(&self) -> bool {
        let range = 1e-10..=1e10;
        let direction = self.direction.iter().flatten();
        std::iter::once(&self.norm).chain(&self.squash).chain(direction).all(|x| range.contains(x))
    }
}

/// A sanitizer that only selects rows, without encoder, bound or noise.
pub fn rows_alone(noise_layer: NoiseLayer, rows: Rows) -> Sanitizer {
    Sanitizer {
        noise_layer,
        rows,
        pooler: None,
        center: None,
        encoder: Vec::new(),
        decoder: Vec::new(),
        activation: Some(Activation::Gelu),
        activates_code: false,
        squash: None,
        bounding: Bounding::Box,
        norm: 1.0,
        direction: None,
        calibration: None,
    }
}

/// Sets the value of a parameter.
pub fn set(model: &mut Model, id: ParameterId, values: Vec<f32>) -> Result<()> {
    let device = model.device().clone();
    let parameter = model.parameters.get_mut(id);
    let (rows, columns) = (parameter.value.rows(), parameter.value.columns());
    parameter.value = Matrix::from_vec(rows, columns, values).to_device(&device)?;
    Ok(())
}

/// Adds frozen, zero-initialized parameters to a model.
struct Adding<'a> {
    model: &'a mut Model,
}

impl Adding<'_> {
    fn tensor(&mut self, name: String, shape: &[usize]) -> Result<ParameterId> {
        let (rows, columns) =
            if let [rows, columns] = *shape { (rows, columns) } else { (1, shape[0]) };
        let value = Matrix::zeros(rows, columns).to_device(self.model.device())?;
        let parameter = Parameter {
            name,
            shape: shape.to_vec(),
            value,
            trainable: false,
            origin: Origin::Adapter,
        };
        Ok(self.model.parameters.push(parameter))
    }

    fn linear(&mut self, name: String, inputs: usize, outputs: usize) -> Result<Linear> {
        let weight = self.tensor(format!("{name}.weight"), &[outputs, inputs])?;
        let bias = Some(self.tensor(format!("{name}.bias"), &[outputs])?);
        Ok(Linear::plain(name, weight, bias, [inputs, outputs]))
    }
}

/// A copy of a model whose sanitizer has a decoder, for training the encoder; shared parameters
/// keep their indices.
pub fn with_decoder(model: &Model) -> Result<Model> {
    let mut twin = model.clone();
    let Some(layer) = model.network.sanitizer.as_ref().filter(|layer| layer.decoder.is_empty())
    else {
        return Ok(twin);
    };
    let mut decoder = Vec::new();
    for (i, encoder) in layer.encoder.iter().rev().enumerate() {
        let mut adding = Adding { model: &mut twin };
        decoder.push(adding.linear(
            format!("sanitizer.decoder.{i}"),
            encoder.outputs,
            encoder.inputs,
        )?);
    }
    if let Some(layer) = &mut twin.network.sanitizer {
        layer.decoder = decoder;
    }
    Ok(twin)
}

/// Attaches a zero-initialized, frozen sanitizer whose parameters the caller sets. Without a
/// decoder, a new linear classifier on the released embeddings replaces the model's task head.
pub fn attach(model: &mut Model, config: &SanitizerConfig) -> Result<()> {
    let blocks = model.network.blocks.len();
    if matches!(config.noise_layer, NoiseLayer::After(after) if after > blocks) {
        return Err(Error::Request(format!(
            "the model has {blocks} blocks; add the noise after one of them"
        )));
    }
    if config.dims.contains(&0) || config.dims.iter().any(|&d| d > 65_536) {
        return Err(Error::Request("the encoder's widths must be from 1 to 65536".into()));
    }
    let pooler = match config.noise_layer {
        NoiseLayer::Pooler => Some(model.network.head.dense.take().ok_or_else(|| {
            Error::Request(
                "the model's task head has no dense layer before its classifier; add the noise at \
                 \"output\""
                    .into(),
            )
        })?),
        NoiseLayer::After(_) | NoiseLayer::Output => None,
    };
    let hidden = model.network.head.width();
    let width = config.dims.last().copied().unwrap_or(hidden);
    if config.direction.as_ref().is_some_and(|direction| direction.len() != width) {
        return Err(Error::Request(format!(
            "the noise direction must have one value for each of the {width} released columns"
        )));
    }
    let classes = model.network.head.out.outputs;
    let mut adding = Adding { model };
    let center =
        config.centered.then(|| adding.tensor("sanitizer.center".into(), &[hidden])).transpose()?;
    let widths: Vec<usize> = std::iter::once(hidden).chain(config.dims.iter().copied()).collect();
    let (mut encoder, mut decoder) = (Vec::new(), Vec::new());
    for (i, pair) in widths.windows(2).enumerate() {
        encoder.push(adding.linear(format!("sanitizer.encoder.{i}"), pair[0], pair[1])?);
    }
    if config.decoded {
        for (i, pair) in widths.windows(2).rev().enumerate() {
            decoder.push(adding.linear(format!("sanitizer.decoder.{i}"), pair[1], pair[0])?);
        }
    }
    let calibration = config
        .calibrated
        .then(|| adding.linear("sanitizer.calibration".into(), width, width))
        .transpose()?;
    if !config.decoded {
        let out = adding.linear("sanitizer.head".into(), width, classes)?;
        let head = &mut model.network.head;
        (head.dense, head.norm, head.out) = (None, None, out);
        // Only task heads are ever newly initialized, and this one is no longer used.
        model.fresh.clear();
    }
    let (activation, activates_code) = match config.activation {
        None => (Some(Activation::Gelu), false),
        Some(EncoderActivation::Tanh) => (Some(Activation::Tanh), true),
        Some(EncoderActivation::Gelu) => (Some(Activation::Gelu), true),
        Some(EncoderActivation::None) => (None, false),
    };
    model.network.sanitizer = Some(Sanitizer {
        pooler,
        center,
        encoder,
        decoder,
        activation,
        activates_code,
        squash: config.squash,
        bounding: config.bounding,
        norm: config.norm,
        direction: config.direction.clone(),
        calibration,
        ..rows_alone(config.noise_layer, config.rows)
    });
    Ok(())
}
