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

use crate::gradient::Weights;
use crate::model::{ParameterId, Parameters};
use crate::tensor::Host;
use crate::tensor::cpu::simd::widest;
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
/// Coordinates of one task.
const CHUNK: usize = 1 << 15;

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
                        for row in found.chunks(columns) {
                            sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
                            of_rows.push(crate::tensor::cpu::simd::sum(row) / columns as f32);
                        }
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
            let parts: Vec<f64> = sensitivity
                .par_chunks(CHUNK)
                .zip(uncertainty.par_chunks(CHUNK))
                .map(|(s, u)| {
                    widest(
                        #[inline(always)]
                        || f64::from(crate::tensor::cpu::simd::dot(s, u)),
                    )
                })
                .collect();
            sum += parts.iter().sum::<f64>();
            sample.extend(sensitivity.iter().zip(uncertainty).step_by(stride).map(|(s, u)| s * u));
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

/// S = √max(g² − s², 0) · |ω|.
fn sensitivity(gradient: &[f32], values: &[f32], noise: Option<Deviations>, start: usize, out: &mut [f32]) {
    match noise {
        None => out.fill(0.0),
        Some(noise) => noise(start, out),
    }
    widest(
        #[inline(always)]
        || {
            for ((out, g), w) in out.iter_mut().zip(gradient).zip(values) {
                *out = g.mul_add(*g, -(*out * *out)).max(0.0).sqrt() * w.abs();
            }
        },
    );
}

/// q₁ − q₂ of some numbers; 0 if they are all the same.
fn distance(numbers: &mut [f32], quantiles: (f64, f64)) -> f32 {
    if numbers.is_empty() {
        return 0.0;
    }
    let last = (numbers.len() - 1) as f64;
    let mut at = |q: f64| *numbers.select_nth_unstable_by((last * q).round() as usize, f32::total_cmp).1;
    (at(quantiles.0) - at(quantiles.1)).abs()
}

/// Equations 6 and 7, clamped.
#[inline(always)]
fn weight(settings: &ImportanceSettings, importance: f32, mean: f32, unit: f32, range: (f32, f32)) -> f32 {
    let w = 1.0 + (1.0 - settings.alpha) * (importance - mean) / unit;
    // Neither a unit of 0 nor an overflow may make a NaN: what compares with nothing gets weight 1.
    if w.is_nan() { 1.0 } else { w.clamp(range.0, range.1) }
}

/// Equations 6 and 7 for a few numbers, clamped and brought to mean 1.
fn normalised(settings: &ImportanceSettings, importance: &[f32], range: (f32, f32)) -> Vec<f32> {
    let count = importance.len().max(1) as f32;
    let mean = importance.iter().sum::<f32>() / count;
    let unit = distance(&mut importance.to_vec(), settings.quantiles);
    let mut weights: Vec<f32> = importance.iter().map(|&i| weight(settings, i, mean, unit, range)).collect();
    let mean = weights.iter().sum::<f32>() / count;
    weights.iter_mut().for_each(|w| *w /= mean);
    weights
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Origin, Parameter};
    use crate::tensor::Matrix;

    fn parameters(values: &[f32]) -> Parameters {
        let mut parameters = Parameters::default();
        parameters.push(Parameter {
            name: "w".into(),
            shape: vec![1, values.len()],
            value: Matrix::from_vec(1, values.len(), values.to_vec()),
            trainable: true,
            origin: Origin::Base,
        });
        parameters
    }

    /// Two steps of equations 3 to 7 by hand, with β₁ = 0.5, β₂ = 0.25, α = 0.2, the extreme quantiles and no clamp that matters.
    #[test]
    fn two_steps_by_hand() {
        let settings = ImportanceSettings {
            beta1: 0.5,
            beta2: 0.25,
            alpha: 0.2,
            quantiles: (1.0, 0.0),
            range: (1e-3, 1e3),
            form: Form::Element,
        };
        let values = [1.0, -2.0, 0.5, 4.0];
        let parameters = parameters(&values);
        let mut importance = Importance::new(settings, &parameters);
        let id = ParameterId(0);
        assert!(importance.weights().is_none());
        let steps = [[1.0_f32, 1.0, -2.0, 0.5], [3.0, 0.0, 2.0, -1.0]];
        for gradient in steps {
            importance.update(
                id,
                &Host::from_vec(1, 4, gradient.to_vec()),
                None,
                &parameters.value(id).to_host().unwrap(),
            );
        }
        // S: 1, 2, 1, 2, then 3, 0, 1, 4. S̄: 0.5, 1, 0.5, 1, then 1.75, 0.5, 0.75, 2.5.
        // |S − S̄|: 0.5, 1, 0.5, 1, then 1.25, 0.5, 0.25, 1.5. Ū: 0.375, 0.75, 0.375, 0.75, then 1.03125, 0.5625, 0.28125, 1.3125.
        let found: [f64; 4] = [1.75 * 1.031_25, 0.5 * 0.5625, 0.75 * 0.281_25, 2.5 * 1.3125];
        let mean = found.iter().sum::<f64>() / 4.0;
        let unit = found[3] - found[2];
        let want: Vec<f64> = found.iter().map(|i| 1.0 + 0.8 * (i - mean) / unit).collect();
        let weights = importance.weights().unwrap().remove(0).unwrap();
        let mut have = [0.0; 4];
        weights.write(0, &mut have);
        for (have, want) in have.iter().zip(want) {
            assert!((f64::from(*have) - want).abs() < 1e-5, "{have}, not {want}");
        }
    }

    /// Five steps against fixtures/allocation/make.py, without noise and with.
    #[test]
    fn five_steps_equal_the_script() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/allocation/cases.json");
        let cases: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let numbers = |value: &serde_json::Value| -> Vec<f32> {
            let rows = value.as_array().unwrap().iter().flat_map(|row| row.as_array().unwrap());
            rows.map(|x| x.as_f64().unwrap() as f32).collect()
        };
        for name in ["importance", "importance_noisy"] {
            let case = &cases[name];
            let of = |key: &str| case["settings"][key].as_f64().unwrap();
            let settings = ImportanceSettings {
                beta1: of("b1") as f32,
                beta2: of("b2") as f32,
                alpha: of("alpha") as f32,
                quantiles: (of("q1"), of("q2")),
                range: (of("lo") as f32, of("hi") as f32),
                form: Form::Element,
            };
            let omega = Host::from_vec(3, 4, numbers(&case["omega"]));
            let parameters = parameters(&omega.dense());
            let mut importance = Importance::new(settings, &parameters);
            let deviations = case.get("noise").map(&numbers);
            let write = |start: usize, out: &mut [f32]| {
                let given = deviations.as_ref().unwrap();
                out.iter_mut().zip(&given[start..]).for_each(|(out, s)| *out = *s);
            };
            let noise: Option<Deviations> = deviations.is_some().then_some(&write);
            for (step, want) in case["weights"].as_array().unwrap().iter().enumerate() {
                let gradient = Host::from_vec(3, 4, numbers(&case["gradients"][step]));
                importance.update(ParameterId(0), &gradient, noise, &omega);
                let weights = importance.weights().unwrap().remove(0).unwrap();
                let mut have = [0.0; 12];
                weights.write(0, &mut have);
                for (have, want) in have.iter().zip(numbers(want)) {
                    assert!((have - want).abs() < 1e-4 * want, "{name}, step {step}: {have}, not {want}");
                }
            }
        }
    }

    /// A gradient that is noise only has no sensitivity on average that its noise explains.
    #[test]
    fn known_noise_is_taken_off() {
        let mut out = [0.0; 3];
        let noise = |_: usize, out: &mut [f32]| out.fill(3.0);
        sensitivity(&[5.0, 2.0, -5.0], &[2.0, 1.0, -1.0], Some(&noise), 0, &mut out);
        assert_eq!(out, [8.0, 0.0, 4.0]);
    }

    #[test]
    fn weights_stay_finite_whatever_comes() {
        for form in [Form::Element, Form::Factored] {
            for gradient in [vec![0.0; 6], vec![f32::INFINITY; 6], vec![f32::NAN; 6], vec![1e30; 6]] {
                let parameters = parameters(&[1.0; 6]);
                let mut importance = Importance::new(ImportanceSettings::usual(form), &parameters);
                importance.update(
                    ParameterId(0),
                    &Host::from_vec(1, 6, gradient),
                    None,
                    &parameters.value(ParameterId(0)).to_host().unwrap(),
                );
                let weights = importance.weights().unwrap().remove(0).unwrap();
                let mut out = [0.0; 6];
                weights.write(0, &mut out);
                assert!(out.iter().all(|w| w.is_finite() && *w > 0.0), "{out:?}");
            }
        }
    }

    #[test]
    fn what_was_learnt_is_saved_and_restored() {
        for form in [Form::Element, Form::Factored] {
            let parameters = parameters(&[1.0, 2.0, 3.0, 4.0]);
            let mut importance = Importance::new(ImportanceSettings::usual(form), &parameters);
            let gradient = Host::from_vec(1, 4, vec![0.1, 0.4, -0.2, 3.0]);
            importance.update(
                ParameterId(0),
                &gradient,
                None,
                &parameters.value(ParameterId(0)).to_host().unwrap(),
            );
            let state = importance.state();
            let mut other = Importance::new(ImportanceSettings::usual(form), &parameters);
            let find = |name: &str| {
                let found = state.iter().find(|(known, _)| known == name)?;
                Some(found.1.dense().into_owned())
            };
            assert!(other.restore(&find));
            assert_eq!(importance.weights(), other.weights());
            assert!(!other.restore(&|_| None));
        }
    }
}
