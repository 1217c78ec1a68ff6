//! The attacked commands, and the files that each of them reads.

use super::bad::Kind::{self, *};
use super::world::words;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

/// A command that succeeds unmodified in a copy of the world.
pub struct Case {
    pub line: &'static str,
    /// Files, with their roles for the command.
    pub reads: &'static [(&'static str, Kind)],
}

impl Case {
    pub fn arguments(&self) -> Vec<OsString> {
        words(&self.line.split(' ').collect::<Vec<_>>())
    }

    /// The number of words that name the command.
    pub fn verbs(&self) -> usize {
        let first = self.verb();
        if ["audit", "budget", "bench"].contains(&first) { 2 } else { 1 }
    }

    pub fn verb(&self) -> &'static str {
        self.line.split(' ').next().unwrap_or_default()
    }

    /// The flags in the command's help, each with the name of its value, if it takes one.
    pub fn flags(&self) -> Vec<(String, Option<String>)> {
        let name = self.line.split(' ').take(self.verbs()).collect::<Vec<_>>().join("-");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots/help");
        let help = fs::read_to_string(folder.join(name + ".txt")).unwrap();
        let flag = |line: &str| {
            let (_, flag) = line.split_once("--").filter(|(before, _)| before.trim().len() < 4)?;
            let end = flag.find(|c: char| !c.is_ascii_alphanumeric() && c != '-');
            let (name, rest) = flag.split_at(end.unwrap_or(flag.len()));
            let value = rest.trim_start().strip_prefix('<').and_then(|rest| rest.split_once('>'));
            Some((format!("--{name}"), value.map(|(value, _)| value.to_owned())))
        };
        help.lines().filter(|line| line.starts_with(' ')).filter_map(flag).collect()
    }
}

pub const PREDICT_PRIVATE: &str = "predict --private --model ./model --adapter local/adapter \
                                   --data rows.tsv --text sentence --max-tokens 16 --out \
                                   said.jsonl --ledger calls.jsonl";

macro_rules! cases {
    ($($line:expr => [$($file:literal $kind:expr),* $(,)?]),* $(,)?) => {
        &[$(Case { line: $line, reads: &[$(($file, $kind)),*] }),*]
    };
}

pub const CASES: &[Case] = cases! {
    "train run.toml --out new --seed 7" => [
        "run.toml" Toml, "run.toml" Toml, "model/config.json" Json, "model/tokenizer.json" Json,
        "model/model.safetensors" Weights, "rows.tsv" Tsv,
    ],
    "train run.toml --out new" => ["run.toml" Toml, "model/model.safetensors" Weights],
    "train run.toml --out new --set data.train=rows.csv" => ["rows.csv" Text],
    "train run.toml --out new --set data.train=rows.jsonl" => ["rows.jsonl" JsonLines],
    "train lm.toml --out new --set data.train=rows.parquet --set data.text=text --unset \
     data.validation" => ["lm.toml" Toml, "rows.parquet" Parquet, "lm/config.json" Json],
    "train --resume --out broken" => [
        "broken/plan.toml" SamePlan, "broken/ledger.jsonl" Ledger,
        "broken/ledger.jsonl.head" SameJson, "broken/checkpoint.safetensors" Checkpoint,
        "broken/identity.json" SameJson, "broken/metrics.jsonl" Loose,
        "model/config.json" SameConfig, "model/model.safetensors" SameWeights, "rows.tsv" Tsv,
    ],
    "train --resume --out broken-secret" => [
        "broken-secret/secret.key" Secret, "broken-secret/plan.toml" SamePlan,
        "broken-secret/ledger.jsonl" Ledger, "broken-secret/ledger.jsonl.head" SameJson,
        "broken-secret/checkpoint.safetensors" Checkpoint, "broken-secret/identity.json" SameJson,
    ],
    "eval --model ./model --data rows.tsv --text sentence --json" => [
        "model/config.json" Json, "model/tokenizer.json" Json, "model/model.safetensors" Weights,
        "rows.tsv" Tsv,
    ],
    "eval --model ./model --adapter lora/adapter --data rows.csv --text sentence" => [
        "lora/adapter/adapter_config.json" Json,
        "lora/adapter/adapter_model.safetensors" Weights, "lora/adapter/labels.json" Loose,
        "rows.csv" Text,
    ],
    "eval --model ./lm --data rows.parquet --text text --batch 8" => [
        "rows.parquet" Parquet, "lm/config.json" Json, "lm/tokenizer.json" Json,
        "lm/model.safetensors" Weights,
    ],
    "eval --model ./lm --data lines.txt --max-tokens 8" => ["lines.txt" Text],
    "eval --model ./shards --data rows.tsv --text sentence" => [
        "shards/model.safetensors.index.json" Json,
        "shards/model-00002-of-00003.safetensors" Weights, "shards/config.json" Json,
    ],
    "eval --model ./half --data rows.tsv --text sentence" => ["half/model.safetensors" Loose],
    "eval --model ./distilbert --data letters.tsv" => [
        "distilbert/config.json" Json, "distilbert/model.safetensors" Weights,
        "distilbert/tokenizer.json" Json,
    ],
    "eval --model ./roberta --data letters.tsv --max-tokens 8" => [
        "roberta/config.json" Json, "roberta/model.safetensors" Weights,
    ],
    "generate --model ./llama --prompt a --max-new-tokens 3 --temperature 0" => [
        "llama/config.json" Json, "llama/model.safetensors" Weights, "llama/tokenizer.json" Json,
    ],
    "predict --model ./model --data rows.jsonl --text sentence --out told.csv --logits" => [
        "rows.jsonl" JsonLines, "model/config.json" Json, "model/tokenizer.json" Json,
    ],
    PREDICT_PRIVATE => [
        "calls.jsonl" Ledger, "calls.jsonl.head" SameJson, "local/adapter/sanitizer.json" Json,
        "local/adapter/sanitizer.safetensors" Loose, "local/adapter/adapter_config.json" Json,
        "local/adapter/adapter_model.safetensors" Weights, "rows.tsv" Tsv,
    ],
    "generate --model ./lm --prompts lines.txt --max-new-tokens 4 --seed 1 --samples 2 --top-k 9 \
     --temperature 0.7" => [
        "lines.txt" Text, "lm/config.json" Json, "lm/tokenizer.json" Json,
        "lm/model.safetensors" Weights,
    ],
    "generate --model ./lm --prompt the --beams 3 --max-new-tokens 4 --length-penalty 0.5" => [],
    "merge --model ./model --adapter lora/adapter --out merged" => [
        "lora/adapter/adapter_config.json" Json,
        "lora/adapter/adapter_model.safetensors" Weights, "model/model.safetensors" Weights,
    ],
    "audit membership --run private --examples 100 --confidence 0.9" => [
        "private/summary.json" Json, "private/audit.json" OptionalJson, "rows.tsv" Tsv,
        "private/model/config.json" Json, "private/model/model.safetensors" Weights,
    ],
    "audit all --run letters --texts 4 --tokens 4 --examples 20 --names names.txt --canaries \
     canaries.jsonl --candidates 100" => [
        "letters/summary.json" Json, "names.txt" Text, "canaries.jsonl" JsonLines,
        "letters/model/model.safetensors" Weights,
    ],
    "audit exposure --run letters --canaries canaries.jsonl --candidates 100" => [
        "canaries.jsonl" JsonLines, "letters/summary.json" Json,
    ],
    "audit extraction --run letters --texts 4 --tokens 4 --names names.txt --json" => [
        "names.txt" Text, "letters/summary.json" Json, "rows.tsv" Tsv,
    ],
    "audit reconstruction --run letters --targets 2 --samples 2 --names names.txt" => [
        "names.txt" Text, "rows.tsv" Tsv,
    ],
    "audit membership --run private --members rows.csv --non-members rows.jsonl --loss-only" => [
        "rows.csv" Text, "rows.jsonl" JsonLines,
    ],
    "audit all --run private --non-private plain --examples 100" => [
        "private/summary.json" Json, "plain/summary.json" Json, "plain/model/config.json" Json,
        "plain/model/model.safetensors" Weights,
    ],
    "audit one-run --run run.toml --out new --canaries 20" => ["run.toml" Toml, "rows.tsv" Tsv],
    "audit inversion --model ./model --data rows.tsv --known rows.csv --text sentence --epsilon 8 \
     --epochs 1" => ["rows.tsv" Tsv, "rows.csv" Text, "model/config.json" Json],
    "audit attribute --model ./model --data rows.tsv --known rows.tsv --text sentence --attribute \
     label --epsilon 8 --epochs 1" => ["rows.tsv" Tsv, "model/tokenizer.json" Json],
    "report private --out report.html" => [
        "private/summary.json" Summary, "private/ledger.jsonl" Ledger,
        "private/ledger.jsonl.head" SameJson, "private/plan.toml" SamePlan,
        "private/audit.json" Loose, "private/metrics.jsonl" Loose,
    ],
    "report lora plain private --out report.md --format markdown" => [
        "lora/summary.json" Summary, "lora/ledger.jsonl" Ledger, "plain/summary.json" Json,
        "lora/plan.toml" SamePlan, "plain/metrics.jsonl" Loose, "private/audit.json" Loose,
    ],
    "watch private" => [
        "private/summary.json" Json, "private/metrics.jsonl" Loose, "private/plan.toml" Loose,
        "private/ledger.jsonl" Loose, "private/ledger.jsonl.head" Loose,
    ],
    "watch lora --json" => ["lora/summary.json" Json, "lora/metrics.jsonl" Loose],
    "sweep sweep.toml --out grid --jobs 1" => [
        "sweep.toml" Toml, "run.toml" Toml, "model/model.safetensors" Weights,
    ],
    "sweep sweep.toml --out swept --jobs 1" => [
        "swept/runs/accuracy--epsilon-4--seed-1/summary.json" Loose,
        "swept/runs/accuracy--epsilon-4--seed-1/plan.toml" Loose,
        "swept/runs/accuracy--epsilon-4--seed-1/ledger.jsonl" Loose,
        "swept/runs/accuracy--epsilon-4--seed-1.toml" Loose, "swept/table.csv" Loose,
    ],
    "sweep sweep.toml --out grid --list" => ["sweep.toml" Toml, "run.toml" Toml],
    "budget ledger private/ledger.jsonl --delta 1e-3" => [
        "private/ledger.jsonl" Ledger, "private/ledger.jsonl.head" SameJson,
    ],
    "budget ledger calls.jsonl --delta 1e-5 --json" => [
        "calls.jsonl" Ledger, "calls.jsonl.head" SameJson,
    ],
    "budget epsilon --noise-multiplier 1.1 --examples 6000 --batch 256 --epochs 3 --delta 1e-5" =>
        [],
    "budget epsilon --phase 0.6,0.01,20 --phase 0.5,0.01,20 --delta 1e-5 --accountant rdp" => [],
    "budget delta --noise-multiplier 0.4 --releases 3 --sensitivity 2 --epsilon 2" => [],
    "budget delta --response 1,3,2 --epsilon 2 --json" => [],
    "budget noise --epsilon 8 --delta 1e-5 --examples 6000 --batch 256 --epochs 3" => [],
    "budget noise --epsilon 8 --delta 1e-5 --releases 1 --sensitivity 2" => [],
    "budget schedule --epsilon 8 --delta 1e-5 --examples 6000 --batch 256 --epochs 3" => [],
    "budget curve --noise-multiplier 1.1 --sampling-rate 0.01 --steps 100 --points 5" => [],
    "budget tradeoff --noise-multiplier 1.1 --sampling-rate 0.01 --steps 100" => [],
    "bench text --model ./model --data rows.tsv --text sentence" => [
        "rows.tsv" Tsv, "model/tokenizer.json" Json,
    ],
    "bench step --layers 1 --hidden 16 --heads 2 --vocabulary 40 --batch 2 --tokens 8 --steps 1" =>
        [],
    "bench generate --model ./lm --batch 2 --new-tokens 2 --repeats 1" => ["lm/config.json" Json],
};
