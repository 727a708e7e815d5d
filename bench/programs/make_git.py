"""Writes a stream for `git fast-import`: files of generated lines that commits change a little, as sources are changed.

    make_git.py COMMITS
"""
import random
import sys

FILES = 40
LINES = 300
CHANGED = 3  # files in a commit
WORDS = "alpha beta gamma delta block slab chunk page heap cache owner remote free list bin class unit".split()


def line(dice):
    return "  " * dice.randrange(4) + " ".join(dice.choices(WORDS, k=dice.randint(2, 9))) + f" {dice.randrange(10**6)}"


def change(lines, dice):
    for _ in range(dice.randint(1, 8)):
        at = dice.randrange(len(lines))
        lines[at : at + dice.randrange(3)] = [line(dice) for _ in range(dice.randrange(1, 3))]


def data(text):
    return f"data {len(text)}\n{text}\n"


def main(commits):
    dice = random.Random(1)
    files = {f"folder{n % 7}/file{n}.txt": [line(dice) for _ in range(LINES)] for n in range(FILES)}
    for number in range(commits):
        sys.stdout.write(f"commit refs/heads/main\ncommitter A <a@example.com> {10**9 + number} +0000\n" + data(f"Change {number}"))
        for name in files if number == 0 else dice.sample(sorted(files), CHANGED):
            change(files[name], dice)
            sys.stdout.write(f"M 644 inline {name}\n" + data("\n".join(files[name]) + "\n"))
    sys.stdout.write("done\n")


main(int(sys.argv[1]))
