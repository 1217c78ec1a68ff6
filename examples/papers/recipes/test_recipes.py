"""python3 -m unittest discover examples/papers/recipes"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent


def run(recipe, raw, out, *more):
    command = [sys.executable, HERE / recipe, raw, "--out", out, *map(str, more)]
    return subprocess.run(command, capture_output=True, text=True)


def rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


class Recipes(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.folder = pathlib.Path(held.name)

    def both(self, recipe, raw, *more):
        done = run(recipe, raw, self.folder / "out", *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return rows(self.folder / "out/train.jsonl"), rows(self.folder / "out/validation.jsonl")

    def test_echr_from_a_folder_and_from_lines(self):
        raw = self.folder / "EN_train"
        raw.mkdir()
        lines = self.folder / "judgments.jsonl"
        with open(lines, "w", encoding="utf-8") as out:
            for case in range(10):
                text = [f"{i}. Case {case}, paragraph {i}. " + "word " * 60 for i in range(6)]
                (raw / f"00{case}.json").write_text(json.dumps({"ITEMID": case, "TEXT": text}))
                out.write(json.dumps({"itemid": case, "text": "\n".join(text)}) + "\n")
        for source in [raw, lines]:
            train, validation = self.both("echr.py", source, "--characters", 700)
            # Two paragraphs of about 330 characters fit in a passage: 30 passages.
            self.assertEqual((len(train), len(validation)), (27, 3))
            self.assertTrue(all(len(row["text"]) <= 700 for row in train))
            texts = {row["text"] for row in train + validation}
            self.assertEqual(len(texts), 30)
            everything = " ".join(sorted(texts))
            for case in range(10):
                for i in range(6):
                    self.assertIn(f"Case {case}, paragraph {i}.", everything)
        more = ["--separate-cases", "--train", 20, "--validation", 5]
        train, validation = self.both("echr.py", raw, "--characters", 700, *more)
        self.assertEqual((len(train), len(validation)), (20, 5))
        self.assertFalse({row["case"] for row in train} & {row["case"] for row in validation})

    def test_enron_from_maildir_and_from_lines(self):
        body = (
            "Please call me about the {} contract before noon tomorrow.\n\nRegards\n"
            "\n\tStinson Gibner@ECT\n\t01/17/00 09:57 AM\n\t\t To: Somebody Else\nQuoted words.\n"
        )
        raw = self.folder / "maildir/smith-j/sent"
        raw.mkdir(parents=True)
        lines = self.folder / "ham.jsonl"
        with open(lines, "w", encoding="utf-8") as out:
            for i in range(12):
                # The last two are copies.
                text = body.format(f"number {min(i, 10)}")
                mail = f"Message-ID: <{i}>\nFrom: A.Smith{i % 3}@enron.com\nSubject: x\n\n{text}"
                (raw / f"{i}.").write_text(mail)
                headers = {"From": f"a.smith{i % 3}@enron.com"}
                out.write(json.dumps({"headers": headers, "body": text}) + "\n")
        for source in [self.folder / "maildir", lines]:
            train, validation = self.both("enron.py", source)
            self.assertEqual((len(train), len(validation)), (10, 1))
            for row in train:
                self.assertTrue(row["text"].endswith("Regards"), row)
                self.assertIn(row["author"], [f"a.smith{i}@enron.com" for i in range(3)])

    def test_enron_mlm_keeps_mails_with_numbers_and_separates_authors(self):
        raw = self.folder / "maildir"
        raw.mkdir()
        lines = self.folder / "ham.jsonl"
        with open(lines, "w", encoding="utf-8") as out:
            for i in range(60):
                # The last ten are copies, and every third mail has no number.
                n = min(i, 49)
                body = f"Call 713-555-{n:04}." if n % 3 else f"Nothing to call, {n}."
                author = f"a{n % 20}@enron.com"
                (raw / f"{i}.").write_text(f"From: {author}\nSubject: x\n\n{body}")
                mail = {"headers": {"From": author, "Subject": "x"}, "body": body}
                out.write(json.dumps(mail) + "\n")
        for source in [raw, lines]:
            train, validation = self.both("enron_mlm.py", source, "--validation", 0.3)
            self.assertEqual(len(train) + len(validation), 33)
            self.assertFalse({r["author"] for r in train} & {r["author"] for r in validation})
            self.assertTrue(all("713-555" in row["text"] for row in train))

    def test_mistakes_are_one_sentence(self):
        empty = self.folder / "empty"
        empty.mkdir()
        (self.folder / "bad.jsonl").write_text("{\n")
        for recipe in ["echr.py", "enron.py", "enron_mlm.py"]:
            for raw in ["missing", "empty", "bad.jsonl"]:
                done = run(recipe, self.folder / raw, self.folder / "out")
                self.assertEqual(done.returncode, 2, raw)
                self.assertRegex(done.stderr, r"\Aerror: .+\n\Z")
        (self.folder / "one.jsonl").write_text(json.dumps({"text": "word " * 100}) + "\n")
        done = run("echr.py", self.folder / "one.jsonl", self.folder / "out", "--train", 5)
        self.assertEqual(done.returncode, 2)
        self.assertIn("cannot be drawn", done.stderr)


if __name__ == "__main__":
    unittest.main()
