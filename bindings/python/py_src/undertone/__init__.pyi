from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from . import hf as hf

__version__: str

class UndertoneError(Exception):
    """The engine failed to do its work."""

class UserError(UndertoneError):
    """An argument or its data is invalid; the message states the requirement."""

class Epsilon(NamedTuple):
    upper: float
    lower: float

class Delta(NamedTuple):
    upper: float
    lower: float

class Guarantee(NamedTuple):
    epsilon: float
    delta: float
    unit: str
    adjacency: str
    assumptions: list[str]
    threat: str
    mode: str
    epsilon_lower: float
    statement: str
    def _repr_html_(self) -> str: ...

class Accountant:
    adjacency: str
    def __init__(self, adjacency: str = "add-remove") -> None: ...
    def step(
        self, *, noise_multiplier: float, sample_rate: float = 1.0, count: int = 1
    ) -> Accountant: ...
    def gaussian(
        self, *, noise_multiplier: float, sensitivity: float = 1.0, count: int = 1
    ) -> Accountant: ...
    def randomized_response(
        self, *, epsilon: float, categories: int, count: int = 1
    ) -> Accountant: ...
    def epsilon(self, delta: float, accountant: str = "auto") -> Epsilon: ...
    def delta(self, epsilon: float, accountant: str = "auto") -> Delta: ...
    def trade_off(self, false_positive_rates: Iterable[float]) -> list[dict[str, float]]: ...
    def __len__(self) -> int: ...

def noise_multiplier(
    *, epsilon: float, delta: float, sample_rate: float, steps: int, accountant: str = "auto"
) -> float: ...

class AuditResult:
    attack: str
    folder: Path
    results: dict[str, Any]
    def __init__(self, attack: str, folder: Path, results: dict[str, Any]) -> None: ...
    def _repr_html_(self) -> str: ...

class Run:
    folder: Path
    def __init__(
        self, folder: str | PathLike[str], *, device: str = "auto", precision: str | None = None
    ) -> None: ...
    @property
    def guarantee(self) -> Guarantee | None: ...
    @property
    def metrics(self) -> dict[str, Any]: ...
    @property
    def ledger(self) -> list[dict[str, Any]]: ...
    @property
    def history(self) -> list[dict[str, Any]]: ...
    @property
    def summary(self) -> dict[str, Any]: ...
    @property
    def plan(self) -> str: ...
    @property
    def audits(self) -> dict[str, Any]: ...
    @property
    def model(self) -> Path: ...
    @property
    def adapter(self) -> Path | None: ...
    def predict(self, texts: Any) -> list[dict[str, Any]]: ...
    def evaluate(self, data: Any) -> dict[str, Any]: ...
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
    ) -> list[dict[str, str]]: ...
    def audit(self, attack: str = "membership", **options: Any) -> AuditResult: ...
    def report(self, out: str | PathLike[str], *, public: bool = False) -> None: ...
    def _repr_html_(self) -> str: ...

class Demo(NamedTuple):
    folder: Path
    model: Path
    letters: list[dict[str, str]]
    validation: list[dict[str, str]]

def demo(folder: str | PathLike[str], letters: int = 4000) -> Demo: ...
def train(
    *,
    model: str | PathLike[str],
    data: Any,
    validation: Any = None,
    out: str | PathLike[str] | None = None,
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    labels: Sequence[str] | None = None,
    prompt: str | None = None,
    completion: str | None = None,
    messages: str | None = None,
    author: str | None = None,
    task: str | None = None,
    max_tokens: int | None = None,
    hold_out: float | None = None,
    validation_is_public: bool | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    method: str | None = None,
    units: int | None = None,
    tuning: str | Mapping[str, Any] | None = None,
    quantize: str | None = None,
    epochs: int | None = None,
    batch: int | None = None,
    learning_rate: float | None = None,
    seed: int | None = None,
    device: str = "auto",
    precision: str | None = None,
    register: str | PathLike[str] | None = None,
    dataset: str | None = None,
    callbacks: Iterable[Callable[[dict[str, Any]], object]] = (),
    verbose: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> Run: ...
def resume(
    folder: str | PathLike[str],
    *,
    data: Any = None,
    validation: Any = None,
    device: str = "auto",
    precision: str | None = None,
    register: str | PathLike[str] | None = None,
    callbacks: Iterable[Callable[[dict[str, Any]], object]] = (),
    verbose: bool = False,
) -> Run: ...

class Synthesis:
    folder: Path
    def __init__(self, folder: Path, found: dict[str, Any], device: str) -> None: ...
    @property
    def data(self) -> Path: ...
    @property
    def card(self) -> Path: ...
    @property
    def rows(self) -> list[dict[str, str]]: ...
    @property
    def sampled(self) -> dict[str, Any]: ...
    @property
    def figures(self) -> list[dict[str, Any]]: ...
    @property
    def run(self) -> Run: ...
    @property
    def guarantee(self) -> Guarantee | None: ...
    def __len__(self) -> int: ...

def synthesize(
    data: Any = None,
    *,
    out: str | PathLike[str],
    model: str | PathLike[str] | None = None,
    text: str | Sequence[str] | None = None,
    codes: str | Sequence[str] | Mapping[str, Sequence[str] | None] | None = None,
    publish_codes: bool = False,
    author: str | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    rows: int | None = None,
    format: str | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    max_tokens: int | None = None,
    tuning: str | Mapping[str, Any] | None = None,
    quantize: str | None = None,
    epochs: int | None = None,
    batch: int | None = None,
    learning_rate: float | None = None,
    seed: int | None = None,
    evaluate: bool = False,
    test: Any = None,
    test_is_public: bool = False,
    encoder: str | PathLike[str] | None = None,
    classifier: str | PathLike[str] | None = None,
    target: str | None = None,
    baselines: bool = False,
    attack: bool = False,
    canaries: str | PathLike[str] | None = None,
    device: str = "auto",
    precision: str | None = None,
    register: str | PathLike[str] | None = None,
    dataset: str | None = None,
    callbacks: Iterable[Callable[[dict[str, Any]], object]] = (),
    verbose: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> Synthesis: ...
def report(
    runs: Run | str | PathLike[str] | Sequence[Run | str | PathLike[str]],
    out: str | PathLike[str],
    *,
    public: bool = False,
) -> None: ...
def opacus_accountant(name: str = "undertone") -> str: ...
