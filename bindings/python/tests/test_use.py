"""Operations on a run: predict, evaluate, generate, audit and report."""

import math
import unittest
from typing import Any

import undertone as ut
import world
from world import World


class UseTest(World):
    def test_predictions_have_the_names_of_the_classes(self) -> None:
        # The class names come from private rows, so published files number them.
        base = world.model(self.folder / "base", "bert-masked-lm")
        run = self.train(model=base, labels=None)
        self.assertNotIn("good", (run.model / "config.json").read_text())
        texts = [row["sentence"] for row in world.rows(30)]
        predictions = run.predict(texts)
        self.assertEqual(len(predictions), 30)
        self.assertEqual(set(predictions[0]["probabilities"]), {"bad", "good"})
        self.assertAlmostEqual(sum(predictions[0]["probabilities"].values()), 1)
        self.assertIn(predictions[0]["label"], ("bad", "good"))
        again = run.predict([{"sentence": text} for text in texts])
        self.assertEqual(predictions, again)
        self.assertEqual(predictions, run.predict({"sentence": texts, "other": texts}))
        self.assertEqual(run.predict([]), [])
        self.refused("is one text", run.predict, texts[0])
        self.refused("must be a text", run.predict, [3])
        self.refused('no column "sentence"', run.predict, [{"text": "a"}])

    def test_evaluation_agrees_with_training(self) -> None:
        run = self.train(validation=world.rows())
        metrics = run.evaluate(world.rows())
        self.assertEqual(metrics["accuracy"], run.metrics["accuracy"])
        self.assertEqual([row["label"] for row in metrics["by_class"]], ["bad", "neutral", "good"])
        path = world.write_jsonl(self.folder / "rows.jsonl", world.rows())
        self.assertEqual(run.evaluate(path), metrics)
        self.refused("not one of", run.evaluate, [{"sentence": "a", "label": "odd"}])
        self.refused("data:1", run.evaluate, [{"sentence": "a", "label": "odd"}])

    def test_a_language_model_generates(self) -> None:
        gpt = world.model(self.folder / "gpt", "gpt2-causal-lm")
        run = self.train(
            model=gpt, label=None, labels=None, tuning={"lora": {"rank": 2}},
            settings={"model.tuning": {"lora": {"rank": 2}}},
        )
        self.assertEqual(run.adapter, run.folder / "adapter")
        self.assertTrue((run.folder / "adapter" / "adapter_config.json").is_file())
        options: dict[str, Any] = {"samples": 2, "max_new_tokens": 4, "seed": 3, "batch": 1}
        rows = run.generate(["the cat", "the dog"], **options)
        self.assertEqual([row["prompt"] for row in rows], ["the cat"] * 2 + ["the dog"] * 2)
        self.assertTrue(rows[0]["text"].endswith(rows[0]["completion"]))
        # The texts do not depend on their batching.
        self.assertEqual(rows, run.generate(["the cat", "the dog"], **{**options, "batch": 16}))
        self.assertEqual(len(run.generate("the cat", max_new_tokens=2)), 1)
        loss = run.predict(["the cat sat"])[0]
        self.assertAlmostEqual(loss["perplexity"], math.exp(loss["loss"]), places=3)
        self.refused("temperature", run.generate, "a", temperature=-1)
        self.refused("samples", run.generate, "a", samples=0)
        self.refused("not text", run.generate, [3])

    def test_a_classifier_does_not_generate(self) -> None:
        self.refused("does not generate", self.train().generate, "a")

    def test_membership_of_rows_in_memory(self) -> None:
        run = self.train(tuning="head", settings={"model.tuning": "head"}, author="who")
        others = [{**row, "sentence": row["sentence"] + " cat"} for row in world.rows(60)]
        audit = run.audit("membership", non_members=others, examples=50, loss_only=True)
        attack = audit.results["membership"][0]
        self.assertEqual((attack["attack"], attack["members"], attack["others"]), ("loss", 50, 50))
        self.assertLessEqual(attack["auc"]["lower"], attack["auc"]["upper"])
        self.assertEqual(run.audits["membership"], audit.results["membership"])
        self.assertIn("What attacks found", audit._repr_html_())
        self.refused("no attack 'members'", run.audit, "members")
        self.refused("--shadow", run.audit, "membership", shadow=3)
        self.refused("non-members", run.audit, "membership")
        self.refused("out=", run.audit, "one_run")

    def test_one_run_audit_trains_with_canaries(self) -> None:
        run = self.train(tuning="head", settings={"model.tuning": "head"})
        audit = run.audit("one-run", canaries=20, out=self.folder / "canaries")
        self.assertEqual(audit.results["one_run"]["canaries"], 20)

    def test_reports_are_those_of_the_command_line(self) -> None:
        run = self.train()
        for name in ("report.html", "report.md"):
            run.report(self.folder / name)
            text = (self.folder / name).read_text(encoding="utf-8")
            self.assertIn("What is guaranteed", text)
        ut.report([run, run.folder], self.folder / "two.md", public=True)
        self.assertNotIn("What attacks found", (self.folder / "two.md").read_text())
        (self.folder / "mine.html").write_text("something else")
        self.refused("mine.html", run.report, self.folder / "mine.html")
        self.refused("at least one run", ut.report, [], self.folder / "none.md")

    def test_the_demo_has_a_model_and_letters(self) -> None:
        demo = ut.demo(self.folder / "demo", letters=256)
        self.assertEqual((len(demo.letters), len(demo.validation)), (256, 64))
        self.assertEqual(set(demo.letters[0]), {"text", "label", "patient"})
        self.assertTrue((demo.model / "model.safetensors").is_file())
        self.refused("from 256", ut.demo, self.folder / "few", letters=3)


if __name__ == "__main__":
    unittest.main()
