"""Runs from Python and from the command line are bit-identical, and either side resumes the other's
runs."""

import json
import os
import subprocess
import unittest
from pathlib import Path
from typing import Any

import undertone as ut
import world
from world import World

PROGRAM = world.program()


@unittest.skipIf(PROGRAM is None, "the undertone program was not built")
class CommandLineTest(World):
    def command(self, *words: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(PROGRAM), *map(str, words)], capture_output=True, text=True, timeout=600
        )
        if check:
            self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def flags(self, data: Path) -> list[object]:
        words: list[object] = [
            "train", "--model", self.model, "--data", data, "--text", "sentence", "--label",
            "label", "--labels", "bad,neutral,good", "--epsilon", 8, "--device", "cpu",
        ]
        keys: dict[str, Any] = {
            **world.SETTINGS,
            "privacy.delta": 1e-3,
            "training.epochs": 2,
            "training.batch": 20,
            "training.learning_rate": 1e-3,
        }
        for key, value in keys.items():
            words += ["--set", f"{key}={value}"]
        return words

    def same(self, one: Path, other: Path) -> None:
        self.assertEqual(world.weights(one), world.weights(other))
        self.assertEqual(
            (one / "metrics.jsonl").read_bytes(), (other / "metrics.jsonl").read_bytes()
        )

    def ledger(self, run: Path) -> list[Any]:
        """The releases; the first line contains a hash of the plan, which names the data."""
        lines = (run / "ledger.jsonl").read_text().splitlines()[1:]
        return [json.loads(line)["spent"] for line in lines]

    def test_rows_in_memory_train_the_same_run_as_a_file(self) -> None:
        data = world.write_jsonl(self.folder / "rows.jsonl", world.rows())
        by_command = self.folder / "command"
        self.command(*self.flags(data), "--seed", 5, "--out", by_command)
        for name, given in (("memory", world.rows()), ("path", data)):
            run = self.train(name, data=given, seed=5)
            self.same(run.folder, by_command)
            self.assertEqual(self.ledger(run.folder), self.ledger(by_command))
        tsv = self.folder / "rows.tsv"
        rows = world.rows()
        lines = ["\t".join(rows[0])] + ["\t".join(row.values()) for row in rows]
        tsv.write_text("\n".join(lines) + "\n")
        self.same(self.train("tsv", data=tsv, seed=5).folder, by_command)
        # Both folders have the same files, except for the copy of the rows.
        names = lambda run: {path.relative_to(run) for path in run.rglob("*") if path.is_file()}
        extra = names(self.folder / "memory") - names(by_command)
        self.assertEqual({str(path) for path in extra}, {"private/train.jsonl"})

    def test_a_run_begun_in_python_is_resumed_audited_and_reported_by_the_program(self) -> None:
        whole = self.train("whole", seed=5, author="who", batch=5)

        def stop(event: dict[str, Any]) -> None:
            if event["event"] == "step" and event["step"] == 5:
                raise RuntimeError("enough")

        for seed in (5, None):
            out = self.folder / f"begun-{seed}"
            with self.assertRaises(RuntimeError):
                self.train(out.name, seed=seed, author="who", batch=5, callbacks=[stop])
            self.command("train", "--out", out, "--resume", "--device", "cpu")
            if seed is not None:
                self.same(out, whole.folder)
            self.assertEqual(ut.Run(out).summary["steps"], whole.summary["steps"])
        others = world.write_jsonl(self.folder / "others.jsonl", world.rows(50))
        attack = ["--run", out, "--non-members", others, "--loss-only", "--device", "cpu"]
        self.command("audit", "membership", *attack)
        attacks = ut.Run(out).audits["membership"]
        again = ut.Run(out, device="cpu").audit(
            "membership", non_members=world.rows(50), loss_only=True
        )
        self.assertEqual(again.results["membership"], attacks)
        self.command("report", out, "--out", self.folder / "report.html")
        ut.Run(out).report(self.folder / "from-python.html")
        self.assertEqual(
            (self.folder / "report.html").read_bytes(),
            (self.folder / "from-python.html").read_bytes(),
        )

    def test_a_run_begun_by_the_program_is_resumed_and_read_from_python(self) -> None:
        data = world.write_jsonl(self.folder / "rows.jsonl", world.rows())
        whole, out = self.folder / "whole", self.folder / "begun"
        self.command(*self.flags(data), "--seed", 5, "--out", whole)
        # Stopped by a signal at some step, or finished on a fast machine.
        environment = {**os.environ}
        process = subprocess.Popen(
            [str(PROGRAM), *map(str, self.flags(data)), "--seed", "5", "--out", str(out)],
            stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment,
        )
        metrics = out / "metrics.jsonl"
        while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
            pass
        process.terminate()
        process.wait(timeout=60)
        run = ut.Run(out) if (out / "summary.json").exists() else ut.resume(out, device="cpu")
        self.same(run.folder, whole)
        self.assertEqual(run.guarantee, ut.Run(whole).guarantee)

    def register(self, epsilon: float = 20) -> Path:
        """A register with a budget for the sentences of forty people."""
        file = self.folder / f"budgets-{epsilon}.jsonl"
        self.command("register", "init", file)
        self.command(
            "register", "add", file, "sentences@1", "--covers", "forty people", "--units", 40,
            "--unit", "user", "--epsilon", epsilon, "--delta", 1e-3, "--approver", "A. Lovelace",
        )
        return file

    def accounts(self, file: Path) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self.command("register", "show", file, "--json").stdout)
        return shown

    def test_the_budget_of_a_register_pays_for_runs_from_python(self) -> None:
        file = self.register()
        pays = {"register": file, "dataset": "sentences", "author": "who", "batch": 10}
        run = self.train("paid", **pays)
        self.assertIn("sentences@1", run.plan)
        self.command("register", "verify", file, "--run", run.folder)
        self.assertIn("settled", self.command("register", "show", file, "sentences").stdout)
        # A second run of the same cost is over the cap, and leaves nothing behind.
        file = self.register(epsilon=9)
        pays["register"] = file
        self.train("first", **pays)
        self.refused("ε", self.train, "second", **pays)
        self.assertFalse((self.folder / "second").exists())
        # A run that fails before its first release gives its reservation back.
        before = self.accounts(file)
        self.refused("dataset=", self.train, "third", register=file)
        self.refused("register=", self.train, "third", dataset="sentences")
        self.assertEqual(self.accounts(file), before)

    def test_a_reservation_that_was_settled_ends_a_run_for_python_too(self) -> None:
        file = self.register()

        def stop(event: dict[str, Any]) -> None:
            if event["event"] == "step" and event["step"] == 2:
                raise RuntimeError("enough")

        pays = {"register": file, "dataset": "sentences", "author": "who", "batch": 10}
        with self.assertRaises(RuntimeError):
            self.train("begun", callbacks=[stop], **pays)
        self.assertIn("reserved", self.command("register", "show", file, "sentences").stdout)
        self.command("register", "settle", file, "--run", self.folder / "begun")
        self.refused("settled", ut.resume, self.folder / "begun", device="cpu")

    def test_predictions_and_metrics_are_those_of_the_program(self) -> None:
        run = self.train(labels=None)
        data = world.write_jsonl(self.folder / "rows.jsonl", world.rows())
        out = self.folder / "predictions.jsonl"
        of_model = ["--model", run.model, "--data", data, "--text", "sentence", "--device", "cpu"]
        self.command("predict", *of_model, "--out", out)
        by_command = [json.loads(line) for line in out.read_text().splitlines()]
        self.assertEqual(run.predict(world.rows()), by_command)
        done = self.command("eval", *of_model, "--json")
        self.assertEqual(run.evaluate(world.rows()), json.loads(done.stdout))

    def test_mistakes_have_the_sentence_of_the_program(self) -> None:
        data = world.write_jsonl(self.folder / "rows.jsonl", world.rows())
        for key, value in (
            ("privacy.epsilon", -1), ("training.batch", 500), ("training.optimizer", "adamx"),
            ("privacy.method", "dpsgd"), ("data.text", "words"),
        ):
            words = self.flags(data) + ["--set", f"{key}={value}", "--out", self.folder / "no"]
            done = self.command(*words, check=False)
            self.assertEqual(done.returncode, 2)
            sentence = done.stderr.strip().splitlines()[-1].removeprefix("error: ")
            self.refused(sentence, self.train, "no-2", data=data, settings={key: value})


if __name__ == "__main__":
    unittest.main()
