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


def run(folder, *words: str, stdout=subprocess.PIPE, stderr=subprocess.PIPE, command=(HAKMEM,), **variables: str):
    """With streams that the fixture `hakmem` has no other use for."""
    return subprocess.run(
        [*command, *words],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        cwd=folder,
        env=plain_environment() | variables,
        timeout=120,
    )


# ---- Standard output and error ----


def test_remarks_are_dropped_where_standard_error_is_closed(files):
    shell = ["sh", "-c", 'exec "$0" run --stats -- echo said 2>&-', HAKMEM]
    done = subprocess.run(shell, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=plain_environment(), timeout=120)
    assert (done.returncode, done.stdout) == (0, b"said\n")


def closed(folder, *words: str, **variables: str) -> subprocess.CompletedProcess:
    """With standard output closed."""
    return run(folder, *words, stdout=None, command=("sh", "-c", 'exec "$0" "$@" >&-', HAKMEM), **variables)


@each_run
def test_where_standard_output_is_closed_nothing_is_written(files, words, unbuffered):
    result = closed(files, *words, PYTHONUNBUFFERED=unbuffered)
    assert (result.returncode, b"Traceback" in result.stderr) == (0, False), result.stderr


def test_a_file_for_standard_output_that_is_closed_is_one_line(files):
    for option in ("--save", "--pprof", "--html"):
        result = closed(files, "profile", option, "-", "heap")
        assert (result.returncode, result.stderr) == (1, b"hakmem: standard output: Bad file descriptor\n")


def test_a_comparison_and_a_watch_without_standard_output_have_no_traceback(files):
    result = closed(files, "run", "--compare", "--repetitions", "3", "true")
    assert (result.returncode, b"Traceback" in result.stderr) == (0, False), result.stderr
    result = closed(files, "top", str(os.getpid()))
    assert result.returncode == 2 and b"watching a process needs a terminal" in result.stderr


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


# ---- Files ----


def test_a_file_that_has_no_room_is_named(files):
    for words in (("--json",), ("--markdown",)):
        result = run(files, "run", "--compare", "--repetitions", "3", *words, "/dev/full", "--", "true")
        assert (result.returncode, result.stderr) == (1, b"hakmem: /dev/full: No space left on device\n")
    for option in ("--pprof", "--html", "--save"):
        result = run(files, "profile", "heap", option, "/dev/full")
        assert (result.returncode, result.stderr) == (1, b"hakmem: /dev/full: No space left on device\n")


@pytest.mark.parametrize("option", ["--pprof", "--html", "--save"])
def test_what_is_read_is_not_written_over(files, option):
    before = (files / "heap").read_bytes()
    os.link(files / "heap", files / "same")
    for name in ("heap", "./heap", "same"):
        result = run(files, "profile", "heap", option, name)
        assert (result.returncode, result.stdout) == (1, b"")
        assert result.stderr == f"hakmem: {name}: it would overwrite what is read; name another file\n".encode()
    assert (files / "heap").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("profile", "heap", "--html", "out", "--since", "heap", "--save", "heap"), "heap"),
        (("blackbox", "heap", "--save", "heap"), "heap"),
        (("run", "--leaks", "--baseline", "heap", "--profile", "heap", "--", "true"), "heap"),
        (("profile", "heap", "--html", "out", "--save", "./out"), "./out"),
    ],
)
def test_nor_is_one_file_two(files, words, named):
    before = (files / "heap").read_bytes()
    result = run(files, *words)
    assert result.returncode == 1
    assert result.stderr.startswith(f"hakmem: {named}: ".encode()) and result.stderr.count(b"\n") == 1
    assert (files / "heap").read_bytes() == before and not (files / "out").exists()


def test_what_is_no_file_may_be_named_twice(files):
    assert run(files, "profile", "heap", "--pprof", "/dev/null", "--save", "/dev/null").returncode == 0
    assert run(files, "profile", "heap", "--save", "-").stdout.endswith(b"\nend\n")


@pytest.mark.parametrize(
    "words",
    [
        ("profile", "heap", "--pprof", "heap/"),
        ("profile", "heap", "--save", "new/"),
        ("metrics", "--textfile", "heap/"),
        ("run", "--compare", "--json", "heap/", "--", "true"),
        ("run", "--stats-file", "new/", "--", "true"),
    ],
    ids=" ".join,
)
def test_a_slash_names_a_directory(files, words):
    before = (files / "heap").read_bytes()
    result = run(files, *words)
    assert result.returncode == 2 and b"/' names a directory" in result.stderr
    assert (files / "heap").read_bytes() == before and not (files / "new").exists()


@pytest.mark.parametrize("words", [("profile", "heap", "--save", ""), ("profile", "heap", "--html", ""), ("run", "--profile", "", "true")])
def test_an_empty_name_is_none(files, words):
    result = run(files, *words)
    assert result.returncode == 2 and b"the name is empty" in result.stderr


@pytest.mark.parametrize("seconds", ["nan", "inf", "1e300"])
@pytest.mark.parametrize(
    "words",
    ["arm --seconds", "collect --seconds", "top --seconds", "profile --interval", "profile --events", "metrics --textfile F --seconds"],
)
def test_what_is_no_time_to_wait_for_is_refused(hakmem, words, seconds):
    result = hakmem(*words.split(), seconds, "1")
    assert result.returncode == 2
    assert "is not a valid number of seconds" in result.stderr
