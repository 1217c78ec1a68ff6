//! Post-processing of noisy counts into plausible ones.

/// The closest vector to a noisy histogram without negative cells and with the same sum, or zeros
/// if the sum is negative.
pub fn projected(noisy: &[f64]) -> Vec<f64> {
    let total = noisy.iter().sum::<f64>().max(0.0);
    let mut sorted = noisy.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let (mut sum, mut excess) = (0.0, 0.0);
    for (i, value) in sorted.iter().enumerate() {
        sum += value;
        let of_all = (sum - total) / (i + 1) as f64;
        if *value <= of_all {
            break;
        }
        excess = of_all;
    }
    noisy.iter().map(|value| (value - excess).max(0.0)).collect()
}

/// The shares of noisy counts; all 0 if no count remains.
pub fn shares(noisy: &[f64]) -> Vec<f64> {
    let counts = projected(noisy);
    let total: f64 = counts.iter().sum();
    counts.iter().map(|count| if total > 0.0 { count / total } else { 0.0 }).collect()
}

/// The cells that stand out from the noise. Cells below 3.5 standard deviations count as 0; noise
/// alone exceeds that in one of 44 cells with a probability of 1 %. Without this, the noise of
/// empty cells would appear as tails.
pub fn denoised(noisy: &[f64], std: f64) -> Vec<f64> {
    let least = 3.5 * std;
    noisy.iter().map(|count| if *count < least { 0.0 } else { *count }).collect()
}

/// The first cell at which at least this share of the histogram is reached; `None` if it is empty.
pub fn quantile(counts: &[f64], share: f64) -> Option<usize> {
    let shares = shares(counts);
    let mut sum = 0.0;
    let reached = |of: &f64| {
        sum += of;
        sum >= share - 1e-12
    };
    shares.iter().position(reached)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_counts_are_made_up_for_by_the_others() {
        assert_eq!(projected(&[5.0, -1.0, 3.0]), [4.5, 0.0, 2.5]);
        assert_eq!(projected(&[1.0, 2.0]), [1.0, 2.0]);
        assert_eq!(projected(&[-1.0, -2.0]), [0.0, 0.0]);
        assert_eq!(shares(&[3.0, 1.0, -1.0]), [5.0 / 6.0, 1.0 / 6.0, 0.0]);
        assert!(projected(&[]).is_empty());
    }

    #[test]
    fn quantiles_are_cells() {
        let counts = [0.0, 10.0, 0.0, 80.0, 10.0];
        let at = |share| quantile(&counts, share);
        assert_eq!([at(0.05), at(0.1), at(0.5), at(0.9), at(1.0)], [1, 1, 3, 3, 4].map(Some));
        assert_eq!(quantile(&[-3.0], 0.5), None);
    }

    #[test]
    fn noise_in_empty_cells_makes_no_tail() {
        let noisy = [3.0, 500.0, -20.0, 300.0, 15.0, 18.0, -4.0, 12.0];
        let counts = denoised(&noisy, 10.0);
        assert_eq!(counts, [0.0, 500.0, 0.0, 300.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(quantile(&counts, 0.99), Some(3));
    }
}
