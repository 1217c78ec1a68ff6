"""The stubs: mypy --strict accepts the examples and rejects what the engine would reject."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def mypy(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_examples_are_typed() -> None:
    done = mypy(*sorted(EXAMPLES.glob("*.py")))
    assert done.returncode == 0, done.stdout


def test_wrong_types_are_found(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "import undertone as ut\n"
        "ut.train(model='a', data=[], epsilom=3)\n"
        "ut.Accountant().step(noise_multiplier='1')\n"
        "run = ut.Run('a')\n"
        "epsilon: int = run.guarantee.epsilon\n"
    )
    done = mypy(wrong)
    assert done.returncode == 1
    for line in (2, 3, 5):
        assert f"wrong.py:{line}: error" in done.stdout, done.stdout
    assert "Found 4 errors" in done.stdout, done.stdout


def test_the_stubs_name_everything_and_nothing_else(tmp_path: Path) -> None:
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\nstrict = True\nignore_missing_imports = True\n")
    command = [sys.executable, "-m", "mypy.stubtest", "undertone", "--ignore-missing-stub",
               "--mypy-config-file", str(config),
               "--allowlist", str(Path(__file__).with_name("stubtest.txt"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
