"""Compares undertone with transformers and peft, on real models and on the fixtures.

tests/peers/run builds everything and calls this script.

Versions: those in tests/peers/venv

  a  a classifier on all-MiniLM-L6-v2 with a random head: logits of 100 texts of mixed length
  b  stories15M: mean negative log-likelihood and logits of the last token of 100 texts
  c  stories15M: greedy generation of 200 tokens, token by token
  d  models saved by undertone, loaded by transformers: no missing or unexpected key, equal logits
  e  adapters saved by undertone, loaded by peft: the same; and adapters merged by undertone, loaded
     by transformers. LoRA on the usual layers, on all linear layers, on some blocks,
     rank-stabilized, with the token embeddings; DoRA; (IA)³
  f  runs of undertone: the Python code of their model cards, unchanged; their adapters, loaded by
     peft's automatic classes without further arguments; and the same after merging
  g  prompt tuning by undertone: the prompts, loaded by peft

Differences are relative: the largest difference in a row divided by the row's largest value, for
the worst row.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys

import torch
import transformers
from peft import (
    AutoPeftModelForCausalLM,
    AutoPeftModelForSequenceClassification,
    PeftModel,
    get_peft_model_state_dict,
)
from safetensors.torch import load_file
from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "crates/undertone/tests/fixtures/models"
LIMIT = 1e-4
PROMPTS = [
    "Once upon a time",
    "One day, a little girl named Lily",
    "The dragon was sad because",
    "Tom and his dog",
]

parser = argparse.ArgumentParser()
parser.add_argument("--assets", type=pathlib.Path, default=ROOT / "target/assets")
parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "target/release/undertone")
parser.add_argument("--only", default="abcdefg", help="letters of the checks to run")
parser.add_argument("--match", default="", help="a part of the names of the checks to run")
args = parser.parse_args()
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
work = ROOT / "target/peers-work"
shutil.rmtree(work, ignore_errors=True)
work.mkdir(parents=True)
failures = 0


# Running undertone


def call(*command):
    done = subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(
            f"exit code {done.returncode}: {(done.stderr.strip() or 'nothing said').splitlines()[-1]}"
        )
    return done.stdout


def example(name, model, out, *more):
    call(
        "cargo",
        "run",
        "--release",
        "--quiet",
        "-p",
        "undertone",
        "--example",
        name,
        "--",
        "--model",
        model,
        "--out",
        out,
        *more,
    )
    return out


def predict(model, texts, *more):
    rows, out = work / "rows.jsonl", work / "out.jsonl"
    rows.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    out.unlink(missing_ok=True)
    call(
        args.binary,
        "predict",
        "--model",
        model,
        "--data",
        rows,
        "--text",
        "text",
        "--out",
        out,
        "--logits",
        *more,
    )
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    if len(rows) != len(texts):
        raise RuntimeError(f"{len(rows)} rows for {len(texts)} texts")
    return rows


# Running the peers


def load(folder):
    """The model of a folder, loaded by transformers in f32; no key may be missing or unused."""
    model_class = getattr(
        transformers, json.loads((folder / "config.json").read_text())["architectures"][0]
    )
    model, info = model_class.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    wrong = [
        f"{kind}: {sorted(map(str, keys))[:3]}"
        for kind, keys in info.items()
        if keys and kind != "error_msgs"
    ]
    if wrong:
        raise RuntimeError("; ".join(wrong))
    return model.eval()


def load_adapter(base, adapter):
    """The base model with the adapter, loaded by peft, which must contain exactly the file's
    tensors."""
    model = PeftModel.from_pretrained(load(base), adapter).eval()
    file, held = load_file(adapter / "adapter_model.safetensors"), get_peft_model_state_dict(
        model, save_embedding_layers=False
    )
    if set(file) != set(held):
        raise RuntimeError(f"keys differ: {sorted(set(file) ^ set(held))[:3]}")
    for key, value in file.items():
        if not torch.equal(value, held[key].to(value.dtype)):
            raise RuntimeError(f"{key} was not loaded")
    return model


def logits(model, inputs):
    """One tensor of logits per sequence."""
    with torch.no_grad():
        outputs = []
        for i, ids in enumerate(inputs["sequences"]):
            more = (
                {"token_type_ids": torch.tensor([inputs["segments"][i]])}
                if "segments" in inputs
                else {}
            )
            outputs.append(model(input_ids=torch.tensor([ids]), **more).logits[0])
        return outputs


def encode(model, texts):
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    return {"sequences": [tokenizer.encode(text).ids for text in texts]}


# Comparisons


def apart(ours, theirs):
    """The largest relative difference of two lists of rows."""
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        a, b = torch.as_tensor(a, dtype=torch.float64), torch.as_tensor(b, dtype=torch.float64)
        if a.shape != b.shape:
            raise RuntimeError(f"shapes {tuple(a.shape)} and {tuple(b.shape)}")
        if not (torch.isfinite(a).all() and torch.isfinite(b).all()):
            raise RuntimeError("not finite")
        worst = max(worst, ((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item())
    return worst


def check(letter, name, work_of):
    """Runs a check: work_of returns the largest relative difference, or raises."""
    global failures
    if letter not in args.only or args.match not in name:
        return
    try:
        difference = work_of()
        ok, said = difference <= LIMIT, f"largest relative difference {difference:.1e}"
    except Exception as error:
        ok, said = False, str(error) or type(error).__name__
    failures += not ok
    print(f"{'OK    ' if ok else 'NOT OK'} ({letter}) {name}: {said}", flush=True)


# The checks


def real_texts(tokenizer, longest):
    """60 sentences of SST-2 and 40 longer excerpts of film reviews, each truncated to at most
    `longest` tokens."""
    rows = (args.assets / "data/sst2/dev.tsv").read_text().splitlines()[1:]
    texts = [row.rsplit("\t", 1)[0].strip() for row in rows[:: len(rows) // 60][:60]]
    with open(args.assets / "data/imdb/test.jsonl") as reviews:
        for i, line in zip(range(40), reviews):
            words = json.loads(line)["text"].split()[: 10 + 12 * i]
            while len(tokenizer.encode(" ".join(words)).ids) > longest:
                words.pop()
            texts.append(" ".join(words))
    return texts


def make_classifier(source, folder):
    torch.manual_seed(7)
    model = transformers.BertForSequenceClassification.from_pretrained(
        source, num_labels=3, dtype=torch.float32
    )
    with torch.no_grad():
        model.classifier.weight.normal_(0, 0.3)
        model.classifier.bias.normal_(0, 0.3)
    model.save_pretrained(folder)
    tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.save(str(folder / "tokenizer.json"))


def likelihood(ids, logits):
    return torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:])).reshape(1)


def check_language_model(adapter=None):
    model = load(stories) if adapter is None else load_adapter(stories, adapter)
    more = [] if adapter is None else ["--adapter", adapter]
    ours = predict(stories, story_texts, "--task", "language-modeling", *more)
    inputs = encode(stories, story_texts)
    theirs = logits(model, inputs)
    losses = [likelihood(ids, scores) for ids, scores in zip(inputs["sequences"], theirs)]
    return max(
        apart([[row["loss"]] for row in ours], losses),
        apart([row["logits"] for row in ours], [scores[-1] for scores in theirs]),
    )


def check_generation(prompt):
    model = load(stories)
    ids = torch.tensor([encode(stories, [prompt])["sequences"][0]])
    with torch.no_grad():
        theirs = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=200
        )[0, ids.shape[1] :].tolist()
    said = call(
        args.binary,
        "generate",
        "--model",
        stories,
        "--prompt",
        prompt,
        "--max-new-tokens",
        200,
        "--temperature",
        0,
        "--json",
    )
    ours = json.loads(said)["completions"][0]["tokens"]
    end = model.config.eos_token_id
    ours, theirs = ([t for t in tokens if t != end] for tokens in (ours, theirs))
    if ours != theirs:
        at = next(
            (i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs))
        )
        with torch.no_grad():
            best = model(torch.tensor([ids[0].tolist() + theirs[:at]])).logits[0, -1].topk(2).values
        raise RuntimeError(
            f"lengths {len(ours)} and {len(theirs)}, first difference at {at}, where the two best logits are "
            f"{(best[0] - best[1]).item():.1e} apart"
        )
    return 0.0


def check_saved(folder, inputs):
    saved = example("save_model", folder, work / f"saved-{folder.name}")
    return apart(logits(load(saved), inputs), logits(load(folder), inputs))


def merge(base, adapter, name):
    call(args.binary, "merge", "--model", base, "--adapter", adapter, "--out", work / name)
    return work / name


def check_adapter(base, inputs, *more):
    """peft loads an adapter saved by undertone, it changes the logits, and merging by undertone
    gives the same."""
    name = "-".join([base.name, *more]).replace("--", "").replace(",", "-")
    adapter = example("save_adapter", base, work / f"adapter-{name}", *more)
    with_it, without = logits(load_adapter(base, adapter), inputs), logits(load(base), inputs)
    if apart(with_it, without) < 1e-3:
        raise RuntimeError("the adapter changes nothing")
    return apart(logits(load(merge(base, adapter, f"merged-{name}")), inputs), with_it)


def check_merge_of_peft(adapter):
    base = (
        adapter
        / json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"]
    ).resolve()
    inputs = json.loads((adapter / "inputs.json").read_text())
    return apart(
        logits(load(merge(base, adapter, f"merged-{adapter.name}")), inputs),
        logits(load_adapter(base, adapter), inputs),
    )


def train(base, name, *more, tuning="{ lora = { rank = 2 } }"):
    """A short run; returns its folder."""
    rows, out = work / "train.tsv", work / f"run-{name}"
    rows.write_text(
        "text\tlabel\n"
        + "".join(f"{'the cat sat' if i % 2 else 'a dog ran'} {i}\t{i % 2}\n" for i in range(200))
    )
    call(
        args.binary,
        "train",
        "--model",
        base,
        "--data",
        rows,
        "--text",
        "text",
        "--epsilon",
        8,
        "--set",
        "training.epochs=1",
        "--set",
        "data.max_tokens=16",
        "--set",
        f"model.tuning={tuning}",
        "--out",
        out,
        *more,
    )
    return out


def run_card(folder):
    """Runs the Python of a card in its folder; returns its output."""
    card = (folder / "README.md").read_text()
    code = card.split("```python\n")[1].split("```")[0]
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"the card's Python: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout.strip()


def check_card(base, name, auto, *more):
    adapter = train(base, name, *more) / "adapter"
    said = run_card(adapter)
    merged = work / f"card-merged-{name}"
    call(args.binary, "merge", "--model", base, "--adapter", adapter, "--out", merged)
    if run_card(merged) != said or not said:
        raise RuntimeError(f"the adapter's card prints {said!r}, the merged model's another text")
    auto = auto.from_pretrained(adapter).eval()
    merged_model = load(merged)
    inputs = encode(base, ["the cat sat", "a dog ran"])
    return apart(logits(auto, inputs), logits(merged_model, inputs))


def check_prompt(base, name, auto, task, texts, *more):
    """A trained soft prompt gives the same logits in peft, which returns those of the prompt's
    positions, too."""
    tokens = 6
    adapter = (
        train(base, name, "--task", task, *more, tuning=f"{{ prompt = {{ tokens = {tokens} }} }}")
        / "adapter"
    )
    model = auto.from_pretrained(adapter).eval()
    # MiniLM's own tokenizer pads; that of the classifier does not.
    inputs = encode(classifier if base == minilm else base, texts)
    theirs = logits(model, inputs)
    given = ["--task", task, "--adapter", adapter, "--max-tokens", "240"]
    ours = [row["logits"] for row in predict(base, texts, *given)]
    if task == "language-modeling":
        plain = [scores[-1] for scores in logits(load(base), inputs)]
        lengths = [len(ids) + tokens for ids in inputs["sequences"]]
        if [len(scores) for scores in theirs] != lengths:
            raise RuntimeError("peft returns other positions than expected")
        theirs = [scores[-1] for scores in theirs]
        if apart(theirs, plain) < 1e-3:
            raise RuntimeError("the prompt changes nothing")
    return apart(ours, theirs)


minilm, stories, classifier = (
    args.assets / "models/all-MiniLM-L6-v2",
    args.assets / "models/stories15M",
    work / "minilm-classifier",
)
missing = [
    path
    for path in (
        minilm,
        stories,
        args.assets / "data/sst2/dev.tsv",
        args.assets / "data/imdb/test.jsonl",
    )
    if not path.exists()
]
if missing:
    sys.exit(
        f"no {missing[0]}: --assets must name a folder with models and data, see tests/peers/run"
    )
make_classifier(minilm, classifier)
classifier_texts = real_texts(Tokenizer.from_file(str(classifier / "tokenizer.json")), 512)
story_texts = real_texts(Tokenizer.from_file(str(stories / "tokenizer.json")), 256)
fixtures = sorted(path.parent for path in FIXTURES.glob("*/config.json"))
plain = [
    folder for folder in fixtures if folder.name not in ("bert-sharded", "bert-f16", "bert-bf16")
]
inputs_of = {folder: json.loads((folder / "inputs.json").read_text()) for folder in fixtures}
inputs_of[classifier] = encode(classifier, classifier_texts)
inputs_of[stories] = encode(stories, story_texts)

check(
    "a",
    "classifier on all-MiniLM-L6-v2, 100 texts",
    lambda: apart(
        [row["logits"] for row in predict(classifier, classifier_texts, "--max-tokens", "512")],
        logits(load(classifier), inputs_of[classifier]),
    ),
)
check("b", "stories15M, 100 texts", check_language_model)
for prompt in PROMPTS:
    check("c", f"stories15M, 200 tokens after “{prompt}”", lambda: check_generation(prompt))
for folder in [classifier, stories, *fixtures]:
    check("d", f"{folder.name}, saved by undertone", lambda: check_saved(folder, inputs_of[folder]))
for folder in [classifier, stories, *plain]:
    check(
        "e",
        f"{folder.name}, adapter saved and merged by undertone",
        lambda: check_adapter(folder, inputs_of[folder]),
    )
for folder in [folder for folder in plain if folder.name.startswith("gpt2")]:
    check(
        "e",
        f"{folder.name}, adapter on queries and values, saved and merged by undertone",
        lambda: check_adapter(folder, inputs_of[folder], "--targets", "query,value"),
    )
for folder in plain:
    for what, more in [
        ("LoRA on all linear layers", ["--targets", "all-linear"]),
        ("LoRA on the second block", ["--layers", "1"]),
        ("rsLoRA", ["--with", "rslora"]),
        ("DoRA", ["--with", "dora"]),
        ("LoRA and token embeddings", ["--with", "embeddings"]),
        ("(IA)³", ["--with", "ia3"]),
    ]:
        check(
            "e",
            f"{folder.name}, {what}, saved and merged by undertone",
            lambda: check_adapter(folder, inputs_of[folder], *more),
        )
check(
    "e",
    "classifier on all-MiniLM-L6-v2 with the adapter, 100 texts",
    lambda: apart(
        [
            row["logits"]
            for row in predict(
                classifier, classifier_texts, "--adapter", work / f"adapter-{classifier.name}"
            )
        ],
        logits(
            load_adapter(classifier, work / f"adapter-{classifier.name}"), inputs_of[classifier]
        ),
    ),
)
check(
    "e",
    "stories15M with the adapter, 100 texts",
    lambda: check_language_model(work / f"adapter-{stories.name}"),
)
for adapter in sorted(path.parent for path in FIXTURES.glob("*/adapter_config.json")):
    check(
        "e",
        f"{adapter.name}, made by peft and merged by undertone",
        lambda: check_merge_of_peft(adapter),
    )
binary = ["--task", "classification", "--label", "label", "--set", 'data.labels=["bad", "good"]']
check(
    "f",
    "a card of a classifier",
    lambda: check_card(minilm, "classifier", AutoPeftModelForSequenceClassification, *binary),
)
check(
    "f",
    "a card of a language model",
    lambda: check_card(
        stories, "stories", AutoPeftModelForCausalLM, "--task", "language-modeling"
    ),
)
check(
    "g",
    "a soft prompt of a language model",
    lambda: check_prompt(
        stories,
        "prompt-stories",
        AutoPeftModelForCausalLM,
        "language-modeling",
        [text for text in story_texts if len(text) < 600],
    ),
)
check(
    "g",
    "a soft prompt of a classifier",
    lambda: check_prompt(
        minilm,
        "prompt-classifier",
        AutoPeftModelForSequenceClassification,
        "classification",
        classifier_texts[:60],
        *binary[2:],
    ),
)
print("all OK" if failures == 0 else f"{failures} NOT OK")
sys.exit(failures > 0)
