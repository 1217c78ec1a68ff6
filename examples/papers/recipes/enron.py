"""Training files of mails, from the Enron corpus.

    python3 examples/papers/recipes/enron.py RAW --out data/enron

RAW is either the corpus as published (the folder "maildir" with one mail per file) or a JSON Lines
file with "headers" and "body" in each line. Quoted and forwarded parts are removed, and duplicate
texts (the corpus has the sender's and the receiver's copies) are kept once. A row has the mail's
text and its author: with data.author = "author", the author is the privacy unit.
"""

import argparse
import email
import email.policy
import pathlib
import re

from common import divide, fail, json_lines, write

# Patterns that mark the beginning of quoted or forwarded text.
QUOTED = re.compile(
    r"^(\s*-{2,}\s*(Original Message|Forwarded by|Inline attachment)"
    r"|\s*>|\s*_{10,}|\s*From:\s|\s*To:\s"
    r"|.{0,80}\bon\s+\d\d/\d\d/\d{2,4}\s+\d\d:\d\d(:\d\d)?\s+[AP]M"
    r"|\s*\d\d/\d\d/\d{2,4}\s+\d\d:\d\d(:\d\d)?\s+[AP]M)",
    re.IGNORECASE,
)


def own_words(body):
    """The text up to the first line that quotes, forwards or repeats a header."""
    lines = []
    for line in body.replace("\r\n", "\n").split("\n"):
        if QUOTED.match(line):
            break
        lines.append(" ".join(line.split()))
    # The sender's name above a date belongs to the quotation: "\tStinson Gibner@ECT".
    while lines and (not lines[-1] or lines[-1].endswith(("@ECT", "@ENRON", "@Enron"))):
        lines.pop()
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def mails(raw):
    """(author, body) of each mail."""
    if raw.is_dir():
        for path in sorted(path for path in raw.rglob("*") if path.is_file()):
            mail = email.message_from_bytes(path.read_bytes(), policy=email.policy.compat32)
            body = mail.get_payload(decode=True)
            if mail.get("From") and body is not None:
                yield str(mail["From"]), body.decode("utf-8", "replace")
    else:
        for number, row in enumerate(json_lines(raw)):
            if "body" not in row:
                fail(f"{raw}: row {number + 1} has no body")
            yield str((row.get("headers") or {}).get("From", "")), row["body"]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("raw", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("data/enron"))
    parser.add_argument("--shortest", type=int, default=40, help="shorter texts are left out")
    parser.add_argument("--train", type=int, help="mails [default: nine tenths]")
    parser.add_argument("--validation", type=int, help="[default: the rest]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--separate-authors", action="store_true", help="no author is in both files"
    )
    asked = parser.parse_args()
    if not asked.raw.exists():
        fail(f"{asked.raw} does not exist")
    rows, seen = [], set()
    for author, body in mails(asked.raw):
        text = own_words(body)
        if len(text) >= asked.shortest and text not in seen:
            seen.add(text)
            rows.append({"author": author.strip().lower(), "text": text})
    if not rows:
        fail(f"{asked.raw} holds no mails: give the folder maildir, or a JSON Lines file")
    group = "author" if asked.separate_authors else None
    write(asked.out, *divide(rows, asked.train, asked.validation, asked.seed, group))


if __name__ == "__main__":
    main()
