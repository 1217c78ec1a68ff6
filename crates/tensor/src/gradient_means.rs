//! Row and column means of a statistic of released gradients, for methods that weight rows and
//! columns.

use super::Matrix;
use super::backend::{Backend, on_backend};
use super::error::{Result, count, fits};
use super::update::Stds;

/// The statistic to average, for a coordinate with gradient g, weight ω and noise of standard
/// deviation s in g.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GradientStatistic {
    /// √max(g² − s², 0) · |ω|: ANADP's sensitivity.
    Sensitivity,
    /// g² − s²: an unbiased estimate of the squared noise-free gradient.
    Square,
}

/// The released gradient of one parameter.
pub struct NoisyGradient<'a, M = Matrix> {
    pub gradient: &'a M,
    /// The parameter's value.
    pub value: &'a M,
    /// Standard deviations of the noise in the sum.
    pub stds: Stds<'a>,
    /// The divisor of the sum and its noise.
    pub divisor: f32,
}

/// The mean over columns for each row, and over rows for each column.
#[derive(Clone, Debug, PartialEq)]
pub struct GradientMeans {
    pub rows: Vec<f64>,
    pub columns: Vec<f64>,
}

/// Computes the means of each gradient.
pub fn gradient_means(
    statistic: GradientStatistic,
    gradients: &[NoisyGradient],
) -> Result<Vec<GradientMeans>> {
    const NAME: &str = "means of a gradient";
    for NoisyGradient { gradient, value, stds, .. } in gradients {
        let rule = "gradient and value must have the same shape";
        fits(gradient.shape() == value.shape(), NAME, gradient.shape(), value.shape(), rule)?;
        if let Stds::Product { rows, columns } = stds {
            count(NAME, gradient.shape(), "stds of rows", rows.len(), gradient.rows())?;
            count(NAME, gradient.shape(), "stds of columns", columns.len(), gradient.columns())?;
        }
    }
    let Some(first) = gradients.first() else { return Ok(Vec::new()) };
    on_backend!(NAME, first.gradient, |B, at| {
        let on_device = gradients.iter().map(|noisy| {
            let NoisyGradient { gradient, value, stds, divisor } = noisy;
            let (stds, divisor) = (*stds, *divisor);
            Ok(NoisyGradient { gradient: at.get(gradient)?, value: at.get(value)?, stds, divisor })
        });
        B::gradient_means(statistic, &on_device.collect::<Result<Vec<_>>>()?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;

    /// Compares with the definition in f64, on every device, with both kinds of noise.
    #[test]
    fn means_are_those_of_the_definition() {
        let mut devices = vec![Device::Cpu];
        if std::env::var("UNDERTONE_TEST_DEVICE").as_deref() == Ok("cuda") {
            devices.push(Device::cuda(0).unwrap());
        }
        for (rows, columns) in [(1, 1), (3, 700), (1030, 33), (64, 128)] {
            let number =
                |i: usize, seed: usize| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.5;
            let matrix = |seed: usize| -> Vec<f32> {
                (0..rows * columns).map(|i| number(i, seed) - 1.0).collect()
            };
            let (g, w) = (matrix(1), matrix(2));
            let of_rows: Vec<f32> = (0..rows).map(|i| 0.1 + number(i, 3)).collect();
            let of_columns: Vec<f32> = (0..columns).map(|i| 0.1 + number(i, 4)).collect();
            let product = Stds::Product { rows: &of_rows, columns: &of_columns };
            for (statistic, stds) in [GradientStatistic::Sensitivity, GradientStatistic::Square]
                .into_iter()
                .flat_map(|statistic| [(statistic, Stds::Same(1.3)), (statistic, product)])
            {
                let divisor = 4.0;
                let of_coordinate = |i: usize| {
                    let std = match stds {
                        Stds::Same(std) => std,
                        _ => of_rows[i / columns] * of_columns[i % columns],
                    };
                    let square = f64::from(g[i]).powi(2) - f64::from(std / divisor).powi(2);
                    match statistic {
                        GradientStatistic::Sensitivity => {
                            square.max(0.0).sqrt() * f64::from(w[i]).abs()
                        }
                        GradientStatistic::Square => square,
                    }
                };
                for device in &devices {
                    let on = |values: &[f32]| {
                        let matrix = Matrix::from_vec(rows, columns, values.to_vec());
                        matrix.to_device(device).unwrap()
                    };
                    let (gradient, value) = (on(&g), on(&w));
                    let noisy =
                        || NoisyGradient { gradient: &gradient, value: &value, stds, divisor };
                    let means = gradient_means(statistic, &[noisy(), noisy()]).unwrap();
                    assert_eq!(means[0], means[1]);
                    let near = |have: f64, want: f64| (have - want).abs() < 1e-4;
                    for (row, mean) in means[0].rows.iter().enumerate() {
                        let want: f64 =
                            (0..columns).map(|j| of_coordinate(row * columns + j)).sum();
                        assert!(near(*mean, want / columns as f64), "row {row} on {device:?}");
                    }
                    for (column, mean) in means[0].columns.iter().enumerate() {
                        let want: f64 =
                            (0..rows).map(|i| of_coordinate(i * columns + column)).sum();
                        assert!(near(*mean, want / rows as f64), "column {column} on {device:?}");
                    }
                }
            }
        }
    }
}
