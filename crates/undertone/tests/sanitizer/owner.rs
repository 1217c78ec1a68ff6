//! The data holder's half: its releases, and the bound on their norm.

use super::{KINDS, batch, config, model, numbers};
use crate::common::devices;
use crate::reference::{Wide, activation};
use proptest::prelude::*;
use undertone::data::Batch;
use undertone::model::architecture::Architecture;
use undertone::model::layer::sanitizer::{Bounding, NoiseLayer, Rows};
use undertone::model::sanitized::{SanitizerConfig, set};
use undertone::model::{Model, ParameterId};
use undertone::run::EncoderActivation;
use undertone::tensor::Activation;

/// Doubling the hidden states doubles the releases of a linear encoder but not of a nonlinear one.
/// EW-FT's autoencoder must be nonlinear, even with a single bottleneck.
#[test]
fn an_autoencoder_with_an_activation_is_not_linear() {
    let batch = batch(&[5]);
    for (activation, linear) in [
        (None, true),
        (Some(EncoderActivation::None), true),
        (Some(EncoderActivation::Tanh), false),
        (Some(EncoderActivation::Gelu), false),
    ] {
        let config = SanitizerConfig {
            activation,
            centered: false,
            // Not bounded: the encoder's own output for the rows.
            bounding: Bounding::Box,
            ..config(NoiseLayer::After(0), Rows::First, &[5])
        };
        let mut model = model(Architecture::Bert, &config);
        let layer = model.network.sanitizer.clone().unwrap();
        set(&mut model, layer.encoder[0].bias.unwrap(), vec![0.0; 5]).unwrap();
        let once = model.bounded_rows(&batch).unwrap().0.dense().to_vec();
        let norm = model.network.embeddings.norm.clone().unwrap();
        for id in [Some(norm.weight), norm.bias].into_iter().flatten() {
            let doubled = model.parameters.value(id).to_vec().unwrap();
            set(&mut model, id, doubled.iter().map(|x| 2.0 * x).collect()).unwrap();
        }
        let twice = model.bounded_rows(&batch).unwrap().0.dense().to_vec();
        let off: f32 = once.iter().zip(&twice).map(|(x, y)| (y - 2.0 * x).abs()).sum();
        assert_eq!(off < 1e-4, linear, "{activation:?}: {once:?} {twice:?}");
    }
}

/// The papers' norm covers the padded l × d matrix: token rows equal those without padding, up to a
/// factor that depends on l.
#[test]
fn rows_of_padding_count_towards_the_norm_as_published() {
    let rows = |architecture: Architecture, rows: Rows, after: usize, lengths: &[usize]| {
        let config = SanitizerConfig {
            bounding: Bounding::Normalize,
            centered: false,
            ..config(NoiseLayer::After(after), rows, &[])
        };
        let model = model(architecture, &config);
        let (bounded, starts) = model.bounded_rows(&batch(lengths)).unwrap();
        assert_eq!(starts.len(), lengths.len() + 1);
        (bounded.dense().to_vec(), model)
    };
    for (architecture, after) in
        [(Architecture::Bert, 0), (Architecture::Bert, 2), (Architecture::DistilBert, 3)]
    {
        let (plain, _) = rows(architecture, Rows::Tokens(None), after, &[5, 3]);
        let mut before = 1.0;
        for length in [5, 8, 16] {
            let (padded, _) = rows(architecture, Rows::Padded(length), after, &[5, 3]);
            assert_eq!(padded.len(), plain.len(), "padding is not passed on");
            let factor = padded[0] / plain[0];
            // The first sequence has five tokens of sixteen values.
            for (x, y) in plain[..80].iter().zip(&padded) {
                assert!((factor * x - y).abs() < 1e-5, "{x} {y} {factor}");
            }
            assert!(if length == 5 { (factor - 1.0).abs() < 1e-4 } else { factor < before });
            before = factor;
        }
    }
    // After the embeddings, padding tokens are like any others, so the batch can contain them
    // itself.
    let (padded, model) = rows(Architecture::Bert, Rows::Padded(8), 0, &[5]);
    let mut longer = batch(&[5]);
    longer.tokens.resize(8, 0);
    longer.segments.resize(8, 0);
    longer.starts = vec![0, 8];
    let hidden = model.hidden_states(&longer).unwrap()[0].to_vec().unwrap();
    let norm = hidden.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
    for (x, y) in hidden.iter().zip(&padded) {
        assert!((f64::from(*x) / norm - f64::from(*y)).abs() < 1e-5, "{x} {y}");
    }
}

/// DP-Forward's code adds the noise to the pooler's output. With a norm that bounds nothing, the
/// model's output there equals that without a sanitizer, and the release is tanh of a dense layer.
#[test]
fn the_pooler_can_be_below_the_noise() {
    let wide = SanitizerConfig {
        centered: false,
        norm: 1e6,
        ..config(NoiseLayer::Pooler, Rows::First, &[])
    };
    let model = model(Architecture::Bert, &wide);
    let batch = batch(&[5, 3]);
    let mut plain = model.clone();
    let layer = plain.network.sanitizer.take().unwrap();
    plain.network.head.dense = layer.pooler.clone();
    let logits = |model: &Model| model.logits(&batch, None).unwrap().to_vec().unwrap();
    for (x, y) in logits(&model).iter().zip(logits(&plain)) {
        assert!((x - y).abs() < 1e-4, "{x} {y}");
    }
    let rows = model.bounded_rows(&batch).unwrap().0;
    assert_eq!((rows.rows(), rows.columns()), (2, 16));
    assert!(rows.dense().iter().all(|x| x.abs() <= 1.0));
    let dense = layer.pooler.unwrap().0;
    assert!(model.network.sanitizer.unwrap().parameters_below().contains(&dense.weight));
}

#[test]
fn padding_changes_nothing_and_lengths_do_not_show() {
    let short = config(NoiseLayer::After(1), Rows::Tokens(Some(8)), &[6]);
    let long = SanitizerConfig { rows: Rows::Tokens(Some(20)), ..short.clone() };
    let open = SanitizerConfig { rows: Rows::Tokens(None), ..short.clone() };
    let batch = batch(&[5, 3, 8]);
    let rows = |config: &SanitizerConfig| {
        let (rows, starts) = model(Architecture::Bert, config).bounded_rows(&batch).unwrap();
        let of = |i: usize| {
            (starts[i]..starts[i + 1]).flat_map(|r| rows.row(r).to_vec()).collect::<Vec<f32>>()
        };
        (0..3).map(of).collect::<Vec<_>>()
    };
    let (short, long, open) = (rows(&short), rows(&long), rows(&open));
    for i in 0..3 {
        assert_eq!(
            (short[i].len(), long[i].len()),
            (8 * 6, 20 * 6),
            "as many rows for every sequence"
        );
        let real = open[i].len();
        assert_eq!(short[i][..real], open[i][..], "padding takes nothing of the norm");
        assert_eq!(long[i][..real], open[i][..]);
        assert!(short[i][real..].iter().chain(&long[i][real..]).all(|&x| x == 0.0));
    }
}

/// The owner's half by its definition, in double precision: for the mean h of the hidden states, z
/// = E₂ gelu(E₁ (h − c) + b₁) + b₂, divided by the direction of the noise and shortened to norm C.
fn bounded_by_definition(model: &Model, config: &SanitizerConfig, batch: &Batch) -> Vec<f64> {
    let layer = model.network.sanitizer.as_ref().unwrap();
    let wide = |id: ParameterId| Wide::of(model.parameters.value(id));
    let hidden = Wide::of(model.hidden_states(batch).unwrap().last().unwrap());
    let mut rows = Vec::new();
    for window in batch.starts.windows(2) {
        let mean = |j: usize| {
            let sum: f64 = (window[0]..window[1]).map(|i| hidden[(i, j)]).sum();
            sum / (window[1] - window[0]) as f64 - wide(layer.center.unwrap())[(0, j)]
        };
        let mut x: Vec<f64> = (0..hidden.columns).map(mean).collect();
        for (i, linear) in layer.encoder.iter().enumerate() {
            if i > 0 {
                x.iter_mut().for_each(|x| *x = activation::value(Activation::Gelu, *x));
            }
            let (weight, bias) = (wide(linear.weight), linear.bias.map(wide));
            let output = |o: usize| {
                let product: f64 = weight.row(o).iter().zip(&x).map(|(w, x)| w * x).sum();
                product + bias.as_ref().map_or(0.0, |bias| bias[(0, o)])
            };
            x = (0..linear.outputs).map(output).collect();
        }
        let direction = config.direction.iter().flatten();
        x.iter_mut().zip(direction).for_each(|(x, d)| *x /= f64::from(*d));
        let norm = x.iter().map(|x| x * x).sum::<f64>().sqrt();
        let factor = (f64::from(config.norm) / norm).min(1.0);
        rows.extend(x.into_iter().map(|x| factor * x));
    }
    rows
}

#[test]
fn the_owners_half_is_what_its_definition_says() {
    let batch = batch(&[5, 3, 9, 1]);
    for norm in [0.7, 1e3] {
        for architecture in KINDS {
            let config = SanitizerConfig {
                norm,
                direction: Some(vec![1.0, 0.5, 2.0, 1.0]),
                ..config(NoiseLayer::Output, Rows::Mean, &[7, 4])
            };
            let mut model = model(architecture, &config);
            let want = bounded_by_definition(&model, &config, &batch);
            for device in devices() {
                model.to_device(&device).unwrap();
                let rows = model.bounded_rows(&batch).unwrap().0.dense().into_owned();
                assert_eq!(rows.len(), want.len());
                for (value, want) in rows.iter().zip(&want) {
                    let close = (f64::from(*value) - want).abs() < 1e-4 * (1.0 + want.abs());
                    assert!(close, "{architecture:?}, norm {norm}: {value} {want}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whatever the text, the weights and the bound, no embedding exceeds the norm, so two
    /// embeddings are no farther apart than the sensitivity.
    #[test]
    fn no_embedding_exceeds_the_norm(
        lengths in prop::collection::vec(1_usize..12, 1..4),
        scale in prop::sample::select(vec![
            1e-42_f32, 1e-30, 1e-3, 1.0, 1e8, 1e30, 3e38, f32::INFINITY
        ]),
        norm in prop_oneof![
            0.01_f32..50.0,
            prop::sample::select(vec![1e-42_f32, 1e-30, 1e-10, 1e10, 1e29, 3e38]),
        ],
        normalize in any::<bool>(),
        squash in any::<bool>(),
        rows in prop::sample::select(vec![
            Rows::Tokens(None), Rows::Tokens(Some(6)), Rows::First, Rows::Last, Rows::Mean
        ]),
    ) {
        let config = SanitizerConfig {
            norm,
            bounding: if normalize { Bounding::Normalize } else { Bounding::Clip },
            squash: squash.then_some(norm),
            direction: Some(vec![0.3, 1.0, 2.0]),
            ..config(NoiseLayer::After(2), rows, &[3])
        };
        let mut model = model(Architecture::Gpt2, &config);
        let weight = model.network.sanitizer.as_ref().unwrap().encoder[0].weight;
        set(&mut model, weight, numbers(48, 1.0).iter().map(|x| x * scale).collect()).unwrap();
        let (rows, starts) = model.bounded_rows(&batch(&lengths)).unwrap();
        let of = |i: usize| -> Vec<f32> {
            (starts[i]..starts[i + 1]).flat_map(|r| rows.row(r).to_vec()).collect()
        };
        for i in 0..lengths.len() {
            let squares: f64 = of(i).iter().map(|&x| f64::from(x).powi(2)).sum();
            prop_assert!(squares.sqrt() <= f64::from(norm), "{} is above {norm}", squares.sqrt());
            for other in 0..i {
                let (a, b) = (of(i), of(other));
                if a.len() == b.len() {
                    let squared = |(a, b): (&f32, &f32)| (f64::from(*a) - f64::from(*b)).powi(2);
                    let apart: f64 = a.iter().zip(&b).map(squared).sum();
                    prop_assert!(apart.sqrt() <= config.sensitivity().unwrap() * f64::from(norm));
                }
            }
        }
    }
}
