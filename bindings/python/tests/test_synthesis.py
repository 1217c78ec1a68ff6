"""Synthetic rows from Python: the same as with the program, from rows in memory."""

import json
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import Any

import undertone as ut
import world

PROGRAM = world.program()
CODES = ["bill", "visit", "nurse"]


def letters(count: int = 300) -> list[dict[str, str]]:
    """Letters of the demo's vocabulary, three of each person."""
    openings = ["hello", "dear team", "good morning", "good evening", "dear all"]
    return [
        {
            "letter": f"{openings[i % 5]} . please tell me when the {topic} is free",
            "topic": topic,
            "who": f"person {i // 3}",
        }
        for i, topic in ((i, CODES[(0, 1, 0, 2)[i % 4]]) for i in range(count))
    ]


class SynthesisTest(unittest.TestCase):
    model: Path

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.mkdtemp(prefix="undertone-")
        cls.addClassCleanup(shutil.rmtree, folder, ignore_errors=True)
        cls.model = ut.demo(folder, 256).model

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="undertone-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def keywords(self, **changes: Any) -> dict[str, Any]:
        usual: dict[str, Any] = {
            "data": letters(), "model": self.model, "text": "letter", "codes": {"topic": CODES},
            "author": "who", "epsilon": 8, "delta": 1e-3, "rows": 40, "max_tokens": 48,
            "epochs": 1, "batch": 25, "device": "cpu", "out": self.folder / "out",
            "settings": {"synthesis": {"statistics_share": 0.2}},
        }
        return {**usual, **changes}

    def synthesize(self, **changes: Any) -> ut.Synthesis:
        return ut.synthesize(**self.keywords(**changes))

    def refused(self, part: str, **changes: Any) -> None:
        with self.assertRaises(ut.UserError) as caught:
            self.synthesize(**changes)
        self.assertIn(part, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))
        self.assertFalse((self.folder / "out").exists(), "nothing is left behind")

    def test_rows_in_memory_become_synthetic_rows_with_a_guarantee(self) -> None:
        events: list[dict[str, Any]] = []
        synthesis = self.synthesize(callbacks=[events.append])
        self.assertEqual(len(synthesis), 40)
        rows = synthesis.rows
        self.assertEqual(len(rows), 40)
        self.assertEqual(set(rows[0]), {"letter", "topic"})
        self.assertLessEqual({row["topic"] for row in rows}, set(CODES))
        assert synthesis.guarantee is not None
        self.assertEqual(synthesis.guarantee.unit, "user")
        self.assertTrue(7.5 < synthesis.guarantee.epsilon <= 8)
        self.assertEqual(synthesis.run.ledger[0]["kind"], "gaussian")
        self.assertIn("topic", synthesis.card.read_text(encoding="utf-8"))
        self.assertEqual(synthesis.figures, [])
        kinds = [event["event"] for event in events]
        self.assertEqual(kinds[0], "loaded")
        self.assertEqual(events[-1], {"event": "rows", "done": 40, "total": 40})
        self.assertEqual(kinds.count("step"), 4)
        # The same rows again, without training or sampling.
        again = ut.synthesize(out=self.folder / "out", device="cpu")
        self.assertEqual(again.rows, rows)

    @unittest.skipIf(PROGRAM is None, "the undertone program was not built")
    def test_rows_are_those_of_the_program(self) -> None:
        data = world.write_jsonl(self.folder / "letters.jsonl", letters())
        out = self.folder / "command"
        words: list[object] = [
            "synthesize", data, "--out", out, "--model", self.model, "--text", "letter",
            "--code", "topic=" + ",".join(CODES), "--author", "who", "--epsilon", 8,
            "--set", "privacy.delta=1e-3", "--set", "synthesis.statistics_share=0.2",
            "--rows", 40, "--max-tokens", 48, "--epochs", 1, "--batch", 25, "--seed", 7,
            "--device", "cpu", "--format", "jsonl",
        ]
        done = subprocess.run(
            [str(PROGRAM), *map(str, words)], capture_output=True, text=True, timeout=600
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        by_command = (out / "synthetic" / "data.jsonl").read_bytes()
        synthesis = self.synthesize(seed=7, format="jsonl")
        self.assertEqual(synthesis.data.read_bytes(), by_command)

    def test_a_stopped_run_is_resumed_with_the_same_rows(self) -> None:
        whole = self.synthesize(seed=7, out=self.folder / "whole").data.read_bytes()
        for kind, number in (("step", 2), ("rows", 1)):
            seen: list[str] = []

            def stop(event: dict[str, Any]) -> None:
                seen.append(event["event"])
                if seen.count(kind) == number:
                    raise RuntimeError("enough")

            out = self.folder / kind
            with self.assertRaisesRegex(RuntimeError, "enough"):
                self.synthesize(seed=7, out=out, callbacks=[stop])
            resumed = ut.synthesize(out=out, device="cpu")
            self.assertEqual(resumed.data.read_bytes(), whole, kind)

    def test_private_prediction_needs_no_training(self) -> None:
        usual = {
            "method": "private-prediction", "max_tokens": 24, "rows": 6, "epochs": None,
            "batch": None, "settings": None, "seed": 3,
        }
        self.refused("training.epochs", **{**usual, "epochs": 2})
        whole = self.synthesize(out=self.folder / "whole", **usual)
        assert whole.guarantee is not None
        self.assertEqual((whole.guarantee.mode, whole.guarantee.delta), ("seeded", 1e-3))
        self.assertEqual(whole.sampled["attempts"], 6)

        def stop(event: dict[str, Any]) -> None:
            if event["done"] == 2:
                raise RuntimeError("enough")

        with self.assertRaisesRegex(RuntimeError, "enough"):
            self.synthesize(callbacks=[stop], **usual)
        resumed = ut.synthesize(out=self.folder / "out", device="cpu")
        self.assertEqual(resumed.rows, whole.rows)

    def test_an_evaluation_has_figures_with_their_audience(self) -> None:
        # Rows that are all in the training data cannot be declared public.
        self.refused("rows of the private training file", evaluate=True, test=letters(30),
                     test_is_public=True, out=self.folder / "refused")
        test = letters(30)
        for row in test:
            row["letter"] = row["letter"].replace("hello", "dear doctor")
        found = self.synthesize(evaluate=True, test=test, test_is_public=True, format="jsonl")
        audiences = {figure["of"]: figure["seen_by"] for figure in found.figures}
        self.assertEqual(audiences["synthetic rows"], "public")
        self.assertEqual(audiences["training rows"], "private")
        self.assertEqual(audiences["test rows"], "public")
        # Evaluated again from the folder alone.
        again = ut.synthesize(
            out=self.folder / "out", evaluate=True, test=test, test_is_public=True, device="cpu"
        )
        self.assertEqual(again.figures, found.figures)

    def test_mistakes_get_one_sentence_and_leave_nothing_behind(self) -> None:
        self.refused("column", text="words")
        self.refused("privacy.epsilon", epsilon=None)
        self.refused("'epsilon'", eps=8)
        self.refused("'topic'", codes={"topic": "bill"})
        self.refused("topics", codes={"topics": CODES})
        self.refused("text=", text=None)
        self.refused("--dataset", register=self.folder / "register.jsonl")
        self.refused("no rows", data=[])
        self.refused("--test", test_is_public=True)
        self.refused("folder", model=object())
        with self.assertRaisesRegex(ut.UserError, "out="):
            ut.synthesize(letters(), model=self.model)
        with self.assertRaisesRegex(ut.UserError, "no run to resume"):
            ut.synthesize(out=self.folder / "nothing", device="cpu")


if __name__ == "__main__":
    unittest.main()
