//! Groups of parameters that are clipped together.

use crate::model::{ParameterId, Parameters};
use std::collections::HashMap;

/// A group for each trainable parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    of: Vec<Option<usize>>,
    count: usize,
}

impl Groups {
    /// All trainable parameters in one group.
    pub fn one(parameters: &Parameters) -> Self {
        let of = parameters.iter().map(|(_, parameter)| parameter.trainable.then_some(0)).collect();
        Self { of, count: 1 }
    }

    /// One group for each layer: the parameters whose names agree up to the last dot, such as a weight and its bias.
    pub fn by_layer(parameters: &Parameters) -> Self {
        let mut layers: HashMap<&str, usize> = HashMap::new();
        let mut of = Vec::with_capacity(parameters.len());
        for (_, parameter) in parameters.iter() {
            let layer = parameter.name.rsplit_once('.').map_or("", |(layer, _)| layer);
            let next = layers.len();
            of.push(parameter.trainable.then(|| *layers.entry(layer).or_insert(next)));
        }
        Self { of, count: layers.len() }
    }

    /// The group of a parameter; none if it is not trained.
    pub fn of(&self, parameter: ParameterId) -> Option<usize> {
        self.of[parameter.index()]
    }

    /// How many groups there are.
    pub fn count(&self) -> usize {
        self.count
    }
}
