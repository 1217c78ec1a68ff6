"""Callbacks of transformers' Trainer for undertone's training: W&B, MLflow, TensorBoard.

    from transformers.integrations import TensorBoardCallback
    ut.train(…, callbacks=[ut.hf.logger(TensorBoardCallback(), output_dir="logs")])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._undertone import UserError

__all__ = ["logger"]

# The figures of a step to log, if the step has them.
FIGURES = (
    "loss",
    "epsilon",
    "learning_rate",
    "gradient_norm",
    "clipped",
    "examples_per_second",
)


def logger(
    *callbacks: Any, output_dir: str = "runs", run_name: str | None = None, every: int = 1
) -> Callable[[dict[str, Any]], None]:
    """A callback for `train` that drives TrainerCallbacks: begin, log, step and end.

    It logs losses, which are computed from private data without noise: log only to places that are
    restricted to those who may see the data.
    """
    try:
        from transformers import TrainerControl, TrainerState, TrainingArguments
    except ImportError as error:
        raise UserError("transformers is not installed: pip install transformers") from error
    if not callbacks:
        raise UserError("name at least one TrainerCallback")
    if every < 1:
        raise UserError(f"every is {every}, but must be at least 1")
    arguments = TrainingArguments(
        output_dir=output_dir, run_name=run_name, report_to=[], logging_steps=every, use_cpu=True
    )
    state, control = TrainerState(), TrainerControl()

    def notify(name: str, **more: Any) -> None:
        for callback in callbacks:
            getattr(callback, name)(arguments, state, control, **more)

    def log(logs: dict[str, Any]) -> None:
        state.log_history.append({**logs, "step": state.global_step})
        notify("on_log", logs=logs)

    def on_event(event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "begin":
            state.max_steps, state.global_step = event["steps"], event["step"]
            notify("on_train_begin", model=None)
        elif kind == "step":
            state.global_step, state.epoch = event["step"], float(event["epoch"])
            logs = {name: event[name] for name in FIGURES if event.get(name) is not None}
            for name, value in (event.get("validation") or {}).items():
                if isinstance(value, (int, float)):
                    logs[f"eval_{name}"] = value
            if event["step"] % every == 0 or event["step"] == state.max_steps:
                log(logs)
            notify("on_step_end")
        elif kind == "end":
            notify("on_train_end")

    return on_event
