"""What a command writes: all of it arrives, or one line and the exit code say that it did not."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import click
import pytest
from click.testing import CliRunner
from conftest import HAKMEM, plain_environment
from heap import Heap, mixed, of_code, text_of

from hakmem.command_line import ERROR, CommandLine, Judging

HEAP = Heap({64: mixed({2: 3000, 3: 1000}, free=50), 4096: mixed({2: 100})}, [(4, 3 << 20)])
COMMANDS = [
    ("options",),
    ("options", "--help"),
    ("stats", "stats.json"),
    ("profile", "heap"),
    ("profile", "--json", "heap"),
    ("resident", "heap"),
    ("diff", "heap", "heap"),
    ("diff", "--json", "heap", "heap"),
    ("metrics", "--functions", "0", str(os.getpid())),
    ("top", "--json"),
]
RUNS = [(words, "") for words in COMMANDS] + [(("options",), "1"), (("profile", "heap"), "1"), (("diff", "heap", "heap"), "1")]
each_run = pytest.mark.parametrize(("words", "unbuffered"), RUNS)  # of PYTHONUNBUFFERED "" is as if it were not set


@pytest.fixture
def files(tmp_path):
    taken = HEAP.sampled(3)
    taken.mappings = [of_code("/nowhere/program")]
    (tmp_path / "heap").write_text(text_of(taken))
    (tmp_path / "stats.json").write_text(json.dumps({"live": 1 << 20, "committed": 2 << 20}))
    return tmp_path


def run(folder, *words: str, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **variables: str):
    """With streams that the fixture `hakmem` has no other use for."""
    return subprocess.run(
        [HAKMEM, *words],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        cwd=folder,
        env=plain_environment() | variables,
        timeout=120,
    )


# ---- Standard output and error ----


@each_run
def test_output_that_does_not_arrive_is_one_line(files, words, unbuffered):
    with open("/dev/full", "w") as full:
        result = run(files, *words, stdout=full, PYTHONUNBUFFERED=unbuffered)
    assert result.stderr == b"hakmem: standard output: No space left on device\n"
    assert result.returncode == (ERROR if words[0] == "diff" and "--help" not in words else 1)


@each_run
def test_a_command_whose_reader_has_gone_ends_of_sigpipe(files, words, unbuffered):
    """As others do: diff's exit code 1 would say that something has changed."""
    reader, writer = os.pipe()
    os.close(reader)
    result = run(files, *words, stdout=writer, PYTHONUNBUFFERED=unbuffered)
    os.close(writer)
    assert (result.returncode, result.stderr) == (-signal.SIGPIPE, b"")


def test_errors_that_do_not_arrive_are_no_change(files):
    with open("/dev/full", "w") as full:
        result = run(files, "diff", "heap", "heap", stderr=full)
    assert b"no site changed" in result.stdout
    assert result.returncode == ERROR  # the remark that the program can't be opened


def test_what_the_encoding_lacks_is_a_question_mark(files):
    for variables in ({"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}):
        result = run(files, "profile", "heap", **variables)
        assert (result.returncode, result.stderr) == (0, b"hakmem: /nowhere/program: it can't be opened: No such file or directory\n")
        assert b"?: standard error" in result.stdout


# ---- Commands that judge ----


@pytest.mark.parametrize(
    ("raised", "code"),
    [(ValueError("a fault"), ERROR), (OSError(5, "Input/output error", "x"), ERROR), (SystemExit(1), 1), (SystemExit(0), 0)],
)
def test_only_an_answer_is_taken_for_one(raised, code):
    @click.group(cls=CommandLine)
    def commands():
        pass

    @commands.command(cls=Judging)
    def judge():
        raise raised

    result = CliRunner().invoke(commands, ["judge"])
    assert result.exit_code == code
    if isinstance(raised, OSError):
        assert result.output == "hakmem: x: Input/output error\n"
