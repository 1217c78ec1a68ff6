"""Runs the notebooks at small sizes."""

import os
from pathlib import Path
from typing import Any

import pytest
import world

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
NOTEBOOKS = sorted((world.ROOT / "examples" / "notebooks").glob("*.ipynb"))

CHAT = (
    "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: Any) -> None:
    pytest.importorskip("matplotlib")
    model = world.model(tmp_path / "chat-model", "gpt2-causal-lm")
    (model / "chat_template.jinja").write_text(CHAT)
    monkeypatch.setenv("UNDERTONE_CHAT_MODEL", str(model))
    monkeypatch.setenv("UNDERTONE_LETTERS", "400")
    monkeypatch.setenv("UNDERTONE_CONVERSATIONS", "120")
    monkeypatch.setenv("UNDERTONE_MAX_TOKENS", "16")
    monkeypatch.setenv("MPLBACKEND", "agg")
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        assert not cell.get("outputs"), "notebooks are kept without outputs"
    client = nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()
    assert os.listdir(tmp_path / "runs")


def test_there_are_three() -> None:
    assert len(NOTEBOOKS) == 3
