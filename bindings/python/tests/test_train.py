"""Training from Python: the run object, callbacks, Ctrl-C, and errors that leave nothing behind."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
import unittest
from pathlib import Path
from typing import Any

import undertone as ut
import world
from world import World


class TrainTest(World):
    def test_a_run_says_what_it_guarantees_and_is_quiet(self) -> None:
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            run = self.train(author="who", validation=world.rows(40), tuning="head", settings={
                "model.tuning": "head",
            })
        self.assertEqual(output.getvalue(), "")
        guarantee = run.guarantee
        assert guarantee is not None
        self.assertLessEqual(guarantee.epsilon, 8)
        self.assertGreater(guarantee.epsilon, 7.9)
        self.assertEqual((guarantee.unit, guarantee.adjacency), ("user", "add-remove"))
        self.assertEqual((guarantee.delta, guarantee.mode), (1e-3, "proved"))
        self.assertIn("differential privacy", str(guarantee))
        self.assertTrue(repr(guarantee).startswith("Guarantee(epsilon="))
        self.assertTrue(guarantee.assumptions)
        self.assertEqual(len(run.history), run.summary["steps"])
        self.assertIn("loss", run.history[0])
        self.assertEqual(run.ledger[0]["kind"], "poisson-gaussian")
        self.assertEqual(sum(entry["count"] for entry in run.ledger), run.summary["steps"])
        self.assertEqual(run.metrics["examples"], 40)
        self.assertIn("<iframe", run._repr_html_())
        self.assertIn("<li>", guarantee._repr_html_())
        # Read again, given only its folder.
        self.assertEqual(ut.Run(run.folder).guarantee, guarantee)
        copy = run.folder / "private" / "train.jsonl"
        self.assertEqual(copy.stat().st_mode & 0o777, 0o600)
        self.assertEqual([json.loads(line) for line in copy.read_text().splitlines()], world.rows())

    def test_callbacks_see_every_step(self) -> None:
        events: list[dict[str, Any]] = []
        run = self.train(callbacks=[events.append])
        kinds = [event["event"] for event in events]
        self.assertEqual((kinds[0], kinds[-1]), ("plan", "end"))
        steps = [event for event in events if event["event"] == "step"]
        self.assertEqual([event["step"] for event in steps], list(range(1, 13)))
        self.assertLessEqual(steps[-1]["epsilon"], 8 * 1.02)
        self.assertEqual(events[-1]["summary"], run.summary)

    def test_a_callback_that_fails_stops_the_run_which_can_be_resumed(self) -> None:
        whole = self.train("whole", seed=7)
        out = self.folder / "stopped"

        def fail(event: dict[str, Any]) -> None:
            if event["event"] == "step" and event["step"] == 5:
                raise RuntimeError("enough")

        with self.assertRaisesRegex(RuntimeError, "enough"):
            self.train("stopped", seed=7, callbacks=[fail])
        self.refused("has not finished", ut.Run, out)
        events: list[dict[str, Any]] = []
        run = ut.resume(out, device="cpu", callbacks=[events.append])
        begin = next(event for event in events if event["event"] == "begin")
        self.assertEqual(begin["step"], 5)
        self.assertEqual(world.weights(run.folder), world.weights(whole.folder))
        self.refused("is finished", ut.resume, out, device="cpu")

    @unittest.skipIf(os.name == "nt", "signals of Unix")
    def test_ctrl_c_stops_at_a_checkpoint(self) -> None:
        def interrupt(event: dict[str, Any]) -> None:
            if event["event"] == "step" and event["step"] == 3:
                os.kill(os.getpid(), signal.SIGINT)

        # A shell's background jobs ignore Ctrl-C.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        with self.assertRaises(KeyboardInterrupt) as caught:
            self.train("stopped", callbacks=[interrupt])
        if str(caught.exception):
            self.assertIn("undertone.resume", str(caught.exception))
        run = ut.resume(self.folder / "stopped", device="cpu")
        self.assertEqual(run.summary["steps"], 12)

    def test_verbose_shows_progress(self) -> None:
        output = io.StringIO()
        with contextlib.redirect_stderr(output):
            self.train(verbose=True)
        self.assertIn("12", output.getvalue())

    def test_a_run_is_not_private_with_a_seed_or_without_a_method(self) -> None:
        seeded = self.train("seeded", seed=1)
        assert seeded.guarantee is not None
        self.assertEqual(seeded.guarantee.mode, "seeded")
        self.assertIn("no guarantee", str(seeded.guarantee))
        changes = {"epsilon": None, "delta": None, "method": "none"}
        plain = ut.train(
            model=self.model,
            data=world.rows(),
            out=self.folder / "plain",
            settings={k: v for k, v in world.SETTINGS.items() if not k.startswith("privacy.")},
            **{**world.FAST, **changes},
        )
        self.assertIsNone(plain.guarantee)
        self.assertEqual(plain.ledger, [])


class MistakesTest(World):
    def nothing_left(self) -> None:
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["model"])

    def test_bad_arguments_are_one_sentence_and_leave_nothing_behind(self) -> None:
        class Module:
            def save_pretrained(self) -> None: ...

        missing = world.rows()
        missing[5]["sentence"] = None  # type: ignore[assignment]
        mixed: list[dict[str, Any]] = [dict(row) for row in world.rows()]
        mixed[7]["sentence"] = 3
        nan: list[dict[str, Any]] = [dict(row) for row in world.rows()]
        nan[9]["label"] = float("nan")
        for part, changes in (
            ("did you mean 'epsilon'", {"epsilom": 3}),
            ("did you mean 'learning_rate'", {"lr": 3}),
            ("no keyword 'zzz'", {"zzz": 3}),
            ("save_pretrained(folder)", {"model": Module()}),
            ("needs model=", {"model": None}),
            ("needs data=", {"data": None}),
            ("must be a DataFrame", {"data": 3}),
            ("has no rows", {"data": []}),
            ("has no rows", {"data": {"sentence": [], "label": []}}),
            ("different lengths", {"data": {"sentence": ["a"], "label": []}}),
            ("not a list", {"data": {"sentence": "abc", "label": ["a"]}}),
            ('data has no column "words"', {"text": "words"}),
            ('data has no column "writer"', {"author": "writer"}),
            ("row 5 of data has no value", {"data": missing}),
            ("mixes text and numbers (row 7)", {"data": mixed}),
            ("row 9 of data has no value", {"data": nan}),
            ("must be a dict", {"data": [3]}),
            ("of type object", {"data": [{"sentence": object(), "label": "a"}]}),
            ("does not exist", {"data": "no-such-file.tsv"}),
            ("say what the model learns", {"label": None, "labels": None, "text": None}),
            ("epsilon", {"epsilon": -1}),
            ("callable", {"callbacks": [3]}),
            ("device", {"device": "tpu"}),
            ("precision", {"precision": "f8"}),
            ("privacy.clips", {"settings": {"privacy.clips": 3}}),
            ("not one of", {"labels": ["fine", "so", "awful"]}),
        ):
            with self.subTest(part=part, changes=list(changes)):
                self.refused(part, self.train, **changes)
                self.nothing_left()

    def test_parents_of_a_refused_run_are_removed(self) -> None:
        self.refused(
            "not one of", self.train, labels=["fine", "so", "awful"], out=self.folder / "a" / "b" / "c"
        )
        self.nothing_left()

    def test_a_folder_with_a_run_is_kept(self) -> None:
        run = self.train()
        before = {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}
        self.refused("already contains a run", self.train)
        after = {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}
        self.assertEqual(before, after)
        self.refused("is no folder of a finished run", ut.Run, self.folder)

    def test_two_threads_do_not_train_at_once(self) -> None:
        refusals: list[str] = []

        def second(event: dict[str, Any]) -> None:
            if event["event"] == "begin":
                thread = threading.Thread(target=other)
                thread.start()
                thread.join()

        def other() -> None:
            try:
                self.train("other")
            except ut.UserError as error:
                refusals.append(str(error))

        self.train("first", callbacks=[second])
        self.assertEqual(len(refusals), 1)
        self.assertIn("another thread", refusals[0])

    @unittest.skipUnless(hasattr(os, "fork"), "no fork here")
    def test_a_forked_process_is_refused(self) -> None:
        code = (
            "import os, sys, undertone as ut\n"
            "a = ut.Accountant().step(noise_multiplier=1, sample_rate=0.1, count=9)\n"
            "a.epsilon(1e-5)\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    try:\n"
            "        a.epsilon(1e-5)\n"
            "    except ut.UserError as error:\n"
            "        os._exit(0 if 'spawn' in str(error) else 1)\n"
            "    os._exit(2)\n"
            "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        )
        path = os.pathsep.join(sys.path)
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", code],
                              env={**os.environ, "PYTHONPATH": path}, timeout=120)
        self.assertEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main()
