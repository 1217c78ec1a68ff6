"""Callbacks and progress of training."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ._undertone import UserError

if TYPE_CHECKING:
    from ._run import Run

Listener = Callable[[dict[str, Any]], object]


class Progress:
    """Passes training events to callbacks, and shows them if `verbose`."""

    def __init__(self, callbacks: Iterable[Listener] | Listener, verbose: bool) -> None:
        self._listeners: list[Listener] = (
            [callbacks] if callable(callbacks) else list(callbacks)
        )
        for listener in self._listeners:
            if not callable(listener):
                raise UserError(f"a callback is {type(listener).__name__}, which is not callable")
        self._bar = Bar() if verbose else None
        if self._bar is not None:
            self._listeners.append(self._bar.show)

    @property
    def callback(self) -> Callable[[dict[str, Any]], None] | None:
        """The callback for the engine, or None if there is nothing to call."""
        return self._emit if self._listeners else None

    def _emit(self, event: dict[str, Any]) -> None:
        for listener in self._listeners:
            listener(event)

    def end(self, run: Run) -> Run:
        """Reports that the run is finished."""
        self._emit({"event": "end", "folder": str(run.folder), "summary": run.summary})
        return run

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()


class Bar:
    """A progress bar: tqdm's if it is installed, in terminals and notebooks, otherwise plain
    lines."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._steps = 0
        try:
            from tqdm.auto import tqdm

            self._tqdm: Any = tqdm
        except ImportError:
            self._tqdm = None

    def _line(self, text: str) -> None:
        if self._bar is not None:
            self._bar.write(text, file=sys.stderr)
        else:
            print(text, file=sys.stderr)

    def show(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "plan" and event["chosen"]:
            self._line("chosen by the recipe: " + ", ".join(event["chosen"]))
        elif kind == "loaded":
            for note in event["notes"]:
                self._line(note)
        elif kind in ("warning", "note"):
            self._line(event["message"])
        elif kind == "begin":
            self._steps = event["steps"]
            if self._tqdm is not None:
                self._bar = self._tqdm(total=self._steps, initial=event["step"], unit="step")
        elif kind == "step":
            self._step(event)
        elif kind == "rows":
            self._rows(event["done"], event["total"])
        elif kind == "end":
            self.close()

    def _step(self, event: dict[str, Any]) -> None:
        shown = {}
        if event.get("loss") is not None:
            shown["loss"] = f"{event['loss']:.4f}"
        if event.get("epsilon") is not None:
            shown["ε"] = f"{event['epsilon']:.4f}"
        if self._bar is not None:
            self._bar.set_postfix(shown, refresh=False)
            self._bar.update(event["step"] - self._bar.n)
        elif event["step"] % max(1, self._steps // 20) == 0 or event["step"] == self._steps:
            values = ", ".join(f"{name} {value}" for name, value in shown.items())
            self._line(f"step {event['step']}/{self._steps}, {values}")

    def _rows(self, done: int, total: int) -> None:
        if self._tqdm is None:
            if done == total:
                self._line(f"sampled {total} rows")
            return
        if self._bar is None or self._bar.unit != "row":
            self.close()
            self._bar = self._tqdm(total=total, unit="row")
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
