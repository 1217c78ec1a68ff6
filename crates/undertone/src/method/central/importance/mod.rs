//! Importance of parameters: sensitivity times uncertainty (ANADP, equations 3 to 7).
//!
//! ```text
//! S_t = |g_t ω|,  S̄_t = β₁ S̄_{t−1} + (1−β₁) S_t,  Ū_t = β₂ Ū_{t−1} + (1−β₂) |S_t − S̄_t|,
//! I_t = S̄_t Ū_t,
//! x = (I − median) / (q₁ − q₂),  w = (1−α) x + α mean(x),  shifted so that its mean is 1.
//! ```
//!
//! The last line equals 1 + (1−α)(I − mean(I))/(q₁ − q₂): the median cancels. It can be negative,
//! which the paper does not address; here it is clamped and rescaled to mean 1.
//!
//! If a gradient carries noise of std s, |g| is too large by about s. S is therefore computed from
//! √max(g² − s², 0) instead of |g|.
//!
//! **Forms.** *Element* keeps both averages for every coordinate, so clipping has to form the
//! per-example gradients. *Factored* keeps them for the rows and the columns of each tensor, as
//! Adafactor does for second moments, and normalizes tensors, rows and columns separately: a weight
//! is the product of the three. Per-example norms under such weights need no per-example gradient
//! (ghost clipping).

mod elements;
mod factored;
mod numbers;

use crate::gradient::Weights;
use crate::model::{ParameterId, Parameters};
use crate::step::NoiseWeights;
use crate::step::Released;
use crate::tensor::{
    GradientMeans, GradientStatistic, Host, Matrix, NoisyGradient, Result, gradient_means,
};
use elements::Elements;
use factored::Factored;
use std::sync::Arc;
use undertone_run::ImportanceForm;

/// Hyperparameters of equations 3 to 7.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ImportanceSettings {
    /// β₁: decay of the moving average of sensitivity.
    pub beta1: f32,
    /// β₂: decay of the moving average of uncertainty.
    pub beta2: f32,
    /// α: how strongly weights are shrunk toward their mean, in [0, 1].
    pub alpha: f32,
    /// The quantiles q₁ and q₂; importance is divided by their distance.
    pub quantiles: (f64, f64),
    /// The smallest and the largest weight, before the mean is rescaled to 1.
    pub range: (f32, f32),
    /// Whether averages are kept per coordinate or per row and column.
    pub form: ImportanceForm,
}

impl ImportanceSettings {
    /// The default hyperparameters.
    pub fn usual(form: ImportanceForm) -> Self {
        Self {
            beta1: 0.85,
            beta2: 0.85,
            alpha: 0.5,
            quantiles: (0.75, 0.25),
            range: (0.25, 4.0),
            form,
        }
    }
}

/// The moving averages S̄ (sensitivity) and Ū (uncertainty).
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

    fn update(&mut self, settings: &ImportanceSettings, sensitivities: &[f32]) {
        let averages = self.sensitivity.iter_mut().zip(&mut self.uncertainty);
        for ((s, u), &sensitivity) in averages.zip(sensitivities) {
            (*s, *u) = next(settings, *s, *u, sensitivity);
        }
    }
}

/// Equations 3 and 4: updates S̄ and Ū with the sensitivity S.
#[inline(always)]
fn next(settings: &ImportanceSettings, s: f32, u: f32, sensitivity: f32) -> (f32, f32) {
    let s = settings.beta1.mul_add(s, (1.0 - settings.beta1) * sensitivity);
    let u = settings.beta2.mul_add(u, (1.0 - settings.beta2) * (sensitivity - s).abs());
    (s, u)
}

#[derive(Debug)]
enum Kept {
    Elements(Elements),
    Factored(Factored),
}

/// Importance of all trainable parameters.
#[derive(Debug)]
pub(super) struct Importance {
    kept: Kept,
    updates: u64,
}

/// Writes the standard deviations of a gradient's noise, starting at a given coordinate.
pub(super) type Stds<'a> = &'a (dyn Fn(usize, &mut [f32]) + Sync);

impl Importance {
    /// The initial state, before the first gradient.
    pub fn new(settings: ImportanceSettings, parameters: &Parameters) -> Self {
        let kept = match settings.form {
            ImportanceForm::Element => Kept::Elements(Elements::new(settings, parameters)),
            ImportanceForm::Factored => Kept::Factored(Factored::new(settings, parameters)),
        };
        Self { kept, updates: 0 }
    }

    /// Updates the averages with the gradients released by a step.
    pub fn observe(&mut self, released: &Released, parameters: &Parameters) -> Result<()> {
        self.updates += 1;
        match &mut self.kept {
            Kept::Elements(elements) => {
                for (id, gradient) in released.gradients() {
                    let stds = |start: usize, out: &mut [f32]| released.write_stds(id, start, out);
                    let (gradient, value) = (gradient.to_host()?, parameters.value(id).to_host()?);
                    elements.update(id, &gradient.dense(), Some(&stds), &value.dense());
                }
            }
            Kept::Factored(factored) => {
                for (id, means) in released.means(GradientStatistic::Sensitivity, parameters)? {
                    factored.update(id, &means);
                }
            }
        }
        Ok(())
    }

    /// Updates the averages with one parameter's noise-free gradient. A missing gradient counts as
    /// zero. So does a non-finite one, which would otherwise stay in the averages forever.
    pub fn observe_raw(
        &mut self,
        id: ParameterId,
        gradient: Option<&Matrix>,
        value: &Matrix,
    ) -> Result<()> {
        self.updates += 1;
        let (rows, columns) = (value.rows(), value.columns());
        match &mut self.kept {
            Kept::Elements(elements) => {
                let host = gradient.map(|gradient| gradient.to_host()).transpose()?;
                let finite = |host: &Host| host.dense().iter().all(|g| g.is_finite());
                let host = host
                    .filter(finite)
                    .unwrap_or_else(|| Host::from_vec(rows, columns, vec![0.0; rows * columns]));
                elements.update(id, &host.dense(), None, &value.to_host()?.dense());
            }
            Kept::Factored(factored) => {
                let means = match gradient {
                    Some(gradient) => {
                        let stds = crate::tensor::Stds::Same(0.0);
                        let raw = NoisyGradient { gradient, value, stds, divisor: 1.0 };
                        gradient_means(GradientStatistic::Sensitivity, &[raw])?.pop()
                    }
                    None => None,
                };
                let is_finite = |means: &GradientMeans| {
                    means.rows.iter().chain(&means.columns).all(|x| x.is_finite())
                };
                let nothing =
                    || GradientMeans { rows: vec![0.0; rows], columns: vec![0.0; columns] };
                factored.update(id, &means.filter(is_finite).unwrap_or_else(nothing));
            }
        }
        Ok(())
    }

    /// Updates the averages with one parameter's gradient; `noise` writes the std of its noise.
    #[cfg(test)]
    fn update(&mut self, id: ParameterId, gradient: &Host, noise: Option<Stds>, value: &Host) {
        self.updates += 1;
        match &mut self.kept {
            Kept::Elements(elements) => {
                elements.update(id, &gradient.dense(), noise, &value.dense());
            }
            Kept::Factored(factored) => {
                let stds = noise.map_or(crate::tensor::Stds::Same(0.0), crate::tensor::Stds::Each);
                let (gradient, value) =
                    (Matrix::Host(gradient.clone()), Matrix::Host(value.clone()));
                let noisy =
                    NoisyGradient { gradient: &gradient, value: &value, stds, divisor: 1.0 };
                let means = gradient_means(GradientStatistic::Sensitivity, &[noisy]).unwrap();
                factored.update(id, &means[0]);
            }
        }
    }

    /// The weights of equation 7; `None` before the first update.
    pub fn weights(&mut self) -> Option<Vec<Option<Weights>>> {
        (self.updates > 0).then(|| match &mut self.kept {
            Kept::Elements(elements) => elements.weights(),
            Kept::Factored(factored) => factored.weights(),
        })
    }

    /// The same weights as noise weights. They share memory with the averages: drop them before the
    /// next update.
    pub fn noise_weights(&mut self) -> Option<Arc<dyn NoiseWeights>> {
        (self.updates > 0).then(|| match &mut self.kept {
            Kept::Elements(elements) => Arc::new(elements.noise_weights()) as Arc<dyn NoiseWeights>,
            Kept::Factored(factored) => Arc::new(factored.weights()),
        })
    }

    /// Both averages of every parameter by tensor name, to be saved in a checkpoint.
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
        match &self.kept {
            Kept::Elements(elements) => {
                elements
                    .of
                    .iter()
                    .flatten()
                    .for_each(|tensor| add("", &tensor.name, &tensor.averages));
            }
            Kept::Factored(factored) => {
                for tensor in factored.of.iter().flatten() {
                    add(".rows", &tensor.name, &tensor.rows);
                    add(".columns", &tensor.name, &tensor.columns);
                }
            }
        }
        state
    }

    /// Restores both averages from a checkpoint. Returns whether it was complete.
    pub fn restore(&mut self, find: &dyn Fn(&str) -> Option<Vec<f32>>) -> bool {
        let mut all = true;
        let mut take = |what: &str, name: &str, averages: &mut Averages| {
            for (kind, values) in [
                ("sensitivity", &mut averages.sensitivity),
                ("uncertainty", &mut averages.uncertainty),
            ] {
                match find(&format!("{kind}{what}.{name}")) {
                    Some(restored) if restored.len() == values.len() => *values = restored,
                    _ => all = false,
                }
            }
        };
        match &mut self.kept {
            Kept::Elements(elements) => elements.each(|name, averages| take("", name, averages)),
            Kept::Factored(factored) => factored.each(take),
        }
        self.updates = u64::from(all);
        all
    }
}

#[cfg(test)]
mod tests;
