//! The parameters of a model in one list; layers name them by their place in it.
//!
//! A tied weight is one entry that two layers name, so it is counted, updated and saved once.

use crate::tensor::{Device, Matrix, Result};

/// A parameter's place in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ParameterId(pub(crate) usize);

impl ParameterId {
    /// Its place in the list, from 0.
    pub fn index(self) -> usize {
        self.0
    }
}

/// Whether a parameter came with the model or was put beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Part of the model, saved with it.
    Base,
    /// Part of an adapter (LoRA or bottleneck), saved on its own.
    Adapter,
}

/// A named tensor.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Its key in the weights file.
    pub name: String,
    /// Its shape there; a vector is held as a matrix of one row.
    pub shape: Vec<usize>,
    /// Its numbers.
    pub value: Matrix,
    /// Whether training changes it.
    pub trainable: bool,
    /// Where it belongs.
    pub origin: Origin,
}

impl Parameter {
    /// Number of numbers.
    pub fn len(&self) -> usize {
        self.value.rows() * self.value.columns()
    }

    /// Whether it has no numbers.
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
    /// Adds one and returns its place.
    pub(crate) fn push(&mut self, parameter: Parameter) -> ParameterId {
        self.list.push(parameter);
        ParameterId(self.list.len() - 1)
    }

    /// The numbers of a parameter.
    pub fn value(&self, id: ParameterId) -> &Matrix {
        &self.list[id.0].value
    }

    /// Whether training changes it.
    pub fn is_trainable(&self, id: ParameterId) -> bool {
        self.list[id.0].trainable
    }

    /// One parameter.
    pub fn get(&self, id: ParameterId) -> &Parameter {
        &self.list[id.0]
    }

    /// One parameter, to be changed.
    pub fn get_mut(&mut self, id: ParameterId) -> &mut Parameter {
        &mut self.list[id.0]
    }

    /// All of them with their places.
    pub fn iter(&self) -> impl Iterator<Item = (ParameterId, &Parameter)> {
        self.list.iter().enumerate().map(|(i, parameter)| (ParameterId(i), parameter))
    }

    /// All of them, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (ParameterId, &mut Parameter)> {
        self.list.iter_mut().enumerate().map(|(i, parameter)| (ParameterId(i), parameter))
    }

    /// The parameter of this name.
    pub fn find(&self, name: &str) -> Option<ParameterId> {
        self.list.iter().position(|parameter| parameter.name == name).map(ParameterId)
    }

    /// How many parameters there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// How many numbers training changes, and how many there are.
    pub fn count(&self) -> (usize, usize) {
        let trainable = self.list.iter().filter(|p| p.trainable).map(Parameter::len).sum();
        (trainable, self.list.iter().map(Parameter::len).sum())
    }

    /// Forgets what was put beside the model; those are always the last in the list.
    pub(crate) fn drop_adapters(&mut self) {
        while self.list.last().is_some_and(|parameter| parameter.origin == Origin::Adapter) {
            self.list.pop();
        }
    }

    /// Moves all of them.
    pub fn to_device(&mut self, device: &Device) -> Result<()> {
        for parameter in &mut self.list {
            parameter.value = parameter.value.to_device(device)?;
        }
        Ok(())
    }
}
