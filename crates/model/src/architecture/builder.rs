//! Collects the parameters of a model while its layers are constructed.

use crate::Result;
use crate::folder::{Random, Source};
use crate::layer::linear::Linear;
use crate::layer::norm::Norm;
use crate::parameters::{Origin, Parameter, ParameterId, Parameters};
use undertone_settings::Quantize;
use undertone_tensor::{Matrix, NormKind};

/// Reads parameters from a source and collects them. Task head parameters that the source lacks are
/// randomly initialized.
pub struct Builder<'a> {
    source: &'a mut dyn Source,
    random: Random,
    inside_head: bool,
    /// Whether parameters get a shape but no values.
    only_shapes: bool,
    /// How the weights of linear layers are stored, except those of the task head.
    quantize: Option<Quantize>,
    pub parameters: Parameters,
    /// Names of randomly initialized parameters.
    pub fresh: Vec<String>,
}

impl<'a> Builder<'a> {
    /// A builder that reads from `source`; `seed` initializes missing task head parameters.
    pub fn new(source: &'a mut dyn Source, seed: u64) -> Self {
        Self {
            source,
            random: Random::new(seed, 0.02),
            inside_head: false,
            only_shapes: false,
            quantize: None,
            parameters: Parameters::default(),
            fresh: Vec::new(),
        }
    }

    /// A builder that only checks names and shapes, without reading or allocating values.
    pub fn of_shapes(source: &'a mut dyn Source) -> Self {
        Self { only_shapes: true, ..Self::new(source, 0) }
    }

    /// Quantizes the weights of linear layers as they are read, except those of the task head.
    pub fn quantized(self, quantize: Option<Quantize>) -> Self {
        Self { quantize, ..self }
    }

    /// Marks the start of the task head, whose parameters may be missing in the source.
    pub fn begin_head(&mut self) {
        self.inside_head = true;
    }

    /// Whether the source has this tensor.
    pub fn has(&self, name: &str) -> bool {
        self.source.has(name)
    }

    /// Adds a parameter with this name and shape (one or two dimensions).
    pub fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<ParameterId> {
        self.tensor_in(name, shape, None)
    }

    /// Adds a parameter, quantized if requested.
    fn tensor_in(
        &mut self,
        name: &str,
        shape: &[usize],
        quantize: Option<Quantize>,
    ) -> Result<ParameterId> {
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
            let in_nf4 = match quantize {
                Some(Quantize::Nf4) => source.nf4(name, [rows, columns])?,
                None => None,
            };
            if let Some(matrix) = in_nf4 {
                matrix
            } else {
                let matrix = match if rows > 1 { source.bf16(name, shape)? } else { None } {
                    Some(bits) => Matrix::from_bf16(rows, columns, bits),
                    None => Matrix::from_vec(rows, columns, source.tensor(name, shape)?),
                };
                match quantize {
                    Some(Quantize::Nf4) => matrix.in_nf4()?,
                    None => matrix,
                }
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

    /// Adds the weight of a linear layer.
    fn weight(&mut self, name: &str, shape: [usize; 2]) -> Result<ParameterId> {
        let quantize = self.quantize.filter(|_| !self.inside_head);
        self.tensor_in(&format!("{name}.weight"), &shape, quantize)
    }

    /// A linear layer with weight `[outputs, inputs]`.
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

    /// A linear layer with weight `[inputs, outputs]`, like GPT-2's `Conv1D` in transformers.
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
