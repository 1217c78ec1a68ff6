"""Synthetic rows, sampled from a model that was trained on private ones."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _undertone
from ._accountant import Guarantee, guarantee_of
from ._data import path_of, rows_of
from ._progress import Progress
from ._run import Run, flat, keyword_hint
from ._undertone import Rows, UserError

Callback = Callable[[dict[str, Any]], object]

# Keywords that set keys of the run file.
KEYS = {
    "delta": "privacy.delta",
    "max_tokens": "data.max_tokens",
    "tuning": "model.tuning",
    "quantize": "model.quantize",
    "epochs": "training.epochs",
    "batch": "training.batch",
    "learning_rate": "training.learning_rate",
}

# Keywords that are flags of `undertone synthesize` with the same name and one value.
FLAGS = (
    "author", "epsilon", "rows", "format", "temperature", "top_p", "seed", "encoder", "classifier",
    "target", "canaries", "precision", "register", "dataset", "method", "top_k",
)

# Flags without a value.
SWITCHES = ("publish_codes", "evaluate", "test_is_public", "baselines", "attack")

OTHERS = ("data", "model", "text", "codes", "out", "test", "device", "callbacks", "verbose")


class Synthesis:
    """Synthetic rows in the folder of a run, with the guarantee that covers them."""

    def __init__(self, folder: Path, found: dict[str, Any], device: str) -> None:
        self.folder = folder
        self._found = found
        self._device = device

    @property
    def data(self) -> Path:
        """The file of the rows."""
        return Path(self._found["data"])

    @property
    def card(self) -> Path:
        """The data card, to publish with the rows."""
        return Path(self._found["card"])

    @property
    def rows(self) -> list[dict[str, str]]:
        """The rows, one dict each. Rows in a Parquet file are read with a library for tables."""
        match self.data.suffix:
            case ".csv":
                with self.data.open(encoding="utf-8", newline="") as file:
                    return list(csv.DictReader(file))
            case ".jsonl":
                with self.data.open(encoding="utf-8") as file:
                    return [json.loads(line) for line in file]
        raise UserError(f"{self.data} is a Parquet file; read it with pandas, polars or pyarrow")

    @property
    def sampled(self) -> dict[str, Any]:
        """How the rows were sampled: their number, attempts and rejected texts by reason."""
        found: dict[str, Any] = self._found["sampled"]
        return found

    @property
    def figures(self) -> list[dict[str, Any]]:
        """Figures of the evaluation, each with the audience that may see it."""
        return list(self._found["figures"])

    @property
    def run(self) -> Run:
        """The run that trained the model; private prediction has none."""
        return Run(self.folder, device=self._device)

    @property
    def guarantee(self) -> Guarantee | None:
        """The guarantee of the rows, however many are sampled; None without privacy."""
        return guarantee_of(self._found)

    def __len__(self) -> int:
        count: int = self.sampled["rows"]
        return count

    def __repr__(self) -> str:
        return f"Synthesis({len(self)} rows in {str(self.data)!r})"


def synthesize(
    data: Any = None,
    *,
    out: Any = None,
    model: Any = None,
    text: str | Sequence[str] | None = None,
    codes: str | Sequence[str] | Mapping[str, Sequence[str] | None] | None = None,
    test: Any = None,
    device: str = "auto",
    callbacks: Iterable[Callback] = (),
    verbose: bool = False,
    settings: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> Synthesis:
    """Write synthetic rows with a model trained on private ones.

    `codes` are columns used as control codes, with their values, which become public:
    `{"topic": ["sport", "travel"]}`. With `out` alone, an interrupted run is resumed, and rows of a
    finished one are returned. Other keywords are the flags of `undertone synthesize`.
    """
    for name in keywords:
        if name not in KEYS and name not in FLAGS and name not in SWITCHES:
            known = [*KEYS, *FLAGS, *SWITCHES, *OTHERS, "settings"]
            raise UserError(keyword_hint("synthesize", name, known))
    if out is None:
        raise UserError("synthesize() needs out=, the folder of the run")
    folder = Path(os.fspath(out))
    words: list[str] = ["--device", device]
    texts = [] if text is None else [text] if isinstance(text, str) else list(text)
    if texts:
        words += ["--text", ",".join(texts)]
    keys = {KEYS[name]: keywords[name] for name in KEYS if keywords.get(name) is not None}
    columns, declared = codes_of(codes)
    for column in columns:
        words += ["--code", column]
    if declared:
        keys["synthesis.codes"] = declared
    if model is not None:
        path = path_of(model)
        if path is None:
            raise UserError("model must be a folder or a name on the Hugging Face Hub")
        words += ["--model", path]
    for name in FLAGS:
        value = keywords.get(name)
        if value is not None:
            words += ["--" + name.replace("_", "-"), path_of(value) or str(value)]
    for name in SWITCHES:
        if keywords.get(name):
            words.append("--" + name.replace("_", "-"))
    keys.update(flat(settings))
    author = keywords.get("author")
    rows: list[Rows | None] = []
    for name, given, needed in (
        ("data", data, [*texts, *columns, *([author] if author else [])]),
        ("test", test, [*texts, *columns]),
    ):
        path = path_of(given)
        if given is None:
            rows.append(None)
        elif path is not None:
            words += ["--test", path] if name == "test" else [path]
            rows.append(None)
        elif texts:
            rows.append(rows_of(given, needed, name))
        elif name == "test":
            rows.append(rows_of(given, _undertone.columns_of_run(folder, False), name))
        else:
            raise UserError("synthesize() needs text=, the column of the texts, or several")
    with Progress(callbacks, verbose) as events:
        found = _undertone.synthesize(words, keys, folder, rows[0], rows[1], events.callback)
        return Synthesis(folder, found, device)


def codes_of(codes: Any) -> tuple[list[str], dict[str, list[str]]]:
    """The columns used as control codes, and the values of those that declare them."""
    if codes is None:
        return [], {}
    if isinstance(codes, str):
        return [codes], {}
    if not isinstance(codes, Mapping):
        return [str(column) for column in codes], {}
    declared = {}
    for column, values in codes.items():
        if isinstance(values, str):
            raise UserError(f"the values of control code {column!r} are a text; give a list")
        if values is not None:
            declared[str(column)] = [str(value) for value in values]
    return [str(column) for column in codes], declared
