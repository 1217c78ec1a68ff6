//! Exposure of planted secrets (Carlini and others, 2019), and the mean reciprocal rank.

pub use undertone_run::audit::Exposure;

/// Exposure from the loss of the secret and the losses of all other candidates.
pub fn exact(secret: f64, others: &[f64]) -> Exposure {
    // Ties count against the attacker by half.
    let below = others.iter().filter(|&&loss| loss < secret).count() as f64;
    let tied = others.iter().filter(|&&loss| loss == secret).count() as f64;
    let rank = 1.0 + below + 0.5 * tied;
    let most = (others.len() as f64 + 1.0).log2();
    Exposure { bits: most - rank.log2(), most, rank, exact: true }
}

/// Exposure from the loss of the secret and the losses of a sample from 2^`space_bits` candidates:
/// a normal distribution is fitted to the losses, and its tail gives the fraction of candidates
/// with a lower loss than the secret.
pub fn sampled(secret: f64, sample: &[f64], space_bits: f64) -> Exposure {
    let n = sample.len().max(1) as f64;
    let mean = sample.iter().sum::<f64>() / n;
    let variance = sample.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
    let z = (secret - mean) / variance.sqrt().max(1e-12);
    // With enough sampled losses below the secret's, the empirical fraction is more accurate.
    let below = sample.iter().filter(|&&loss| loss < secret).count() as f64;
    let share = if below >= 10.0 { below / n } else { undertone_accounting::normal_tail(-z) };
    let bits = (-share.max(1e-300).log2()).clamp(0.0, space_bits);
    Exposure { bits, most: space_bits, rank: (space_bits - bits).exp2(), exact: false }
}

/// The mean of 1/rank: 1 if every secret is the likeliest candidate.
pub fn mean_reciprocal_rank(ranks: &[f64]) -> f64 {
    ranks.iter().map(|rank| 1.0 / rank.max(1.0)).sum::<f64>() / ranks.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exposure_is_log_candidates_minus_log_rank() {
        let others: Vec<f64> = (1..1024).map(f64::from).collect();
        assert!((exact(0.0, &others).bits - 10.0).abs() < 1e-12);
        assert!((exact(1.5, &others).bits - 9.0).abs() < 1e-12);
        assert!(exact(9_999.0, &others).bits.abs() < 1e-12);
        assert_eq!(mean_reciprocal_rank(&[1.0, 2.0, 4.0]), 1.75 / 3.0);
    }

    #[test]
    fn sampled_exposure_estimates_exact_exposure() {
        let noise = crate::noise::Noise::new(&crate::noise::Secret::from_seed(8));
        let mut losses = vec![10.0_f32; 1 << 16];
        noise.add(0, 0, 1.0, 1.0, &mut losses);
        let losses: Vec<f64> = losses.iter().map(|&x| f64::from(x)).collect();
        for secret in [10.0, 8.5, 7.0, 6.3] {
            let (all, some) = (exact(secret, &losses), sampled(secret, &losses[..2000], 16.0));
            assert!((all.bits - some.bits).abs() < 0.8, "{secret}: {all:?} {some:?}");
        }
    }
}
