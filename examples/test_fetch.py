"""Runs examples/fetch on small archives with the published layout, without a network.

python3 -m unittest discover examples
"""

import importlib.machinery
import importlib.util
import io
import json
import pathlib
import re
import tarfile
import tempfile
import tomllib
import unittest
import zipfile

HERE = pathlib.Path(__file__).resolve().parent


def load():
    loader = importlib.machinery.SourceFileLoader("fetch", str(HERE / "fetch"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("fetch", loader))
    loader.exec_module(module)
    return module


def published(address):
    """The response for each address."""
    if address.endswith("SST-2.zip"):
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as archive:
            for name in ("train.tsv", "dev.tsv", "original/README.txt"):
                archive.writestr(f"SST-2/{name}", "sentence\tlabel\ngood\t1\n")
        return data.getvalue()
    if address.endswith("QNLIv2.zip"):
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as archive:
            for name in ("train.tsv", "dev.tsv", "test.tsv"):
                archive.writestr(f"QNLI/{name}", "index\tquestion\tsentence\tlabel\n")
        return data.getvalue()
    if address.endswith("ECHR_Dataset.zip"):
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as archive:
            for part in ("EN_train", "EN_dev", "EN_test", "EN_train_Anon"):
                case = {"ITEMID": f"001-{part}", "TEXT": ["1. One.", "2. Two."]}
                archive.writestr(f"{part}/001.json", json.dumps(case))
        return data.getvalue()
    if address.endswith("enron_mail_20150507.tar.gz"):
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:gz") as archive:
            for number in range(4000):
                mail = (
                    f"From: a{number}@enron.com\nTo: b@enron.com\nSubject: Call {number}\n\n"
                    f"My number is 713-555-{number:04}.\n"
                ).encode()
                entry = tarfile.TarInfo(f"maildir/a/sent/{number}.")
                entry.size = len(mail)
                archive.addfile(entry, io.BytesIO(mail))
        return data.getvalue()
    if address.endswith("aclImdb_v1.tar.gz"):
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:gz") as archive:
            for side in ("train", "test"):
                for kind in ("pos", "neg", "unsup"):
                    entry = tarfile.TarInfo(f"aclImdb/{side}/{kind}/0_9.txt")
                    entry.size = len(kind)
                    archive.addfile(entry, io.BytesIO(kind.encode()))
        return data.getvalue()
    return b"x"


def lines(path):
    return path.read_text().splitlines()


class Fetch(unittest.TestCase):
    def test_all_that_examples_name_is_fetched_once(self):
        fetch, asked = load(), []
        fetch.read = lambda address: asked.append(address) or published(address)
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder)
            fetch.main(["--out", folder])
            saved = {name for name, (place, _, _) in fetch.ASSETS.items() if (out / place).exists()}
            self.assertEqual(saved, set(fetch.ASSETS) - set(fetch.PAPERS))
            fetch.main(["--out", folder, "papers"])
            for place, files, _ in fetch.ASSETS.values():
                for file in files:
                    self.assertTrue((out / place / file).is_file(), f"{place}/{file}")
            cases = [json.loads(row) for row in lines(out / "data/echr/judgments.jsonl")]
            self.assertEqual(len(cases), 3)
            self.assertEqual(cases[0]["text"], "1. One.\n2. Two.")
            mails = [json.loads(row) for row in lines(out / "data/enron/ham.jsonl")]
            self.assertTrue(20 < len(mails) < 80, len(mails))
            self.assertRegex(mails[0]["headers"]["From"], r"a\d+@enron.com")
            both = [out / f"data/enron-mlm/{side}.jsonl" for side in ("train", "validation")]
            self.assertEqual(sum(len(path.read_text().splitlines()) for path in both), len(mails))
            rows = (out / "data/imdb/train.jsonl").read_text().splitlines()
            self.assertEqual(sorted(json.loads(row)["label"] for row in rows), [0, 1])
            first = len(asked)
            fetch.main(["--out", folder, "papers"])
            self.assertEqual(len(asked), first)

    def test_run_files_name_what_is_fetched(self):
        fetch = load()
        known = {f"target/assets/{place}" for place, _, _ in fetch.ASSETS.values()}
        files = {
            f"target/assets/{place}/{file}"
            for place, files, _ in fetch.ASSETS.values()
            for file in files
        }
        papers = HERE / "papers"
        sweeps = [*papers.glob("base/*.toml"), *papers.glob("small/*.toml")]
        for path in [*HERE.glob("*.toml"), *sweeps]:
            text = path.read_text()
            tomllib.loads(text)
            for named in re.findall(r'"(target/assets/[^"]+)"', text):
                self.assertTrue(named in known or named in files, f"{path.name}: {named}")


if __name__ == "__main__":
    unittest.main()
