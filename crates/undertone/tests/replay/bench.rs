//! A small model, two neighboring data sets, and the comparison of a run on each.

use super::Arithmetic;
use crate::common::fixture;
use crate::ranks::in_ranks;
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize_to_file};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use undertone::Plan;
use undertone::collective::Ranks;
use undertone::noise::Bands;
use undertone::replay::{ReleaseId, Tape};
use undertone::tensor::Device;
use undertone::train::{Start, train};
use undertone_accounting::ledger::Ledger;
use undertone_accounting::{Adjacency, Event};

/// A row of the training file.
#[derive(Clone, Debug)]
pub struct Row {
    pub text: String,
    pub label: &'static str,
    pub who: String,
}

const WORDS: [&str; 8] = ["good", "was", "film", "the", "a", "ing", "hood", "mist"];
/// A letter that occurs in no ordinary row, so its embedding can be made huge.
pub const RARE: &str = "v";

/// Ordinary rows, three per author.
pub fn rows(count: usize) -> Vec<Row> {
    let row = |i: usize| {
        let words: Vec<&str> = (0..2 + i % 5).map(|j| WORDS[(i * 7 + j * 3) % 8]).collect();
        Row { text: words.join(" "), label: ["bad", "good"][i % 2], who: format!("p{}", i / 3) }
    };
    (0..count).map(row).collect()
}

/// Two neighboring data sets, and the indices of the rows in which they differ.
#[derive(Clone, Debug)]
pub struct Neighbors {
    pub name: &'static str,
    pub one: Vec<Row>,
    pub other: Vec<Row>,
}

impl Neighbors {
    /// `one` with an additional unit.
    pub fn with(name: &'static str, one: &[Row], unit: &[Row]) -> Self {
        Self { name, one: one.to_vec(), other: [one, unit].concat() }
    }

    /// `one` with its last row replaced.
    pub fn replacing_last(name: &'static str, one: &[Row], row: Row) -> Self {
        let mut other = one.to_vec();
        *other.last_mut().unwrap() = row;
        Self { name, one: one.to_vec(), other }
    }

    /// The same pair in reverse order.
    pub fn reversed(self) -> Self {
        Self { name: self.name, one: self.other, other: self.one }
    }
}

/// A folder with a model and a training file.
pub struct Bench {
    folder: tempfile::TempDir,
    run: std::cell::Cell<usize>,
}

/// The result of a comparison.
pub struct Outcome {
    /// The largest distance of a release, relative to what its ledger entry allows.
    pub worst: f64,
    /// Number of releases that moved.
    pub moved: usize,
    pub releases: usize,
    /// The distance of the statistics of synthetic rows, relative to what their entry allows.
    pub statistics: Option<f64>,
    /// Files that should be the same and are not.
    pub different: Vec<String>,
}

impl Outcome {
    /// Checks that nothing moved farther than allowed, something did move, and nothing else
    /// differs.
    pub fn check(&self, context: &str, arithmetic: &Arithmetic) {
        let most = 1.0 + arithmetic.tolerance;
        let context = format!("{context}, {}", arithmetic.name);
        let Self { worst, moved, releases, different, .. } = self;
        println!(
            "{context}: {moved} of {releases} releases moved, at most {worst:.5} of the bound"
        );
        assert!(*worst <= most, "{context}: a release moved by {worst} times its bound");
        assert!(*moved > 0, "{context}: nothing moved, so nothing was tested");
        assert!(different.is_empty(), "{context}: other bytes in {different:?}");
    }
}

impl Bench {
    pub fn new(model: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("model");
        fs::create_dir_all(&to).unwrap();
        for file in ["config.json", "model.safetensors"] {
            fs::copy(fixture(model).join(file), to.join(file)).unwrap();
        }
        let tokenizer = fixture("../tokenizer-unigram/tokenizer.json");
        fs::copy(tokenizer, to.join("tokenizer.json")).unwrap();
        Self { folder, run: Default::default() }
    }

    /// Multiplies the weights whose name contains `part` by a factor, only in row `row` if one is
    /// given, as an adversary might choose weights.
    pub fn scale_weights(&self, part: &str, row: Option<usize>, factor: f32) {
        let path = self.folder.path().join("model/model.safetensors");
        let bytes = fs::read(&path).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let mut scaled = 0;
        let changed: Vec<(String, Vec<usize>, Vec<u8>)> = tensors
            .iter()
            .map(|(name, tensor)| {
                assert_eq!(tensor.dtype(), Dtype::F32);
                let mut values: Vec<f32> = tensor
                    .data()
                    .as_chunks::<4>()
                    .0
                    .iter()
                    .map(|b| f32::from_le_bytes(*b))
                    .collect();
                if name.contains(part) {
                    let width = *tensor.shape().last().unwrap();
                    let range = row.map_or(0..values.len(), |row| row * width..(row + 1) * width);
                    values[range].iter_mut().for_each(|w| *w = (*w * factor).clamp(-3e38, 3e38));
                    scaled += 1;
                }
                let bytes = values.iter().flat_map(|w| w.to_le_bytes()).collect();
                (name.to_owned(), tensor.shape().to_vec(), bytes)
            })
            .collect();
        assert!(scaled > 0, "no weights are called {part}");
        let views = changed.iter().map(|(name, shape, bytes)| {
            (name, TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap())
        });
        let copy = path.with_extension("new");
        serialize_to_file(views, None, &copy).unwrap();
        fs::rename(copy, &path).unwrap();
    }

    /// A run file's text, with these lines in its sections.
    pub fn plan(
        &self,
        task: &str,
        tuning: &str,
        data: &str,
        privacy: &str,
        training: &str,
    ) -> Plan {
        let columns = match task {
            "classification" => {
                "text = \"sentence\"\nlabel = \"label\"\nlabels = [\"bad\", \"neutral\", \"good\"]\n"
            }
            "completion" => "",
            _ => "text = \"sentence\"\n",
        };
        let length = if data.contains("max_tokens") { "" } else { "max_tokens = 14\n" };
        let root = self.folder.path();
        let batch = if training.starts_with("batch") { "" } else { "batch = 12" };
        let text = format!(
            "[model]\npath = {:?}\ntuning = {tuning}\n[data]\ntask = \"{task}\"\ntrain = {:?}\n\
             {length}{columns}{data}\n[training]\nepochs = 2\n\
             {batch}\nlearning_rate = 1e-2\nseed = 7\n{training}\n[privacy]\n{privacy}\n",
            root.join("model"),
            root.join("rows.tsv"),
        );
        Plan::parse(&text, &[]).unwrap_or_else(|e| panic!("{e}\n{text}"))
    }

    fn write(&self, rows: &[Row]) {
        let lines: String =
            rows.iter().map(|row| format!("{}\t{}\t{}\n", row.text, row.label, row.who)).collect();
        let text = format!("sentence\tlabel\twho\n{lines}");
        fs::write(self.folder.path().join("rows.tsv"), text).unwrap();
    }

    fn train(
        &self,
        plan: &Plan,
        rows: &[Row],
        tape: &Tape,
        ranks: usize,
        device: &Device,
    ) -> PathBuf {
        self.write(rows);
        let run = self.run.get();
        self.run.set(run + 1);
        let out = self.folder.path().join(format!("run-{run}"));
        let each = |ranks: Ranks| {
            let start = Start {
                plan: plan.clone(),
                out: &out,
                resume: false,
                device: device.clone(),
                data: None,
                ranks,
                tape: Some(tape.clone()),
            };
            train(start, &mut |_| {}).unwrap_or_else(|e| panic!("{e}"));
        };
        match ranks {
            1 => each(Ranks::alone()),
            _ => {
                in_ranks(ranks, &out.with_extension("ranks"), each);
            }
        }
        out
    }

    /// Trains on one data set and then, replaying it, on the other.
    pub fn compare(
        &self,
        plan: &Plan,
        neighbors: &Neighbors,
        ranks: usize,
        device: &Device,
    ) -> Outcome {
        let tape = Tape::new();
        let first = self.train(plan, &neighbors.one, &tape, ranks, device);
        let replay = tape.replay();
        let second = self.train(plan, &neighbors.other, &replay, ranks, device);
        let bands = plan.file().privacy.correlation.map(|correlation| correlation.bands);
        let distances = replay.distances();
        let allowed = Allowed::read(&first.join("ledger.jsonl"), bands);
        let worst = allowed.worst(&distances);
        let statistics = distances.get(&ReleaseId::Statistics);
        let statistics = statistics.map(|distance| distance / allowed.of(&allowed.events[0]));
        let moved = distances.values().filter(|&&distance| distance > 0.0).count();
        let different = different_files(&first, &second);
        Outcome { worst, moved, releases: distances.len(), different, statistics }
    }
}

/// Names of the files of a finished run that differ from those of another run: weights, ledger,
/// plan and everything else except the private part of a run folder.
fn different_files(left: &Path, right: &Path) -> Vec<String> {
    let mut different = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(left.join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let name = folder.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                folders.push(name);
                continue;
            }
            let private = ["metrics.jsonl", "identity.json", "private/", "checkpoint"];
            let shown = name.display().to_string();
            if private.iter().any(|private| shown.contains(private)) {
                continue;
            }
            if fs::read(left.join(&name)).ok() != fs::read(right.join(&name)).ok() {
                different.push(shown);
            }
        }
    }
    different
}

/// The distances that the entries of a ledger allow, in standard deviations of the noise.
struct Allowed {
    adjacency: Adjacency,
    events: Vec<Event>,
    /// Number of bands of correlated noise, and its first coefficient.
    bands: Option<(u64, f64)>,
}

impl Allowed {
    fn read(ledger: &Path, bands: Option<usize>) -> Self {
        let text = fs::read_to_string(ledger).unwrap();
        let adjacency = Ledger::read(ledger).unwrap().terms().adjacency;
        let entry = |line: &str| -> (Event, u64) {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let spent = line["spent"].clone();
            let count = spent["count"].as_u64().unwrap_or(1);
            (serde_json::from_value(spent["event"].clone()).unwrap(), count)
        };
        let entries = text.lines().skip(1).map(entry);
        let events = entries.flat_map(|(event, count)| vec![event; count as usize]).collect();
        let first = |bands| Bands::square_root(bands).coefficients()[0];
        Self { adjacency, events, bands: bands.map(|bands| (bands as u64, first(bands))) }
    }

    /// The distance that an event allows.
    fn of(&self, event: &Event) -> f64 {
        match *event {
            Event::Gaussian { noise_multiplier, sensitivity } => sensitivity / noise_multiplier,
            Event::PoissonGaussian { noise_multiplier, .. } => match self.adjacency {
                Adjacency::AddRemove => 1.0 / noise_multiplier,
                // The old and the new vector may point in opposite directions.
                Adjacency::ReplaceOne => 2.0 / noise_multiplier,
            },
            Event::MixtureOfGaussians { noise_multiplier, examples_per_user, .. } => {
                examples_per_user as f64 / noise_multiplier
            }
            _ => 0.0,
        }
    }

    /// The largest distance relative to the allowed one.
    fn worst(&self, distances: &BTreeMap<ReleaseId, f64>) -> f64 {
        let is_sampled = |event: &&Event| {
            matches!(event, Event::PoissonGaussian { .. } | Event::MixtureOfGaussians { .. })
        };
        let sampled: Vec<&Event> = self.events.iter().filter(is_sampled).collect();
        let has_map = distances.contains_key(&ReleaseId::RelevanceMap);
        let adapted = distances.keys().filter(|r| matches!(r, ReleaseId::Adaptation(_))).count();
        let mut worst: f64 = 0.0;
        let mut blocks: BTreeMap<usize, f64> = BTreeMap::new();
        for (release, &distance) in distances {
            let allowed = match *release {
                ReleaseId::RelevanceMap => self.of(sampled[0]),
                ReleaseId::Statistics => self.of(&self.events[0]),
                ReleaseId::Adaptation(step) => self.of(sampled[step as usize]),
                ReleaseId::Step(step) => {
                    let (bands, first) = self.bands.unwrap_or((1, 1.0));
                    let entry = usize::from(has_map) + adapted + (step / bands) as usize;
                    let squares = blocks.entry(entry).or_default();
                    *squares += (distance / first).powi(2);
                    worst = worst.max(squares.sqrt() / self.of(sampled[entry]));
                    continue;
                }
                ReleaseId::AttentionMap | ReleaseId::Embedding { .. } | ReleaseId::Label(_) => {
                    continue;
                }
            };
            worst = worst.max(distance / allowed);
        }
        worst.max(self.worst_local(distances))
    }

    /// Like [`Allowed::worst`], for releases made by owners, where each example counts separately.
    fn worst_local(&self, distances: &BTreeMap<ReleaseId, f64>) -> f64 {
        let is_plain = |event: &&Event| matches!(event, Event::Gaussian { .. });
        let mut gaussian: Vec<&Event> = self.events.iter().filter(is_plain).collect();
        let mut worst: f64 = 0.0;
        if let Some(distance) = distances.get(&ReleaseId::AttentionMap) {
            worst = distance / self.of(gaussian.remove(0));
        }
        let total: f64 = gaussian.iter().map(|event| self.of(event).powi(2)).sum::<f64>().sqrt();
        for (release, &distance) in distances {
            match release {
                ReleaseId::Embedding { .. } => worst = worst.max(distance / total),
                ReleaseId::Label(_) if distance > 0.0 => {
                    let response =
                        |event: &Event| matches!(event, Event::RandomizedResponse { .. });
                    assert!(self.events.iter().any(response), "a label without a ledger entry");
                }
                _ => {}
            }
        }
        worst
    }
}
