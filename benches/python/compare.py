"""Times the same run from Python and from the command line; see `run`."""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import undertone as ut

LETTERS, EPOCHS = 2000, 2

PYTHON = """
import json, sys
import undertone as ut
folder, out = sys.argv[1:]
rows = [json.loads(line) for line in open(folder + "/rows.jsonl")]
ut.train(model=folder + "/model", data=rows, text="text", label="label", author="patient",
         labels={labels!r}, epsilon=8, delta=1e-5, tuning={{"lora": {{"rank": 8}}}}, max_tokens=96,
         epochs={epochs}, batch=128, learning_rate=5e-3, seed=1, device="cpu", out=out)
"""


def timed(command: list[str]) -> tuple[float, float]:
    """Wall clock and computing time of a process, in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)
    return wall, spent


def import_seconds() -> float:
    def median(code: str) -> float:
        return statistics.median(timed([sys.executable, "-c", code])[0] for _ in range(11))

    return median("import undertone") - median("pass")


def main(program: str, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        demo = ut.demo(folder, letters=LETTERS)
        rows = "".join(json.dumps(row) + "\n" for row in demo.letters)
        (folder / "rows.jsonl").write_text(rows)
        labels = sorted({row["label"] for row in demo.letters})
        code = PYTHON.format(labels=labels, epochs=EPOCHS)
        command = [
            program, "train", "--model", str(folder / "model"), "--data",
            str(folder / "rows.jsonl"), "--text", "text", "--label", "label", "--author",
            "patient", "--labels", ",".join(labels), "--epsilon", "8", "--seed", "1",
            "--device", "cpu",
        ]
        for change in (
            "privacy.delta=1e-5", "model.tuning={ lora = { rank = 8 } }", "data.max_tokens=96",
            f"training.epochs={EPOCHS}", "training.batch=128", "training.learning_rate=5e-3",
        ):
            command += ["--set", change]
        ratios = []
        print("round  command line: wall, computing   Python: wall, computing   ratios")
        for number in range(rounds):
            outs = [folder / f"{kind}-{number}" for kind in ("command", "python")]
            times = {}
            order = [0, 1] if number % 2 == 0 else [1, 0]
            for which in order:
                line = (
                    [*command, "--out", str(outs[0])]
                    if which == 0
                    else [sys.executable, "-c", code, str(folder), str(outs[1])]
                )
                times[which] = timed(line)
            same = [sorted((out / "adapter").glob("*.safetensors"))[0].read_bytes() for out in outs]
            assert same[0] == same[1], "the weights differ"
            ratios.append([times[1][i] / times[0][i] for i in (0, 1)])
            print(
                f"{number + 1:5}  {times[0][0]:8.2f} s {times[0][1]:8.2f} s"
                f"            {times[1][0]:8.2f} s {times[1][1]:8.2f} s"
                f"     {ratios[-1][0]:.3f} {ratios[-1][1]:.3f}"
            )
        wall, spent = (statistics.median(ratio[i] for ratio in ratios) for i in (0, 1))
        print(f"median of the rounds' ratios: wall {wall:.3f}, computing {spent:.3f}")
    print(f"import undertone: {import_seconds():.3f} s")
    for wheel in sorted(Path("target/python/wheels").glob("undertone-*.whl")):
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    os.environ.setdefault("RAYON_NUM_THREADS", str(os.cpu_count() or 1))
    main(sys.argv[1], int(sys.argv[2]))
