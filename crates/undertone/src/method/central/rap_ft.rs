//! Rap-FT: two groups of coordinates by relevance, each with its own clipping bound and noise
//! (Algorithm 1, equations 18 to 23).
//!
//! With the shares ρ_w + ρ_s = 1 of weakly and strongly relevant coordinates, group k is clipped to
//! C_k = C ρ_k² and gets noise of std s_k = σ √ρ_k C (equation 22, in which |g_k|/|g| is missing
//! its fraction bar). By the [lemma of groups](crate::noise)
//!
//! ```text
//! σ_eff = ( Σ_k (C ρ_k² / (σ √ρ_k C))² )^(−½) = σ / (ρ_w³ + ρ_s³)^½,
//! ```
//!
//! which is larger than σ: as published, Rap-FT adds more noise than its ε requires. **Proved**, σ
//! is the target effective noise multiplier times (ρ_w³ + ρ_s³)^½, which gives less noise for the
//! same ledger entry.
//!
//! **The mask** is computed from relevance, and the relevance of private examples is a release.
//! Proved mode only accepts a [`ReleasedRelevanceMap`]: the mean over public examples, or a
//! [`ClippedRelevanceSum`] over a Poisson sample of private examples plus Gaussian noise, which has
//! its own ledger entry.
//!
//! Which coordinates are weak follows from the map alone ([`MaskRule`]). If all are, as with β = 1
//! or where all relevance is equal, there is one group and σ_eff = σ: Rap-FT is DP-SGD.
//!
//! *Sensitivity of the sum.* A unit in the sample adds one map, m min(1, R/‖m‖), whose ℓ2 norm is
//! at most R, and m depends only on the unit's example, the pretrained model and random draws that
//! are a function of that example. So adding or removing a unit moves the sum by at most R, and
//! noise of std σR makes it a Poisson-sampled Gaussian mechanism with noise multiplier σ, which is
//! what the ledger records. R does not affect the ledger entry: a smaller R adds less noise and
//! clips more maps.

use super::mask::MaskRule;
use crate::gradient::{Bounds, Clip, ClippedSum, Clipping, ClippingGroups};
use crate::model::{ParameterId, Parameters};
use crate::noise::Noise;
use crate::replay::{ReleaseId, Tape};
use crate::step::{Allocation, Allocator, Published, Recorded, StepCorrelation, no_less};
use crate::tensor::Result;
use std::sync::Arc;

/// A relevance map: the mean relevance of every coordinate of the trainable parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct RelevanceMap {
    /// Relevance by parameter, in row-major order; empty for frozen parameters.
    pub of: Vec<Vec<f32>>,
}

/// A relevance map that may be released: computed from public examples, or noisy.
#[derive(Clone, Debug)]
pub struct ReleasedRelevanceMap(RelevanceMap);

impl ReleasedRelevanceMap {
    /// The map of public examples. The caller guarantees that they are public.
    pub fn of_public(map: RelevanceMap) -> Self {
        Self(map)
    }

    /// Adds Gaussian noise of std `noise_multiplier` · R to a sum of maps of ℓ2 norm at most R.
    /// `recorded` proves that the release is recorded in the ledger.
    pub fn noised(
        sum: ClippedRelevanceSum,
        noise: &Noise,
        noise_multiplier: f64,
        recorded: Recorded,
    ) -> crate::error::Result<Self> {
        recorded.covers(noise_multiplier)?;
        let ClippedRelevanceSum { mut of, clip } = sum;
        let std = no_less(noise_multiplier * clip);
        let mut first = 0;
        for values in &mut of {
            noise.add(MAP_STEP, first, std, 1.0, values);
            first += (values.len() as u64).next_multiple_of(crate::noise::NOISE_BLOCK as u64);
        }
        Ok(Self(RelevanceMap { of }))
    }

    pub fn map(&self) -> &RelevanceMap {
        &self.0
    }
}

/// Step index for a map's noise; no training step uses it.
const MAP_STEP: u64 = u64::MAX;

/// Zeros for every coordinate of the trainable parameters.
fn no_relevance(parameters: &Parameters) -> Vec<Vec<f32>> {
    let of =
        parameters.iter().map(|(_, p)| if p.trainable { vec![0.0; p.len()] } else { Vec::new() });
    of.collect()
}

/// Adds a scaled map. The factor is an f64, since that of a map with a very large norm would be
/// rounded coarsely as an f32.
fn add_scaled(sums: &mut [Vec<f32>], map: &[Vec<f32>], factor: f64) {
    for (sum, map) in sums.iter_mut().zip(map) {
        sum.iter_mut().zip(map).for_each(|(sum, &x)| *sum += (factor * f64::from(x)) as f32);
    }
}

/// A sum of examples' relevance maps, each clipped to a given ℓ2 norm. It is private.
#[derive(Clone, Debug)]
pub struct ClippedRelevanceSum {
    of: Vec<Vec<f32>>,
    clip: f64,
}

impl ClippedRelevanceSum {
    /// An empty sum of maps that will be clipped to ℓ2 norm `clip`.
    pub fn new(parameters: &Parameters, clip: f64) -> Self {
        Self { of: no_relevance(parameters), clip }
    }

    /// Adds one example's map, scaled by min(1, clip/‖map‖).
    pub fn add(&mut self, map: &[Vec<f32>]) {
        let squared: f64 = map.iter().flatten().map(|&x| f64::from(x).powi(2)).sum();
        let norm = squared.sqrt();
        // A non-finite map counts as zero.
        if !norm.is_finite() {
            return;
        }
        // Clip to slightly less, to account for rounding of the products.
        let most = self.clip * (1.0 - 1e-6);
        let factor = if norm > most { most / norm } else { 1.0 };
        add_scaled(&mut self.of, map, factor);
    }

    /// Passes the sum to a tape before noise of std `noise_multiplier` · R is added.
    pub(super) fn pass(&mut self, tape: &Tape, noise_multiplier: f64) {
        let std = no_less(noise_multiplier * self.clip);
        for (part, values) in self.of.iter_mut().enumerate() {
            tape.pass_slice(ReleaseId::RelevanceMap, part, values, std);
        }
    }
}

/// A sum of examples' unclipped relevance maps. It is private if the examples are.
#[derive(Clone, Debug)]
pub struct RelevanceSum {
    of: Vec<Vec<f32>>,
    count: usize,
}

impl RelevanceSum {
    /// An empty sum.
    pub fn new(parameters: &Parameters) -> Self {
        Self { of: no_relevance(parameters), count: 0 }
    }

    /// Adds one example's map.
    pub fn add(&mut self, map: &[Vec<f32>]) {
        self.count += 1;
        // A single non-finite map would ruin the whole sum.
        if map.iter().flatten().all(|x| x.is_finite()) {
            add_scaled(&mut self.of, map, 1.0);
        }
    }

    /// The mean of the maps (equation 18).
    pub fn mean(self) -> RelevanceMap {
        let count = self.count.max(1) as f32;
        let of = self.of.into_iter().map(|values| values.into_iter().map(|x| x / count).collect());
        RelevanceMap { of: of.collect() }
    }
}

/// The two groups used by both modes, which differ in the source of the mask and in σ.
#[derive(Debug)]
struct TwoGroups {
    groups: Arc<ClippingGroups>,
    bounds: Bounds,
    /// ρ_w and ρ_s: the shares of weakly and strongly relevant coordinates; 1 alone if all are
    /// weak.
    shares: Vec<f64>,
    bound: f64,
}

impl TwoGroups {
    fn new(clip: &Clip, map: &RelevanceMap, rule: MaskRule, parameters: &Parameters) -> Self {
        let mask = map.mask(rule);
        let count = mask.iter().map(Vec::len).sum::<usize>();
        let weak = mask.iter().flatten().filter(|&&m| m == 1.0).count();
        let bound = clip.bound();
        // A group without coordinates has the bound 0, by which no gradient could be scaled.
        if weak == count {
            let groups = Arc::new(ClippingGroups::one(parameters));
            return Self { groups, bounds: clip.bounds_of(vec![bound]), shares: vec![1.0], bound };
        }
        let weak = weak as f64 / count as f64;
        let shares = vec![weak, 1.0 - weak];
        let groups =
            Arc::new(ClippingGroups::split(parameters, |id: ParameterId| mask[id.index()].clone()));
        let bounds = clip.bounds_of(shares.iter().map(|share| bound * share * share).collect());
        Self { groups, bounds, shares, bound }
    }

    /// s_k = σ √ρ_k C (equation 22).
    fn stds(&self, noise_multiplier: f64) -> Vec<f64> {
        let std = |share: &f64| noise_multiplier * share.sqrt() * self.bound;
        self.shares.iter().map(std).collect()
    }

    fn allocation(&self, noise_multiplier: f64) -> Allocation {
        Allocation {
            groups: self.groups.clone(),
            bounds: self.bounds.clone(),
            stds: self.stds(noise_multiplier),
            noise_weights: None,
            count_std: None,
            correlation: StepCorrelation::NONE,
        }
    }
}

/// Rap-FT in proved mode.
#[derive(Debug)]
pub struct RapFt(TwoGroups);

impl RapFt {
    /// Creates the allocator with a mask from a map that may be released.
    pub fn new(
        clip: &Clip,
        map: &ReleasedRelevanceMap,
        rule: impl Into<MaskRule>,
        parameters: &Parameters,
    ) -> Self {
        Self(TwoGroups::new(clip, &map.0, rule.into(), parameters))
    }
}

impl Allocator for RapFt {
    fn allocation(&self, noise_multiplier: f64) -> Allocation {
        let unused: f64 = self.0.shares.iter().map(|share| share.powi(3)).sum();
        self.0.allocation(noise_multiplier * unused.sqrt())
    }
}

/// Rap-FT in paper mode.
#[derive(Debug)]
pub struct PublishedRapFt(TwoGroups);

impl PublishedRapFt {
    /// Creates the allocator with a mask from any map.
    pub fn new(
        clip: &Clip,
        map: &RelevanceMap,
        rule: impl Into<MaskRule>,
        parameters: &Parameters,
    ) -> Self {
        Self(TwoGroups::new(clip, map, rule.into(), parameters))
    }
}

impl Allocator for PublishedRapFt {
    fn allocation(&self, noise_multiplier: f64) -> Allocation {
        self.0.allocation(noise_multiplier)
    }
}

impl Published for PublishedRapFt {
    fn observe_raw(&mut self, _raw: &ClippedSum, _parameters: &Parameters) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_accounting::Event;

    fn parameters_of(shapes: &[[usize; 2]]) -> Parameters {
        let mut parameters = Parameters::default();
        for (i, shape) in shapes.iter().enumerate() {
            parameters.push(crate::model::Parameter {
                name: format!("tensor {i}"),
                shape: shape.to_vec(),
                value: crate::tensor::Matrix::zeros(shape[0], shape[1]),
                trainable: true,
                origin: crate::model::Origin::Adapter,
            });
        }
        parameters
    }

    /// With β = 1, which the paper's range includes, and where all relevance is equal, as that of
    /// biases that are zero, every coordinate is weak and both modes are DP-SGD.
    #[test]
    fn one_group_is_dp_sgd() {
        let parameters = parameters_of(&[[1, 3], [2, 2]]);
        let uneven = RelevanceMap { of: vec![vec![2.0, 3.0, 4.0], vec![-1.0, 0.0, 2.0, 3.0]] };
        let equal = RelevanceMap { of: vec![vec![0.0; 3], vec![0.0; 4]] };
        let clip = Clip::Flat(0.5);
        let wanted = super::super::DpSgd::new(&clip, &parameters).allocation(0.6);
        for (map, irrelevance) in [(uneven, 1.0), (equal, 0.7)] {
            let published = PublishedRapFt::new(&clip, &map, irrelevance, &parameters);
            let map = ReleasedRelevanceMap::of_public(map);
            let proved = RapFt::new(&clip, &map, irrelevance, &parameters);
            for allocation in [published.allocation(0.6), proved.allocation(0.6)] {
                assert_eq!(allocation.bounds, wanted.bounds);
                assert_eq!(allocation.stds, wanted.stds);
                assert_eq!(allocation.noise_multiplier(), wanted.noise_multiplier());
            }
        }
    }

    /// Compares bounds, noise and σ_eff of both modes with fixtures/allocation/make.py, on
    /// parameters of the script's shapes.
    #[test]
    fn two_groups_equal_the_script() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/allocation/cases.json");
        let cases: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let case = &cases["two_groups"];
        let of = |key: &str| case[key].as_f64().unwrap();
        let (mut shapes, mut map) = (Vec::new(), RelevanceMap { of: Vec::new() });
        for tensor in case["relevance"].as_array().unwrap() {
            let rows = tensor.as_array().unwrap();
            let numbers = rows.iter().flat_map(|row| row.as_array().unwrap());
            let numbers: Vec<f32> = numbers.map(|x| x.as_f64().unwrap() as f32).collect();
            shapes.push([rows.len(), numbers.len() / rows.len()]);
            map.of.push(numbers);
        }
        let parameters = parameters_of(&shapes);
        let (clip, sigma) = (Clip::Flat(of("clip")), of("sigma"));
        let published = PublishedRapFt::new(&clip, &map, of("beta"), &parameters).allocation(sigma);
        for (k, group) in ["w", "s"].into_iter().enumerate() {
            let bound = of(&format!("clip_{group}"));
            assert!((published.bounds.thresholds()[k] / bound - 1.0).abs() < 1e-6);
            let std = of(&format!("deviation_{group}"));
            assert!((published.stds[k] / std - 1.0).abs() < 1e-6);
        }
        assert!((published.noise_multiplier() / of("sigma_eff") - 1.0).abs() < 1e-6);
        let map = ReleasedRelevanceMap::of_public(map);
        let proved = RapFt::new(&clip, &map, of("beta"), &parameters).allocation(sigma);
        assert!((proved.noise_multiplier() / sigma - 1.0).abs() < 1e-6);
        // σ_matched is the σ whose effective noise multiplier equals the nominal one.
        for (std, published) in proved.stds.iter().zip(&published.stds) {
            let ratio = of("sigma_matched") / sigma;
            assert!((std / published / ratio - 1.0).abs() < 1e-6);
        }
    }

    /// Equation 18: the mean of the unclipped maps, so that an example with more relevance has more
    /// influence.
    #[test]
    fn a_published_map_is_the_mean_of_the_maps() {
        let mut sum = RelevanceSum { of: vec![vec![0.0; 2]], count: 0 };
        sum.add(&[vec![30.0, 40.0]]);
        sum.add(&[vec![1.0, 0.0]]);
        sum.add(&[vec![f32::INFINITY, 0.0]]);
        sum.add(&[vec![1.0, 0.0]]);
        assert_eq!(sum.mean().of, [vec![8.0, 10.0]]);
    }

    /// A map within the bound is added unchanged, and a larger one is scaled to the bound.
    #[test]
    fn maps_are_clipped_and_not_normalized() {
        for clip in [1e-3, 0.5, 1.0, 20.0] {
            let mut sum = ClippedRelevanceSum { of: vec![vec![0.0; 3]], clip };
            for (map, norm) in [
                (vec![3.0, 4.0, 0.0], 5.0),
                (vec![0.3, 0.0, 0.4], 0.5 * (1.0 - 1e-6)),
                (vec![1e-3, 0.0, 0.0], 1e-3),
                (vec![f32::NAN, 1.0, 0.0], 0.0),
                (vec![f32::MAX, f32::MAX, 0.0], f64::INFINITY),
                (vec![1e-42, 0.0, 0.0], 0.0),
            ] {
                sum.of[0].fill(0.0);
                sum.add(&[map]);
                let moved = sum.of[0].iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
                assert!(moved <= clip, "{moved} is above {clip}");
                assert!((moved - norm.min(clip)).abs() < 2e-6 * clip, "{moved}, not {norm}");
            }
        }
    }

    /// A map's contribution has norm at most R, whatever finite values it holds; a non-finite map
    /// contributes nothing.
    #[test]
    fn no_map_adds_more_than_the_bound_at_any_magnitude() {
        let mut state = 5_u64;
        let mut below = |count: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_041);
            (state >> 33) % count
        };
        for trial in 0..400 {
            let center = [-44.0, -38.0, -23.0, -5.0, 0.0, 5.0, 20.0, 38.0][below(8) as usize];
            let spread = [0.0, 1.0, 80.0][below(3) as usize];
            let mut number = || {
                let exponent: f64 = center + spread * (below(1 << 20) as f64 / 1_048_576.0 - 0.5);
                let size = 10_f64.powf(exponent.clamp(-44.8, 38.5)) as f32;
                if below(2) == 0 { -size } else { size }
            };
            let mut map: Vec<f32> = (0..100).map(|_| number()).collect();
            if trial % 10 == 0 {
                map[7] = [f32::NAN, f32::INFINITY][trial / 10 % 2];
            }
            let clip = [1e-6, 1e-3, 1.0, 1e6][below(4) as usize];
            let mut sum = ClippedRelevanceSum { of: vec![vec![0.0; 100]], clip };
            sum.add(&[map]);
            let norm = sum.of[0].iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
            assert!(norm <= clip, "trial {trial}: {norm} is above {clip}");
            assert!(trial % 10 != 0 || norm == 0.0, "trial {trial}: not finite, and adds {norm}");
        }
    }

    /// A map is released with noise of std noise multiplier times clipping bound, which is what its
    /// ledger entry states for maps with that bound.
    #[test]
    fn a_map_gets_the_noise_that_is_recorded() {
        for clip in [1.0, 0.01, 30.0] {
            let of = vec![vec![0.0; 5_000], Vec::new(), vec![0.0; 3_000]];
            let noise = Noise::new(&crate::noise::Secret::from_seed(3));
            let recorded = |noise_multiplier| {
                let event = Event::PoissonGaussian { noise_multiplier, sampling_rate: 0.1 };
                Recorded::in_tests(event, 1)
            };
            let sum = ClippedRelevanceSum { of, clip };
            let unpaid = ReleasedRelevanceMap::noised(sum.clone(), &noise, 1.7, recorded(1.8));
            assert!(unpaid.is_err(), "the ledger has more noise than there is");
            let seen = ReleasedRelevanceMap::noised(sum, &noise, 1.7, recorded(1.7)).unwrap();
            let all: Vec<f64> = seen.map().of.iter().flatten().map(|&x| f64::from(x)).collect();
            let std = (all.iter().map(|x| x * x).sum::<f64>() / all.len() as f64).sqrt();
            assert!((std / (1.7 * clip) - 1.0).abs() < 0.05, "{std} at {clip}");
        }
    }
}
