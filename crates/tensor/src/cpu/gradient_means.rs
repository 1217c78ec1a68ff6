//! Row and column means of a statistic of gradients.

use super::parallel;
use super::simd::{inverse_root, sum, widest};
use crate::Host;
use crate::gradient_means::{GradientMeans, GradientStatistic, NoisyGradient};

/// Coordinates per parallel task, chosen so that intermediate results stay in cache.
const CHUNK: usize = 1 << 13;

pub(super) fn gradient_means(
    statistic: GradientStatistic,
    noisy: &NoisyGradient<Host>,
) -> GradientMeans {
    let NoisyGradient { gradient, value, stds, divisor } = noisy;
    let (columns, factor) = (gradient.columns(), 1.0 / divisor);
    let (gradient, value) = (gradient.dense(), value.dense());
    let height = (CHUNK / columns.max(1)).max(1);
    // For each chunk of rows, the means of its rows and the partial sums of the columns.
    let size = (height * columns).max(1);
    let parts = parallel::map(gradient.len().div_ceil(size), |i| {
        let range = i * size..gradient.len().min((i + 1) * size);
        let (g, w) = (&gradient[range.clone()], &value[range]);
        let mut moments = vec![0.0; g.len()];
        stds.write(i * height * columns, &mut moments);
        let mut sums = vec![0.0_f32; columns];
        let mut of_rows = Vec::with_capacity(height);
        widest(
            #[inline(always)]
            || {
                for ((moment, g), w) in moments.iter_mut().zip(g).zip(w) {
                    let std = *moment * factor;
                    let square = g.mul_add(*g, -(std * std));
                    *moment = match statistic {
                        GradientStatistic::Square => square,
                        GradientStatistic::Sensitivity => {
                            let square = square.max(0.0);
                            square * inverse_root(square) * w.abs()
                        }
                    };
                }
                for row in moments.chunks(columns.max(1)) {
                    for (sum, x) in sums.iter_mut().zip(row) {
                        *sum += x;
                    }
                    of_rows.push(f64::from(sum(row) / columns as f32));
                }
            },
        );
        (of_rows, sums)
    });
    let (mut rows, mut of_columns) = (Vec::new(), vec![0.0_f64; columns]);
    for (part, sums) in parts {
        rows.extend(part);
        of_columns.iter_mut().zip(sums).for_each(|(sum, x)| *sum += f64::from(x));
    }
    let height = rows.len().max(1) as f64;
    of_columns.iter_mut().for_each(|sum| *sum /= height);
    GradientMeans { rows, columns: of_columns }
}
