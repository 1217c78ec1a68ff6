"""Fine-tune language models on private text with provable differential privacy.

    import undertone as ut

    run = ut.train(model="models/small", data=frame, text="letter", label="topic",
                   author="patient", epsilon=8, out="runs/first")
    print(run.guarantee)

Uses the same engine as the `undertone` program, without torch. The run folder is the same, too:
either side can resume, audit and report on runs of the other.
"""

from __future__ import annotations

from typing import Any

from ._accountant import Accountant, Delta, Epsilon, Guarantee, noise_multiplier
from ._run import AuditResult, Demo, Run, demo, resume, train
from ._synthesis import Synthesis, synthesize
from ._undertone import UndertoneError, UserError, __version__

__all__ = [
    "Accountant",
    "AuditResult",
    "Delta",
    "Demo",
    "Epsilon",
    "Guarantee",
    "Run",
    "Synthesis",
    "UndertoneError",
    "UserError",
    "__version__",
    "demo",
    "hf",
    "noise_multiplier",
    "opacus_accountant",
    "report",
    "resume",
    "synthesize",
    "train",
]


def report(runs: Any, out: Any, *, public: bool = False) -> None:
    """Write a report that compares finished runs to one HTML or Markdown file."""
    from ._run import write_report

    write_report(runs, out, public)


def opacus_accountant(name: str = "undertone") -> str:
    """Register the certified accountant in Opacus, and return its name.

    Then `PrivacyEngine(accountant=name)` reports upper bounds of ε that are proved.
    """
    from ._opacus import register

    return register(name)


def __getattr__(name: str) -> Any:
    # Imported on first use: `undertone.hf` requires transformers.
    if name == "hf":
        from importlib import import_module

        return import_module(".hf", __name__)
    raise AttributeError(f"module 'undertone' has no attribute {name!r}")
