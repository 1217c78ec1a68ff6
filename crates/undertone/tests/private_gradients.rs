//! Ghost clipping compared with the plain definition: the gradient of every unit is formed
//! separately, clipped and added.

mod recompute;

use crate::common::devices;
use std::collections::BTreeMap;
use undertone::data::{Batch, Example, Target};
use undertone::gradient::Clipping;
use undertone::gradient::{
    Bounds, Clip, ClippedSum, ClippingGroups, GhostClipping, KeepGradients as Keep, UnitRows,
    Weights,
};
use undertone::model::architecture::{Architecture, Dimensions};
use undertone::model::tuning::{
    AdapterSettings, Ia3Settings, LoraSettings, PromptSettings, Tuning,
};
use undertone::model::{Gradients, Model, TaskHead, Weighting};
use undertone::tensor::Device;

const KINDS: [(Architecture, TaskHead); 19] = [
    (Architecture::Bert, TaskHead::SequenceClassification),
    (Architecture::Bert, TaskHead::MaskedLanguageModel),
    (Architecture::DistilBert, TaskHead::SequenceClassification),
    (Architecture::DistilBert, TaskHead::MaskedLanguageModel),
    (Architecture::Roberta, TaskHead::SequenceClassification),
    (Architecture::Roberta, TaskHead::MaskedLanguageModel),
    (Architecture::Gpt2, TaskHead::CausalLanguageModel),
    (Architecture::Llama, TaskHead::CausalLanguageModel),
    (Architecture::Qwen2, TaskHead::CausalLanguageModel),
    (Architecture::Qwen3, TaskHead::CausalLanguageModel),
    (Architecture::SmolLm3, TaskHead::CausalLanguageModel),
    (Architecture::Gemma2, TaskHead::CausalLanguageModel),
    (Architecture::Gemma3, TaskHead::CausalLanguageModel),
    (Architecture::Phi3, TaskHead::CausalLanguageModel),
    (Architecture::ModernBert, TaskHead::SequenceClassification),
    (Architecture::ModernBert, TaskHead::MaskedLanguageModel),
    (Architecture::MpNet, TaskHead::SequenceClassification),
    (Architecture::MpNet, TaskHead::MaskedLanguageModel),
    (Architecture::Deberta, TaskHead::SequenceClassification),
];

fn model(architecture: Architecture, task_head: TaskHead, tuning: &Tuning, hidden: usize) -> Model {
    let dimensions = Dimensions {
        layers: 2,
        hidden,
        heads: 2,
        inner: 3 * hidden,
        vocabulary: 60,
        positions: 100,
        key_heads: None,
    };
    let labels = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
    let mut model = architecture.random(dimensions, task_head, &labels, 5).unwrap();
    model.apply_tuning(tuning, 3).unwrap();
    // LoRA's B and an adapter's last layer start at zero, where half of all gradients vanish.
    let mut state = 9_u32;
    for (_, parameter) in model.parameters.iter_mut().filter(|(_, p)| p.trainable) {
        let (rows, columns) = (parameter.value.rows(), parameter.value.columns());
        let mut values = parameter.value.to_vec().unwrap();
        for value in &mut values {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *value += (state >> 8) as f32 / 1e8 - 0.08;
        }
        parameter.value = undertone::tensor::Matrix::from_vec(rows, columns, values);
    }
    model
}

/// Sequences of the given lengths; tokens repeat, so some rows of the embeddings are used several
/// times.
fn examples(lengths: &[usize], units: &[u32], task_head: TaskHead) -> Vec<Example> {
    let example = |(i, (&length, &unit)): (usize, (&usize, &u32))| Example {
        tokens: (0..length).map(|t| ((t * t + 7 * i) % 23 + 3) as u32).collect(),
        segments: Vec::new(),
        target: match task_head {
            TaskHead::CausalLanguageModel => Target::Next { from: 1 },
            TaskHead::MaskedLanguageModel => {
                Target::Masked { positions: vec![0, length as u32 - 1], labels: vec![4, 9] }
            }
            _ => Target::Class((i % 3) as u32),
        },
        unit,
    };
    lengths.iter().zip(units).enumerate().map(example).collect()
}

/// Both ways to store the gradients of matrices.
const KEPT: [Keep; 2] = [Keep::All, Keep::Vectors];

type Sums = BTreeMap<String, Vec<f64>>;

/// A clipping rule, and the same rule in another form: for each parameter the groups, with the
/// weight of every coordinate in them.
struct Way {
    name: String,
    groups: ClippingGroups,
    bounds: Bounds,
    automatic: bool,
    parts: BTreeMap<String, Vec<(usize, Vec<f64>)>>,
    /// Whether the weights are masks that assign coordinates to groups.
    masks: bool,
}

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| 0.3 + ((i * 7 + seed * 13) % 11) as f32 * 0.25).collect()
}

impl Way {
    fn plain(model: &Model, clip: &Clip) -> Self {
        let groups = clip.groups(&model.parameters);
        let mut parts = BTreeMap::new();
        let mut layers: Vec<String> = Vec::new();
        for (_, parameter) in model.parameters.iter() {
            let layer = parameter.name.rsplit_once('.').map_or("", |(layer, _)| layer).to_owned();
            let group = match clip {
                Clip::PerLayer(_) => layers.iter().position(|known| *known == layer),
                _ => Some(0),
            };
            if !parameter.trainable {
                continue;
            }
            let group = group.unwrap_or_else(|| {
                layers.push(layer);
                layers.len() - 1
            });
            parts.insert(parameter.name.clone(), vec![(group, vec![1.0; parameter.len()])]);
        }
        let bounds = clip.bounds(groups.count());
        let automatic = matches!(clip, Clip::Automatic);
        Self { name: format!("{clip:?}"), groups, bounds, automatic, parts, masks: false }
    }

    /// Weights for rows and columns, or for every coordinate.
    fn weighted(model: &Model, clip: &Clip, elements: bool) -> Self {
        let mut way = Self::plain(model, clip);
        let weights = |id: undertone::model::ParameterId| {
            let value = &model.parameters.get(id).value;
            let (rows, columns) = (value.rows(), value.columns());
            Some(if elements {
                let values = std::sync::Arc::new(numbers(rows * columns, id.index()).into());
                Weights::Elements { values, scale: 0.7, largest: 3.0, columns }
            } else {
                Weights::Factored { rows: numbers(rows, id.index()), columns: numbers(columns, 5) }
            })
        };
        way.groups = way.groups.weighted(weights);
        for (id, parameter) in model.parameters.iter() {
            let Some(parts) = way.parts.get_mut(&parameter.name) else { continue };
            let mut written = vec![0.0; parameter.len()];
            weights(id).unwrap().write(0, &mut written);
            parts[0].1 = written.into_iter().map(f64::from).collect();
        }
        way.name = format!("{clip:?}, {} weights", if elements { "element" } else { "factored" });
        way
    }

    fn split(model: &Model, clip: &Clip) -> Self {
        let mask = |id: undertone::model::ParameterId| -> Vec<f32> {
            let count = model.parameters.get(id).len();
            numbers(count, id.index()).iter().map(|&x| if x > 1.0 { 1.0 } else { 0.0 }).collect()
        };
        let mut way = Self::plain(model, clip);
        for (id, parameter) in model.parameters.iter() {
            let Some(parts) = way.parts.get_mut(&parameter.name) else { continue };
            let first: Vec<f64> = mask(id).into_iter().map(f64::from).collect();
            let second = first.iter().map(|x| 1.0 - x).collect();
            *parts = vec![(0, first), (1, second)];
        }
        way.groups = ClippingGroups::split(&model.parameters, mask);
        way.bounds = clip.bounds_of(vec![0.6 * clip.bound(), 0.3 * clip.bound()]);
        Self { name: format!("{clip:?}, two groups"), masks: true, ..way }
    }
}

/// The gradient of one unit, parameter by parameter.
type UnitGradient = Vec<(String, Vec<f32>)>;

/// The gradient of each unit, formed separately.
fn unit_gradients(model: &Model, examples: &[Example]) -> Vec<UnitGradient> {
    let units = examples.chunk_by(|a, b| a.unit == b.unit);
    let formed = units.map(|unit| {
        let mut gradients = Gradients::new(&model.parameters);
        let batch = Batch::pack(unit);
        model.train(&model.prompted(&batch), Weighting::SumOfUnits, None, &mut gradients).unwrap();
        let all = model.parameters.iter();
        let with_gradient = all.filter_map(|(id, p)| Some((p.name.clone(), gradients.get(id)?)));
        with_gradient.map(|(name, gradient)| (name, gradient.to_vec().unwrap())).collect()
    });
    formed.collect()
}

/// Clips each unit separately, with the norm of each group computed from the formed gradient.
fn one_by_one(units: &[UnitGradient], way: &Way) -> (Sums, Vec<f64>) {
    let mut sums: Sums = BTreeMap::new();
    let mut norms = Vec::new();
    for unit in units {
        let mut squared = vec![0.0; way.bounds.thresholds().len()];
        let mut formed = Vec::new();
        for (name, values) in unit {
            let Some(parts) = way.parts.get(name) else { continue };
            for (group, weights) in parts {
                let weighted = values.iter().zip(weights).map(|(&x, w)| w * f64::from(x).powi(2));
                squared[*group] += weighted.sum::<f64>();
            }
            formed.push((parts, name.clone(), values));
        }
        norms.push(squared.iter().sum::<f64>().sqrt());
        let factors: Vec<f64> = squared
            .iter()
            .zip(way.bounds.thresholds())
            .map(|(squared, bound)| match way.automatic {
                true => bound / (squared.sqrt() + 0.01),
                false => (bound / squared.sqrt()).min(1.0),
            })
            .collect();
        for (parts, name, values) in formed {
            let sum = sums.entry(name).or_insert_with(|| vec![0.0; values.len()]);
            for (group, weights) in parts {
                for ((sum, x), weight) in sum.iter_mut().zip(values).zip(weights) {
                    let mask = if way.masks { *weight } else { 1.0 };
                    *sum += factors[*group] * mask * f64::from(*x);
                }
            }
        }
    }
    (sums, norms)
}

/// The same with kept gradients or by book-keeping, in micro-batches that end after the given
/// numbers of examples.
fn by_ghost_clipping(
    model: &Model,
    examples: &[Example],
    way: &Way,
    keep: Keep,
    cuts: &[usize],
) -> (Sums, Vec<f64>, ClippedSum) {
    let mut sum = ClippedSum::new(&model.parameters);
    let mut norms = Vec::new();
    for cut in cuts.windows(2) {
        let batch = model.prompted(&Batch::pack(&examples[cut[0]..cut[1]])).into_owned();
        let mut clipping = GhostClipping::new(UnitRows::of(&batch), &way.groups).keeping(keep);
        model.train(&batch, Weighting::SumOfUnits, None, &mut clipping).unwrap();
        for unit in 0..UnitRows::of(&batch).count() {
            norms.push(
                clipping
                    .squared_norms()
                    .unwrap()
                    .iter()
                    .map(|group| group[unit])
                    .sum::<f64>()
                    .sqrt(),
            );
        }
        clipping.clip_and_sum(&way.bounds, &mut sum).unwrap();
    }
    let mut sums: Sums = BTreeMap::new();
    for (id, parameter) in model.parameters.iter() {
        if let Some(values) = sum.get(id) {
            sums.insert(
                parameter.name.clone(),
                values.to_vec().unwrap().into_iter().map(f64::from).collect(),
            );
        }
    }
    (sums, norms, sum)
}

fn assert_same(what: &str, want: &Sums, have: &Sums) {
    assert_eq!(
        want.keys().collect::<Vec<_>>(),
        have.keys().collect::<Vec<_>>(),
        "{what}: the same parameters"
    );
    let size = want.values().flatten().map(|x| x * x).sum::<f64>().sqrt();
    for (name, want) in want {
        let error = want.iter().zip(&have[name]).map(|(x, y)| (x - y).powi(2)).sum::<f64>().sqrt();
        // Bounds of norms are wider on a GPU. With a soft prompt the gradient is little more than
        // its table's, which is a sum over a unit's sequences: where these nearly cancel, the
        // margin for rounding, which is relative to their products, is wide.
        let tolerance = match (what.contains("Cuda"), what.contains(" prompt ")) {
            (_, true) => 1e-2,
            (true, false) => 4e-4,
            (false, false) => 1e-4,
        };
        assert!(error <= tolerance * size, "{what}: {name} differs by {error} of {size}");
    }
}

fn tunings(architecture: Architecture, task_head: TaskHead) -> Vec<Tuning> {
    let settings = LoraSettings { rank: 3, ..LoraSettings::default() };
    let lora = Tuning::Lora(settings.clone());
    let adapter = Tuning::Adapter(AdapterSettings { size: 5, ..AdapterSettings::default() });
    let mut all = vec![Tuning::Full, lora, adapter, Tuning::Ia3(Ia3Settings::default())];
    // Models of the Gemma family scale their embeddings.
    if ![Architecture::Gemma2, Architecture::Gemma3].contains(&architecture) {
        all.push(Tuning::Prompt(PromptSettings { tokens: 3 }));
    }
    if task_head == TaskHead::CausalLanguageModel {
        // The head is tied to the embeddings, which get a gradient from both uses, and has LoRA.
        let targets = vec!["lm_head".into()];
        all.push(Tuning::Lora(LoraSettings { targets, embeddings: true, ..settings.clone() }));
    }
    if [Architecture::Bert, Architecture::Gpt2, Architecture::Deberta].contains(&architecture) {
        all.push(Tuning::Lora(LoraSettings { dora: true, ..settings.clone() }));
    }
    if architecture == Architecture::Gpt2 {
        // Two of the fused layer's three parts.
        let targets = vec!["c_attn.query".into(), "c_attn.value".into()];
        all.push(Tuning::Lora(LoraSettings { targets, ..settings }));
    }
    if task_head != TaskHead::CausalLanguageModel {
        all.push(Tuning::Bitfit);
    }
    if task_head == TaskHead::SequenceClassification {
        all.push(Tuning::Head);
    }
    all
}

#[test]
fn book_keeping_equals_one_unit_at_a_time() {
    // Units with one and with several sequences, short and long ones: this covers both ways of
    // computing a norm.
    let (lengths, units) = ([5, 2, 40, 17, 3, 90, 1], [0, 1, 2, 2, 2, 3, 4]);
    for device in devices() {
        for (architecture, task_head) in KINDS {
            let lengths = lengths.map(|length| {
                if task_head == TaskHead::SequenceClassification { length } else { length.max(2) }
            });
            let examples = examples(&lengths, &units, task_head);
            for tuning in tunings(architecture, task_head) {
                let mut model = model(architecture, task_head, &tuning, 16);
                model.to_device(&device).unwrap();
                let units = unit_gradients(&model, &examples);
                let (_, norms) = one_by_one(&units, &Way::plain(&model, &Clip::Automatic));
                let middle = norms.iter().sum::<f64>() / norms.len() as f64;
                let flat = Clip::Flat(middle);
                let ways = [
                    Way::plain(&model, &flat),
                    Way::plain(&model, &Clip::PerLayer(middle)),
                    Way::plain(&model, &Clip::Automatic),
                    Way::weighted(&model, &flat, false),
                    Way::weighted(&model, &Clip::Automatic, true),
                    Way::weighted(&model, &Clip::PerLayer(middle), true),
                    Way::split(&model, &flat),
                ];
                for way in ways {
                    let what = format!(
                        "{architecture:?} {task_head:?} {} {} {device:?}",
                        tuning.name(),
                        way.name
                    );
                    let (want, norms) = one_by_one(&units, &way);
                    for (cuts, keep) in [
                        (&[0, 7][..], Keep::All),
                        (&[0, 7], Keep::Vectors),
                        (&[0, 1, 2, 5, 7], Keep::Small),
                        (&[0, 0, 6, 7], Keep::Vectors),
                    ] {
                        let what = format!("{what}, {keep:?} kept");
                        let (have, bounds, _) =
                            by_ghost_clipping(&model, &examples, &way, keep, cuts);
                        assert_same(&what, &want, &have);
                        for (norm, bound) in norms.iter().zip(bounds) {
                            let excess = bound / norm - 1.0;
                            // Sequences of a unit with opposite labels nearly cancel in a prompt.
                            let largest = norms.iter().copied().fold(0.0, f64::max);
                            let near = what.contains(" prompt ") && bound - norm < 1e-3 * largest;
                            assert!(
                                excess >= -1e-6 && (excess < 1e-3 || near),
                                "{what}: norm {bound}, not {norm}"
                            );
                        }
                    }
                }
            }
        }
    }
}

/// Factors have rows for virtual tokens: a batch without them would mix up the units.
#[test]
fn a_batch_without_the_soft_prompt_is_refused() {
    let task_head = TaskHead::CausalLanguageModel;
    let tuning = Tuning::Prompt(PromptSettings { tokens: 3 });
    let model = model(Architecture::Llama, task_head, &tuning, 16);
    let batch = Batch::pack(&examples(&[5, 7], &[0, 1], task_head));
    let way = Way::plain(&model, &Clip::Flat(1.0));
    let mut clipping = GhostClipping::new(UnitRows::of(&batch), &way.groups);
    let refused = model.train(&batch, Weighting::SumOfUnits, None, &mut clipping);
    assert!(refused.unwrap_err().to_string().contains("lacks the soft prompt"));
}

#[test]
fn the_ghost_norm_and_the_formed_one_agree_at_larger_sizes() {
    // With 64 features a sequence of 16 tokens uses Gram matrices, one of 80 tokens forms the
    // gradient.
    for task_head in [TaskHead::SequenceClassification, TaskHead::MaskedLanguageModel] {
        let examples = examples(&[16, 80, 33], &[0, 1, 2], task_head);
        let model = model(Architecture::Bert, task_head, &Tuning::Full, 64);
        let units = unit_gradients(&model, &examples);
        for way in
            [Way::plain(&model, &Clip::Flat(0.5)), Way::weighted(&model, &Clip::Flat(0.5), true)]
        {
            let (want, _) = one_by_one(&units, &way);
            for keep in [Keep::All, Keep::Vectors] {
                let (have, ..) = by_ghost_clipping(&model, &examples, &way, keep, &[0, 3]);
                assert_same(&format!("larger sizes, {keep:?} kept"), &want, &have);
            }
        }
    }
}

#[test]
fn no_unit_moves_the_sum_by_more_than_the_bound() {
    let task_head = TaskHead::CausalLanguageModel;
    let model = model(Architecture::Gpt2, task_head, &Tuning::Full, 16);
    let examples = examples(&[9, 30, 4, 12], &[0, 1, 2, 2], task_head);
    let clips = [Clip::Flat(0.05), Clip::PerLayer(0.05), Clip::Automatic];
    for (clip, keep) in clips.into_iter().flat_map(|c| KEPT.map(|keep| (c, keep))) {
        let way = Way::plain(&model, &clip);
        let all = by_ghost_clipping(&model, &examples, &way, keep, &[0, 4]).0;
        for (left_out, range) in [(0, 0..1), (1, 1..2), (2, 2..4)] {
            let mut others = examples.clone();
            others.drain(range);
            let without = by_ghost_clipping(&model, &others, &way, keep, &[0, others.len()]).0;
            let moved = all.iter().flat_map(|(name, x)| x.iter().zip(&without[name]));
            let moved = moved.map(|(x, y)| (x - y).powi(2)).sum::<f64>().sqrt();
            assert!(
                moved <= clip.bound() * (1.0 + 1e-5),
                "{clip:?}, {keep:?} kept: unit {left_out} moves the sum by {moved}"
            );
            assert!(
                moved >= clip.bound() * 0.9,
                "{clip:?}: and it is as long as allowed, not {moved}"
            );
        }
    }
}

#[test]
fn an_empty_batch_adds_nothing() {
    let model = model(Architecture::Bert, TaskHead::SequenceClassification, &Tuning::Full, 16);
    let way = Way::plain(&model, &Clip::Automatic);
    let mut sum = ClippedSum::new(&model.parameters);
    let empty = Batch::pack(&[]);
    let mut clipping = GhostClipping::new(UnitRows::of(&empty), &way.groups);
    model.train(&empty, Weighting::SumOfUnits, None, &mut clipping).unwrap();
    clipping.clip_and_sum(&way.bounds, &mut sum).unwrap();
    for (id, parameter) in model.parameters.iter() {
        let nothing = sum.get(id).is_none_or(|sum| sum.to_vec().unwrap().iter().all(|&x| x == 0.0));
        assert!(nothing, "{} has something of nobody", parameter.name);
    }
}

/// A text that consists only of special tokens has nothing to mask.
#[test]
fn an_example_without_masked_tokens_adds_nothing() {
    let task_head = TaskHead::MaskedLanguageModel;
    let nothing = Target::Masked { positions: Vec::new(), labels: Vec::new() };
    for device in devices() {
        let tunings = tunings(Architecture::Bert, task_head);
        for (tuning, keep) in tunings.into_iter().flat_map(|t| KEPT.map(|k| (t.clone(), k))) {
            let mut model = model(Architecture::Bert, task_head, &tuning, 16);
            model.to_device(&device).unwrap();
            let mut all = examples(&[5, 4, 9], &[0, 1, 2], task_head);
            all[1].target = nothing.clone();
            let way = Way::plain(&model, &Clip::Flat(0.1));
            let (have, norms, sum) = by_ghost_clipping(&model, &all, &way, keep, &[0, 3]);
            // At most the amount that the bound adds for underflow.
            assert!(norms[1] < 1e-12, "{}", norms[1]);
            assert_eq!(sum.clipped().units, 3);
            let others = [all[0].clone(), all[2].clone()];
            let (want, ..) = by_ghost_clipping(&model, &others, &way, keep, &[0, 2]);
            assert_same(&format!("{} {device:?}", tuning.name()), &want, &have);
            // The same if it is alone in its batch; and every trainable parameter is still
            // connected.
            let (alone, ..) = by_ghost_clipping(&model, &all[1..2], &way, keep, &[0, 1]);
            assert!(alone.values().flatten().all(|&x| x == 0.0));
            assert_eq!(alone.len(), want.len());
        }
    }
}

/// A unit whose gradient is not finite counts as zero and leaves the others unchanged: with all
/// kinds of factors and with products alone, for both ways of computing their norms.
#[test]
fn a_gradient_that_is_not_finite_counts_as_zero() {
    let lora = |rank| Tuning::Lora(LoraSettings { rank, ..LoraSettings::default() });
    for (task_head, architecture, tuning, table) in [
        (
            TaskHead::SequenceClassification,
            Architecture::Bert,
            Tuning::Full,
            "bert.embeddings.word_embeddings.weight",
        ),
        (TaskHead::CausalLanguageModel, Architecture::Gpt2, lora(64), "transformer.wpe.weight"),
        (TaskHead::CausalLanguageModel, Architecture::Gpt2, lora(1), "transformer.wpe.weight"),
    ] {
        // In the middle, and at the front, where padding of shorter sequences might read from it.
        for (device, broken) in
            devices().into_iter().flat_map(|device| [(device.clone(), 1), (device, 0)])
        {
            let mut model = model(architecture, task_head, &tuning, 64);
            let table = model.parameters.find(table).unwrap();
            let parameter = model.parameters.get_mut(table);
            let (rows, columns) = (parameter.value.rows(), parameter.value.columns());
            let mut values = parameter.value.to_vec().unwrap();
            // Token 50, or the seventh position of a sequence, which occur only in the broken unit.
            let row = if rows == 60 { 50 } else { 6 };
            values[row * columns] = f32::NAN;
            parameter.value = undertone::tensor::Matrix::from_vec(rows, columns, values);
            model.to_device(&device).unwrap();
            let lengths = if broken == 1 { [5, 7, 6] } else { [7, 5, 6] };
            let mut all = examples(&lengths, &[0, 1, 2], task_head);
            all[broken].tokens[2] = 50;
            let sound = [all[1 - broken].clone(), all[2].clone()];
            let flat = Clip::Flat(0.1);
            let ways = [
                Way::plain(&model, &flat),
                Way::plain(&model, &Clip::PerLayer(0.1)),
                Way::plain(&model, &Clip::Automatic),
                Way::weighted(&model, &flat, true),
                Way::split(&model, &flat),
            ];
            for (way, keep) in ways.iter().flat_map(|way| KEPT.map(|keep| (way, keep))) {
                let (have, _, sum) = by_ghost_clipping(&model, &all, way, keep, &[0, 3]);
                let what = format!("one broken unit, {}, {}, {keep:?}", tuning.name(), way.name);
                assert_eq!((sum.clipped().units, sum.clipped().not_finite), (3, 1), "{what}");
                let (want, ..) = by_ghost_clipping(&model, &sound, way, keep, &[0, 2]);
                assert_same(&what, &want, &have);
            }
        }
    }
}

/// On a GPU, the kept gradient of a unit, and therefore its norm, is bit-identical in any batch; on
/// the CPU, up to rounding.
#[test]
fn a_kept_gradient_does_not_depend_on_the_batch() {
    let task_head = TaskHead::CausalLanguageModel;
    let lora = Tuning::Lora(LoraSettings { rank: 8, ..LoraSettings::default() });
    let lengths = [70, 3, 130, 64, 9];
    let examples = examples(&lengths.map(|length| length.min(99)), &[0, 1, 2, 3, 3], task_head);
    for device in devices() {
        let mut model = model(Architecture::Gpt2, task_head, &lora, 64);
        model.to_device(&device).unwrap();
        let way = Way::plain(&model, &Clip::Flat(1e3));
        let sum_of = |examples: &[Example]| {
            let run =
                || by_ghost_clipping(&model, examples, &way, Keep::Small, &[0, examples.len()]);
            device.compute_batch_invariant(run)
        };
        let (_, together, _) = sum_of(&examples);
        for (unit, range) in [0..1, 1..2, 2..3, 3..5].into_iter().enumerate() {
            let (_, alone, _) = sum_of(&examples[range]);
            let apart = (alone[0] / together[unit] - 1.0).abs();
            let most = if matches!(device, Device::Cpu) { 1e-5 } else { 0.0 };
            assert!(apart <= most, "unit {unit} on {device:?}: {apart:e}");
        }
    }
}
