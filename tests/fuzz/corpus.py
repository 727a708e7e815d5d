#!/usr/bin/env python3
"""Packs and unpacks the kept inputs of a fuzz target: corpus/TARGET/coverage.hex, one input a line, beside the inputs that have a name.

  corpus.py unpack TARGET FOLDER   every kept input as a file of its own, for libFuzzer or afl-fuzz: line 17 is coverage-017
  corpus.py pack TARGET FOLDER     the files of FOLDER become coverage.hex, but for those that have a name
  corpus.py count TARGET           how many inputs are kept
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
    """Sorted by length, so that what is added later changes few lines."""
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
