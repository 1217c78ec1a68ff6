//! The layer that perturbs embeddings: its norm, its gradients, and what never flows back through
//! it.

use crate::common::devices;
use crate::reference::{Wide, activation};
use proptest::prelude::*;
use undertone::data::{Batch, Example, Target};
use undertone::explain::contribution::{positional, shares, token_contributions};
use undertone::method::local::EmbeddingNoise;
use undertone::model::architecture::{Architecture, Dimensions};
use undertone::model::layer::sanitiser::{Bounding, NoiseLayer, Perturb, Rows};
use undertone::model::sanitised::{SanitiserConfig, attach, load_sanitiser, save_sanitiser, set};
use undertone::model::tuning::Tuning;
use undertone::model::{
    ForwardOptions, Gradients, Model, ParameterId, RandomisedResponse, TaskHead, Weighting,
};
use undertone::noise::Secret;
use undertone::run::{EncoderActivation, ReleaseKind};
use undertone::tensor::Activation;

const KINDS: [Architecture; 5] = [
    Architecture::Bert,
    Architecture::DistilBert,
    Architecture::Roberta,
    Architecture::Gpt2,
    Architecture::Llama,
];

fn config(noise_layer: NoiseLayer, rows: Rows, dims: &[usize]) -> SanitiserConfig {
    SanitiserConfig {
        noise_layer,
        rows,
        dims: dims.to_vec(),
        activation: None,
        centred: true,
        decoded: true,
        squash: None,
        bounding: Bounding::Clip,
        norm: 1.0,
        direction: None,
        calibrated: false,
        noise_std: 0.5,
    }
}

/// Numbers that look random and are always the same.
fn numbers(count: usize, scale: f32) -> Vec<f32> {
    (0..count).map(|i| scale * (((i * 2_654_435_761) % 1_000) as f32 / 500.0 - 1.0)).collect()
}

fn model(architecture: Architecture, config: &SanitiserConfig) -> Model {
    let dimensions = Dimensions {
        layers: 3,
        hidden: 16,
        heads: 4,
        inner: 40,
        vocabulary: 60,
        positions: 100,
        key_heads: None,
    };
    let labels = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
    let mut model =
        architecture.random(dimensions, TaskHead::SequenceClassification, &labels, 5).unwrap();
    model.apply_tuning(&Tuning::Full, 3).unwrap();
    // Fresh weights are tiny; with larger ones every part matters.
    let matrices: Vec<ParameterId> =
        model.parameters.iter().filter(|(_, p)| p.shape.len() == 2).map(|(id, _)| id).collect();
    for id in matrices {
        let larger =
            model.parameters.value(id).to_vec().unwrap().iter().map(|w| 12.0 * w).collect();
        set(&mut model, id, larger).unwrap();
    }
    attach(&mut model, config).unwrap();
    let own: Vec<(ParameterId, usize)> = model
        .parameters
        .iter()
        .filter(|(_, p)| p.name.starts_with("sanitiser."))
        .map(|(id, p)| (id, p.len()))
        .collect();
    for (id, count) in own {
        set(&mut model, id, numbers(count, 0.4)).unwrap();
        model.parameters.get_mut(id).trainable = true;
    }
    model
}

fn batch(lengths: &[usize]) -> Batch {
    let examples: Vec<Example> = lengths
        .iter()
        .enumerate()
        .map(|(i, &n)| Example {
            tokens: (0..n as u32).map(|t| (t * t + 3 * i as u32 + 1) % 50).collect(),
            target: Target::Class(i as u32 % 3),
            unit: i as u32,
            ..Example::default()
        })
        .collect();
    Batch::pack(&examples)
}

fn loss(model: &Model, batch: &Batch, options: &ForwardOptions) -> f64 {
    let mut ignored = Gradients::new(&model.parameters);
    let losses = model.train_with(batch, Weighting::SumOfUnits, options, &mut ignored).unwrap();
    losses.by_example().unwrap().iter().map(|&x| f64::from(x)).sum()
}

/// Noise that is not rounded to a grid, on which differences would stumble.
#[derive(Debug)]
struct Smooth;

impl Perturb for Smooth {
    fn perturb(&self, sequence: usize, rows: &mut [f32]) {
        rows.iter_mut().zip(numbers(999, 0.3)).for_each(|(x, n)| *x += n * (1.0 + sequence as f32));
    }
}

#[test]
fn gradients_are_those_of_finite_differences() {
    let batch = batch(&[5, 3, 7]);
    let noise = Smooth;
    let flipped = RandomisedResponse { kept: 0.7, other: 0.15 };
    let labels = [None, Some(flipped)];
    let base = config(NoiseLayer::After(1), Rows::Mean, &[8, 5]);
    let cases = [
        base.clone(),
        SanitiserConfig { bounding: Bounding::Normalise, rows: Rows::Tokens(None), ..base.clone() },
        SanitiserConfig {
            rows: Rows::Tokens(Some(4)),
            noise_layer: NoiseLayer::After(0),
            ..base.clone()
        },
        SanitiserConfig {
            rows: Rows::First,
            noise_layer: NoiseLayer::Output,
            dims: vec![],
            ..base.clone()
        },
        SanitiserConfig {
            rows: Rows::Last,
            decoded: false,
            noise_layer: NoiseLayer::Output,
            dims: vec![6],
            ..base.clone()
        },
        SanitiserConfig {
            squash: Some(1.0),
            direction: Some(vec![0.5, 1.0, 2.0, 0.7, 1.3]),
            rows: Rows::First,
            ..base.clone()
        },
        SanitiserConfig {
            squash: Some(0.6),
            bounding: Bounding::Box,
            calibrated: true,
            ..base.clone()
        },
        // Blocks above the noise that do not learn still pass the gradient on.
        base.clone(),
        // EW-FT's autoencoder: a single bottleneck is nonlinear too.
        SanitiserConfig {
            activation: Some(EncoderActivation::Tanh),
            dims: vec![5],
            rows: Rows::Tokens(None),
            ..base.clone()
        },
        SanitiserConfig { activation: Some(EncoderActivation::Gelu), ..base.clone() },
        SanitiserConfig { activation: Some(EncoderActivation::None), ..base.clone() },
        // As published: rows of padding count towards the norm, and learn by it.
        SanitiserConfig {
            rows: Rows::Padded(9),
            bounding: Bounding::Normalise,
            noise_layer: NoiseLayer::After(2),
            ..base.clone()
        },
        SanitiserConfig { rows: Rows::Padded(9), bounding: Bounding::Normalise, ..base.clone() },
        // After the task head's own dense layer.
        SanitiserConfig {
            rows: Rows::First,
            noise_layer: NoiseLayer::Pooler,
            dims: vec![],
            centred: false,
            ..base.clone()
        },
        SanitiserConfig { rows: Rows::First, noise_layer: NoiseLayer::Pooler, ..base },
    ];
    let bidirectional = [Architecture::Bert, Architecture::Roberta];
    for (i, config) in cases.iter().enumerate() {
        let of_encoders =
            matches!(config.rows, Rows::Padded(_)) || config.noise_layer == NoiseLayer::Pooler;
        let architecture = if of_encoders { bidirectional[i % 2] } else { KINDS[i % KINDS.len()] };
        let mut model = model(architecture, config);
        if i == 7 {
            let blocks: Vec<ParameterId> =
                model.network.blocks.iter().flat_map(|block| block.parameters()).collect();
            let below: Vec<ParameterId> = model.network.embeddings.parameters().collect();
            blocks
                .into_iter()
                .chain(below)
                .for_each(|id| model.parameters.get_mut(id).trainable = false);
        }
        let options = ForwardOptions {
            noise: Some(&noise),
            labels: labels[i % 2],
            ..ForwardOptions::default()
        };
        let mut gradients = Gradients::new(&model.parameters);
        model.train_with(&batch, Weighting::SumOfUnits, &options, &mut gradients).unwrap();
        let named: Vec<(ParameterId, String)> =
            model.parameters.iter().map(|(id, p)| (id, p.name.clone())).collect();
        let mut compared = 0;
        for (id, name) in named {
            let Some(gradient) = gradients.get(id) else { continue };
            let gradient = gradient.to_vec().unwrap();
            // The steepest coordinate of each parameter: differences of f32 losses see little else.
            let (at, steepest) =
                gradient.iter().enumerate().max_by(|a, b| a.1.abs().total_cmp(&b.1.abs())).unwrap();
            if steepest.abs() < 2e-2 {
                continue;
            }
            let before = model.parameters.value(id).to_vec().unwrap();
            let step = 2e-3;
            let mut at_distance = |distance: f32| {
                let mut moved = before.clone();
                moved[at] += distance;
                set(&mut model, id, moved).unwrap();
                loss(&model, &batch, &options)
            };
            let slope = (at_distance(step) - at_distance(-step)) / f64::from(2.0 * step);
            set(&mut model, id, before).unwrap();
            let close =
                (slope - f64::from(*steepest)).abs() < 0.03 * f64::from(steepest.abs()) + 3e-3;
            assert!(close, "case {i}, {name}[{at}]: {steepest}, but the loss has slope {slope}");
            compared += 1;
        }
        assert!(compared >= 5, "case {i}: only {compared} parameters had a slope");
    }
}

/// Doubling the hidden states doubles what a linear encoder releases, and not what a nonlinear one
/// does: EW-FT's autoencoder must be one, with a single bottleneck too.
#[test]
fn an_autoencoder_with_an_activation_is_not_linear() {
    let batch = batch(&[5]);
    for (activation, linear) in [
        (None, true),
        (Some(EncoderActivation::None), true),
        (Some(EncoderActivation::Tanh), false),
        (Some(EncoderActivation::Gelu), false),
    ] {
        let config = SanitiserConfig {
            activation,
            centred: false,
            // Not bounded: what the encoder itself makes of the rows.
            bounding: Bounding::Box,
            ..config(NoiseLayer::After(0), Rows::First, &[5])
        };
        let mut model = model(Architecture::Bert, &config);
        let layer = model.network.sanitiser.clone().unwrap();
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

/// The papers' norm runs over the padded l × d matrix: tokens are what they are without padding,
/// but for a factor that depends on l.
#[test]
fn rows_of_padding_count_towards_the_norm_as_published() {
    let rows = |architecture: Architecture, rows: Rows, after: usize, lengths: &[usize]| {
        let config = SanitiserConfig {
            bounding: Bounding::Normalise,
            centred: false,
            ..config(NoiseLayer::After(after), rows, &[])
        };
        let model = model(architecture, &config);
        let (found, starts) = model.bounded_rows(&batch(lengths)).unwrap();
        assert_eq!(starts.len(), lengths.len() + 1);
        (found.dense().to_vec(), model)
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
            // The first sequence has five tokens of sixteen numbers.
            for (x, y) in plain[..80].iter().zip(&padded) {
                assert!((factor * x - y).abs() < 1e-5, "{x} {y} {factor}");
            }
            assert!(if length == 5 { (factor - 1.0).abs() < 1e-4 } else { factor < before });
            before = factor;
        }
    }
    // After the embeddings padding is tokens like others, which the batch can have itself.
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

/// DP-Forward's code has the noise on the pooler's output: with a norm that bounds nothing, a model
/// says there what it says without a sanitiser, and what is released is tanh of a dense layer.
#[test]
fn the_pooler_can_be_below_the_noise() {
    let wide = SanitiserConfig {
        centred: false,
        norm: 1e6,
        ..config(NoiseLayer::Pooler, Rows::First, &[])
    };
    let model = model(Architecture::Bert, &wide);
    let batch = batch(&[5, 3]);
    let mut plain = model.clone();
    let layer = plain.network.sanitiser.take().unwrap();
    plain.network.head.dense = layer.pooler.clone();
    let logits = |model: &Model| model.logits(&batch, None).unwrap().to_vec().unwrap();
    for (x, y) in logits(&model).iter().zip(logits(&plain)) {
        assert!((x - y).abs() < 1e-4, "{x} {y}");
    }
    let rows = model.bounded_rows(&batch).unwrap().0;
    assert_eq!((rows.rows(), rows.columns()), (2, 16));
    assert!(rows.dense().iter().all(|x| x.abs() <= 1.0));
    let dense = layer.pooler.unwrap().0;
    assert!(model.network.sanitiser.unwrap().parameters_below().contains(&dense.weight));
}

#[test]
fn nothing_flows_below_the_noise_when_it_is_frozen() {
    for (architecture, noise_layer) in KINDS.into_iter().zip([0, 1, 2, 3, 1].map(NoiseLayer::After))
    {
        let config = config(noise_layer, Rows::Tokens(None), &[6]);
        let mut model = model(architecture, &config);
        let layer = model.network.sanitiser.clone().unwrap();
        let mut below: Vec<ParameterId> = model.network.embeddings.parameters().collect();
        below.extend(
            model.network.blocks[..model.cut()].iter().flat_map(|block| block.parameters()),
        );
        below.extend(layer.parameters_below());
        below.iter().for_each(|&id| model.parameters.get_mut(id).trainable = false);
        let batch = batch(&[5, 3]);
        let noise = EmbeddingNoise::new(&Secret::from_seed(1), ReleaseKind::Once, vec![0.3]);
        let noise = noise.of(&[0, 1], 0);
        let options = ForwardOptions { noise: Some(&noise), ..ForwardOptions::default() };
        let mut gradients = Gradients::new(&model.parameters);
        let losses =
            model.train_with(&batch, Weighting::SumOfUnits, &options, &mut gradients).unwrap();
        for &id in &below {
            assert!(gradients.get(id).is_none(), "{} was reached", model.parameters.get(id).name);
        }
        for id in layer.parameters_above() {
            assert!(gradients.get(id).is_some(), "{} learns", model.parameters.get(id).name);
        }
        // From rows that were computed before, everything is the same.
        let rows = model.bounded_rows(&batch).unwrap().0;
        let mut again = Gradients::new(&model.parameters);
        let repeated =
            model.train_above(&batch, rows, Weighting::SumOfUnits, &options, &mut again).unwrap();
        assert_eq!(losses.by_example().unwrap(), repeated.by_example().unwrap());
        for (id, parameter) in model.parameters.iter() {
            let numbers = |g: &Gradients| g.get(id).map(|m| m.to_vec().unwrap());
            assert_eq!(numbers(&gradients), numbers(&again), "{}", parameter.name);
        }
    }
}

#[test]
fn padding_changes_nothing_and_lengths_do_not_show() {
    let short = config(NoiseLayer::After(1), Rows::Tokens(Some(8)), &[6]);
    let long = SanitiserConfig { rows: Rows::Tokens(Some(20)), ..short.clone() };
    let open = SanitiserConfig { rows: Rows::Tokens(None), ..short.clone() };
    let batch = batch(&[5, 3, 8]);
    let rows = |config: &SanitiserConfig| {
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

/// The owner's half by its definition, in double precision: of the mean h of the hidden states,
/// z = E₂ gelu(E₁ (h − c) + b₁) + b₂, divided by the direction of the noise and shortened to norm
/// C.
fn bounded_by_definition(model: &Model, config: &SanitiserConfig, batch: &Batch) -> Vec<f64> {
    let layer = model.network.sanitiser.as_ref().unwrap();
    let wide = |id: ParameterId| Wide::of(model.parameters.value(id));
    let hidden = Wide::of(model.hidden_states(batch).unwrap().last().unwrap());
    let mut rows = Vec::new();
    for window in batch.starts.windows(2) {
        let mean = |j: usize| {
            let sum: f64 = (window[0]..window[1]).map(|i| hidden[(i, j)]).sum();
            sum / (window[1] - window[0]) as f64 - wide(layer.centre.unwrap())[(0, j)]
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
            let config = SanitiserConfig {
                norm,
                direction: Some(vec![1.0, 0.5, 2.0, 1.0]),
                ..config(NoiseLayer::Output, Rows::Mean, &[7, 4])
            };
            let mut model = model(architecture, &config);
            let want = bounded_by_definition(&model, &config, &batch);
            for device in devices() {
                model.to_device(&device).unwrap();
                let found = model.bounded_rows(&batch).unwrap().0.dense().into_owned();
                assert_eq!(found.len(), want.len());
                for (found, want) in found.iter().zip(&want) {
                    let close = (f64::from(*found) - want).abs() < 1e-4 * (1.0 + want.abs());
                    assert!(close, "{architecture:?}, norm {norm}: {found} {want}");
                }
            }
        }
    }
}

#[test]
fn models_with_a_sanitiser_come_back_from_their_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(NoiseLayer::Output, Rows::Mean, &[7, 4]);
    config.direction = Some(vec![1.0, 0.5, 2.0, 1.0]);
    for decoded in [true, false] {
        config.decoded = decoded;
        let first = model(Architecture::Bert, &config);
        save_sanitiser(&first, &config, folder.path()).unwrap();
        let dimensions = Dimensions {
            layers: 3,
            hidden: 16,
            heads: 4,
            inner: 40,
            vocabulary: 60,
            positions: 100,
            key_heads: None,
        };
        let labels = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
        let mut second = Architecture::Bert
            .random(dimensions, TaskHead::SequenceClassification, &labels, 5)
            .unwrap();
        let base: Vec<ParameterId> = second.parameters.iter().map(|(id, _)| id).collect();
        base.iter().for_each(|&id| {
            set(&mut second, id, first.parameters.value(id).to_vec().unwrap()).unwrap()
        });
        assert_eq!(load_sanitiser(&mut second, folder.path()).unwrap(), Some(config.clone()));
        let batch = batch(&[5, 3]);
        let logits = |model: &Model| model.logits(&batch, None).unwrap().to_vec().unwrap();
        assert_eq!(logits(&first), logits(&second));
        for device in devices() {
            second.to_device(&device).unwrap();
            for (a, b) in logits(&first).iter().zip(logits(&second)) {
                assert!((a - b).abs() < 1e-4, "{a} {b}");
            }
        }
    }
    std::fs::write(folder.path().join("sanitiser.json"), "{}").unwrap();
    let mut plain = model(Architecture::Bert, &config);
    assert!(
        load_sanitiser(&mut plain, folder.path()).unwrap_err().to_string().contains("sanitiser")
    );
}

#[test]
fn contributions_multiply_and_sum_to_one() {
    // Two layers by hand: |W1| = [[1, 3], [1, 1]] and |W2| = [[2, 6]] as [outputs, inputs].
    let config = config(NoiseLayer::Output, Rows::First, &[2, 1]);
    let mut by_hand = model(Architecture::Bert, &config);
    let layer = by_hand.network.sanitiser.clone().unwrap();
    let mut first = vec![0.0; 2 * 16];
    (first[0], first[1], first[16], first[17]) = (1.0, -3.0, -1.0, 1.0);
    set(&mut by_hand, layer.encoder[0].weight, first).unwrap();
    set(&mut by_hand, layer.encoder[1].weight, vec![-2.0, 6.0]).unwrap();
    let r1 = shares(&layer.encoder[0], &by_hand.parameters).unwrap();
    let r2 = shares(&layer.encoder[1], &by_hand.parameters).unwrap();
    assert_eq!((r1[(0, 0)], r1[(1, 0)], r1[(0, 1)], r1[(1, 1)]), (0.25, 0.75, 0.5, 0.5));
    assert_eq!((r2[(0, 0)], r2[(1, 0)]), (0.25, 0.75));
    let both = r1 * r2;
    assert!((both[(0, 0)] - (0.25 * 0.25 + 0.5 * 0.75)).abs() < 1e-12);
    assert!((both[(1, 0)] - (0.75 * 0.25 + 0.5 * 0.75)).abs() < 1e-12);

    for architecture in KINDS {
        let last = matches!(architecture, Architecture::Gpt2 | Architecture::Llama);
        let model = model(architecture, &config);
        let map = positional(&model, 12, last).unwrap();
        assert_eq!((map.heads, map.tokens), (4, 12));
        let found = token_contributions(&model, &map).unwrap();
        assert_eq!(found.shape(), (12, 1));
        for column in found.column_iter() {
            assert!((column.sum() - 1.0).abs() < 1e-9 && column.iter().all(|&x| x >= 0.0));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whatever the text, the weights and the bound: no embedding exceeds the norm, so two are no
    /// farther apart than the sensitivity.
    #[test]
    fn no_embedding_exceeds_the_norm(
        lengths in prop::collection::vec(1_usize..12, 1..4),
        scale in prop::sample::select(vec![1e-30_f32, 1e-3, 1.0, 1e8, f32::INFINITY]),
        norm in 0.01_f32..50.0,
        normalise in any::<bool>(),
        squash in any::<bool>(),
        rows in prop::sample::select(vec![
            Rows::Tokens(None), Rows::Tokens(Some(6)), Rows::First, Rows::Last, Rows::Mean
        ]),
    ) {
        let config = SanitiserConfig {
            norm,
            bounding: if normalise { Bounding::Normalise } else { Bounding::Clip },
            squash: squash.then_some(norm),
            direction: Some(vec![0.3, 1.0, 2.0]),
            ..config(NoiseLayer::After(2), rows, &[3])
        };
        let mut model = model(Architecture::Gpt2, &config);
        let weight = model.network.sanitiser.as_ref().unwrap().encoder[0].weight;
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
                    let apart: f64 = a.iter().zip(&b).map(|(a, b)| f64::from(a - b).powi(2)).sum();
                    prop_assert!(apart.sqrt() <= config.sensitivity().unwrap() * f64::from(norm));
                }
            }
        }
    }
}
