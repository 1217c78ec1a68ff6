//! Rap-FT's mask: which coordinates of a relevance map are weak (equation 19 and the lines above it
//! in Algorithm 1).

use super::rap_ft::RelevanceMap;
use crate::model::ParameterId;
use undertone_run::MaskRanking;

/// How a mask is made from a relevance map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MaskRule {
    /// β: the share of coordinates treated as weakly relevant.
    pub irrelevance: f64,
    /// The coordinates that are ranked together.
    pub ranking: MaskRanking,
}

impl From<f64> for MaskRule {
    fn from(irrelevance: f64) -> Self {
        Self { irrelevance, ranking: MaskRanking::Global }
    }
}

impl RelevanceMap {
    /// A parameter's relevance, min–max normalized to [0, 1].
    pub fn normalized(&self, parameter: ParameterId) -> Vec<f32> {
        min_max(&self.of[parameter.index()])
    }

    /// A mask that is 1 for each weakly relevant coordinate: the share β with the least relevance
    /// after min–max normalization by parameter (equation 19), of all coordinates or of each
    /// parameter's.
    pub fn mask(&self, rule: impl Into<MaskRule>) -> Vec<Vec<f32>> {
        let MaskRule { irrelevance, ranking } = rule.into();
        let normalized: Vec<Vec<f32>> = self.of.iter().map(|values| min_max(values)).collect();
        match ranking {
            MaskRanking::Global => {
                let threshold = threshold(normalized.concat(), irrelevance);
                normalized.iter().map(|values| weak(values, threshold)).collect()
            }
            MaskRanking::PerLayer => {
                let each = normalized.iter();
                each.map(|values| weak(values, threshold(values.clone(), irrelevance))).collect()
            }
        }
    }
}

/// R_ir: the value at index ⌈β n⌉ of the ranked relevance.
fn threshold(mut values: Vec<f32>, irrelevance: f64) -> f32 {
    if values.is_empty() {
        return 0.0;
    }
    let rank = ((irrelevance * values.len() as f64).ceil() as usize).clamp(1, values.len()) - 1;
    *values.select_nth_unstable_by(rank, f32::total_cmp).1
}

fn weak(values: &[f32], threshold: f32) -> Vec<f32> {
    values.iter().map(|x| if *x <= threshold { 1.0 } else { 0.0 }).collect()
}

fn min_max(values: &[f32]) -> Vec<f32> {
    let least = values.iter().copied().fold(f32::INFINITY, f32::min);
    let most = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let width = most - least;
    values.iter().map(|x| if width > 0.0 { (x - least) / width } else { 0.0 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_is_that_of_the_published_algorithm() {
        // Min–max: [0, 0.5, 1] and [0, 0.25, 0.75, 1]; the four smallest of seven (β = 0.55) are 0,
        // 0, 0.25 and 0.5.
        let map =
            RelevanceMap { of: vec![vec![2.0, 3.0, 4.0], vec![-1.0, 0.0, 2.0, 3.0], Vec::new()] };
        assert_eq!(map.mask(0.55), [vec![1.0, 1.0, 0.0], vec![1.0, 1.0, 0.0, 0.0], Vec::new()]);
        assert_eq!(map.mask(1.0), [vec![1.0; 3], vec![1.0; 4], Vec::new()]);
    }

    /// In each layer by itself, at least the share β of the coordinates is weak: two of three and
    /// three of four, where the global threshold leaves two of four.
    #[test]
    fn each_layer_can_be_ranked_by_itself() {
        let map =
            RelevanceMap { of: vec![vec![2.0, 3.0, 4.0], vec![-1.0, 0.0, 2.0, 3.0], Vec::new()] };
        let rule = MaskRule { irrelevance: 0.55, ranking: MaskRanking::PerLayer };
        assert_eq!(map.mask(rule), [vec![1.0, 1.0, 0.0], vec![1.0, 1.0, 1.0, 0.0], Vec::new()]);
        let all = MaskRule { irrelevance: 1.0, ..rule };
        assert_eq!(map.mask(all), map.mask(1.0));
    }
}
