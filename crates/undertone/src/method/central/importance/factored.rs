//! Importance of rows and columns (the *factored* form).

use super::numbers::{for_each_sensitivity, normalised};
use super::{Averages, ImportanceSettings, Stds};
use crate::gradient::Weights;
use crate::model::{ParameterId, Parameters};
use crate::tensor::cpu::simd::{sum, widest};
use rayon::prelude::*;

/// Coordinates of one parallel task: intermediate results stay in cache.
const CHUNK: usize = 1 << 13;

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

    pub fn update(
        &mut self,
        id: ParameterId,
        gradient: &[f32],
        noise: Option<Stds>,
        value: &[f32],
    ) {
        let Some(Tensor { rows, columns: of_columns, .. }) = &mut self.of[id.index()] else {
            return;
        };
        let columns = of_columns.sensitivity.len();
        let height = (CHUNK / columns.max(1)).max(1);
        let parts: Vec<(Vec<f32>, Vec<f32>)> = gradient
            .par_chunks(height * columns)
            .zip(value.par_chunks(height * columns))
            .enumerate()
            .map(|(i, (g, w))| {
                let noise = noise.map(|noise| {
                    let mut stds = vec![0.0; g.len()];
                    noise(i * height * columns, &mut stds);
                    stds
                });
                let mut found = vec![0.0; g.len()];
                let mut sums = vec![0.0_f32; columns];
                let mut of_rows = Vec::with_capacity(height);
                widest(
                    #[inline(always)]
                    || {
                        for_each_sensitivity(
                            g,
                            w,
                            noise.as_deref(),
                            found.iter_mut(),
                            #[inline(always)]
                            |out, found| *out = found,
                        );
                        for row in found.chunks(columns) {
                            for (sum, x) in sums.iter_mut().zip(row) {
                                *sum += x;
                            }
                            of_rows.push(sum(row) / columns as f32);
                        }
                    },
                );
                (of_rows, sums)
            })
            .collect();
        let mut sums = vec![0.0_f32; columns];
        let mut of_rows = Vec::new();
        for (part, columns) in parts {
            of_rows.extend(part);
            sums.iter_mut().zip(columns).for_each(|(sum, x)| *sum += x);
        }
        let height = of_rows.len().max(1) as f32;
        sums.iter_mut().for_each(|sum| *sum /= height);
        rows.update(&self.settings, &of_rows);
        of_columns.update(&self.settings, &sums);
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
        let of_tensors = normalised(&self.settings, &of_tensors, range);
        let total: f64 = sizes().sum();
        let whole: f64 = sizes().zip(&of_tensors).map(|(size, w)| size * f64::from(*w)).sum();
        let scale = (total / whole.max(f64::MIN_POSITIVE)) as f32;
        let mut of_tensors = of_tensors.into_iter();
        let mut weights = |tensor: &Tensor| {
            let of_tensor = scale * of_tensors.next().unwrap_or(1.0);
            let mut rows = normalised(&self.settings, &tensor.rows.importance(), range);
            rows.iter_mut().for_each(|w| *w *= of_tensor);
            let columns = normalised(&self.settings, &tensor.columns.importance(), range);
            Weights::Factored { rows, columns }
        };
        self.of.iter().map(|tensor| tensor.as_ref().map(&mut weights)).collect()
    }

    /// Calls `take` with the averages of each parameter, to be changed.
    pub fn each(&mut self, mut take: impl FnMut(&str, &str, &mut Averages)) {
        for Tensor { name, rows, columns } in self.of.iter_mut().flatten() {
            take(".rows", name, rows);
            take(".columns", name, columns);
        }
    }
}
