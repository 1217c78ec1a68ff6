//! The two halves of a model as two folders: together they compute the same as the whole model.

use crate::common::difference;
use std::fs;
use std::path::Path;
use undertone::Plan;
use undertone::data::{Batch, Example, Target};
use undertone::method::local::split::{OwnerHalf, ProviderHalf, Received, Split};
use undertone::method::local::{EmbeddingNoise, RandomizedLabels};
use undertone::noise::Secret;
use undertone::run::ReleaseKind;
use undertone::tensor::Device;

fn assert_close(actual: &[f32], wanted: &[f32], tolerance: f32, what: &str) {
    assert_eq!(actual.len(), wanted.len(), "{what}");
    let apart = difference(actual, wanted);
    assert!(apart <= tolerance, "{what}: {apart}");
}

fn examples(count: u32) -> Vec<Example> {
    let example = |i: u32| Example {
        tokens: (0..3 + i % 5).map(|j| 1 + (i * 7 + j * 3) % 20).collect(),
        target: Target::Class(i % 2),
        unit: i,
        ..Example::default()
    };
    (0..count).map(example).collect()
}

/// A plan without data, for a fixture's model.
fn plan(folder: &Path, model: &str, tokenizer: &str, privacy: &str) -> Plan {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    fs::create_dir_all(folder.join("base")).unwrap();
    for file in ["config.json", "model.safetensors"] {
        let from = fixtures.join("models").join(model).join(file);
        fs::copy(from, folder.join("base").join(file)).unwrap();
    }
    let tokenizer = fixtures.join(tokenizer).join("tokenizer.json");
    fs::copy(tokenizer, folder.join("base/tokenizer.json")).unwrap();
    let text = format!(
        "[model]\npath = {:?}\ntuning = \"head\"\n[data]\ntask = \"classification\"\ntrain = \
         \"nobody's\"\ntext = \"text\"\nlabels = [\"bad\", \"neutral\", \"good\"]\nmax_tokens = 8\n\
         [training]\nepochs = 2\nbatch = 16\nlearning_rate = 1e-2\n[privacy]\nepsilon = 8.0\n\
         delta = 1e-5\n{privacy}",
        folder.join("base")
    );
    Plan::parse(&text, &["training.seed=5".to_owned()]).unwrap()
}

/// Wherever the noise is added, the owner's folder computes the same rows as the whole model, and
/// the provider's half continues from them as the whole model would.
#[test]
fn both_halves_together_are_the_model() {
    let bert = ("bert-classification", "tokenizer-wordpiece");
    let gpt2 = ("gpt2-classification", "tokenizer-bpe");
    let cases = [
        (bert, "method = \"dp-forward\"\n"),
        (bert, "method = \"dp-forward\"\n[privacy.local]\nafter = 1\n"),
        (bert, "method = \"dp-forward\"\n[privacy.local]\nafter = 1\nrows = \"tokens\"\n"),
        (bert, "method = \"ew-ft\"\n[privacy.local]\nafter = 0\ndims = [5]\n"),
        (bert, "method = \"ew-ft\"\n[privacy.local]\ndims = [5]\nlearn = \"gradient\"\n"),
        (bert, "method = \"mvg\"\n[privacy.mvg]\nwidth = 6\n"),
        (gpt2, "method = \"dp-forward\"\n[privacy.local]\nrows = \"last\"\n"),
        (gpt2, "method = \"ew-ft\"\n[privacy.local]\nafter = 1\nrows = \"last\"\n"),
    ];
    for ((model, tokenizer), privacy) in cases {
        let folder = tempfile::tempdir().unwrap();
        let plan = plan(folder.path(), model, tokenizer, privacy);
        let split = Split::make(&plan, &Device::Cpu, 100, &mut |_| ()).unwrap();
        let (pre, whole) = (folder.path().join("pre"), folder.path().join("whole"));
        split.save_below(&pre).unwrap();
        split.save_whole(&whole).unwrap();
        let owner = OwnerHalf::load(&pre, &Device::Cpu).unwrap();
        let examples = examples(7);
        let secrets = vec![Secret::from_seed(1); examples.len()];
        // Without noise.
        let releases = owner.release(&examples, &secrets, ReleaseKind::Once, &[0.0]).unwrap();
        let rows: Vec<f32> = releases.into_iter().flatten().flatten().collect();
        assert_eq!(rows.len(), examples.len() * owner.width(), "{privacy}");
        let batch = Batch::pack(&examples);
        let (bounded, starts) = split.model.bounded_rows(&batch).unwrap();
        let layer = split.model.network.sanitizer.as_ref().unwrap();
        let wanted = layer.released(bounded, &starts, None).dense().to_vec();
        assert_close(&rows, &wanted, 1e-5, privacy);
        // Without a calibration, which is meant for noisy rows.
        if layer.calibration.is_none() {
            let provider =
                ProviderHalf::load(&whole, split.releases.clone(), None, &Device::Cpu).unwrap();
            let logits: Vec<f32> = provider.logits(rows).unwrap().into_iter().flatten().collect();
            let wanted = split.model.logits(&batch, None).unwrap().to_vec().unwrap();
            assert_close(&logits, &wanted, 1e-5, privacy);
        }
        // pre(·) contains no more of the model than it needs.
        let bytes = |folder: &Path| fs::metadata(folder.join("model.safetensors")).unwrap().len();
        assert!(bytes(&pre) < bytes(&whole), "{privacy}");
    }
}

/// A release is the bounded row plus the noise of its own secret, in units of C.
#[test]
fn each_release_has_the_noise_of_its_own_secret() {
    let folder = tempfile::tempdir().unwrap();
    let privacy = "method = \"ew-ft\"\nclip = 2.0\nschedule = \"linear\"\n[privacy.local]\ndims = \
                   [5]\nrelease = \"path\"\nlearn = \"gradient\"\n";
    let plan = plan(folder.path(), "bert-classification", "tokenizer-wordpiece", privacy);
    let split = Split::make(&plan, &Device::Cpu, 100, &mut |_| ()).unwrap();
    let pre = folder.path().join("pre");
    split.save_below(&pre).unwrap();
    let owner = OwnerHalf::load(&pre, &Device::Cpu).unwrap();
    let examples = examples(9);
    let secrets: Vec<Secret> = (0..9).map(Secret::from_seed).collect();
    let noise = [1.5, 0.7];
    let kind = ReleaseKind::Path;
    let releases = owner.release(&examples, &secrets, kind, &noise).unwrap();
    let clean = owner.release(&examples, &secrets, ReleaseKind::Once, &[0.0]).unwrap();
    for i in 0..9 {
        assert_eq!(releases[i].len(), 2);
        for (epoch, row) in releases[i].iter().enumerate() {
            let mut wanted = clean[i][0].clone();
            let stds = noise.iter().map(|noise| 2.0 * noise).collect();
            EmbeddingNoise::new(&secrets[i], kind, stds).perturb(0, epoch, &mut wanted);
            assert_close(row, &wanted, 1e-6, "noise");
        }
    }
    // A release is bit-identical whether it is computed alone or with others: it depends on no
    // other example. Adversarial weights could amplify a last digit to all of C.
    let alone = owner.release(&examples[4..5], &secrets[4..5], kind, &noise).unwrap();
    assert_eq!(alone[0], releases[4]);
    let turned: Vec<Example> = examples.iter().rev().cloned().collect();
    let keys: Vec<Secret> = secrets.iter().rev().cloned().collect();
    let found_turned = owner.release(&turned, &keys, kind, &noise).unwrap();
    assert!(found_turned.iter().rev().eq(&releases));
}

/// Learning from releases finds what separates the classes, in closed form and by gradients.
#[test]
fn the_provider_learns_from_releases() {
    for learn in ["discriminant", "gradient"] {
        let folder = tempfile::tempdir().unwrap();
        let privacy =
            format!("method = \"ew-ft\"\n[privacy.local]\ndims = [4]\nlearn = \"{learn}\"\n");
        let plan = plan(folder.path(), "bert-classification", "tokenizer-wordpiece", &privacy);
        let split = Split::make(&plan, &Device::Cpu, 100, &mut |_| ()).unwrap();
        let whole = folder.path().join("whole");
        split.save_whole(&whole).unwrap();
        let epsilon = split.label_epsilon;
        let provider =
            ProviderHalf::load(&whole, split.releases.clone(), epsilon, &Device::Cpu).unwrap();
        // Rows whose first value is the class, with known noise and label flips.
        let labels = RandomizedLabels::new(&Secret::from_seed(3), epsilon.unwrap(), 3);
        let std = split.releases.noise_multipliers[0] * f64::from(split.config.norm);
        let noise = EmbeddingNoise::new(&Secret::from_seed(4), ReleaseKind::Once, vec![std]);
        let clean = |class: u32| vec![if class == 0 { 0.9 } else { -0.9 }, 0.1, 0.0, 0.2];
        let mut received = Received::default();
        for i in 0..4000_u32 {
            let mut row = clean(i % 2);
            noise.perturb(u64::from(i), 0, &mut row);
            received.numbers.extend(row);
            received.labels.push(labels.answer(u64::from(i), i % 2));
        }
        let (provider, count) = match learn {
            "discriminant" => {
                let mut provider = provider;
                let chunks = received.numbers.chunks(4 * 300).zip(received.labels.chunks(300));
                let mut chunks = chunks.map(|(numbers, labels)| {
                    Ok(Received { numbers: numbers.to_vec(), labels: labels.to_vec() })
                });
                let count = provider.fit(&mut chunks).unwrap();
                (provider, count)
            }
            _ => provider.learn_by_gradients(&plan, &mut |_| Ok(received.clone())).unwrap(),
        };
        assert_eq!(count, 4000);
        let logits = provider.logits([clean(0), clean(1)].concat()).unwrap();
        assert!(logits[0][0] > logits[0][1] && logits[1][1] > logits[1][0], "{learn}: {logits:?}");
        // Saved and loaded, it gives the same predictions.
        let saved = folder.path().join("saved");
        provider.save(&saved, &whole).unwrap();
        let again =
            ProviderHalf::load(&saved, split.releases.clone(), epsilon, &Device::Cpu).unwrap();
        assert_eq!(again.logits([clean(0), clean(1)].concat()).unwrap(), logits);
    }
}
