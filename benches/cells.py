"""Cells of a table: runs of `undertone train` with different settings, several at a time. Each run
is kept in a folder, so that none is repeated.
"""

import concurrent.futures
import csv
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def add_arguments(parser, seeds=(1, 2, 3)):
    """Arguments shared by all tables."""
    parser.add_argument("--binary", default=str(ROOT / "target/release/undertone"))
    parser.add_argument("--validation", type=int, default=0, help="rows of the validation file; 0 for all")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(seeds))
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--device", default=None, help="as undertone's --device, such as cuda")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))


def value(file, key):
    """The value of a key as written in a run file."""
    for line in (ROOT / file).read_text().splitlines():
        if line.split("=")[0].strip() == key:
            return line.split("=", 1)[1].strip().strip('"')
    sys.exit(f"{file} has no {key}")


def subset(path, count, seed, out):
    """The header and the first rows of a fixed shuffle. Fields of .csv may contain line breaks;
    those of .tsv do not."""
    path = pathlib.Path(path)
    target = out / f"{path.stem}-{count or 'all'}{path.suffix}"
    if not target.exists():
        with open(ROOT / path, newline="") as file:
            rows = list(csv.reader(file)) if path.suffix == ".csv" else file.read().splitlines()
        header, *rows = rows
        random.Random(seed).shuffle(rows)
        rows = [header, *rows[: count or len(rows)]]
        with open(target, "w", newline="") as file:
            csv.writer(file).writerows(rows) if path.suffix == ".csv" else file.write("\n".join(rows) + "\n")
    return target


def run_all(args, file, cells, out, metric):
    """Runs every cell (name, seed, changes) that has no summary yet. Returns
    {(name, seed): metric or None}."""
    slots = list(range(args.jobs))

    def run(cell):
        name, seed, changes = cell
        folder = out / f"{name}-{seed}"
        summary = folder / "summary.json"
        slot = slots.pop()
        try:
            if not summary.exists():
                subprocess.run(["rm", "-rf", folder], check=True)
                command = [args.binary, "train", ROOT / file, "--out", folder, "--seed", seed, "--json"]
                command += ["--device", args.device] if args.device else []
                command += [part for change in [*changes, *args.changes] for part in (("--unset", change[1:]) if change.startswith("-") else ("--set", change))]
                cores = set(range(slot * args.threads, (slot + 1) * args.threads)) & os.sched_getaffinity(0)
                done = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=ROOT,
                                      env={**os.environ, "RAYON_NUM_THREADS": str(args.threads)},
                                      preexec_fn=lambda: os.sched_setaffinity(0, cores or os.sched_getaffinity(0)))
                if done.returncode != 0:
                    print(f"{folder.name}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}", file=sys.stderr)
                    return (name, seed), None
                # The weights are no longer needed, and there are many.
                subprocess.run(["rm", "-rf", folder / "model", folder / "adapter", folder / "checkpoint.safetensors"], check=True)
            # Metrics on a private validation file are in the private part of the summary.
            private = folder / "private" / "summary.json"
            measured = metric({**json.loads(summary.read_text()), **(json.loads(private.read_text()) if private.exists() else {})})
            print(f"{folder.name}: {measured:.2f}", file=sys.stderr)
            return (name, seed), measured
        finally:
            slots.append(slot)

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        return dict(pool.map(run, cells))


def mean_and_spread(metrics, name, seeds):
    """'mean ± standard deviation' over the finished seeds."""
    numbers = [metrics.get((name, seed)) for seed in seeds]
    numbers = [number for number in numbers if number is not None]
    spread = statistics.stdev(numbers) if len(numbers) > 1 else 0.0
    return f"{statistics.mean(numbers):.2f} ± {spread:.2f}" if numbers else "–"


def markdown(head, rows):
    """Prints a table."""
    print("| " + " | ".join(head) + " |")
    print("|---|" + "--:|" * (len(head) - 1))
    for row in rows:
        print("| " + " | ".join(row) + " |")
