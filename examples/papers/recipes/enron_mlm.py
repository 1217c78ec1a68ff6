#!/usr/bin/env python3
"""Converts the Enron mails to the files on which anadp-figure1 trains a masked language model.

    examples/papers/recipes/enron_mlm.py SOURCE --out data/enron-mlm

SOURCE is one of
  a folder       the mails as published, one file each (maildir/skilling-j/sent/1.)
  *.csv          a column "message" with whole mails
  *.jsonl, *.gz  JSON lines with "body", and "headers" or "From" and "Subject" if known

OUT/train.jsonl and OUT/validation.jsonl have one line {"text": …, "author": …} per mail, with its
subject and body. Mails with the same text, which are frequent in the corpus, are kept once, so that
a secret is not trained on more often than it was written. As in ANADP's experiment ("contexts
containing private information"), mails without a phone number or an address are omitted; --all
keeps them. The split is by author: no author is in both files. Needs only Python 3.9.
"""

import argparse
import csv
import email
import email.policy
import gzip
import hashlib
import json
import pathlib
import re

from common import fail

PHONE = re.compile(r"(?<![A-Za-z0-9])(?:\(\d{3}\) ?|\d{3}[-. ])\d{3}[-. ]\d{4}(?![A-Za-z0-9])")
ADDRESS = re.compile(r"[A-Za-z0-9][\w.%+'-]*@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|\b\d{1,5} [A-Z][a-z]+ (?:Street|St|Avenue|Ave|Road|Rd|Drive|Dr)\b")


def parsed(raw):
    """Author, subject and body of a mail in its original form."""
    mail = email.message_from_bytes(raw, policy=email.policy.compat32)
    parts = [part for part in mail.walk() if part.get_content_type() == "text/plain"]
    body = "\n".join((part.get_payload(decode=True) or b"").decode("utf-8", "replace") for part in parts)
    return str(mail.get("From", "")), str(mail.get("Subject", "")), body


def of_folder(folder):
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield parsed(path.read_bytes())


def of_csv(path):
    csv.field_size_limit(1 << 30)
    with open(path, newline="", encoding="utf-8", errors="replace") as file:
        for row in csv.DictReader(file):
            if "message" not in row:
                fail(f"{path} has no column \"message\"")
            yield parsed(row["message"].encode())


def of_lines(path):
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                mail = json.loads(line)
                headers = mail.get("headers", mail)
                yield str(headers.get("From", "")), str(headers.get("Subject", "")), mail["body"]
            except (ValueError, KeyError, AttributeError) as problem:
                fail(f"{path}:{number}: is no mail with a body ({problem})")


def mails(source):
    if source.is_dir():
        return of_folder(source)
    if source.suffix == ".csv":
        return of_csv(source)
    if source.suffix in (".jsonl", ".gz"):
        return of_lines(source)
    fail(f"{source} is neither a folder nor .csv, .jsonl or .jsonl.gz")


def share(text):
    """A number from 0 to 1 that depends only on the text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big") / (1 << 56)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder of the two files")
    parser.add_argument("--validation", type=float, default=0.1, help="share of the authors whose mails are for validation")
    parser.add_argument("--all", action="store_true", help="keep mails without a phone number or an address, too")
    parser.add_argument("--most", type=int, help="at most so many mails, the first that qualify")
    args = parser.parse_args()
    if not args.source.exists():
        fail(f"{args.source} does not exist")
    if not 0 < args.validation < 1:
        fail("--validation must lie between 0 and 1")
    args.out.mkdir(parents=True, exist_ok=True)
    seen, counts = set(), {"train": 0, "validation": 0}
    files = {name: open(args.out / f"{name}.jsonl", "w", encoding="utf-8") for name in counts}
    for author, subject, body in mails(args.source):
        text = f"{subject.strip()}\n\n{body.strip()}".strip()
        key = hashlib.sha256(" ".join(text.split()).encode()).digest()
        if not text or key in seen or not (args.all or PHONE.search(text) or ADDRESS.search(text)):
            continue
        seen.add(key)
        name = "validation" if share(author) < args.validation else "train"
        files[name].write(json.dumps({"text": text, "author": author}, ensure_ascii=False) + "\n")
        counts[name] += 1
        if sum(counts.values()) == args.most:
            break
    for file in files.values():
        file.close()
    if not all(counts.values()):
        fail(f"{args.source}: {counts['train']} mails to train on and {counts['validation']} for validation; both files need some")
    print(f"{counts['train']} mails to train on, {counts['validation']} for validation, in {args.out}")


if __name__ == "__main__":
    main()
