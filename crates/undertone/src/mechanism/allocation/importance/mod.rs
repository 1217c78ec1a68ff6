//! How much each parameter matters: sensitivity times uncertainty (ANADP, equations 3 to 7).
//!
//! ```text
//! S_t = |g_t ω|,  S̄_t = β₁ S̄_{t−1} + (1−β₁) S_t,  Ū_t = β₂ Ū_{t−1} + (1−β₂) |S_t − S̄_t|,  I_t = S̄_t Ū_t,
//! x = (I − median) / (q₁ − q₂),  w = (1−α) x + α mean(x),  shifted so that its mean is 1.
//! ```
//!
//! The last line is 1 + (1−α)(I − mean(I))/(q₁ − q₂): the median cancels. It can be negative, of which the paper says nothing; here it is clamped and brought back to mean 1.
//!
//! Where a gradient carries noise of deviation s, |g| is too large by about s everywhere, and most where most noise went. So S is taken from √max(g² − s², 0).
//!
//! **Forms.** *Element* keeps both averages for every coordinate, and the clipping then has to form each unit's gradient. *Factored* keeps them for the rows and the columns of each tensor, as Adafactor keeps second moments, and normalises
//! tensors, rows and columns each on their own: a weight is the product of the three. Norms under such weights need no gradient to be formed.

mod numbers;

use crate::gradient::Weights;
use crate::model::{ParameterId, Parameters};
use crate::tensor::Host;
use crate::tensor::cpu::simd::widest;
use numbers::{distance, normalised, sensitivity, weight};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What the averages are kept for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// Every coordinate.
    Element,
    /// Rows and columns.
    Factored,
}

/// The numbers of equations 3 to 7.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ImportanceSettings {
    /// How long sensitivity is remembered.
    pub beta1: f32,
    /// How long uncertainty is remembered.
    pub beta2: f32,
    /// How far weights are drawn to their mean.
    pub alpha: f32,
    /// The quantiles whose distance is the unit of importance.
    pub quantiles: (f64, f64),
    /// The least and the largest weight, before the mean is brought back to 1.
    pub range: (f32, f32),
    /// What the averages are kept for.
    pub form: Form,
}

impl ImportanceSettings {
    /// What is used where nothing else is said.
    pub fn usual(form: Form) -> Self {
        Self { beta1: 0.85, beta2: 0.85, alpha: 0.5, quantiles: (0.75, 0.25), range: (0.25, 4.0), form }
    }
}

/// Coordinates that quantiles are read from: all if there are no more, else evenly spread ones.
const SAMPLE: usize = 1 << 17;
/// Coordinates of one task: what is computed of them on the way stays in the nearest cache.
const CHUNK: usize = 1 << 13;

/// S̄ and Ū.
#[derive(Clone, Debug, Default, PartialEq)]
struct Averages {
    sensitivity: Vec<f32>,
    uncertainty: Vec<f32>,
}

impl Averages {
    fn of(count: usize) -> Self {
        Self { sensitivity: vec![0.0; count], uncertainty: vec![0.0; count] }
    }

    fn importance(&self) -> Vec<f32> {
        self.sensitivity.iter().zip(&self.uncertainty).map(|(s, u)| s * u).collect()
    }

    fn update(&mut self, settings: &ImportanceSettings, found: &[f32]) {
        let averages = self.sensitivity.iter_mut().zip(&mut self.uncertainty);
        for ((s, u), &found) in averages.zip(found) {
            (*s, *u) = next(settings, *s, *u, found);
        }
    }
}

/// Equations 3 and 4.
#[inline(always)]
fn next(settings: &ImportanceSettings, s: f32, u: f32, found: f32) -> (f32, f32) {
    let s = settings.beta1.mul_add(s, (1.0 - settings.beta1) * found);
    let u = settings.beta2.mul_add(u, (1.0 - settings.beta2) * (found - s).abs());
    (s, u)
}

#[derive(Clone, Debug)]
enum Kept {
    Elements(Averages),
    Factored { rows: Averages, columns: Averages },
}

/// The averages of all trainable parameters.
#[derive(Debug)]
pub(super) struct Importance {
    settings: ImportanceSettings,
    of: Vec<Option<(String, usize, Kept)>>,
    updates: u64,
    /// The memory of weights that are no longer used.
    spare: Vec<Option<Arc<Vec<f32>>>>,
}

/// Writes the deviations of the noise in a gradient from a coordinate on.
pub(super) type Deviations<'a> = &'a (dyn Fn(usize, &mut [f32]) + Sync);

impl Importance {
    /// Nothing seen yet.
    pub fn new(settings: ImportanceSettings, parameters: &Parameters) -> Self {
        let of = parameters.iter().map(|(_, parameter)| {
            let (rows, columns) = (parameter.value.rows(), parameter.value.columns());
            parameter.trainable.then(|| {
                let kept = match settings.form {
                    Form::Element => Kept::Elements(Averages::of(rows * columns)),
                    Form::Factored => {
                        Kept::Factored { rows: Averages::of(rows), columns: Averages::of(columns) }
                    }
                };
                (parameter.name.clone(), columns, kept)
            })
        });
        Self { settings, of: of.collect(), updates: 0, spare: vec![None; parameters.len()] }
    }

    /// Takes one parameter's gradient in; `noise` says how much noise is in it.
    pub fn update(&mut self, id: ParameterId, gradient: &Host, noise: Option<Deviations>, value: &Host) {
        self.updates += 1;
        let settings = self.settings;
        let Some((_, columns, kept)) = &mut self.of[id.index()] else { return };
        let (columns, gradient, value) = (*columns, gradient.dense(), value.dense());
        match kept {
            Kept::Elements(averages) => {
                let averages = (averages.sensitivity.par_chunks_mut(CHUNK))
                    .zip(averages.uncertainty.par_chunks_mut(CHUNK));
                let given = gradient.par_chunks(CHUNK).zip(value.par_chunks(CHUNK));
                averages.zip(given).enumerate().for_each(|(i, ((s, u), (g, w)))| {
                    let mut found = vec![0.0; g.len()];
                    sensitivity(g, w, noise, i * CHUNK, &mut found);
                    widest(
                        #[inline(always)]
                        || {
                            for ((s, u), &found) in s.iter_mut().zip(u).zip(&found) {
                                (*s, *u) = next(&settings, *s, *u, found);
                            }
                        },
                    );
                });
            }
            Kept::Factored { rows, columns: of_columns } => {
                let height = (CHUNK / columns.max(1)).max(1);
                let parts: Vec<(Vec<f32>, Vec<f32>)> = gradient
                    .par_chunks(height * columns)
                    .zip(value.par_chunks(height * columns))
                    .enumerate()
                    .map(|(i, (g, w))| {
                        let mut found = vec![0.0; g.len()];
                        sensitivity(g, w, noise, i * height * columns, &mut found);
                        let mut sums = vec![0.0_f32; columns];
                        let mut of_rows = Vec::with_capacity(height);
                        widest(
                            #[inline(always)]
                            || {
                                for row in found.chunks(columns) {
                                    for (sum, x) in sums.iter_mut().zip(row) {
                                        *sum += x;
                                    }
                                    of_rows.push(crate::tensor::cpu::simd::sum(row) / columns as f32);
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
                rows.update(&settings, &of_rows);
                of_columns.update(&settings, &sums);
            }
        }
    }

    /// The weights that follow from what was seen; none before anything was.
    pub fn weights(&mut self) -> Option<Vec<Option<Weights>>> {
        if self.updates == 0 {
            return None;
        }
        Some(match self.settings.form {
            Form::Element => self.element_weights(),
            Form::Factored => self.factored_weights(),
        })
    }

    fn element_weights(&mut self) -> Vec<Option<Weights>> {
        let elements = |kept: &Option<(String, usize, Kept)>| match kept {
            Some((_, _, Kept::Elements(averages))) => averages.sensitivity.len(),
            _ => 0,
        };
        let total: usize = self.of.iter().map(elements).sum();
        let stride = total.div_ceil(SAMPLE).max(1);
        let mut sample = Vec::with_capacity(total / stride + self.of.len());
        let mut sum = 0.0;
        for (_, _, kept) in self.of.iter().flatten() {
            let Kept::Elements(Averages { sensitivity, uncertainty }) = kept else { continue };
            // What the quantiles are read from is picked up on the way: alone it would be a walk through all of memory.
            let parts: Vec<(f64, Vec<f32>)> = sensitivity
                .par_chunks(CHUNK)
                .zip(uncertainty.par_chunks(CHUNK))
                .enumerate()
                .map(|(i, (s, u))| {
                    let sum = widest(
                        #[inline(always)]
                        || f64::from(crate::tensor::cpu::simd::dot(s, u)),
                    );
                    let first = (i * CHUNK).next_multiple_of(stride) - i * CHUNK;
                    (sum, (first..s.len()).step_by(stride).map(|k| s[k] * u[k]).collect())
                })
                .collect();
            for (part, picked) in parts {
                sum += part;
                sample.extend(picked);
            }
        }
        let (mean, unit) =
            ((sum / total.max(1) as f64) as f32, distance(&mut sample, self.settings.quantiles));
        let settings = self.settings;
        let mut whole = 0.0;
        let mut found = Vec::with_capacity(self.of.len());
        for (kept, spare) in self.of.iter().zip(&mut self.spare) {
            let Some((_, columns, Kept::Elements(Averages { sensitivity, uncertainty }))) = kept else {
                found.push(None);
                continue;
            };
            let mut values = spare.take().unwrap_or_else(|| Arc::new(vec![1.0; sensitivity.len()]));
            if Arc::get_mut(&mut values).is_none() {
                values = Arc::new(vec![1.0; sensitivity.len()]);
            }
            let out = Arc::get_mut(&mut values).expect("nobody else has it");
            let parts: Vec<(f64, f32)> = out
                .par_chunks_mut(CHUNK)
                .zip(sensitivity.par_chunks(CHUNK).zip(uncertainty.par_chunks(CHUNK)))
                .map(|(out, (s, u))| {
                    widest(
                        #[inline(always)]
                        || {
                            for (out, (s, u)) in out.iter_mut().zip(s.iter().zip(u)) {
                                *out = weight(&settings, s * u, mean, unit, settings.range);
                            }
                            (
                                f64::from(crate::tensor::cpu::simd::sum(out)),
                                crate::tensor::cpu::simd::max(out),
                            )
                        },
                    )
                })
                .collect();
            whole += parts.iter().map(|part| part.0).sum::<f64>();
            let largest = parts.iter().map(|part| part.1).fold(0.0, f32::max);
            *spare = Some(values.clone());
            found.push(Some((values, largest, *columns)));
        }
        let scale = (total.max(1) as f64 / whole.max(f64::MIN_POSITIVE)) as f32;
        let weights = |(values, largest, columns)| Weights::Elements { values, scale, largest, columns };
        found.into_iter().map(|found| found.map(weights)).collect()
    }

    fn factored_weights(&self) -> Vec<Option<Weights>> {
        let third = |x: f32| x.cbrt();
        let range = (third(self.settings.range.0), third(self.settings.range.1));
        let mean = |x: &[f32]| x.iter().sum::<f32>() / x.len().max(1) as f32;
        let tensors: Vec<(usize, f32)> = (self.of.iter().flatten())
            .map(|(_, columns, kept)| match kept {
                Kept::Factored { rows, .. } => {
                    (rows.sensitivity.len() * columns, mean(&rows.sensitivity) * mean(&rows.uncertainty))
                }
                Kept::Elements(_) => (0, 0.0),
            })
            .collect();
        let of_tensors: Vec<f32> = tensors.iter().map(|tensor| tensor.1).collect();
        let of_tensors = normalised(&self.settings, &of_tensors, range);
        let total: f64 = tensors.iter().map(|tensor| tensor.0 as f64).sum();
        let whole: f64 =
            tensors.iter().zip(&of_tensors).map(|(tensor, w)| tensor.0 as f64 * f64::from(*w)).sum();
        let scale = (total / whole.max(f64::MIN_POSITIVE)) as f32;
        let mut of_tensors = of_tensors.into_iter();
        let weights = |kept: &(String, usize, Kept)| {
            let of_tensor = scale * of_tensors.next().unwrap_or(1.0);
            let Kept::Factored { rows, columns } = &kept.2 else { return None };
            let mut rows = normalised(&self.settings, &rows.importance(), range);
            rows.iter_mut().for_each(|w| *w *= of_tensor);
            let columns = normalised(&self.settings, &columns.importance(), range);
            Some(Weights::Factored { rows, columns })
        };
        let mut weights = weights;
        self.of.iter().map(|kept| kept.as_ref().and_then(&mut weights)).collect()
    }

    /// Both averages of every parameter, by name.
    pub fn state(&self) -> Vec<(String, Host)> {
        if self.updates == 0 {
            return Vec::new();
        }
        let mut state = Vec::new();
        let mut add = |what: &str, name: &str, averages: &Averages| {
            for (kind, values) in
                [("sensitivity", &averages.sensitivity), ("uncertainty", &averages.uncertainty)]
            {
                let host = Host::from_vec(1, values.len(), values.clone());
                state.push((format!("{kind}{what}.{name}"), host));
            }
        };
        for (name, _, kept) in self.of.iter().flatten() {
            match kept {
                Kept::Elements(averages) => add("", name, averages),
                Kept::Factored { rows, columns } => {
                    add(".rows", name, rows);
                    add(".columns", name, columns);
                }
            }
        }
        state
    }

    /// Takes up what was saved; whether everything was there.
    pub fn restore(&mut self, find: &dyn Fn(&str) -> Option<Vec<f32>>) -> bool {
        let mut all = true;
        let mut take = |what: &str, name: &str, averages: &mut Averages| {
            for (kind, values) in
                [("sensitivity", &mut averages.sensitivity), ("uncertainty", &mut averages.uncertainty)]
            {
                match find(&format!("{kind}{what}.{name}")) {
                    Some(found) if found.len() == values.len() => *values = found,
                    _ => all = false,
                }
            }
        };
        for (name, _, kept) in self.of.iter_mut().flatten() {
            match kept {
                Kept::Elements(averages) => take("", name, averages),
                Kept::Factored { rows, columns } => {
                    take(".rows", name, rows);
                    take(".columns", name, columns);
                }
            }
        }
        self.updates = u64::from(all);
        all
    }
}

#[cfg(test)]
mod tests;
