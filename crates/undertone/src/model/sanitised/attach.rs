//! Putting a sanitiser into a model.

use crate::model::layer::linear::Linear;
use crate::model::layer::sanitiser::{Bounding, Rows, Sanitiser, Spot};
use crate::model::parameters::{Origin, Parameter, ParameterId};
use crate::model::{Error, Model, Result};
use crate::tensor::{Activation, Matrix};
use serde::{Deserialize, Serialize};

/// What a sanitiser is like; its numbers are in a file of their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SanitiserConfig {
    /// Where it stands.
    pub spot: Spot,
    /// Which rows it releases.
    pub rows: Rows,
    /// Widths of the encoder's layers; none to release hidden states as they are.
    pub dims: Vec<usize>,
    /// Whether something is taken off each row first.
    pub centred: bool,
    /// Whether rows are decoded again; if not, the classifier reads them as they were released.
    pub decoded: bool,
    /// Each number is brought into [0, this].
    pub squash: Option<f32>,
    /// How the norm is held.
    pub bounding: Bounding,
    /// C.
    pub norm: f32,
    /// √Ψ.
    pub direction: Option<Vec<f32>>,
    /// Whether noisy rows are replaced by the best guess of the rows without noise.
    pub calibrated: bool,
    /// The deviation of the noise that it was trained with, in the weighted space.
    pub deviation: f32,
}

impl SanitiserConfig {
    /// How far, in units of the norm, replacing a record can move what is released: non-negative
    /// rows of length C are at most √2 C apart. In a box each column moves by its side, divided by
    /// its share of the noise; none if nothing bounds the record.
    pub fn sensitivity(&self) -> Option<f64> {
        match (self.bounding, self.squash, &self.direction) {
            (Bounding::Box, Some(side), Some(direction))
                if !matches!(self.rows, Rows::Tokens(_)) =>
            {
                let squares: f64 = direction.iter().map(|&d| f64::from(d).powi(-2)).sum();
                Some(f64::from(side / self.norm) * squares.sqrt())
            }
            (Bounding::Box, ..) => None,
            (_, Some(_), _) => Some(std::f64::consts::SQRT_2),
            (_, None, _) => Some(2.0),
        }
    }
}

/// A sanitiser that only picks rows, to look at them.
pub fn rows_alone(spot: Spot, rows: Rows) -> Sanitiser {
    Sanitiser {
        spot,
        rows,
        centre: None,
        encoder: Vec::new(),
        decoder: Vec::new(),
        activation: Activation::Gelu,
        squash: None,
        bounding: Bounding::Box,
        norm: 1.0,
        direction: None,
        calibration: None,
    }
}

/// Gives a parameter new numbers.
pub fn set(model: &mut Model, id: ParameterId, values: Vec<f32>) -> Result<()> {
    let device = model.device().clone();
    let parameter = model.parameters.get_mut(id);
    let (rows, columns) = (parameter.value.rows(), parameter.value.columns());
    parameter.value = Matrix::from_vec(rows, columns, values).to_device(&device)?;
    Ok(())
}

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
        Ok(Linear { name, weight, bias, inputs, outputs, inputs_first: false, lora: None })
    }
}

/// A copy of a model whose sanitiser has a decoder, to fit an encoder with; parameters that both
/// have keep their places.
pub fn with_decoder(model: &Model) -> Result<Model> {
    let mut twin = model.clone();
    let Some(layer) = model.network.sanitiser.as_ref().filter(|layer| layer.decoder.is_empty())
    else {
        return Ok(twin);
    };
    let mut decoder = Vec::new();
    for (i, encoder) in layer.encoder.iter().rev().enumerate() {
        let mut adding = Adding { model: &mut twin };
        decoder.push(adding.linear(
            format!("sanitiser.decoder.{i}"),
            encoder.outputs,
            encoder.inputs,
        )?);
    }
    if let Some(layer) = &mut twin.network.sanitiser {
        layer.decoder = decoder;
    }
    Ok(twin)
}

/// Puts a sanitiser in whose numbers are all zero, for the caller to set; nothing of it is
/// trainable yet. Rows that are not decoded get a classifier of their own in place of the model's.
pub fn attach(model: &mut Model, config: &SanitiserConfig) -> Result<()> {
    let blocks = model.network.blocks.len();
    if matches!(config.spot, Spot::After(after) if after > blocks) {
        return Err(Error::Request(format!(
            "the model has {blocks} blocks; put the noise after one of them"
        )));
    }
    if config.dims.contains(&0) || config.dims.iter().any(|&d| d > 65_536) {
        return Err(Error::Request("widths of an encoder must be from 1 to 65536".into()));
    }
    let hidden = model.network.head.width();
    let width = config.dims.last().copied().unwrap_or(hidden);
    if config.direction.as_ref().is_some_and(|direction| direction.len() != width) {
        return Err(Error::Request(format!(
            "the noise has a direction for other than the {width} columns that are released"
        )));
    }
    let classes = model.network.head.out.outputs;
    let mut adding = Adding { model };
    let centre =
        config.centred.then(|| adding.tensor("sanitiser.centre".into(), &[hidden])).transpose()?;
    let widths: Vec<usize> = std::iter::once(hidden).chain(config.dims.iter().copied()).collect();
    let (mut encoder, mut decoder) = (Vec::new(), Vec::new());
    for (i, pair) in widths.windows(2).enumerate() {
        encoder.push(adding.linear(format!("sanitiser.encoder.{i}"), pair[0], pair[1])?);
    }
    if config.decoded {
        for (i, pair) in widths.windows(2).rev().enumerate() {
            decoder.push(adding.linear(format!("sanitiser.decoder.{i}"), pair[1], pair[0])?);
        }
    }
    let calibration = config
        .calibrated
        .then(|| adding.linear("sanitiser.calibration".into(), width, width))
        .transpose()?;
    if !config.decoded {
        let out = adding.linear("sanitiser.head".into(), width, classes)?;
        let head = &mut model.network.head;
        (head.dense, head.norm, head.out) = (None, None, out);
        // Only heads are ever fresh, and this one is not used any more.
        model.fresh.clear();
    }
    model.network.sanitiser = Some(Sanitiser {
        centre,
        encoder,
        decoder,
        squash: config.squash,
        bounding: config.bounding,
        norm: config.norm,
        direction: config.direction.clone(),
        calibration,
        ..rows_alone(config.spot, config.rows)
    });
    Ok(())
}
