//! Tests of importance: by hand, against a reference script, and in edge cases.

use super::numbers::for_each_sensitivity;
use super::*;
use crate::model::{Origin, Parameter};
use crate::tensor::Matrix;

fn parameters(values: &[f32]) -> Parameters {
    let mut parameters = Parameters::default();
    parameters.push(Parameter {
        name: "w".into(),
        shape: vec![1, values.len()],
        value: Matrix::from_vec(1, values.len(), values.to_vec()),
        trainable: true,
        origin: Origin::Base,
    });
    parameters
}

/// Two steps of equations 3 to 7 by hand, with β₁ = 0.5, β₂ = 0.25, α = 0.2, the extreme quantiles
/// and a clamp that has no effect.
#[test]
fn two_steps_by_hand() {
    let settings = ImportanceSettings {
        beta1: 0.5,
        beta2: 0.25,
        alpha: 0.2,
        quantiles: (1.0, 0.0),
        range: (1e-3, 1e3),
        form: ImportanceForm::Element,
    };
    let values = [1.0, -2.0, 0.5, 4.0];
    let parameters = parameters(&values);
    let mut importance = Importance::new(settings, &parameters);
    let id = ParameterId(0);
    assert!(importance.weights().is_none());
    let steps = [[1.0_f32, 1.0, -2.0, 0.5], [3.0, 0.0, 2.0, -1.0]];
    for gradient in steps {
        importance.update(
            id,
            &Host::from_vec(1, 4, gradient.to_vec()),
            None,
            &parameters.value(id).to_host().unwrap(),
        );
    }
    // S: 1, 2, 1, 2, then 3, 0, 1, 4. S̄: 0.5, 1, 0.5, 1, then 1.75, 0.5, 0.75, 2.5.
    // |S − S̄|: 0.5, 1, 0.5, 1, then 1.25, 0.5, 0.25, 1.5.
    // Ū: 0.375, 0.75, 0.375, 0.75, then 1.03125, 0.5625, 0.28125, 1.3125.
    let products: [f64; 4] = [1.75 * 1.031_25, 0.5 * 0.5625, 0.75 * 0.281_25, 2.5 * 1.3125];
    let mean = products.iter().sum::<f64>() / 4.0;
    let unit = products[3] - products[2];
    let want: Vec<f64> = products.iter().map(|i| 1.0 + 0.8 * (i - mean) / unit).collect();
    let weights = importance.weights().unwrap().remove(0).unwrap();
    let mut have = [0.0; 4];
    weights.write(0, &mut have);
    for (have, want) in have.iter().zip(want) {
        assert!((f64::from(*have) - want).abs() < 1e-5, "{have}, not {want}");
    }
}

/// Compares five steps with fixtures/allocation/make.py, with and without noise.
#[test]
fn five_steps_equal_the_script() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/allocation/cases.json");
    let cases: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let numbers = |value: &serde_json::Value| -> Vec<f32> {
        let rows = value.as_array().unwrap().iter().flat_map(|row| row.as_array().unwrap());
        rows.map(|x| x.as_f64().unwrap() as f32).collect()
    };
    for name in ["importance", "importance_noisy"] {
        let case = &cases[name];
        let of = |key: &str| case["settings"][key].as_f64().unwrap();
        let settings = ImportanceSettings {
            beta1: of("b1") as f32,
            beta2: of("b2") as f32,
            alpha: of("alpha") as f32,
            quantiles: (of("q1"), of("q2")),
            range: (of("lo") as f32, of("hi") as f32),
            form: ImportanceForm::Element,
        };
        let omega = Host::from_vec(3, 4, numbers(&case["omega"]));
        let parameters = parameters(&omega.dense());
        let mut importance = Importance::new(settings, &parameters);
        let stds = case.get("noise").map(&numbers);
        let write = |start: usize, out: &mut [f32]| {
            let given = stds.as_ref().unwrap();
            out.iter_mut().zip(&given[start..]).for_each(|(out, s)| *out = *s);
        };
        let noise: Option<Stds> = stds.is_some().then_some(&write);
        for (step, want) in case["weights"].as_array().unwrap().iter().enumerate() {
            let gradient = Host::from_vec(3, 4, numbers(&case["gradients"][step]));
            importance.update(ParameterId(0), &gradient, noise, &omega);
            let weights = importance.weights().unwrap().remove(0).unwrap();
            let mut have = [0.0; 12];
            weights.write(0, &mut have);
            for (have, want) in have.iter().zip(numbers(want)) {
                assert!(
                    (have - want).abs() < 1e-4 * want,
                    "{name}, step {step}: {have}, not {want}"
                );
            }
        }
    }
}

/// The variance of the known noise is subtracted from the squared gradient.
#[test]
fn known_noise_is_subtracted() {
    let (gradient, values) = ([5.0, 2.0, -5.0], [2.0, 1.0, -1.0]);
    let sensitivities = |noise: Option<&[f32]>| {
        let mut out = [0.0; 3];
        for_each_sensitivity(&gradient, &values, noise, out.iter_mut(), |out, sensitivity| {
            *out = sensitivity
        });
        out
    };
    let noisy = sensitivities(Some(&[3.0; 3]));
    assert!(
        noisy.iter().zip([8.0, 0.0, 4.0]).all(|(have, want)| (have - want).abs() < 1e-5),
        "{noisy:?}"
    );
    assert_eq!(sensitivities(None), [10.0, 2.0, 5.0]);
}

#[test]
fn weights_stay_finite_whatever_comes() {
    for form in [ImportanceForm::Element, ImportanceForm::Factored] {
        for gradient in [vec![0.0; 6], vec![f32::INFINITY; 6], vec![f32::NAN; 6], vec![1e30; 6]] {
            let parameters = parameters(&[1.0; 6]);
            let mut importance = Importance::new(ImportanceSettings::usual(form), &parameters);
            importance.update(
                ParameterId(0),
                &Host::from_vec(1, 6, gradient),
                None,
                &parameters.value(ParameterId(0)).to_host().unwrap(),
            );
            let weights = importance.weights().unwrap().remove(0).unwrap();
            let mut out = [0.0; 6];
            weights.write(0, &mut out);
            assert!(out.iter().all(|w| w.is_finite() && *w > 0.0), "{out:?}");
        }
    }
}

#[test]
fn the_state_is_saved_and_restored() {
    for form in [ImportanceForm::Element, ImportanceForm::Factored] {
        let parameters = parameters(&[1.0, 2.0, 3.0, 4.0]);
        let mut importance = Importance::new(ImportanceSettings::usual(form), &parameters);
        let gradient = Host::from_vec(1, 4, vec![0.1, 0.4, -0.2, 3.0]);
        importance.update(
            ParameterId(0),
            &gradient,
            None,
            &parameters.value(ParameterId(0)).to_host().unwrap(),
        );
        let state = importance.state();
        let mut other = Importance::new(ImportanceSettings::usual(form), &parameters);
        let find = |name: &str| {
            let entry = state.iter().find(|(known, _)| known == name)?;
            Some(entry.1.dense().into_owned())
        };
        assert!(other.restore(&find));
        assert_eq!(importance.weights(), other.weights());
        assert!(!other.restore(&|_| None));
    }
}

/// Noise weights are computed from the averages on demand; clipping weights are stored. They are
/// equal if quantiles come from all coordinates, and nearly equal if they come from a sample.
#[test]
fn noise_has_the_weights_of_clipping() {
    for (count, closeness) in [(1_000, 1e-6), (300_000, 1e-2)] {
        let number =
            |i: usize, seed: f32| ((i as f32 * 0.37 + seed).sin() * (1.0 + (i % 7) as f32)).powi(3);
        let parameters = parameters(&(0..count).map(|i| number(i, 0.3)).collect::<Vec<_>>());
        let mut importance =
            Importance::new(ImportanceSettings::usual(ImportanceForm::Element), &parameters);
        let id = ParameterId(0);
        for step in 0..3 {
            let gradient = (0..count).map(|i| number(i, 1.7 * step as f32)).collect();
            let value = parameters.value(id).to_host().unwrap();
            importance.update(id, &Host::from_vec(1, count, gradient), None, &value);
        }
        let weights = importance.weights().unwrap().remove(0).unwrap();
        let noise = importance.noise_weights().unwrap();
        let (mut want, mut have) = (vec![0.0; count - 16], vec![0.0; count - 16]);
        weights.write_inverse_roots(0.7, 16, &mut want);
        noise.write_inverse_roots(id, 0.7, 16, &mut have);
        for (have, want) in have.iter().zip(&want) {
            assert!((have - want).abs() < closeness * want, "{have}, not {want}");
        }
        // The effective noise multiplier relies on this: no weight may exceed the bound.
        let least = have.iter().copied().fold(f32::INFINITY, f32::min);
        let bound = noise.largest(id).unwrap();
        assert!(f64::from(0.7 / least).powi(2) <= bound * (1.0 + 1e-6), "{least} {bound}");
        assert!((bound / weights.largest() - 1.0).abs() < 2.0 * f64::from(closeness));
    }
}

#[test]
fn weights_of_noise_are_bounded_whatever_comes() {
    for broken in [f32::NAN, f32::INFINITY, 1e30] {
        let parameters = parameters(&[1.0; 40]);
        let mut importance =
            Importance::new(ImportanceSettings::usual(ImportanceForm::Element), &parameters);
        let mut gradient = vec![0.5; 40];
        gradient[7] = broken;
        let value = parameters.value(ParameterId(0)).to_host().unwrap();
        importance.update(ParameterId(0), &Host::from_vec(1, 40, gradient), None, &value);
        let noise = importance.noise_weights().unwrap();
        let mut stds = [0.0; 40];
        noise.write_inverse_roots(ParameterId(0), 1.0, 0, &mut stds);
        let least = stds.iter().copied().fold(f32::INFINITY, f32::min);
        assert!(stds.iter().all(|s| s.is_finite() && *s > 0.0), "{stds:?}");
        let bound = noise.largest(ParameterId(0)).unwrap();
        assert!(
            f64::from(1.0 / least).powi(2) <= bound * (1.0 + 1e-6),
            "{broken}: {least} {bound}"
        );
    }
}
