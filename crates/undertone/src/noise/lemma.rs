//! The Gaussian mechanism on groups of coordinates.

/// A sum over groups of coordinates, each with its own clipping bound and noise.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupedGaussian {
    bounds: Vec<f64>,
    stds: Vec<f64>,
}

impl GroupedGaussian {
    /// Creates the mechanism from the clipping bound C_k and the noise std s_k of each group.
    ///
    /// # Panics
    /// If the two lists differ in length.
    pub fn new(bounds: Vec<f64>, stds: Vec<f64>) -> Self {
        assert_eq!(bounds.len(), stds.len(), "one bound and one std for each group");
        Self { bounds, stds }
    }

    /// The effective noise multiplier, σ_eff of the [lemma](crate::noise).
    pub fn noise_multiplier(&self) -> f64 {
        let squared: f64 = self
            .bounds
            .iter()
            .zip(&self.stds)
            // A group that no unit can change costs no privacy, whatever its noise.
            .filter(|(bound, _)| **bound != 0.0)
            .map(|(bound, std)| (bound / std).powi(2))
            .sum();
        squared.sqrt().recip()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_groups_have_the_noise_multiplier_of_one() {
        for groups in [1, 2, 7, 100] {
            let bound = 0.3 / f64::from(groups).sqrt();
            let groups = groups as usize;
            let mechanism = GroupedGaussian::new(vec![bound; groups], vec![1.7 * 0.3; groups]);
            assert!((mechanism.noise_multiplier() - 1.7).abs() < 1e-12);
        }
    }

    /// The privacy loss of moving a Gaussian by v depends on Σ (v_j/s_j)²: no v within the bounds
    /// does worse than σ_eff states.
    #[test]
    fn no_direction_is_worse_than_stated() {
        let (bounds, stds) = ([0.5, 1.0, 0.1], [1.0, 0.8, 0.3]);
        let sizes = [2, 3, 1];
        let stated = GroupedGaussian::new(bounds.to_vec(), stds.to_vec()).noise_multiplier();
        let mut state = 1_u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as f64 / f64::from(1_u32 << 31) - 0.5
        };
        let mut worst = f64::INFINITY;
        for trial in 0..20_000 {
            let mut squared = 0.0;
            for group in 0..3 {
                let mut direction: Vec<f64> = (0..sizes[group]).map(|_| random()).collect();
                let norm = direction.iter().map(|x| x * x).sum::<f64>().sqrt();
                // Mostly on the bound, where the worst cases are; sometimes inside.
                let radius = bounds[group] * if trial % 4 == 0 { random() + 0.5 } else { 1.0 };
                direction.iter_mut().for_each(|x| *x *= radius / norm);
                squared += direction.iter().map(|x| (x / stds[group]).powi(2)).sum::<f64>();
            }
            worst = worst.min(squared.sqrt().recip());
        }
        assert!(worst >= stated * (1.0 - 1e-9), "{worst} is worse than {stated}");
        assert!(worst <= stated * (1.0 + 1e-9), "the bound is reached");
    }
}
