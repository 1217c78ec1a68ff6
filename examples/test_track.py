"""Runs examples/track on the log of a run, with the trackers that are installed.

python3 -m unittest discover examples
"""

import importlib.machinery
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 3


def load():
    loader = importlib.machinery.SourceFileLoader("track", str(HERE / "track"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("track", loader))
    loader.exec_module(module)
    return module


def log():
    """The log of a run with three steps, the second of which was repeated after a crash."""
    begin = {"event": "begin", "private": True, "privacy_units": 100, "steps": STEPS,
             "settings": {"training.batch": 20, "privacy.epsilon": 8.0, "betas": [0.9, 0.999]}}
    steps = [{"event": "step", "step": step, "epoch": 1,
              "metrics": {"epsilon": float(step), "learning_rate": 0.1}} for step in (1, 2, 2, 3)]
    end = {"event": "end", "step": STEPS, "private": True, "metrics": {"validation/accuracy": 0.5},
           "guarantee": {"epsilon": {"upper": 3.5}, "delta": 1e-5}}
    return "".join(json.dumps({"version": 1, **event}) + "\n" for event in [begin, *steps, end])


def is_installed(name):
    return importlib.util.find_spec(name) is not None


class Track(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.run_folder = pathlib.Path(self.folder.name) / "first"
        self.run_folder.mkdir()
        (self.run_folder / "events.jsonl").write_text(log())

    def follow(self, tracker, **environment):
        return subprocess.run(
            [sys.executable, HERE / "track", self.run_folder, tracker, "--project", "news"],
            cwd=self.folder.name, capture_output=True, text=True, timeout=300,
            env={**os.environ, **environment})

    def test_each_step_is_read_once(self):
        events = list(load().events(self.run_folder / "events.jsonl", wait=True))
        self.assertEqual([event["event"] for event in events], ["begin", *["step"] * STEPS, "end"])

    def test_other_versions_are_refused(self):
        path = self.run_folder / "events.jsonl"
        path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
        with self.assertRaisesRegex(SystemExit, "version 2"):
            list(load().events(path, wait=False))

    def test_a_run_without_a_log_is_named(self):
        (self.run_folder / "events.jsonl").unlink()
        self.assertIn("compute.log", self.follow("mlflow").stderr)

    @unittest.skipUnless(is_installed("mlflow"), "pip install mlflow")
    def test_mlflow(self):
        store = f"sqlite:///{self.folder.name}/mlruns.db"
        done = self.follow("mlflow", MLFLOW_TRACKING_URI=store)
        self.assertEqual(done.returncode, 0, done.stderr)
        import mlflow

        client = mlflow.MlflowClient(store)
        experiment = client.get_experiment_by_name("news")
        [run] = client.search_runs([experiment.experiment_id])
        self.assertEqual(run.info.run_name, "first")
        self.assertEqual(run.data.params["training.batch"], "20")
        self.assertEqual(run.data.metrics["guarantee/epsilon"], 3.5)
        history = client.get_metric_history(run.info.run_id, "epsilon")
        self.assertEqual([(m.step, m.value) for m in history], [(1, 1.0), (2, 2.0), (3, 3.0)])

    @unittest.skipUnless(is_installed("wandb"), "pip install wandb")
    def test_wandb_offline(self):
        done = self.follow("wandb", WANDB_MODE="offline", WANDB_SILENT="true")
        self.assertEqual(done.returncode, 0, done.stderr)
        [written] = pathlib.Path(self.folder.name).glob("wandb/offline-run-*/run-*.wandb")
        self.assertIn(b"guarantee/epsilon", written.read_bytes())


if __name__ == "__main__":
    unittest.main()
