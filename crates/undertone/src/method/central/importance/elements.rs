//! Importance of every coordinate (the *element* form).

use super::numbers::{Normalizer, distance, for_each_sensitivity};
use super::{Averages, ImportanceSettings, Stds, next};
use crate::gradient::{JUST_ABOVE, Weights};
use crate::model::{ParameterId, Parameters};
use crate::step::NoiseWeights;
use crate::tensor::CoordinateWeights;
use crate::tensor::simd::{inverse_root, max, sum, sum_lanes, widest};
use rayon::prelude::*;
use std::sync::Arc;

/// Maximum number of coordinates from which quantiles are estimated: all coordinates, or an evenly
/// spaced subset.
const SAMPLE: usize = 1 << 17;
/// Coordinates per parallel task, such that their averages stay in cache.
const CHUNK: usize = 1 << 13;

/// Moving averages of all coordinates.
#[derive(Debug)]
pub(super) struct Elements {
    settings: ImportanceSettings,
    pub of: Vec<Option<Tensor>>,
    /// Distance between the coordinates from which quantiles are estimated.
    stride: usize,
}

/// Moving averages of one parameter.
#[derive(Debug)]
pub(super) struct Tensor {
    pub name: String,
    columns: usize,
    pub averages: Arc<Averages>,
    /// Statistics of the current averages; `None` if they need to be recomputed.
    statistics: Option<Statistics>,
    /// Memory of the previous weights, kept for reuse.
    spare: Option<Arc<CoordinateWeights>>,
}

/// Statistics of a tensor's importance that normalization needs. They are collected while the
/// averages are updated: a separate pass would read all of the memory again.
#[derive(Clone, Debug)]
struct Statistics {
    sum: f64,
    /// The largest non-NaN importance.
    largest: f32,
    /// The sample for quantiles: one in `stride` coordinates.
    picked: Vec<f32>,
}

impl Statistics {
    /// Statistics of the coordinates starting at `start`.
    fn of(sensitivity: &[f32], uncertainty: &[f32], start: usize, stride: usize) -> Self {
        widest(
            #[inline(always)]
            || {
                let (mut sums, mut most) = ([0.0_f32; 16], [f32::NEG_INFINITY; 16]);
                let (s, s_rest) = sensitivity.as_chunks::<16>();
                let (u, u_rest) = uncertainty.as_chunks::<16>();
                for (s, u) in s.iter().zip(u) {
                    for l in 0..16 {
                        let importance = s[l] * u[l];
                        sums[l] += importance;
                        most[l] = if importance > most[l] { importance } else { most[l] };
                    }
                }
                let (mut sum, mut largest) = (f64::from(sum_lanes(sums)), max(&most));
                for (s, u) in s_rest.iter().zip(u_rest) {
                    sum += f64::from(s * u);
                    largest = largest.max(s * u);
                }
                let first = start.next_multiple_of(stride) - start;
                let picked = (first..sensitivity.len()).step_by(stride);
                Self {
                    sum,
                    largest,
                    picked: picked.map(|k| sensitivity[k] * uncertainty[k]).collect(),
                }
            },
        )
    }

    /// Statistics of all averages of a tensor.
    fn of_all(averages: &Averages, stride: usize) -> Self {
        let Averages { sensitivity, uncertainty } = averages;
        let chunks = sensitivity.par_chunks(CHUNK).zip(uncertainty.par_chunks(CHUNK)).enumerate();
        Self::all(chunks.map(|(i, (s, u))| Self::of(s, u, i * CHUNK, stride)).collect())
    }

    fn all(parts: Vec<Self>) -> Self {
        let mut all = Self { sum: 0.0, largest: f32::NEG_INFINITY, picked: Vec::new() };
        for part in parts {
            all.sum += part.sum;
            all.largest = all.largest.max(part.largest);
            all.picked.extend(part.picked);
        }
        all
    }
}

impl Elements {
    pub fn new(settings: ImportanceSettings, parameters: &Parameters) -> Self {
        let trainable = parameters.iter().filter(|(_, parameter)| parameter.trainable);
        let total: usize = trainable.map(|(_, parameter)| parameter.len()).sum();
        let of = parameters.iter().map(|(_, parameter)| {
            parameter.trainable.then(|| Tensor {
                name: parameter.name.clone(),
                columns: parameter.value.columns(),
                averages: Arc::new(Averages::of(
                    parameter.value.rows() * parameter.value.columns(),
                )),
                statistics: None,
                spare: None,
            })
        });
        // Odd, so that it does not divide common matrix widths.
        Self { settings, of: of.collect(), stride: total.div_ceil(SAMPLE) | 1 }
    }

    pub fn update(
        &mut self,
        id: ParameterId,
        gradient: &[f32],
        noise: Option<Stds>,
        value: &[f32],
    ) {
        let (settings, stride) = (self.settings, self.stride);
        let Some(Tensor { averages, statistics, .. }) = &mut self.of[id.index()] else { return };
        let averages = Arc::make_mut(averages);
        let averages = averages
            .sensitivity
            .par_chunks_mut(CHUNK)
            .zip(averages.uncertainty.par_chunks_mut(CHUNK));
        let given = gradient.par_chunks(CHUNK).zip(value.par_chunks(CHUNK));
        type Chunk<'a> = ((&'a mut [f32], &'a mut [f32]), (&'a [f32], &'a [f32]));
        let chunk = |stds: &mut Vec<f32>, (i, ((s, u), (g, w))): (usize, Chunk)| {
            let noise = noise.map(|noise| {
                stds.resize(g.len(), 0.0);
                noise(i * CHUNK, stds);
                stds.as_slice()
            });
            widest(
                #[inline(always)]
                || {
                    for_each_sensitivity(
                        g,
                        w,
                        noise,
                        s.iter_mut().zip(&mut *u),
                        #[inline(always)]
                        |(s, u), sensitivity| (*s, *u) = next(&settings, *s, *u, sensitivity),
                    );
                },
            );
            Statistics::of(s, u, i * CHUNK, stride)
        };
        *statistics = Some(Statistics::all(
            averages.zip(given).enumerate().map_with(Vec::new(), chunk).collect(),
        ));
    }

    /// The normalizer of equations 6 and 7, and the sample of importance from which it is computed.
    fn normalizer(&mut self) -> (Normalizer, Vec<f32>) {
        let stride = self.stride;
        let (mut total, mut sum, mut sample) = (0, 0.0, Vec::new());
        for Tensor { averages, statistics, .. } in self.of.iter_mut().flatten() {
            let statistics = statistics.get_or_insert_with(|| Statistics::of_all(averages, stride));
            total += averages.sensitivity.len();
            sum += statistics.sum;
            sample.extend_from_slice(&statistics.picked);
        }
        let mean = (sum / total.max(1) as f64) as f32;
        let unit = distance(&mut sample, self.settings.quantiles);
        (Normalizer::new(&self.settings, mean, unit, self.settings.range), sample)
    }

    /// The weights, stored for each coordinate.
    pub fn weights(&mut self) -> Vec<Option<Weights>> {
        let (normalizer, _) = self.normalizer();
        let (mut total, mut whole) = (0, 0.0);
        let mut forms = Vec::with_capacity(self.of.len());
        for tensor in &mut self.of {
            let Some(Tensor { columns, averages, spare, .. }) = tensor else {
                forms.push(None);
                continue;
            };
            let Averages { sensitivity, uncertainty } = &**averages;
            let mut values = spare.take().unwrap_or_default();
            let is_spare =
                |values: &mut CoordinateWeights| values.values().len() == sensitivity.len();
            if !Arc::get_mut(&mut values).is_some_and(is_spare) {
                values = Arc::new(vec![1.0; sensitivity.len()].into());
            }
            let out = Arc::get_mut(&mut values).expect("not shared").values_mut();
            let parts: Vec<(f64, f32)> = out
                .par_chunks_mut(CHUNK)
                .zip(sensitivity.par_chunks(CHUNK).zip(uncertainty.par_chunks(CHUNK)))
                .map(|(out, (s, u))| {
                    widest(
                        #[inline(always)]
                        || {
                            for (out, (s, u)) in out.iter_mut().zip(s.iter().zip(u)) {
                                *out = normalizer.weight(s * u);
                            }
                            (f64::from(sum(out)), max(out))
                        },
                    )
                })
                .collect();
            total += sensitivity.len();
            whole += parts.iter().map(|part| part.0).sum::<f64>();
            let largest = parts.iter().map(|part| part.1).fold(0.0, f32::max);
            *spare = Some(values.clone());
            forms.push(Some((values, largest, *columns)));
        }
        let scale = (total.max(1) as f64 / whole.max(f64::MIN_POSITIVE)) as f32;
        let weights =
            |(values, largest, columns)| Weights::Elements { values, scale, largest, columns };
        forms.into_iter().map(|form| form.map(weights)).collect()
    }

    /// The same weights, computed from the averages where noise is drawn: storing them and reading
    /// them again would take longer. The factor that scales their mean to 1 is estimated from the
    /// sample for quantiles; if the sample does not include all coordinates, the mean is 1 to
    /// within about a thousandth.
    pub fn noise_weights(&mut self) -> ElementNoise {
        let (normalizer, sample) = self.normalizer();
        let mean = sample.iter().map(|&i| f64::from(normalizer.weight(i))).sum::<f64>()
            / sample.len().max(1) as f64;
        let of = self.of.iter().map(|tensor| {
            let tensor = tensor.as_ref()?;
            let statistics = tensor.statistics.as_ref()?;
            let largest = normalizer.largest(statistics.largest, !statistics.sum.is_finite());
            Some((tensor.averages.clone(), largest))
        });
        let scale = if mean > 0.0 { 1.0 / mean as f32 } else { 1.0 };
        ElementNoise { normalizer, scale, of: of.collect() }
    }

    /// Calls `take` with mutable access to the averages of each parameter.
    pub fn each(&mut self, mut take: impl FnMut(&str, &mut Averages)) {
        for tensor in self.of.iter_mut().flatten() {
            tensor.statistics = None;
            take(&tensor.name, Arc::make_mut(&mut tensor.averages));
        }
    }
}

/// Noise weights computed on demand from the moving averages.
#[derive(Debug)]
pub(in crate::method::central) struct ElementNoise {
    normalizer: Normalizer,
    /// Factor that scales the mean weight over all parameters to 1.
    scale: f32,
    /// The averages and the largest weight before scaling, by parameter.
    of: Vec<Option<(Arc<Averages>, f32)>>,
}

impl NoiseWeights for ElementNoise {
    fn largest(&self, parameter: ParameterId) -> Option<f64> {
        let (_, largest) = self.of[parameter.index()].as_ref()?;
        Some(f64::from(self.scale) * f64::from(*largest))
    }

    fn write_inverse_roots(
        &self,
        parameter: ParameterId,
        factor: f32,
        start: usize,
        out: &mut [f32],
    ) {
        let Some((averages, _)) = &self.of[parameter.index()] else { return out.fill(factor) };
        let Averages { sensitivity, uncertainty } = &**averages;
        let (scale, normalizer) = (self.scale, self.normalizer);
        widest(
            #[inline(always)]
            || {
                let factor = factor * JUST_ABOVE;
                let averages = sensitivity[start..].iter().zip(&uncertainty[start..]);
                for (out, (s, u)) in out.iter_mut().zip(averages) {
                    *out = factor * inverse_root(scale * normalizer.weight(s * u));
                }
            },
        );
    }
}
