//! Runs on several ranks compared with the run of one process. The ranks are threads here,
//! connected by TCP like processes; the command-line tests start processes.

mod collectives;
mod gpus;
mod methods;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use undertone::Plan;
use undertone::collective::Ranks;
use undertone::collective::tcp::{Rendezvous, Tcp};
use undertone::run::Summary;
use undertone::tensor::Device;
use undertone::train::{Start, train};

/// The results of `ranks` ranks, in order.
pub fn in_ranks<T: Send>(ranks: usize, folder: &Path, each: impl Fn(Ranks) -> T + Sync) -> Vec<T> {
    let rendezvous = |rank| Rendezvous {
        folder: folder.to_owned(),
        rank,
        ranks,
        address: None,
        patience: Duration::from_secs(60),
    };
    let (rendezvous, each) = (&rendezvous, &each);
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..ranks)
            .map(|rank| scope.spawn(move || each(Ranks::of(Tcp::join(&rendezvous(rank)).unwrap()))))
            .collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// A folder with a small model, training rows and runs on them.
struct Workshop {
    folder: tempfile::TempDir,
}

const WORDS: [&str; 8] = ["cat", "dog", "sun", "the", "warm", "today", "sat", "ran"];

impl Workshop {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let model = folder.path().join("model");
        fs::create_dir_all(&model).unwrap();
        for file in ["config.json", "model.safetensors"] {
            let from = fixtures.join("models/bert-classification").join(file);
            fs::copy(from, model.join(file)).unwrap();
        }
        let tokenizer = fixtures.join("tokenizer-wordpiece/tokenizer.json");
        fs::copy(tokenizer, model.join("tokenizer.json")).unwrap();
        let rows: String = (0..120)
            .map(|i| {
                let words: Vec<&str> = (0..3 + i % 5).map(|j| WORDS[(i * 7 + j * 3) % 8]).collect();
                format!("{}\t{}\tperson {}\n", words.join(" "), ["bad", "good"][i % 2], i / 3)
            })
            .collect();
        fs::write(folder.path().join("rows.tsv"), format!("sentence\tlabel\twho\n{rows}")).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A plan with these tables for privacy and fine-tuning, and additional keys of `[training]`.
    fn plan(&self, model: &str, privacy: &str, data: &str, training: &str) -> Plan {
        let rows = self.path("rows.tsv");
        let text = format!(
            "[model]\npath = {:?}\n{model}\n[data]\ntask = \"classification\"\nlabels = [\"bad\", \
             \"neutral\", \"good\"]\ntrain = {rows:?}\nvalidation = {rows:?}\ntext = \
             \"sentence\"\nmax_tokens = 16\n{data}\n[training]\nbatch = 20\nlearning_rate = \
             1e-3\nlearning_rate_schedule = \"constant\"\nwarmup = 0.0\nseed = 7\n{training}\n\
             [privacy]\n{privacy}\n",
            self.path("model"),
        );
        Plan::parse(&text, &[]).unwrap()
    }

    fn start(&self, plan: &Plan, out: &Path, ranks: Ranks) -> undertone::Result<Summary> {
        self.start_on(plan, out, ranks, &Device::Cpu)
    }

    fn start_on(
        &self,
        plan: &Plan,
        out: &Path,
        ranks: Ranks,
        device: &Device,
    ) -> undertone::Result<Summary> {
        let (plan, device) = (plan.clone(), device.clone());
        train(
            Start { plan, out, resume: false, device, data: None, ranks, tape: None },
            &mut |_| {},
        )
    }

    /// The summary of a run on `ranks` ranks, which all return the same one.
    fn train(&self, plan: &Plan, out: &str, ranks: usize) -> Summary {
        let out = self.path(out);
        if ranks == 1 {
            return self.start(plan, &out, Ranks::alone()).unwrap();
        }
        let folder = out.with_extension("rendezvous");
        let mut summaries =
            in_ranks(ranks, &folder, |ranks| self.start(plan, &out, ranks).unwrap());
        let hash = |summary: &Summary| summary.ledger_hash.clone();
        assert!(summaries.iter().all(|other| hash(other) == hash(&summaries[0])));
        assert!(fs::read_dir(folder).unwrap().next().is_none(), "the job's key is still there");
        summaries.swap_remove(0)
    }

    /// The trained weights of a run, in the order of their names.
    fn weights(&self, out: &str) -> Vec<f32> {
        let files = ["model/model.safetensors", "adapter/adapter_model.safetensors"];
        let file = files.map(|file| self.path(out).join(file)).into_iter().find(|f| f.exists());
        let bytes = fs::read(file.expect("a model or an adapter")).unwrap();
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let mut names = tensors.names();
        names.sort();
        let of = |name: &&str| tensors.tensor(name).unwrap().data().to_vec();
        let bytes: Vec<u8> = names.iter().flat_map(of).collect();
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    /// The ledger's events, without fields that identify the run.
    fn events(&self, out: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(out).join("ledger.jsonl")).unwrap_or_default();
        let event = |line: &str| {
            let entry: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(entry["spent"].is_object(), "{line}");
            entry["spent"].to_string()
        };
        text.lines().skip(1).map(event).collect()
    }
}
