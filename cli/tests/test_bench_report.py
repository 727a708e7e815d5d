"""The report of hakmem bench, opened in Chromium."""

from __future__ import annotations

import html
import json
import re
import subprocess
from pathlib import Path

import pytest
from test_bench import DIES_UNDER_PEER, SLOWER_UNDER_HAKMEM, bench, tree  # noqa: F401, the fixtures

# Anything from elsewhere is refused by the policy, and the refusal is a line of the console.
POLICY = (
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; img-src data:\">"
)
PROBE = """
<script>addEventListener("load", () => {
  const size = (node) => { const box = node.getBoundingClientRect(); return [box.width, box.height]; };
  const all = (what) => [...document.querySelectorAll(what)];
  const found = {
    headings: all("h1, h2, h3").filter((node) => size(node)[1] > 0).map((node) => node.textContent),
    plots: Object.fromEntries(all("svg").map((node) => [node.id, size(node)])),
    ids: all("[id]").filter((node) => !node.closest("svg")).map((node) => node.id),
    texts: all("svg text").filter((node) => size(node)[0] > 0).map((node) => node.textContent.trim()),
    losses: all("#losses-seconds tbody tr td:first-child").map((node) => node.textContent),
    loss: all("#losses-seconds td.loss").map((node) => getComputedStyle(node).backgroundColor),
    failed: all("td.failed").map((node) => node.textContent),
    resources: performance.getEntriesByType("resource").map((entry) => entry.name),
    links: all("nav a").map((node) => document.querySelector(node.getAttribute("href")) !== null),
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  };
  const place = document.createElement("pre");
  place.id = "probe";
  place.textContent = JSON.stringify(found);
  document.body.append(place);
});</script>
"""


def visit(page: str, folder: Path) -> tuple[dict, list[str]]:
    """What Chromium shows of the page, and the lines of its console."""
    file = folder / "probed.html"
    file.write_text(page.replace("<head>", "<head>" + POLICY + PROBE, 1))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1300,900", "--enable-logging=stderr"]
    done = subprocess.run(
        ["chromium", *options, f"--user-data-dir={folder / 'profile'}", "--dump-dom", file.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    probe = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
    assert probe, done.stderr
    return json.loads(html.unescape(probe[1])), [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.fixture
def page(bench, tree) -> str:  # noqa: F811
    for threads in ("1", "2"):
        tree.add(f"lost-{threads}", [*SLOWER_UNDER_HAKMEM, threads], f"threads = {threads}", family="lost")
    tree.add("dies", DIES_UNDER_PEER)
    bench("--brief")
    return (tree.output / "report.html").read_text()


def test_the_report_opens_complete_and_alone(page, tmp_path):
    shown, console = visit(page, tmp_path)
    assert console == [] and shown["resources"] == []
    assert not re.search(r"https?:|//\w", re.sub(r"<code>.*?</code>|data:image/[^\"']+", "", page))
    for heading in ("Summary", "Where hakmem is not first: time", "Time against memory", "Scaling with threads"):
        assert heading in shown["headings"]
    assert sorted(shown["plots"]) == ["plot-heat-memory", "plot-heat-time", "plot-scaling", "plot-scatter"]
    assert all(width > 150 and height > 80 for width, height in shown["plots"].values()), shown["plots"]
    assert {"hakmem", "peer", "lost-1", "failed"} <= set(shown["texts"])
    assert all(shown["links"]) and len(set(shown["ids"])) == len(shown["ids"])
    assert shown["wide"] <= 0  # only tables and plots scroll sideways


def test_losses_and_failures_are_marked(page, tmp_path):
    shown, _ = visit(page, tmp_path)
    assert sorted(shown["losses"]) == ["lost-1", "lost-2"]
    assert shown["loss"] == ["rgb(255, 220, 214)"] * 2
    assert "died of SIGSEGV: broken" in shown["failed"] and "failed" in shown["failed"]


def test_the_probe_sees_what_must_not_be(tmp_path):
    bad = '<html><head></head><body><img src="https://example.com/a.png"><script>absent()</script></body></html>'
    _, console = visit(bad, tmp_path)
    assert any("absent is not defined" in line for line in console)
    assert any("example.com" in line for line in console)
