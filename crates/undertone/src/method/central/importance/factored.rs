//! Importance of rows and columns (the *factored* form).

use super::numbers::normalized;
use super::{Averages, ImportanceSettings};
use crate::gradient::Weights;
use crate::model::{ParameterId, Parameters};
use crate::tensor::GradientMeans;

/// Moving averages of all rows and columns.
#[derive(Debug)]
pub(super) struct Factored {
    settings: ImportanceSettings,
    pub of: Vec<Option<Tensor>>,
}

/// Moving averages of one parameter.
#[derive(Debug)]
pub(super) struct Tensor {
    pub name: String,
    pub rows: Averages,
    pub columns: Averages,
}

impl Factored {
    pub fn new(settings: ImportanceSettings, parameters: &Parameters) -> Self {
        let of = parameters.iter().map(|(_, parameter)| {
            parameter.trainable.then(|| Tensor {
                name: parameter.name.clone(),
                rows: Averages::of(parameter.value.rows()),
                columns: Averages::of(parameter.value.columns()),
            })
        });
        Self { settings, of: of.collect() }
    }

    /// Updates the averages with the means of a parameter's sensitivity.
    pub fn update(&mut self, id: ParameterId, observed: &GradientMeans) {
        let Some(Tensor { rows, columns, .. }) = &mut self.of[id.index()] else { return };
        let narrow = |means: &[f64]| -> Vec<f32> { means.iter().map(|&x| x as f32).collect() };
        rows.update(&self.settings, &narrow(&observed.rows));
        columns.update(&self.settings, &narrow(&observed.columns));
    }

    pub fn weights(&self) -> Vec<Option<Weights>> {
        let third = |x: f32| x.cbrt();
        let range = (third(self.settings.range.0), third(self.settings.range.1));
        let mean = |x: &[f32]| x.iter().sum::<f32>() / x.len().max(1) as f32;
        let sizes = || {
            let tensors = self.of.iter().flatten();
            tensors.map(|tensor| {
                (tensor.rows.sensitivity.len() * tensor.columns.sensitivity.len()) as f64
            })
        };
        let importance =
            |tensor: &Tensor| mean(&tensor.rows.sensitivity) * mean(&tensor.rows.uncertainty);
        let of_tensors: Vec<f32> = self.of.iter().flatten().map(importance).collect();
        let of_tensors = normalized(&self.settings, &of_tensors, range);
        let total: f64 = sizes().sum();
        let whole: f64 = sizes().zip(&of_tensors).map(|(size, w)| size * f64::from(*w)).sum();
        let scale = (total / whole.max(f64::MIN_POSITIVE)) as f32;
        let mut of_tensors = of_tensors.into_iter();
        let mut weights = |tensor: &Tensor| {
            let of_tensor = scale * of_tensors.next().unwrap_or(1.0);
            let mut rows = normalized(&self.settings, &tensor.rows.importance(), range);
            rows.iter_mut().for_each(|w| *w *= of_tensor);
            let columns = normalized(&self.settings, &tensor.columns.importance(), range);
            Weights::Factored { rows, columns }
        };
        self.of.iter().map(|tensor| tensor.as_ref().map(&mut weights)).collect()
    }

    /// Calls `take` with mutable access to the averages of each parameter.
    pub fn each(&mut self, mut take: impl FnMut(&str, &str, &mut Averages)) {
        for Tensor { name, rows, columns } in self.of.iter_mut().flatten() {
            take(".rows", name, rows);
            take(".columns", name, columns);
        }
    }
}
