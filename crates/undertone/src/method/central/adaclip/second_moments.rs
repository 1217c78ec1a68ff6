//! Second moments of the gradients of public examples.

use super::Squares;
use super::weigh::{by_element, factored};
use crate::gradient::{ClippedSum, Weights};
use crate::model::Parameters;
use crate::tensor::{GradientStatistic, NoisyGradient, Result, Stds, gradient_means};
use undertone_run::{AdaclipSection, ImportanceForm};

/// Sums of g² over examples. Weights are relative, so sums serve as well as means.
#[derive(Debug)]
pub(in crate::method::central) enum SecondMoments {
    /// Sums for every coordinate, with the number of columns of the parameter.
    Elements(Vec<Option<(Vec<f64>, usize)>>),
    /// Sums for the rows and the columns of each parameter.
    Factored(Vec<Option<Squares>>),
}

impl SecondMoments {
    /// Zero moments, before the first example.
    pub fn new(form: ImportanceForm, parameters: &Parameters) -> Self {
        let zeros = || {
            parameters.iter().map(|(_, parameter)| {
                let (rows, columns) = (parameter.value.rows(), parameter.value.columns());
                parameter.trainable.then(|| (vec![0.0; rows * columns], columns))
            })
        };
        match form {
            ImportanceForm::Element => Self::Elements(zeros().collect()),
            ImportanceForm::Factored => Self::Factored(Squares::zeros(parameters)),
        }
    }

    /// Adds the squares of one example's gradient. Clipping has already zeroed non-finite
    /// gradients.
    pub fn observe(&mut self, gradient: &ClippedSum, parameters: &Parameters) -> Result<()> {
        for (id, parameter) in parameters.iter().filter(|(_, parameter)| parameter.trainable) {
            let Some(gradient) = gradient.get(id) else { continue };
            match self {
                Self::Elements(of) => {
                    let Some((sums, _)) = &mut of[id.index()] else { continue };
                    let values = gradient.to_vec()?;
                    for (sum, g) in sums.iter_mut().zip(values) {
                        *sum += f64::from(g).powi(2);
                    }
                }
                Self::Factored(of) => {
                    let Some(squares) = &mut of[id.index()] else { continue };
                    let value = &parameter.value;
                    let raw =
                        NoisyGradient { gradient, value, stds: Stds::Same(0.0), divisor: 1.0 };
                    for means in gradient_means(GradientStatistic::Square, &[raw])? {
                        let add = |sums: &mut [f32], means: Vec<f64>| {
                            sums.iter_mut().zip(means).for_each(|(sum, x)| *sum += x as f32);
                        };
                        add(&mut squares.rows, means.rows);
                        add(&mut squares.columns, means.columns);
                    }
                }
            }
        }
        Ok(())
    }

    /// AdaClip's weights; `None` if all gradients are zero.
    pub fn weights(&self, settings: &AdaclipSection) -> Option<Vec<Option<Weights>>> {
        match self {
            Self::Elements(of) => by_element(settings, of),
            Self::Factored(of) => factored(settings, of),
        }
    }
}
