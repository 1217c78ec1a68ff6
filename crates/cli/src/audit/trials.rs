//! Repeated attacks.

use crate::output;
use serde::Serialize;
use undertone_run::audit::Trial;

/// All trials, to be saved in audit.json if there are several.
pub fn kept<T: Clone>(trials: &[Trial<T>]) -> Vec<Trial<T>> {
    if trials.len() > 1 { trials.to_vec() } else { Vec::new() }
}

/// Prints the results of one trial, or those of all trials with their seeds.
pub fn json<T: Serialize>(trials: &[Trial<T>]) {
    match trials {
        [trial] => output::json(&trial.found),
        all => output::json(&all),
    }
}

/// Mean and standard error over the trials of a share in the `i`-th result of each.
pub fn mean_of<T>(trials: &[Trial<T>], i: usize, figure: &dyn Fn(&T) -> f64) -> String {
    let shares: Vec<f64> =
        trials.iter().filter_map(|trial| trial.found.get(i)).map(|t| 100.0 * figure(t)).collect();
    let count = shares.len().max(1) as f64;
    let mean = shares.iter().sum::<f64>() / count;
    let squares: f64 = shares.iter().map(|x| (x - mean).powi(2)).sum();
    match shares.len() {
        0 | 1 => format!("{mean:.2} %"),
        _ => format!("{mean:.2} ± {:.2} %", (squares / (count - 1.0) / count).sqrt()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_has_its_standard_error() {
        let trials: Vec<Trial<f64>> =
            [0.1, 0.2, 0.3].map(|x| Trial { seed: 1, found: vec![9.0, x] }).to_vec();
        // Of 10, 20 and 30 the standard deviation is 10, and 10/√3 = 5.77.
        assert_eq!(mean_of(&trials, 1, &|x| *x), "20.00 ± 5.77 %");
        assert_eq!(mean_of(&trials[..1], 1, &|x| *x), "10.00 %");
        assert!(kept(&trials[..1]).is_empty() && kept(&trials).len() == 3);
    }
}
