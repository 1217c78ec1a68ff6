//! How sampling uses the released histograms: rows per class, and the maximum length. Both are
//! functions of `statistics.json` alone.

use undertone_run::Statistics;

/// Share of the texts that the maximum length covers.
const COVERED: f64 = 0.99;

/// Number of rows of each class: proportional to its weight, by largest remainders. Noise can make
/// a weight negative, which counts as 0; if all weights are, all classes get the same number.
pub fn quotas(statistics: &Statistics, rows: u64) -> Vec<u64> {
    let mut weights: Vec<f64> =
        statistics.classes.iter().map(|class| class.weight.max(0.0)).collect();
    let mut total: f64 = weights.iter().sum();
    if total <= 0.0 {
        weights.fill(1.0);
        total = weights.len() as f64;
    }
    let exact: Vec<f64> = weights.iter().map(|weight| rows as f64 * weight / total).collect();
    let mut quotas: Vec<u64> = exact.iter().map(|share| share.floor() as u64).collect();
    let mut order: Vec<usize> = (0..quotas.len()).collect();
    order.sort_by(|&a, &b| exact[b].fract().total_cmp(&exact[a].fract()).then(a.cmp(&b)));
    let missing = rows.saturating_sub(quotas.iter().sum());
    for &class in order.iter().cycle().take(missing as usize) {
        quotas[class] += 1;
    }
    quotas
}

/// Maximum number of tokens of a text: the upper end of the bin within which 99 % of the texts end.
/// A count of up to two standard deviations of its noise counts as 0: noise alone would otherwise
/// fill the bins above the longest text.
pub fn most_tokens(statistics: &Statistics) -> u64 {
    let floor = 2.0 * statistics.noise_std.unwrap_or(0.0);
    let counts: Vec<f64> =
        (statistics.lengths.iter()).map(|&count| if count > floor { count } else { 0.0 }).collect();
    let total: f64 = counts.iter().sum();
    let mut below = 0.0;
    for (bin, count) in (1_u64..).zip(&counts) {
        below += count;
        if total > 0.0 && below >= COVERED * total {
            return bin.saturating_mul(statistics.tokens_per_bin);
        }
    }
    (counts.len() as u64).saturating_mul(statistics.tokens_per_bin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_run::ClassWeight;

    fn statistics(weights: &[f64], lengths: &[f64], noise_std: Option<f64>) -> Statistics {
        let class = |&weight: &f64| ClassWeight { values: vec!["a".to_owned()], weight };
        Statistics {
            format: 1,
            noise_std,
            codes: vec!["code".to_owned()],
            classes: weights.iter().map(class).collect(),
            lengths: lengths.to_vec(),
            tokens_per_bin: 8,
            sampling_seed: 1,
        }
    }

    #[test]
    fn quotas_are_proportional_and_add_up() {
        let of = |weights: &[f64], rows| quotas(&statistics(weights, &[1.0], None), rows);
        assert_eq!(of(&[30.0, 10.0], 4), [3, 1]);
        assert_eq!(of(&[1.0, 1.0, 1.0], 10), [4, 3, 3]);
        assert_eq!(of(&[5.0, -3.0], 7), [7, 0]);
        assert_eq!(of(&[-5.0, -3.0], 7), [4, 3]);
        assert_eq!(of(&[1.0, 2.0, 3.0, 1e-9], 1_000_000).iter().sum::<u64>(), 1_000_000);
    }

    #[test]
    fn the_length_limit_ignores_noise_in_empty_bins() {
        let most = |lengths: &[f64], std| most_tokens(&statistics(&[1.0], lengths, std));
        assert_eq!(most(&[50.0, 50.0, 0.0, 0.0], None), 16);
        assert_eq!(most(&[50.0, 50.0, 5.0, -3.0, 9.0], Some(5.0)), 16);
        assert_eq!(most(&[98.0, 1.0, 1.0], None), 16);
        assert_eq!(most(&[1.0, -1.0, 2.0], Some(5.0)), 24);
    }
}
