//! BitFit: the biases of all layers are trained, and the weights are frozen.

use crate::folder::Random;
use crate::parameters::Parameter;
use crate::{Error, Model, Result};
use undertone_settings::InitialBiases;
use undertone_tensor::Matrix;

fn is_bias(parameter: &Parameter) -> bool {
    parameter.name.ends_with("bias")
}

/// Makes the biases trainable.
pub(super) fn attach(model: &mut Model) -> Result<()> {
    let mut has_bias = false;
    for (_, parameter) in model.parameters.iter_mut().filter(|(_, p)| is_bias(p)) {
        parameter.trainable = true;
        has_bias = true;
    }
    match has_bias {
        true => Ok(()),
        false => Err(Error::Tuning(
            "this model has no biases, so BitFit would train nothing; use lora".into(),
        )),
    }
}

/// Std with which GPT-2 and BERT initialize weights.
const STD: f32 = 0.02;

impl Model {
    /// Gives all biases new values, before they are trained. Rap-FT's experiments with BitFit do
    /// this; it uses no data.
    pub fn initialize_biases(&mut self, biases: InitialBiases, seed: u64) -> Result<()> {
        let mut random = Random::new(seed, 1.0);
        for (_, parameter) in self.parameters.iter_mut().filter(|(_, p)| is_bias(p)) {
            let (rows, columns) = (parameter.value.rows(), parameter.value.columns());
            let device = parameter.value.device();
            let value = match biases {
                InitialBiases::Zero => Matrix::zeros(rows, columns),
                InitialBiases::Normal => {
                    Matrix::from_vec(rows, columns, random.normal(rows * columns, STD))
                }
            };
            parameter.value = value.to_device(&device)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TaskHead;
    use crate::architecture::{Architecture, Dimensions};
    use crate::tuning::Tuning;

    #[test]
    fn biases_start_anew_and_weights_do_not() {
        let dimensions = Dimensions {
            layers: 2,
            hidden: 16,
            heads: 4,
            inner: 40,
            vocabulary: 60,
            positions: 20,
            key_heads: None,
        };
        let head = TaskHead::CausalLanguageModel;
        let mut model = Architecture::Gpt2.random(dimensions, head, &[], 5).unwrap();
        model.apply_tuning(&Tuning::Bitfit, 1).unwrap();
        let of = |model: &Model, biases: bool| -> Vec<f32> {
            let chosen = model.parameters.iter().filter(|(_, p)| is_bias(p) == biases);
            chosen.flat_map(|(_, p)| p.value.to_vec().unwrap()).collect()
        };
        let weights = of(&model, false);
        model.initialize_biases(InitialBiases::Normal, 3).unwrap();
        let drawn = of(&model, true);
        let squares: f32 = drawn.iter().map(|x| x * x).sum();
        assert!(((squares / drawn.len() as f32).sqrt() / STD - 1.0).abs() < 0.1);
        assert!(model.parameters.iter().all(|(_, p)| p.trainable == is_bias(p)));
        model.initialize_biases(InitialBiases::Zero, 3).unwrap();
        assert!(of(&model, true).iter().all(|&x| x == 0.0));
        assert_eq!(of(&model, false), weights);
    }
}
