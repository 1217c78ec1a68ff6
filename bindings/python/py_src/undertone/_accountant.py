"""The privacy accountant and the values it returns."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from . import _undertone
from ._undertone import UserError


class Epsilon(NamedTuple):
    """Certified bounds on ε; `upper` is the guarantee."""

    upper: float
    lower: float


class Delta(NamedTuple):
    """Certified bounds on δ; `upper` is the guarantee."""

    upper: float
    lower: float


class Guarantee(NamedTuple):
    """The guarantee proved by a ledger: (ε, δ)-differential privacy, and for whom.

    `epsilon` is the certified upper bound. `mode` is "proved" only if the guarantee holds for the
    algorithm that ran: "paper" and "seeded" runs guarantee nothing.
    """

    epsilon: float
    delta: float
    unit: str
    adjacency: str
    assumptions: list[str]
    threat: str
    mode: str
    epsilon_lower: float
    statement: str

    def __str__(self) -> str:
        return self.statement

    def __repr__(self) -> str:
        shown = math.ceil(self.epsilon * 1e4) / 1e4
        return (
            f"Guarantee(epsilon={shown:.4f}, delta={self.delta:g}, unit={self.unit!r}, "
            f"adjacency={self.adjacency!r}, assumptions={self.assumptions!r})"
        )

    def _repr_html_(self) -> str:
        from html import escape

        assumptions = "".join(f"<li>{escape(text)}</li>" for text in self.assumptions)
        return f"<p>{escape(self.statement)}.</p><p>It assumes that</p><ul>{assumptions}</ul>"


def guarantee_of(found: dict[str, Any]) -> Guarantee | None:
    """The guarantee of a run as read by the native module."""
    value = found["guarantee"]
    if value is None:
        return None
    return Guarantee(
        epsilon=value["epsilon"]["upper"],
        delta=value["delta"],
        unit=value["unit"],
        adjacency=value["adjacency"],
        assumptions=value["assumptions"],
        threat=value["threat"],
        mode=value["mode"],
        epsilon_lower=value["epsilon"]["lower"],
        statement=found["statement"],
    )


def count_of(count: Any, name: str) -> int:
    """A whole number from 1 to 10 million."""
    try:
        number = int(count)
        whole = number == count
    except (TypeError, ValueError, OverflowError):
        whole = False
    if not whole or not 1 <= number <= 10_000_000:
        raise UserError(f"{name} is {count!r}, but must be a whole number from 1 to 10,000,000")
    return number


def float_of(value: Any, name: str) -> float:
    """A finite number."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, str) or not math.isfinite(number):
        raise UserError(f"{name} is {value!r}, but must be a finite number")
    return number


class Accountant:
    """Composes releases and bounds their ε or δ from both sides.

    Every answer is certified: the true value lies between `lower` and `upper`.
    """

    def __init__(self, adjacency: str = "add-remove") -> None:
        self.adjacency = adjacency
        self._parts: list[dict[str, Any]] = []

    def step(
        self, *, noise_multiplier: float, sample_rate: float = 1.0, count: int = 1
    ) -> Accountant:
        """Add `count` steps of DP-SGD with Poisson sampling."""
        event = {
            "kind": "poisson-gaussian",
            "noise_multiplier": float_of(noise_multiplier, "noise_multiplier"),
            "sampling_rate": float_of(sample_rate, "sample_rate"),
        }
        return self._add(event, count)

    def gaussian(
        self, *, noise_multiplier: float, sensitivity: float = 1.0, count: int = 1
    ) -> Accountant:
        """Add `count` releases of the Gaussian mechanism without sampling."""
        event = {
            "kind": "gaussian",
            "noise_multiplier": float_of(noise_multiplier, "noise_multiplier"),
            "sensitivity": float_of(sensitivity, "sensitivity"),
        }
        return self._add(event, count)

    def randomized_response(
        self, *, epsilon: float, categories: int, count: int = 1
    ) -> Accountant:
        """Add `count` randomized responses with ε each."""
        event = {
            "kind": "randomized-response",
            "epsilon": float_of(epsilon, "epsilon"),
            "categories": count_of(categories, "categories"),
        }
        return self._add(event, count)

    def _add(self, event: dict[str, Any], count: int) -> Accountant:
        part = {"event": event, "count": count_of(count, "count")}
        # Validate the event now, so that the error is raised where it was made.
        _undertone.epsilon(self.adjacency, [{**part, "count": 1}], 0.1, "rdp")
        self._parts.append(part)
        return self

    def epsilon(self, delta: float, accountant: str = "auto") -> Epsilon:
        """Bounds on ε at δ."""
        delta = float_of(delta, "delta")
        bounds = _undertone.epsilon(self.adjacency, self._parts, delta, accountant)["epsilon"]
        return Epsilon(bounds["upper"], bounds["lower"])

    def delta(self, epsilon: float, accountant: str = "auto") -> Delta:
        """Bounds on δ at ε."""
        epsilon = float_of(epsilon, "epsilon")
        bounds = _undertone.delta(self.adjacency, self._parts, epsilon, accountant)["delta"]
        return Delta(bounds["upper"], bounds["lower"])

    def trade_off(self, false_positive_rates: Any) -> list[dict[str, float]]:
        """The largest true-positive rate of any attack at each false-positive rate.

        One dict per rate, with certified bounds `upper` and `lower`: ready for a DataFrame.
        """
        rates = [float_of(rate, "a false-positive rate") for rate in false_positive_rates]
        points = _undertone.trade_off(self.adjacency, self._parts, rates)
        return [
            {
                "false_positive_rate": point["false_positive_rate"],
                "upper": point["true_positive_rate"]["upper"],
                "lower": point["true_positive_rate"]["lower"],
            }
            for point in points
        ]

    def __len__(self) -> int:
        return sum(part["count"] for part in self._parts)

    def __repr__(self) -> str:
        return f"Accountant({len(self)} releases, {self.adjacency})"


def noise_multiplier(
    *,
    epsilon: float,
    delta: float,
    sample_rate: float,
    steps: int,
    accountant: str = "auto",
) -> float:
    """The least noise multiplier of DP-SGD whose certified ε at δ is at most `epsilon`."""
    return _undertone.noise_multiplier(
        float_of(epsilon, "epsilon"),
        float_of(delta, "delta"),
        float_of(sample_rate, "sample_rate"),
        count_of(steps, "steps"),
        accountant,
    )
