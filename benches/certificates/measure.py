"""Certified ε compared with the accountant's upper bound, and the checker's CPU time."""

import csv
import json
import math
import pathlib
import resource
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SETTINGS = ROOT / "crates/accounting/tests/fixtures/accounting.csv"


def up(x):
    """Four decimals, rounded up."""
    return f"{math.ceil(round(x * 1e4, 6)) / 1e4:.4f}"


def run(*words):
    """Standard output, and CPU time in seconds."""
    start = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - start


def main():
    program = sys.argv[1]
    print("| σ | q | steps | δ | accountant | certified | above | check, s | size, kB |")
    print("|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    worst, slowest = 0.0, 0.0
    with tempfile.TemporaryDirectory() as folder, open(SETTINGS, encoding="utf-8") as settings:
        file = pathlib.Path(folder) / "certificate.json"
        for row in csv.DictReader(settings):
            made, _ = run(
                program, "budget", "certify", "--noise-multiplier", row["sigma"],
                "--sampling-rate", row["q"], "--steps", row["steps"], "--delta", row["delta"],
                "--out", str(file), "--json",
            )
            made = json.loads(made)
            _, check = run(sys.executable, str(ROOT / "checker/check_certificate.py"), str(file))
            above = made["epsilon"] / made["accountant_upper"] - 1
            worst, slowest = max(worst, above), max(slowest, check)
            print(
                f"| {row['sigma']} | {float(row['q']):.6g} | {int(row['steps']):,} | {row['delta']} "
                f"| {up(made['accountant_upper'])} | {up(made['epsilon'])} | {100 * above:+.2f} % "
                f"| {check:.1f} | {file.stat().st_size / 1000:.0f} |",
                flush=True,
            )
    print(f"\nat most {100 * worst:.2f} % above; slowest check {slowest:.1f} s")


if __name__ == "__main__":
    main()
