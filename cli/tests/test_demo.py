"""hakmem demo: what a newcomer sees first."""


def test_demo_compares_both_parts(hakmem):
    result = hakmem("demo", "--repetitions", "3")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count("peak resident set") == 2
    assert "PYTHONMALLOC=malloc" in result.stdout
