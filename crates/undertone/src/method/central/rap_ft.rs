//! Rap-FT: two groups of coordinates, by the relevance of the parameters; each is clipped and gets
//! noise of its own (Algorithm 1, equations 18 to 23).
//!
//! With the shares ρ_w + ρ_s = 1 of weak and strong coordinates, group k is clipped to C_k = C ρ_k²
//! and gets noise of deviation s_k = σ √ρ_k C (equation 22, in which |g_k|/|g| has lost its
//! fraction bar). By the lemma of groups
//!
//! ```text
//! σ_eff = ( Σ_k (C ρ_k² / (σ √ρ_k C))² )^(−½) = σ / (ρ_w³ + ρ_s³)^½,
//! ```
//!
//! which is above σ. As published, Rap-FT pays for more than it uses. **Proved**, σ is the noise
//! multiplier that the step is to be worth, times (ρ_w³ + ρ_s³)^½: the noise shrinks and the ledger
//! is told no more than it was.
//!
//! **The mask** comes from relevance, and relevance of private examples is a release. Proved mode
//! takes a [`SeenMap`] only: relevance of public examples, or a sum over a Poisson sample with each
//! example's map cut to length 1 and Gaussian noise on it, for which the ledger has an entry of its
//! own.

use super::allocation::{Allocation, Allocator, Published, no_less};
use crate::gradient::{Bounds, Clip, ClippedSum, Clipping, Measure};
use crate::model::{ParameterId, Parameters};
use crate::noise::Noise;
use crate::tensor::Result;
use std::sync::Arc;

/// The average relevance of every coordinate; empty for parameters that are not trained.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    /// By parameter.
    pub of: Vec<Vec<f32>>,
}

/// A map that may be known: of public examples, or noised.
#[derive(Clone, Debug)]
pub struct SeenMap(Map);

impl SeenMap {
    /// The map of examples that are public: whoever calls this vouches for that.
    pub fn of_public(map: Map) -> Self {
        Self(map)
    }

    /// Adds noise of deviation σ to a sum of maps, none of which is longer than 1. `paid` must have
    /// written its entry.
    pub fn noised(mut sum: MapSum, noise: &Noise, noise_multiplier: f64, paid: Paid) -> Self {
        let Paid(()) = paid;
        let mut first = 0;
        for values in &mut sum.of {
            noise.add(MAP_STEP, first, no_less(noise_multiplier), 1.0, values);
            first += (values.len() as u64).next_multiple_of(crate::noise::GRAIN as u64);
        }
        Self(Map { of: sum.of })
    }

    /// The map.
    pub fn map(&self) -> &Map {
        &self.0
    }
}

/// Names the noise of a map: no step has this number.
const MAP_STEP: u64 = u64::MAX;

/// That the ledger has an entry for what is about to be released.
#[derive(Debug)]
pub struct Paid(());

impl Paid {
    /// After `enter` has written the entry.
    pub(crate) fn after<E>(
        enter: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<Self, E> {
        enter()?;
        Ok(Self(()))
    }
}

/// A sum of the maps of single examples, each cut to length 1. It is private.
#[derive(Clone, Debug)]
pub struct MapSum {
    of: Vec<Vec<f32>>,
    count: usize,
}

impl MapSum {
    /// Of no example.
    pub fn new(parameters: &Parameters) -> Self {
        let of = parameters
            .iter()
            .map(|(_, p)| if p.trainable { vec![0.0; p.len()] } else { Vec::new() });
        Self { of: of.collect(), count: 0 }
    }

    /// Adds one example's map, brought to length 1 at most.
    pub fn add(&mut self, map: &[Vec<f32>]) {
        self.count += 1;
        let squared: f64 = map.iter().flatten().map(|&x| f64::from(x).powi(2)).sum();
        // What is not finite, or so short that its inverse is not, counts as nothing; a little
        // below 1, for the rounding of the products.
        let length = squared.sqrt();
        if !(length.is_finite() && length > 1e-30) {
            return;
        }
        let factor = ((1.0 - 1e-6) / length) as f32;
        for (sum, map) in self.of.iter_mut().zip(map) {
            sum.iter_mut().zip(map).for_each(|(sum, x)| *sum += factor * x);
        }
    }

    /// The mean of the maps (equation 18). Not to be shown where the examples are private.
    pub fn mean(self) -> Map {
        let count = self.count.max(1) as f32;
        let of = self.of.into_iter().map(|values| values.into_iter().map(|x| x / count).collect());
        Map { of: of.collect() }
    }
}

impl Map {
    /// A parameter's relevance brought to [0, 1].
    pub fn normalised(&self, parameter: ParameterId) -> Vec<f32> {
        min_max(&self.of[parameter.index()])
    }

    /// 1 for each weak coordinate: the share `irrelevance` of all that has the least relevance
    /// after each parameter's was brought to [0, 1] (equation 19).
    pub fn mask(&self, irrelevance: f64) -> Vec<Vec<f32>> {
        let normalised: Vec<Vec<f32>> = self.of.iter().map(|values| min_max(values)).collect();
        let mut all: Vec<f32> = normalised.iter().flatten().copied().collect();
        if all.is_empty() {
            return normalised;
        }
        let rank = ((irrelevance * all.len() as f64).ceil() as usize).clamp(1, all.len()) - 1;
        let threshold = *all.select_nth_unstable_by(rank, f32::total_cmp).1;
        let weak = |x: &f32| if *x <= threshold { 1.0 } else { 0.0 };
        normalised.iter().map(|values| values.iter().map(weak).collect()).collect()
    }
}

fn min_max(values: &[f32]) -> Vec<f32> {
    let least = values.iter().copied().fold(f32::INFINITY, f32::min);
    let most = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let width = most - least;
    values.iter().map(|x| if width > 0.0 { (x - least) / width } else { 0.0 }).collect()
}

/// Both modes; they differ in where the mask comes from and in σ.
#[derive(Debug)]
struct TwoGroups {
    measure: Arc<Measure>,
    bounds: Bounds,
    /// ρ_w and ρ_s.
    shares: [f64; 2],
    bound: f64,
}

impl TwoGroups {
    fn new(clip: &Clip, map: &Map, irrelevance: f64, parameters: &Parameters) -> Self {
        let mask = map.mask(irrelevance);
        let count = mask.iter().map(Vec::len).sum::<usize>().max(1) as f64;
        let weak = mask.iter().flatten().map(|&m| f64::from(m)).sum::<f64>() / count;
        let shares = [weak, 1.0 - weak];
        let measure =
            Arc::new(Measure::split(parameters, |id: ParameterId| mask[id.index()].clone()));
        let bound = clip.bound();
        let bounds = clip.bounds_of(shares.map(|share| bound * share * share).to_vec());
        Self { measure, bounds, shares, bound }
    }

    fn allocation(&self, noise_multiplier: f64) -> Allocation {
        Allocation {
            measure: self.measure.clone(),
            bounds: self.bounds.clone(),
            deviations: self
                .shares
                .map(|share| noise_multiplier * share.sqrt() * self.bound)
                .to_vec(),
            noise_weights: None,
        }
    }
}

/// The proved form.
#[derive(Debug)]
pub struct RapFt(TwoGroups);

impl RapFt {
    /// With a mask from a map that may be known.
    pub fn new(clip: &Clip, map: &SeenMap, irrelevance: f64, parameters: &Parameters) -> Self {
        Self(TwoGroups::new(clip, &map.0, irrelevance, parameters))
    }
}

impl Allocator for RapFt {
    fn allocation(&self, noise_multiplier: f64) -> Allocation {
        let unused: f64 = self.0.shares.iter().map(|share| share.powi(3)).sum();
        self.0.allocation(noise_multiplier * unused.sqrt())
    }
}

/// The published form.
#[derive(Debug)]
pub struct PublishedRapFt(TwoGroups);

impl PublishedRapFt {
    /// With a mask from any map.
    pub fn new(clip: &Clip, map: &Map, irrelevance: f64, parameters: &Parameters) -> Self {
        Self(TwoGroups::new(clip, map, irrelevance, parameters))
    }
}

impl Allocator for PublishedRapFt {
    fn allocation(&self, noise_multiplier: f64) -> Allocation {
        self.0.allocation(noise_multiplier)
    }
}

impl Published for PublishedRapFt {
    fn look(&mut self, _raw: &ClippedSum, _parameters: &Parameters) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_is_that_of_the_published_algorithm() {
        // Min–max: [0, 0.5, 1] and [0, 0.25, 0.75, 1]; the four least of seven (β = 0.55) are 0, 0,
        // 0.25 and 0.5.
        let map = Map { of: vec![vec![2.0, 3.0, 4.0], vec![-1.0, 0.0, 2.0, 3.0], Vec::new()] };
        assert_eq!(map.mask(0.55), [vec![1.0, 1.0, 0.0], vec![1.0, 1.0, 0.0, 0.0], Vec::new()]);
        assert_eq!(map.mask(1.0), [vec![1.0; 3], vec![1.0; 4], Vec::new()]);
    }

    #[test]
    fn no_example_adds_more_than_length_one() {
        let mut sum = MapSum { of: vec![vec![0.0; 3]], count: 0 };
        for map in [
            vec![3.0, 4.0, 0.0],
            vec![1e-3, 0.0, 0.0],
            vec![f32::NAN, 1.0, 0.0],
            vec![1e-42, 0.0, 0.0],
        ] {
            let before = sum.of[0].clone();
            sum.add(&[map]);
            let moved: f64 =
                before.iter().zip(&sum.of[0]).map(|(x, y)| f64::from(y - x).powi(2)).sum();
            assert!(moved.sqrt() <= 1.0, "{moved}");
        }
        assert!(sum.of[0].iter().all(|x| x.is_finite()));
    }

    /// A map is released with the noise that its entry in the ledger names.
    #[test]
    fn a_map_gets_the_noise_that_was_paid_for() {
        let nobody = MapSum { of: vec![vec![0.0; 5_000], Vec::new(), vec![0.0; 3_000]], count: 0 };
        let noise = Noise::new(&crate::noise::Secret::from_seed(3));
        let paid = Paid::after(|| Ok::<(), ()>(())).unwrap();
        let seen = SeenMap::noised(nobody, &noise, 1.7, paid);
        let all: Vec<f64> = seen.map().of.iter().flatten().map(|&x| f64::from(x)).collect();
        let deviation = (all.iter().map(|x| x * x).sum::<f64>() / all.len() as f64).sqrt();
        assert!((deviation / 1.7 - 1.0).abs() < 0.05, "{deviation}");
        assert!(Paid::after(|| Err("no entry")).is_err());
    }
}
