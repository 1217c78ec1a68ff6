"""A small model and some rows for tests, and the program if it has been built."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import unittest
from pathlib import Path
from typing import Any

import undertone as ut

ROOT = Path(__file__).resolve().parents[3]
FIXTURES = ROOT / "crates" / "undertone" / "tests" / "fixtures"
WORDS = ["cat", "dog", "sun", "the", "warm", "today", "sat", "ran"]

# Small and fast, with reproducible bits.
SETTINGS: dict[str, Any] = {
    "model.tuning": "full",
    "data.max_tokens": 16,
    "training.optimizer": "adamw",
    "training.learning_rate_schedule": "constant",
    "training.warmup": 0.0,
    "privacy.clip": "automatic",
}
FAST: dict[str, Any] = {
    "text": "sentence",
    "label": "label",
    "labels": ["bad", "neutral", "good"],
    "epsilon": 8,
    "delta": 1e-3,
    "epochs": 2,
    "batch": 20,
    "learning_rate": 1e-3,
    "device": "cpu",
}


def rows(count: int = 120) -> list[dict[str, str]]:
    """Sentences with a label and an author; three sentences each."""
    return [
        {
            "sentence": " ".join(WORDS[(i * 7 + j * 3) % 8] for j in range(3 + i % 5)),
            "label": ["bad", "good"][i % 2],
            "who": f"person {i // 3}",
        }
        for i in range(count)
    ]


def model(folder: Path, architecture: str = "bert-classification") -> Path:
    """A model folder from the fixtures of the Rust tests."""
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(FIXTURES / "models" / architecture / name, folder / name)
    tokenizer = "tokenizer-bpe" if "gpt2" in architecture else "tokenizer-wordpiece"
    shutil.copy(FIXTURES / tokenizer / "tokenizer.json", folder / "tokenizer.json")
    return folder


def program() -> Path | None:
    """The `undertone` program, if it has been built."""
    named = os.environ.get("UNDERTONE_PROGRAM")
    places = [named] if named else [ROOT / "target" / kind / "undertone" for kind in ("release", "debug")]
    return next((Path(place) for place in places if Path(place).is_file()), None)


def weights(run: Path) -> bytes:
    folder = run / "model" if (run / "model").is_dir() else run / "adapter"
    files = sorted(folder.glob("*.safetensors"))
    return b"".join(file.read_bytes() for file in files)


def write_jsonl(path: Path, data: list[dict[str, str]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in data), encoding="utf-8")
    return path


class World(unittest.TestCase):
    """A test in its own folder with a small model."""

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="undertone-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.model = model(self.folder / "model")

    def train(self, name: str = "run", **changes: Any) -> ut.Run:
        keywords = {**FAST, **changes}
        settings = {**SETTINGS, **keywords.pop("settings", {})}
        keywords.setdefault("model", self.model)
        keywords.setdefault("data", rows())
        keywords.setdefault("out", self.folder / name)
        return ut.train(settings=settings, **keywords)

    def refused(self, part: str, function: Any, *values: Any, **keywords: Any) -> str:
        """Checks for one clear sentence that contains `part`."""
        with self.assertRaises(ut.UserError) as caught:
            function(*values, **keywords)
        sentence = str(caught.exception)
        self.assertIn(part, sentence)
        self.assertNotIn("\n", sentence)
        return sentence
