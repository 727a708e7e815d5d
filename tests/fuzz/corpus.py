#!/usr/bin/env python3
"""Packs and unpacks the kept inputs of a fuzz target: corpus/TARGET/coverage.hex, one input a line, and the inputs that have names.

  corpus.py unpack TARGET FOLDER   writes each kept input to a file, for libFuzzer or afl-fuzz: line 17 becomes coverage-017
  corpus.py pack TARGET FOLDER     writes the files of FOLDER to coverage.hex, except those that are kept under a name
  corpus.py count TARGET           prints how many inputs are kept
"""
import pathlib
import sys

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus"


def named(target):
    return {path.name: path.read_bytes() for path in (CORPUS / target).iterdir() if path.suffix != ".hex"}


def packed(target):
    path = CORPUS / target / "coverage.hex"
    return [bytes.fromhex(line) for line in path.read_text().splitlines()] if path.exists() else []


def unpack(target, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in named(target).items():
        (folder / name).write_bytes(content)
    for number, content in enumerate(packed(target), 1):
        (folder / f"coverage-{number:03}").write_bytes(content)


def pack(target, folder):
    """Writes coverage.hex, sorted by length, so that later additions change few lines."""
    contents = {path.read_bytes() for path in folder.iterdir() if path.is_file()} - set(named(target).values())
    lines = [content.hex() + "\n" for content in sorted(contents, key=lambda content: (len(content), content))]
    (CORPUS / target / "coverage.hex").write_text("".join(lines))


def main(verb, target, *folder):
    if verb == "count":
        print(len(named(target)) + len(packed(target)))
    elif verb in ("pack", "unpack"):
        {"pack": pack, "unpack": unpack}[verb](target, pathlib.Path(*folder))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
