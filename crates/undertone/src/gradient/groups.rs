//! The norm in which gradients are clipped: which coordinates are clipped together as a group, and
//! with which weights.

use super::weights::Weights;
use crate::model::{ParameterId, Parameters};
use crate::tensor::CoordinateWeights;
use std::collections::HashMap;
use std::sync::Arc;

/// For each trainable parameter, its contribution to the squared norms of the clipping groups.
#[derive(Clone, Debug, PartialEq)]
pub struct ClippingGroups {
    of: Vec<Option<ParameterGroups>>,
    /// Rows and columns of each parameter.
    shapes: Vec<[usize; 2]>,
    groups: usize,
}

/// The clipping groups of a parameter's coordinates.
#[derive(Clone, Debug, PartialEq)]
pub enum ParameterGroups {
    /// All coordinates in one group, with squared norm Σ g².
    Plain(usize),
    /// All coordinates in one group, with squared norm Σ w g².
    Weighted(usize, Weights),
    /// Each coordinate in one of two groups. A group's mask is 1 for its coordinates and 0 for the
    /// others.
    Split([(usize, Arc<CoordinateWeights>); 2]),
}

/// A parameter's contribution to one group, with a weight for each coordinate: Σ scale · w g².
pub(super) struct Part {
    pub group: usize,
    /// `None` means that all weights are 1.
    pub weights: Option<Arc<CoordinateWeights>>,
    pub scale: f64,
}

impl ParameterGroups {
    /// The contribution to each of its groups.
    pub(super) fn parts(&self) -> Vec<Part> {
        let part = |group: usize, weights, scale| Part { group, weights, scale };
        match self {
            Self::Plain(group) => vec![part(*group, None, 1.0)],
            Self::Weighted(group, Weights::Elements { values, scale, .. }) => {
                vec![part(*group, Some(values.clone()), f64::from(*scale))]
            }
            Self::Weighted(group, weights @ Weights::Factored { rows, columns }) => {
                let mut all = vec![0.0; rows.len() * columns.len()];
                weights.write(0, &mut all);
                vec![part(*group, Some(Arc::new(all.into())), 1.0)]
            }
            Self::Split(sides) => {
                let sides = sides.iter();
                sides.map(|(group, mask)| part(*group, Some(mask.clone()), 1.0)).collect()
            }
        }
    }
}

impl ClippingGroups {
    /// All trainable parameters in one group (flat clipping).
    pub fn one(parameters: &Parameters) -> Self {
        let of = parameters
            .iter()
            .map(|(_, parameter)| parameter.trainable.then_some(ParameterGroups::Plain(0)))
            .collect();
        Self { of, shapes: shapes(parameters), groups: 1 }
    }

    /// One group for each layer (per-layer clipping): parameters whose names agree up to the last
    /// dot, such as a weight and its bias, form one group.
    pub fn by_layer(parameters: &Parameters) -> Self {
        let mut layers: HashMap<&str, usize> = HashMap::new();
        let mut of = Vec::with_capacity(parameters.len());
        for (_, parameter) in parameters.iter() {
            let layer = parameter.name.rsplit_once('.').map_or("", |(layer, _)| layer);
            let next = layers.len();
            of.push(
                parameter
                    .trainable
                    .then(|| ParameterGroups::Plain(*layers.entry(layer).or_insert(next))),
            );
        }
        let groups = layers.len();
        Self { of, shapes: shapes(parameters), groups }
    }

    /// Puts each coordinate of every trainable parameter in one of two groups: the first if its
    /// mask is 1, the second if it is 0.
    pub fn split(parameters: &Parameters, mask: impl Fn(ParameterId) -> Vec<f32>) -> Self {
        let share = |id: ParameterId| {
            let first = mask(id);
            let second: Vec<f32> = first.iter().map(|m| 1.0 - m).collect();
            ParameterGroups::Split([(0, Arc::new(first.into())), (1, Arc::new(second.into()))])
        };
        let of = parameters
            .iter()
            .map(|(id, parameter)| parameter.trainable.then(|| share(id)))
            .collect();
        Self { of, shapes: shapes(parameters), groups: 2 }
    }

    /// The same groups, with weights for the coordinates of some parameters.
    pub fn weighted(&self, weights: impl Fn(ParameterId) -> Option<Weights>) -> Self {
        let of = self.of.iter().enumerate().map(|(i, share)| {
            share.as_ref().map(|share| match (share, weights(ParameterId(i))) {
                (
                    ParameterGroups::Plain(group) | ParameterGroups::Weighted(group, _),
                    Some(weights),
                ) => ParameterGroups::Weighted(*group, weights),
                _ => share.clone(),
            })
        });
        Self { of: of.collect(), shapes: self.shapes.clone(), groups: self.groups }
    }

    /// A parameter's contribution; `None` if it is not trainable.
    pub fn of(&self, parameter: ParameterId) -> Option<&ParameterGroups> {
        self.of[parameter.index()].as_ref()
    }

    /// Rows and columns of a parameter.
    pub(super) fn shape(&self, parameter: ParameterId) -> [usize; 2] {
        self.shapes[parameter.index()]
    }

    /// The contribution of each trainable parameter.
    pub fn shares(&self) -> impl Iterator<Item = (ParameterId, &ParameterGroups)> {
        let shares = self.of.iter().enumerate();
        shares.filter_map(|(i, share)| Some((ParameterId(i), share.as_ref()?)))
    }

    /// Number of clipping groups.
    pub fn count(&self) -> usize {
        self.groups
    }
}

fn shapes(parameters: &Parameters) -> Vec<[usize; 2]> {
    parameters.iter().map(|(_, parameter)| parameter.value.shape()).collect()
}
