"""examples/fetch on small archives of the published layout, without a network.

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
    """What each address answers."""
    if address.endswith("SST-2.zip"):
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as archive:
            for name in ("train.tsv", "dev.tsv", "original/README.txt"):
                archive.writestr(f"SST-2/{name}", "sentence\tlabel\ngood\t1\n")
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


class Fetch(unittest.TestCase):
    def test_all_that_examples_name_is_fetched_once(self):
        fetch, asked = load(), []
        fetch.read = lambda address: asked.append(address) or published(address)
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder)
            fetch.main(["--out", folder])
            for place, files, _ in fetch.ASSETS.values():
                for file in files:
                    self.assertTrue((out / place / file).is_file(), f"{place}/{file}")
            rows = (out / "data/imdb/train.jsonl").read_text().splitlines()
            self.assertEqual(sorted(json.loads(row)["label"] for row in rows), [0, 1])
            first = len(asked)
            fetch.main(["--out", folder])
            self.assertEqual(len(asked), first)

    def test_run_files_name_what_is_fetched(self):
        fetch = load()
        known = {f"target/assets/{place}" for place, _, _ in fetch.ASSETS.values()}
        files = {
            f"target/assets/{place}/{file}"
            for place, files, _ in fetch.ASSETS.values()
            for file in files
        }
        for path in HERE.glob("*.toml"):
            text = path.read_text()
            tomllib.loads(text)
            for named in re.findall(r'"(target/assets/[^"]+)"', text):
                self.assertTrue(named in known or named in files, f"{path.name}: {named}")


if __name__ == "__main__":
    unittest.main()
