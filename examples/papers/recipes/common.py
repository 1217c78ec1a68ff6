"""Code shared by the recipes: reads rows and writes random subsets of them."""

import json
import random
import sys


def fail(sentence):
    """Exits with one sentence and the exit code of a user error."""
    print(f"error: {sentence}", file=sys.stderr)
    sys.exit(2)


def json_lines(path):
    """The objects of a JSON Lines file."""
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                fail(f"{path}, line {number}: {error}")
            if not isinstance(row, dict):
                fail(f"{path}, line {number}: a JSON object is needed")
            yield row


def divide(rows, train, validation, seed, group=None):
    """Two random lists with these numbers of rows (None: nine tenths, and the rest). Rows with the
    same `group` are in the same list."""
    order = random.Random(seed)
    rows = list(rows)
    order.shuffle(rows)
    if train is None:
        train = len(rows) - (max(1, len(rows) // 10) if validation is None else validation)
    if validation is None:
        validation = len(rows) - train
    if train < 1 or validation < 0 or train + validation > len(rows):
        fail(f"there are {len(rows)} rows, of which {train} and {validation} cannot be drawn")
    if group is None:
        return rows[:train], rows[train : train + validation]
    groups = sorted({row[group] for row in rows})
    order.shuffle(groups)
    held_out, kept_out = set(), []
    for name in groups:
        if len(kept_out) >= validation:
            break
        held_out.add(name)
        kept_out += [row for row in rows if row[group] == name]
    inside = [row for row in rows if row[group] not in held_out]
    if len(inside) < train or len(kept_out) < validation:
        fail(f"only {len(inside)} rows are left to train on; ask for fewer, or for one division")
    order.shuffle(kept_out)
    return inside[:train], kept_out[:validation]


def write(folder, train, validation):
    """Writes train.jsonl and validation.jsonl."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in [("train", train), ("validation", validation)]:
        path = folder / f"{name}.jsonl"
        with open(path, "w", encoding="utf-8") as out:
            for row in rows:
                out.write(json.dumps(row, ensure_ascii=False) + "\n")
        print(f"{path}: {len(rows)} rows")
