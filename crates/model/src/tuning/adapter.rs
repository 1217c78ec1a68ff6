//! Bottleneck adapters after attention and after the feed-forward network of every block.

use crate::folder::Random;
use crate::layer::adapter::Adapter;
use crate::layer::linear::Linear;
use crate::parameters::{Origin, Parameter, Parameters};
use crate::{Error, Model, Result};
use undertone_settings::AdapterSettings;
use undertone_tensor::{Activation, Device, Matrix};

/// Attaches new adapters; their up-projection is zero, so the model's outputs do not change.
pub(super) fn attach(model: &mut Model, settings: &AdapterSettings, seed: u64) -> Result<()> {
    if settings.size == 0 || settings.size > 65_536 {
        return Err(Error::Tuning(format!(
            "adapter.size is {}, but must be from 1 to 65536",
            settings.size
        )));
    }
    let Some(activation) = Activation::from_name(&settings.activation) else {
        return Err(Error::Tuning(format!(
            "adapter.activation is {:?}; known are gelu, gelu_new, silu, relu and tanh",
            settings.activation
        )));
    };
    let device = model.device().clone();
    let mut random = Random::new(seed, 0.02);
    let Model { network, parameters, .. } = model;
    for block in &mut network.blocks {
        let width = block.attention.output.outputs;
        let mut adapter = |which: &str| -> Result<Adapter> {
            let name = format!("{}.{which}", block.name);
            let down = random.normal(settings.size * width, 0.02);
            let up = vec![0.0; width * settings.size];
            Ok(Adapter {
                down: linear(
                    parameters,
                    &device,
                    format!("{name}.down"),
                    width,
                    settings.size,
                    down,
                )?,
                up: linear(parameters, &device, format!("{name}.up"), settings.size, width, up)?,
                activation,
            })
        };
        block.attention_adapter = Some(adapter("attention_adapter")?);
        block.feed_forward_adapter = Some(adapter("feed_forward_adapter")?);
    }
    Ok(())
}

fn linear(
    parameters: &mut Parameters,
    device: &Device,
    name: String,
    inputs: usize,
    outputs: usize,
    weight: Vec<f32>,
) -> Result<Linear> {
    let mut add = |which: &str, shape: Vec<usize>, rows: usize, values: Vec<f32>| {
        Ok::<_, Error>(parameters.push(Parameter {
            name: format!("{name}.{which}"),
            value: Matrix::from_vec(rows, values.len() / rows, values).to_device(device)?,
            shape,
            trainable: true,
            origin: Origin::Adapter,
        }))
    };
    let weight = add("weight", vec![outputs, inputs], outputs, weight)?;
    let bias = Some(add("bias", vec![outputs], 1, vec![0.0; outputs])?);
    Ok(Linear::plain(name, weight, bias, [inputs, outputs]))
}
