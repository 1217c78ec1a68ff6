//! The parameters of a model in one list, which layers reference by index.
//!
//! A tied weight is one entry referenced by two layers, so it is counted, updated and saved once.

use undertone_tensor::{Device, Matrix, Result};

/// Index of a parameter in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ParameterId(pub usize);

impl ParameterId {
    /// The index, starting at 0.
    pub fn index(self) -> usize {
        self.0
    }
}

/// Whether a parameter belongs to the base model or to an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Part of the base model, saved with it.
    Base,
    /// Part of an adapter (LoRA, bottleneck adapter or sanitizer), saved separately.
    Adapter,
}

/// A named parameter tensor.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Tensor name in the weights file.
    pub name: String,
    /// Shape in the weights file; in memory, a vector is a one-row matrix.
    pub shape: Vec<usize>,
    pub value: Matrix,
    /// Whether fine-tuning updates the parameter.
    pub trainable: bool,
    pub origin: Origin,
}

impl Parameter {
    /// Number of elements, according to the shape.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it is a weight matrix. The (IA)³ factors count as a vector, whatever their shape in
    /// a file: they start at 1, and weight decay would pull them toward 0.
    pub fn is_matrix(&self) -> bool {
        self.shape.len() > 1 && !self.name.ends_with(".ia3_l")
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// All parameters of a model.
#[derive(Clone, Debug, Default)]
pub struct Parameters {
    list: Vec<Parameter>,
}

impl Parameters {
    /// Adds a parameter and returns its index.
    pub fn push(&mut self, parameter: Parameter) -> ParameterId {
        self.list.push(parameter);
        ParameterId(self.list.len() - 1)
    }

    /// The name of a parameter with a non-finite value, if any.
    pub fn not_finite(&self) -> Result<Option<&str>> {
        for parameter in &self.list {
            if !parameter.value.to_vec()?.iter().all(|x| x.is_finite()) {
                return Ok(Some(&parameter.name));
            }
        }
        Ok(None)
    }

    /// The value of a parameter.
    pub fn value(&self, id: ParameterId) -> &Matrix {
        &self.list[id.0].value
    }

    /// Whether fine-tuning updates the parameter.
    pub fn is_trainable(&self, id: ParameterId) -> bool {
        self.list[id.0].trainable
    }

    pub fn get(&self, id: ParameterId) -> &Parameter {
        &self.list[id.0]
    }

    pub fn get_mut(&mut self, id: ParameterId) -> &mut Parameter {
        &mut self.list[id.0]
    }

    /// All parameters with their indices.
    pub fn iter(&self) -> impl Iterator<Item = (ParameterId, &Parameter)> {
        self.list.iter().enumerate().map(|(i, parameter)| (ParameterId(i), parameter))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (ParameterId, &mut Parameter)> {
        self.list.iter_mut().enumerate().map(|(i, parameter)| (ParameterId(i), parameter))
    }

    /// The parameter with this name.
    pub fn find(&self, name: &str) -> Option<ParameterId> {
        self.list.iter().position(|parameter| parameter.name == name).map(ParameterId)
    }

    /// Number of parameter tensors.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Number of trainable elements and total number of elements.
    pub fn count(&self) -> (usize, usize) {
        let trainable = self.list.iter().filter(|p| p.trainable).map(Parameter::len).sum();
        (trainable, self.list.iter().map(Parameter::len).sum())
    }

    /// Removes adapter parameters, which are always the last in the list.
    pub fn drop_adapters(&mut self) {
        while self.list.last().is_some_and(|parameter| parameter.origin == Origin::Adapter) {
            self.list.pop();
        }
    }

    /// Stores frozen matrices as matrix products round them.
    pub(crate) fn round_frozen(&mut self) -> Result<()> {
        // Biases and normalization weights are small and are not rounded.
        let frozen =
            |parameter: &&mut Parameter| !parameter.trainable && parameter.value.rows() > 1;
        for parameter in self.list.iter_mut().filter(frozen) {
            parameter.value = parameter.value.as_factor()?;
        }
        Ok(())
    }

    /// Converts parameters that fine-tuning updates to f32, whatever the type in the file.
    pub(crate) fn expand_trainable(&mut self) -> Result<()> {
        for parameter in self.list.iter_mut().filter(|parameter| parameter.trainable) {
            parameter.value = parameter.value.expanded()?;
        }
        Ok(())
    }

    /// Moves all parameters to a device.
    pub fn to_device(&mut self, device: &Device) -> Result<()> {
        for parameter in &mut self.list {
            parameter.value = parameter.value.to_device(device)?;
        }
        Ok(())
    }
}
