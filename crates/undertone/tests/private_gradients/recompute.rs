//! Activation checkpointing drops activations and factors and recomputes them.

use super::*;
use undertone::model::Receiver;

/// On the CPU the clipped sum is bit-identical, with tied weights, several groups, coordinate
/// weights and dropout.
#[test]
fn computing_activations_again_changes_no_bit() {
    for (architecture, task_head) in [
        (Architecture::Bert, TaskHead::SequenceClassification),
        (Architecture::Gpt2, TaskHead::CausalLanguageModel),
        (Architecture::Llama, TaskHead::CausalLanguageModel),
        (Architecture::Gemma2, TaskHead::CausalLanguageModel),
        (Architecture::ModernBert, TaskHead::SequenceClassification),
        (Architecture::MpNet, TaskHead::SequenceClassification),
        (Architecture::Deberta, TaskHead::SequenceClassification),
    ] {
        for (tuning, device) in tunings(architecture, task_head)
            .into_iter()
            .flat_map(|t| devices().into_iter().map(move |d| (t.clone(), d)))
        {
            let mut model = model(architecture, task_head, &tuning, 16);
            model.to_device(&device).unwrap();
            let batch = Batch::pack(&examples(&[9, 12, 4, 7], &[0, 1, 1, 2], task_head));
            let batch = model.prompted(&batch).into_owned();
            let flat = Clip::Flat(0.05);
            let ways = [
                Way::plain(&model, &flat),
                Way::plain(&model, &Clip::PerLayer(0.05)),
                Way::weighted(&model, &flat, true),
                Way::split(&model, &flat),
            ];
            let keeps = [Keep::All, Keep::Vectors];
            for (way, keep) in ways.iter().flat_map(|way| keeps.map(|keep| (way, keep))) {
                let what = format!("{architecture:?}, {}, {}, {keep:?}", tuning.name(), way.name);
                let train = |model: &Model, receiver: &mut dyn Receiver| {
                    let losses = model.train(&batch, Weighting::SumOfUnits, Some(5), receiver);
                    losses.unwrap().by_example().unwrap()
                };
                model.recompute = false;
                let mut kept = ClippedSum::new(&model.parameters);
                let units = || UnitRows::of(&batch);
                let mut clipping = GhostClipping::new(units(), &way.groups).keeping(keep);
                let losses = train(&model, &mut clipping);
                clipping.clip_and_sum(&way.bounds, &mut kept).unwrap();
                model.recompute = true;
                let mut again = ClippedSum::new(&model.parameters);
                let tied = model.tied_parameters();
                let mut norms = GhostClipping::of_norms(units(), &way.groups, tied).keeping(keep);
                assert_eq!(train(&model, &mut norms), losses, "{what}");
                let clipped = norms.clip(&way.bounds).unwrap();
                // One pass is enough if all gradients are kept.
                let is_matrix = |tuning: &Tuning| {
                    !matches!(tuning, Tuning::Bitfit | Tuning::Ia3(_))
                        || model.network.head.task_head == TaskHead::SequenceClassification
                };
                let expected = keep == Keep::Vectors && is_matrix(&tuning);
                assert_eq!(clipped.needs_second_pass(), expected, "{what}");
                if clipped.needs_second_pass() {
                    let mut second = clipped.second_pass(&mut again).unwrap();
                    train(&model, &mut second);
                } else {
                    clipped.sum(&mut again).unwrap();
                }
                assert_eq!(kept.clipped().clipped, again.clipped().clipped, "{what}");
                for (id, parameter) in model.parameters.iter() {
                    let values = |sum: &ClippedSum| Some(sum.get(id)?.to_vec().unwrap());
                    let (first, repeated) = (values(&kept), values(&again));
                    // A GPU adds squared norms in a different order, in f64, so the clipping
                    // factors may differ in their last bit.
                    let tolerance = if matches!(device, Device::Cpu) { 0.0 } else { 1e-6 };
                    let same = |x: &f32, y: &f32| (x - y).abs() <= tolerance * x.abs();
                    let agree = match (&first, &repeated) {
                        (Some(first), Some(repeated)) => {
                            first.iter().zip(repeated).all(|(x, y)| same(x, y))
                        }
                        (first, repeated) => first.is_none() && repeated.is_none(),
                    };
                    assert!(agree, "{what}: {}", parameter.name);
                }
            }
        }
    }
}

/// A norms-only pass that would miss the cross term of a tied weight is refused.
#[test]
fn a_tied_parameter_that_nobody_named_is_refused() {
    let task_head = TaskHead::CausalLanguageModel;
    let model = model(Architecture::Gpt2, task_head, &Tuning::Full, 16);
    assert_eq!(model.tied_parameters().len(), 1);
    let batch = Batch::pack(&examples(&[5], &[0], task_head));
    let way = Way::plain(&model, &Clip::Flat(1.0));
    let norms = GhostClipping::of_norms(UnitRows::of(&batch), &way.groups, Vec::new());
    let mut norms = norms.keeping(Keep::Vectors);
    let refused = model.train(&batch, Weighting::SumOfUnits, None, &mut norms);
    assert!(refused.unwrap_err().to_string().contains("used twice"));
}
