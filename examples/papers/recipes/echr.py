"""The training files of the ECHR sweeps, from judgments of the European Court of Human Rights.

    python3 examples/papers/recipes/echr.py RAW --out data/echr

RAW is either the folder of the legal judgment prediction data set (one JSON file per case, in any
subfolder, with its paragraphs under "TEXT") or a JSON Lines file with the text of one case per line
under "text". Cases are cut into passages of whole paragraphs, as long as the model can read
(--characters). Rap-FT samples 42,112 passages for training and 4,672 for evaluation, which are the
defaults if there are enough; it does not say which ones.
"""

import argparse
import json
import pathlib

from common import divide, fail, json_lines, write

PUBLISHED = (42_112, 4_672)


def cases(raw):
    """(name, paragraphs) of each case."""
    if raw.is_dir():
        for path in sorted(raw.rglob("*.json")):
            case = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(case, dict) and isinstance(case.get("TEXT"), list):
                yield str(case.get("ITEMID", path.stem)), [str(line) for line in case["TEXT"]]
    else:
        for number, row in enumerate(json_lines(raw)):
            if "text" not in row:
                fail(f"{raw}: row {number + 1} has no text")
            yield str(row.get("itemid", number)), row["text"].split("\n")


def passages(paragraphs, characters):
    """Runs of paragraphs with about this number of characters. A longer paragraph forms its own
    run."""
    run, length = [], 0
    for paragraph in (" ".join(line.split()) for line in paragraphs):
        if not paragraph:
            continue
        if run and length + 1 + len(paragraph) > characters:
            yield " ".join(run)
            run, length = [], 0
        run.append(paragraph)
        length += len(paragraph) + (len(run) > 1)
    if run:
        yield " ".join(run)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("raw", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("data/echr"))
    parser.add_argument(
        "--characters",
        type=int,
        default=1200,
        help="of a passage; 256 tokens of GPT-2 are about 1200",
    )
    parser.add_argument("--shortest", type=int, default=200, help="shorter passages are left out")
    parser.add_argument("--train", type=int, help=f"[default: {PUBLISHED[0]}, or nine tenths]")
    parser.add_argument("--validation", type=int, help=f"[default: {PUBLISHED[1]}, or a tenth]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--separate-cases",
        action="store_true",
        help="no case is in both files; ours, not the paper's",
    )
    asked = parser.parse_args()
    if not asked.raw.exists():
        fail(f"{asked.raw} does not exist")
    rows = [
        {"case": case, "text": passage}
        for case, paragraphs in cases(asked.raw)
        for passage in passages(paragraphs, asked.characters)
        if len(passage) >= asked.shortest
    ]
    if not rows:
        fail(f"{asked.raw} holds no judgments: give a folder of JSON files, or a JSON Lines file")
    train, validation = asked.train, asked.validation
    if train is None and validation is None and len(rows) >= sum(PUBLISHED):
        train, validation = PUBLISHED
    group = "case" if asked.separate_cases else None
    write(asked.out, *divide(rows, train, validation, asked.seed, group))


if __name__ == "__main__":
    main()
