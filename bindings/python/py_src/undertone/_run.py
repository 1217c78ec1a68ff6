"""Training, and the operations on a run."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from . import _undertone
from ._accountant import Guarantee, count_of, float_of, guarantee_of
from ._data import path_of, rows_of
from ._progress import Progress
from ._undertone import Rows, UserError

# The keywords of train() and the keys of the run file that they set.
KEYS = {
    "text": "data.text",
    "label": "data.label",
    "labels": "data.labels",
    "prompt": "data.prompt",
    "completion": "data.completion",
    "messages": "data.messages",
    "author": "data.author",
    "task": "data.task",
    "max_tokens": "data.max_tokens",
    "hold_out": "data.hold_out",
    "validation_is_public": "data.validation_is_public",
    "epsilon": "privacy.epsilon",
    "delta": "privacy.delta",
    "method": "privacy.method",
    "units": "privacy.units",
    "tuning": "model.tuning",
    "quantize": "model.quantize",
    "epochs": "training.epochs",
    "batch": "training.batch",
    "learning_rate": "training.learning_rate",
    "seed": "training.seed",
}

OTHERS = (
    "model", "data", "validation", "out", "device", "precision", "register", "dataset",
    "callbacks", "verbose",
)

# Names of a keyword in other libraries.
ALIASES = {
    "eps": "epsilon",
    "target_epsilon": "epsilon",
    "target_delta": "delta",
    "lr": "learning_rate",
    "batch_size": "batch",
    "num_train_epochs": "epochs",
    "max_length": "max_tokens",
    "train_dataset": "data",
    "eval_dataset": "validation",
    "output_dir": "out",
    "user": "author",
    "target": "label",
    "model_name_or_path": "model",
}

SECTIONS = ("model", "data", "privacy", "training", "evaluation", "synthesis", "compute")

Callback = Callable[[dict[str, Any]], object]


def train(
    *,
    model: Any = None,
    data: Any = None,
    validation: Any = None,
    out: Any = None,
    device: str = "auto",
    precision: str | None = None,
    register: Any = None,
    dataset: str | None = None,
    callbacks: Iterable[Callback] = (),
    verbose: bool = False,
    settings: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> Run:
    """Fine-tune a model on private data, and return the finished run.

    `data` is a DataFrame, an Arrow table, a Hugging Face dataset, a list of dicts, a dict of lists
    or a path. Keys of the run file that have no keyword go in `settings`, such as
    `{"privacy.clip": 0.5}`. With `register` and `dataset`, the budget of a data set in a register
    pays for the run.
    """
    for name in keywords:
        if name not in KEYS:
            raise UserError(keyword_hint("train", name, [*KEYS, *OTHERS, "settings"]))
    keys: dict[str, Any] = {}
    set_model(keys, model)
    columns = {name: value for name, value in keywords.items() if value is not None}
    for name, value in columns.items():
        keys[KEYS[name]] = value
    if "data.task" not in keys:
        task = task_of(columns)
        if task is not None:
            keys["data.task"] = task
    keys.update(flat(settings))
    if data is None:
        raise UserError("train() needs data=: the private rows to learn from, or their path")
    if not any(key.startswith("privacy.") for key in keys):
        raise UserError(
            'train() needs epsilon=, the privacy budget; method="none" trains without privacy'
        )
    rows: list[Rows | None] = []
    for key, name, given in (("train", "data", data), ("validation", "validation", validation)):
        path = path_of(given)
        if given is None:
            rows.append(None)
        elif path is not None:
            keys[f"data.{key}"] = path
            rows.append(None)
        else:
            drafted = {"data.train": "data.jsonl", **keys}
            needed = _undertone.needed_columns(drafted)
            if name == "validation" and "data.author" in keys:
                needed = [column for column in needed if column != keys["data.author"]]
            rows.append(rows_of(given, needed, name))
    folder = None if out is None else Path(os.fspath(out))
    with Progress(callbacks, verbose) as events:
        made = _undertone.train(
            keys,
            folder,
            rows[0],
            rows[1],
            device,
            precision,
            (path_of(register), dataset),
            events.callback,
        )
        return events.end(Run(made, device=device, precision=precision))


def resume(
    folder: Any,
    *,
    data: Any = None,
    validation: Any = None,
    device: str = "auto",
    precision: str | None = None,
    register: Any = None,
    callbacks: Iterable[Callback] = (),
    verbose: bool = False,
) -> Run:
    """Resume an interrupted run, whether it was started here or on the command line.

    The folder contains the rows of a run on data in memory; `data` is needed only if they were
    removed. `register` is needed only if the register that paid for the run has moved.
    """
    path = Path(os.fspath(folder))
    rows: list[Rows | None] = [None, None]
    for number, (name, given) in enumerate((("data", data), ("validation", validation))):
        if given is not None:
            columns = _undertone.columns_of_run(path, name == "data")
            rows[number] = rows_of(given, columns, name)
    with Progress(callbacks, verbose) as events:
        _undertone.resume(
            path, rows[0], rows[1], device, precision, path_of(register), events.callback
        )
        return events.end(Run(path, device=device, precision=precision))


def keyword_hint(function: str, name: str, known: list[str]) -> str:
    """The sentence for an unknown keyword, with the known one that was probably meant."""
    alias = ALIASES.get(name)
    close = [alias] if alias in known else get_close_matches(name, known, 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"{function}() has no keyword {name!r}{hint} (keys of the run file go in settings=)"


def set_model(keys: dict[str, Any], model: Any) -> None:
    if model is None:
        raise UserError("train() needs model=: a folder, or a name on the Hugging Face Hub")
    path = path_of(model)
    if path is None:
        kind = f"{type(model).__module__}.{type(model).__qualname__}"
        advice = ""
        if hasattr(model, "save_pretrained"):
            advice = "; save it with model.save_pretrained(folder) and give the folder"
        raise UserError(
            f"model must be a folder or a name on the Hugging Face Hub, not {kind}{advice}"
        )
    is_folder = os.path.exists(path) or path.startswith((".", os.sep))
    keys["model.path" if is_folder else "model.hub"] = path


def task_of(columns: Mapping[str, Any]) -> str | None:
    """The task that the given columns belong to."""
    classifies = "label" in columns or "labels" in columns
    completes = "prompt" in columns or "completion" in columns
    chats = "messages" in columns
    match (classifies, completes, chats):
        case (True, False, False):
            return "classification"
        case (False, True, False):
            return "completion"
        case (False, False, True):
            return "chat"
        case (False, False, False) if "text" in columns:
            return "language-modeling"
    raise UserError(
        "say what the model learns: text= with label=, prompt= with completion=, messages=, or "
        "text= alone"
    )


def flat(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Settings by their paths: {"training": {"epochs": 3}} is {"training.epochs": 3}."""
    if settings is None:
        return {}
    if not isinstance(settings, Mapping):
        raise UserError(f"settings must be a dict, not {type(settings).__name__}")
    keys: dict[str, Any] = {}
    for key, value in settings.items():
        if key in SECTIONS and isinstance(value, Mapping):
            keys.update({f"{key}.{inner}": of for inner, of in value.items()})
        else:
            keys[str(key)] = value
    return keys


def write_report(runs: Any, out: Any, public: bool) -> None:
    every = runs if isinstance(runs, (list, tuple)) else [runs]
    folders = [run.folder if isinstance(run, Run) else Path(os.fspath(run)) for run in every]
    if not folders:
        raise UserError("name at least one run to report on")
    _undertone.write_report(folders, Path(os.fspath(out)), public)


def inline(page: str) -> str:
    """A page inside a notebook, with its own style."""
    return (
        f'<iframe srcdoc="{escape(page, quote=True)}" sandbox '
        'style="width:100%;height:36em;border:0"></iframe>'
    )


class Run:
    """A finished run, given by its folder: its guarantee, its model and its evidence.

    Reading it checks that its ledger proves the guarantee.
    """

    def __init__(
        self, folder: Any, *, device: str = "auto", precision: str | None = None
    ) -> None:
        self.folder = Path(os.fspath(folder))
        self._device = device
        self._precision = precision
        self._found: dict[str, Any] = _undertone.read_run(self.folder)
        self._trained: _undertone.TrainedModel | None = None

    @property
    def guarantee(self) -> Guarantee | None:
        """The guarantee proved by the ledger; None for a non-private run."""
        return guarantee_of(self._found)

    @property
    def metrics(self) -> dict[str, Any]:
        """Metrics of the model on the validation data; empty without validation data."""
        metrics: dict[str, Any] = self.summary.get("metrics", {}).get("validation") or {}
        return metrics

    @property
    def ledger(self) -> list[dict[str, Any]]:
        """All releases: one dict per kind of release, with its count."""
        return list(self._found["ledger"] or [])

    @property
    def history(self) -> list[dict[str, Any]]:
        """One dict per step. Losses are computed from private data without noise."""
        return list(self._found["history"])

    @property
    def summary(self) -> dict[str, Any]:
        """Everything in summary.json, with its private part."""
        found: dict[str, Any] = self._found["summary"]
        return found

    @property
    def plan(self) -> str:
        """The run file with every default filled in."""
        found: str = self._found["plan"]
        return found

    @property
    def audits(self) -> dict[str, Any]:
        """Results of all attacks on this run so far."""
        found: dict[str, Any] = self._found["audit"]
        return found

    @property
    def model(self) -> Path:
        """The folder of the trained model, or of the adapter."""
        return Path(self._found["model"])

    @property
    def adapter(self) -> Path | None:
        """The folder of the adapter, which peft reads; None if the whole model was trained."""
        return self.model if self.model.name == "adapter" else None

    def _model(self) -> _undertone.TrainedModel:
        if self._trained is None:
            self._trained = _undertone.TrainedModel(self.folder, self._device, self._precision)
        return self._trained

    def predict(self, texts: Any) -> list[dict[str, Any]]:
        """The label and the probability of each class for each text, or its loss and perplexity.

        `texts` is a list of texts, of pairs of texts, or data with the columns of training.
        """
        model = self._model()
        columns = model.text_columns()
        if isinstance(texts, str):
            raise UserError("texts is one text; give a list of texts")
        if isinstance(texts, (list, tuple)) and texts and not isinstance(texts[0], dict):
            texts = [text_row(number, row, columns) for number, row in enumerate(texts)]
        elif isinstance(texts, (list, tuple)) and not texts:
            return []
        return model.predict(rows_of(texts, columns, "texts"))

    def evaluate(self, data: Any) -> dict[str, Any]:
        """Accuracy, F1, AUC and loss of a classifier, otherwise loss and perplexity.

        Metrics of private rows are not private: no ledger records them.
        """
        model = self._model()
        path = path_of(data)
        return model.evaluate(path if path is not None else rows_of(data, model.columns()))

    def generate(
        self,
        prompts: str | Sequence[str],
        *,
        samples: int = 1,
        max_new_tokens: int = 100,
        temperature: float = 0.8,
        top_k: int = 0,
        top_p: float = 1.0,
        beams: int = 1,
        seed: int | None = None,
        batch: int = 16,
    ) -> list[dict[str, str]]:
        """Completions of prompts: dicts with `prompt`, `completion` and the full `text`."""
        every = [prompts] if isinstance(prompts, str) else list(prompts)
        for number, prompt in enumerate(every):
            if not isinstance(prompt, str):
                raise UserError(f"prompt {number} is of type {type(prompt).__name__}, not text")
        return self._model().generate(
            every,
            count_of(samples, "samples"),
            count_of(max_new_tokens, "max_new_tokens"),
            float_of(temperature, "temperature"),
            count_of(top_k, "top_k") if top_k else 0,
            float_of(top_p, "top_p"),
            count_of(beams, "beams"),
            secrets.randbits(63) if seed is None else seed_of(seed),
            count_of(batch, "batch"),
        )

    def audit(self, attack: str = "membership", **options: Any) -> AuditResult:
        """Attack the run and save the results in its folder.

        `attack` is "membership", "exposure", "extraction", "reconstruction", "all" or "one-run".
        Options are those of `undertone audit` with underscores: `shadows=8`. Files may be data in
        memory: `non_members=frame`.
        """
        name = attack.replace("_", "-")
        if name not in FIELDS:
            known = ", ".join(repr(known) for known in FIELDS)
            raise UserError(f"there is no attack {attack!r} on a run; choose among {known}")
        folder = self.folder
        words: list[str | Rows] = [name, "--run"]
        if name == "one-run":
            if options.get("out") is None:
                raise UserError("a one-run audit trains again; name a folder for it with out=")
            folder = Path(os.fspath(options["out"]))
            words.append(str(self._found["plan_path"]))
        else:
            words.append(str(folder))
        words += ["--device", self._device]
        if self._precision is not None:
            words += ["--precision", self._precision]
        for option, value in options.items():
            flag = "--" + option.replace("_", "-")
            if value is None or value is False:
                continue
            words.append(flag)
            if value is True:
                continue
            if isinstance(value, (str, os.PathLike, int, float)):
                words.append(path_of(value) or str(value))
            else:
                words.append(rows_of(value, _undertone.columns_of_run(self.folder, False), option))
        saved = _undertone.audit(folder, words)
        if folder == self.folder:
            self._found["audit"] = saved
        results = {field: saved[field] for field in FIELDS[name] if field in saved}
        return AuditResult(name, folder, results)

    def report(self, out: Any, *, public: bool = False) -> None:
        """Write a report for reviewers to one HTML or Markdown file."""
        write_report(self, out, public)

    def __repr__(self) -> str:
        statement = self._found["statement"] or "no privacy guarantee"
        return f"Run({str(self.folder)!r}: {statement})"

    def _repr_html_(self) -> str:
        return inline(_undertone.html([self.folder], None, False))


def text_row(number: int, row: Any, columns: list[str]) -> dict[str, Any]:
    """A row from a text, or from a tuple with one text for each text column of the task."""
    texts = [row] if isinstance(row, str) else row
    if not isinstance(texts, (list, tuple)) or len(texts) != len(columns):
        count = "a text" if len(columns) == 1 else f"a tuple of {len(columns)} texts"
        raise UserError(f"text {number} is {type(row).__name__}, but must be {count}")
    return dict(zip(columns, texts))


def seed_of(seed: Any) -> int:
    if not isinstance(seed, int) or not 0 <= seed < 1 << 64:
        raise UserError(f"seed is {seed!r}, but must be a whole number from 0 to 2^64 - 1")
    return seed


# The attacks on a run, and the fields of audit.json that each of them writes.
FIELDS = {
    "membership": ("membership", "non_members"),
    "exposure": ("exposure", "found_exposure"),
    "extraction": ("extraction",),
    "reconstruction": ("reconstruction",),
    "all": ("all",),
    "one-run": ("one_run",),
}


class AuditResult:
    """The results of an attack: `results`, as in audit.json."""

    def __init__(self, attack: str, folder: Path, results: dict[str, Any]) -> None:
        self.attack = attack
        self.folder = folder
        self.results = results

    def __repr__(self) -> str:
        return f"AuditResult({self.attack!r}, {self.results!r})"

    def _repr_html_(self) -> str:
        titles = ["What attacks found", "What attackers reach"]
        return inline(_undertone.html([self.folder], titles, False))


class Demo(NamedTuple):
    """A small model and synthetic letters, for trying things out without a network."""

    folder: Path
    model: Path
    letters: list[dict[str, str]]
    validation: list[dict[str, str]]


def demo(folder: Any, letters: int = 4000) -> Demo:
    """Write the demo's model and letters into a folder, and return them.

    A letter has a `text`, a `label` and a `patient`.
    """
    path = Path(os.fspath(folder))
    _undertone.write_demo(path, count_of(letters, "letters"))
    rows = []
    for name in ("train.tsv", "validation.tsv"):
        head, *lines = (path / name).read_text(encoding="utf-8").splitlines()
        columns = head.split("\t")
        rows.append([dict(zip(columns, line.split("\t"))) for line in lines])
    return Demo(path, path / "model", rows[0], rows[1])
