//! Collects the parameters of a model while its layers are described.

use crate::model::Result;
use crate::model::folder::{Random, Source};
use crate::model::layer::linear::Linear;
use crate::model::layer::norm::Norm;
use crate::model::parameters::{Origin, Parameter, ParameterId, Parameters};
use crate::tensor::{Matrix, NormKind};
use undertone_run::Quantise;

/// Reads parameters from a source and collects them. Task head parameters that the source lacks are
/// randomly initialised.
pub struct Builder<'a> {
    source: &'a mut dyn Source,
    random: Random,
    inside_head: bool,
    /// Whether parameters get a shape and no numbers.
    only_shapes: bool,
    /// How the weights of linear layers are kept, apart from those of the task head.
    quantise: Option<Quantise>,
    pub parameters: Parameters,
    /// Names of randomly initialised parameters.
    pub fresh: Vec<String>,
}

impl<'a> Builder<'a> {
    /// A builder on this source; `seed` initialises missing task head parameters.
    pub fn new(source: &'a mut dyn Source, seed: u64) -> Self {
        Self {
            source,
            random: Random::new(seed, 0.02),
            inside_head: false,
            only_shapes: false,
            quantise: None,
            parameters: Parameters::default(),
            fresh: Vec::new(),
        }
    }

    /// A builder that checks names and shapes, and reads and allocates no numbers.
    pub fn of_shapes(source: &'a mut dyn Source) -> Self {
        Self { only_shapes: true, ..Self::new(source, 0) }
    }

    /// Rounds the weights of linear layers, apart from those of the task head, as they are read.
    pub fn quantised(self, quantise: Option<Quantise>) -> Self {
        Self { quantise, ..self }
    }

    /// Marks that the following parameters belong to the task head and may be missing in the
    /// source.
    pub fn begin_head(&mut self) {
        self.inside_head = true;
    }

    /// Whether the source has this tensor.
    pub fn has(&self, name: &str) -> bool {
        self.source.has(name)
    }

    /// A parameter with this name and shape (one or two dimensions).
    pub fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<ParameterId> {
        let is_fresh = self.inside_head && !self.source.has(name);
        if is_fresh {
            self.fresh.push(name.to_owned());
        }
        let source: &mut dyn Source = if is_fresh { &mut self.random } else { &mut *self.source };
        source.check(name, shape)?;
        let value = if self.only_shapes {
            Matrix::zeros(0, 0)
        } else {
            let (rows, columns) = match *shape {
                [columns] => (1, columns),
                [rows, columns] => (rows, columns),
                _ => unreachable!("parameters are vectors or matrices"),
            };
            match if rows > 1 { source.bf16(name, shape)? } else { None } {
                Some(bits) => Matrix::from_bf16(rows, columns, bits),
                None => Matrix::from_vec(rows, columns, source.tensor(name, shape)?),
            }
        };
        Ok(self.parameters.push(Parameter {
            name: name.to_owned(),
            shape: shape.to_vec(),
            value,
            trainable: true,
            origin: Origin::Base,
        }))
    }

    /// The weight of a linear layer.
    fn weight(&mut self, name: &str, shape: [usize; 2]) -> Result<ParameterId> {
        let weight = self.tensor(&format!("{name}.weight"), &shape)?;
        if self.quantise == Some(Quantise::Nf4) && !self.inside_head && !self.only_shapes {
            let parameter = self.parameters.get_mut(weight);
            parameter.value = parameter.value.in_nf4()?;
        }
        Ok(weight)
    }

    /// A linear layer with its weight as `[outputs, inputs]`.
    pub fn linear(
        &mut self,
        name: &str,
        inputs: usize,
        outputs: usize,
        with_bias: bool,
    ) -> Result<Linear> {
        let weight = self.weight(name, [outputs, inputs])?;
        let bias =
            if with_bias { Some(self.tensor(&format!("{name}.bias"), &[outputs])?) } else { None };
        Ok(Linear::plain(name.to_owned(), weight, bias, [inputs, outputs]))
    }

    /// A linear layer with its weight as `[inputs, outputs]`, like GPT-2's `Conv1D` in
    /// transformers.
    pub fn conv1d(&mut self, name: &str, inputs: usize, outputs: usize) -> Result<Linear> {
        let weight = self.weight(name, [inputs, outputs])?;
        let bias = Some(self.tensor(&format!("{name}.bias"), &[outputs])?);
        Ok(Linear {
            name: name.to_owned(),
            weight,
            bias,
            inputs,
            outputs,
            inputs_first: true,
            parts: &[],
            lora: Vec::new(),
            rescaling: None,
        })
    }

    pub fn layer_norm(&mut self, name: &str, width: usize, epsilon: f32) -> Result<Norm> {
        let weight = self.tensor(&format!("{name}.weight"), &[width])?;
        let bias = Some(self.tensor(&format!("{name}.bias"), &[width])?);
        Ok(Norm { kind: NormKind::Layer, weight, bias, epsilon })
    }

    /// LayerNorm without a bias.
    pub fn layer_norm_of_weight(&mut self, name: &str, width: usize, epsilon: f32) -> Result<Norm> {
        let weight = self.tensor(&format!("{name}.weight"), &[width])?;
        Ok(Norm { kind: NormKind::Layer, weight, bias: None, epsilon })
    }

    /// RMSNorm whose parameter is γ − 1 (Gemma).
    pub fn offset_rms_norm(&mut self, name: &str, width: usize, epsilon: f32) -> Result<Norm> {
        let norm = self.rms_norm(name, width, epsilon)?;
        Ok(Norm { kind: NormKind::OffsetRootMeanSquare, ..norm })
    }

    pub fn rms_norm(&mut self, name: &str, width: usize, epsilon: f32) -> Result<Norm> {
        let weight = self.tensor(&format!("{name}.weight"), &[width])?;
        Ok(Norm { kind: NormKind::RootMeanSquare, weight, bias: None, epsilon })
    }
}
