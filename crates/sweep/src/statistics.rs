//! Means over seeds, and whether a difference is more than chance.

/// The mean; `None` for an empty list.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The standard error of the mean: s/√n, with n − 1 in s. `None` for fewer than two values.
pub fn standard_error(values: &[f64]) -> Option<f64> {
    let n = values.len() as f64;
    let center = mean(values).filter(|_| values.len() > 1)?;
    let squares: f64 = values.iter().map(|value| (value - center).powi(2)).sum();
    Some((squares / (n - 1.0) / n).sqrt())
}

/// P(T ≥ t) of the paired one-tailed test that the mean difference is above 0.
///
/// | | |
/// |---|---|
/// | fewer than two pairs | none |
/// | all differences equal | none: the sample does not show that their spread is 0 |
pub fn paired_p_value(differences: &[f64]) -> Option<f64> {
    let error = standard_error(differences)?;
    let center = mean(differences)?;
    // Differences that are equal up to rounding.
    if error <= 1e-12 * differences.iter().map(|d| d.abs()).fold(0.0, f64::max) {
        return None;
    }
    Some(upper_tail(center / error, (differences.len() - 1) as f64))
}

/// P(T ≥ t) of Student's distribution.
pub fn upper_tail(t: f64, degrees: f64) -> f64 {
    let beyond = 0.5 * incomplete_beta(0.5 * degrees, 0.5, degrees / (degrees + t * t));
    if t >= 0.0 { beyond } else { 1.0 - beyond }
}

/// The regularized incomplete beta function, by its continued fraction on the side where it
/// converges fast.
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return if x <= 0.0 { 0.0 } else { 1.0 };
    }
    let front =
        libm::lgamma(a + b) - libm::lgamma(a) - libm::lgamma(b) + a * x.ln() + b * (-x).ln_1p();
    if x < (a + 1.0) / (a + b + 2.0) {
        front.exp() * fraction(a, b, x) / a
    } else {
        1.0 - front.exp() * fraction(b, a, 1.0 - x) / b
    }
}

/// The continued fraction of the incomplete beta function, evaluated from the front (Lentz).
fn fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / away(1.0 - (a + b) * x / (a + 1.0));
    let mut whole = d;
    for m in 1..500 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut step = 1.0;
        for term in [even, odd] {
            d = 1.0 / away(1.0 + term * d);
            c = away(1.0 + term / c);
            step = c * d;
            whole *= step;
        }
        if (step - 1.0).abs() < 1e-15 {
            break;
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Deserialize)]
    struct Cases {
        tails: Vec<(f64, f64, f64)>,
        samples: Vec<Sample>,
    }

    #[derive(Deserialize)]
    struct Sample {
        ours: Vec<f64>,
        theirs: Vec<f64>,
        mean: f64,
        standard_error: f64,
        p_value: f64,
    }

    fn close(actual: f64, wanted: f64, what: &str) {
        let apart = (actual - wanted).abs();
        assert!(apart <= 1e-11 * wanted.abs().max(1e-3), "{what}: {actual}, not {wanted}");
    }

    /// The figures of scipy come from crates/sweep/tests/fixtures/statistics/make.py.
    #[test]
    fn means_errors_and_tests_are_those_of_scipy() {
        let cases: Cases =
            serde_json::from_str(include_str!("../tests/fixtures/statistics/cases.json")).unwrap();
        assert!(cases.tails.len() > 50 && cases.samples.len() > 10);
        for (t, degrees, wanted) in cases.tails {
            close(upper_tail(t, degrees), wanted, &format!("t = {t}, {degrees} degrees"));
        }
        for sample in cases.samples {
            close(mean(&sample.ours).unwrap(), sample.mean, "mean");
            close(standard_error(&sample.ours).unwrap(), sample.standard_error, "standard error");
            let differences: Vec<f64> = sample
                .ours
                .iter()
                .zip(&sample.theirs)
                .map(|(ours, theirs)| ours - theirs)
                .collect();
            close(paired_p_value(&differences).unwrap(), sample.p_value, "paired test");
        }
    }

    #[test]
    fn too_little_gives_no_answer() {
        assert_eq!((mean(&[]), standard_error(&[1.0]), paired_p_value(&[1.0])), (None, None, None));
        assert_eq!((paired_p_value(&[0.0; 3]), paired_p_value(&[0.2, 0.2, 0.2])), (None, None));
    }
}
