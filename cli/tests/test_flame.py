"""hakmem profile --html: one page, opened in Chromium."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from heap import Heap, mixed, of_code, text_of

from hakmem import flame
from hakmem.symbols import Symbols

SMALL = Heap({64: mixed({2: 30_000, 3: 10_000}, free=500), 48: mixed({2: 3})}, [(4, 3 << 20)])

# Anything from elsewhere is refused by the policy, and the refusal is a line of the console.
POLICY = (
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'\">"
)
PROBE = """
<script>addEventListener("load", () => {
  const boxes = () => [...document.querySelectorAll("#graph button")].map((node) => {
    const place = node.getBoundingClientRect();
    return { name: node.textContent, width: place.width, top: place.top, found: node.classList.contains("found") };
  });
  const say = { whole: boxes(), rows: [...document.querySelectorAll("#rows tr")].map((row) => row.textContent) };
  say.heading = document.querySelector("#heading").textContent;
  [...document.querySelectorAll("#graph button")].find((node) => node.textContent === "program+0x103f").click();
  say.zoomed = boxes();
  document.querySelector("#reset").click();
  say.again = boxes();
  const search = document.querySelector("#search");
  search.value = "0X103F";
  search.dispatchEvent(new Event("input"));
  say.searched = boxes();
  say.hits = document.querySelector("#hits").textContent;
  say.resources = performance.getEntriesByType("resource").length;
  const place = document.createElement("pre");
  place.id = "probe";
  place.textContent = JSON.stringify(say);
  document.body.append(place);
});</script>
"""


@pytest.fixture
def taken():
    found = SMALL.sampled(1)
    found.mappings = [of_code("/opt/program")]
    return found


class Outline(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.script = ""

    def handle_starttag(self, tag, attributes) -> None:
        assert not {"src", "href"} & {name for name, _ in attributes}
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data) -> None:
        if self.open and self.open[-1] == "script":
            self.script += data


def data_of(page: str) -> dict:
    outline = Outline()
    outline.feed(page)
    outline.close()
    assert outline.open == []
    return json.loads(re.search(r"^const data = (.*);$", outline.script, re.MULTILINE)[1])


def test_page_is_whole_and_sums(taken):
    data = data_of(flame.page(taken, Symbols(taken)))
    tree = data["tree"]
    assert tree["v"] == taken.live_bytes == sum(row["live"] for row in data["rows"])
    assert sum(each["v"] for each in tree["c"]) == tree["v"]
    main = tree["c"][0]
    assert [each["n"] for each in main["c"]] == ["program+0x3f", "program+0x1f", "program+0x2f"]
    assert [row["error"] is None for row in data["rows"]].count(True) == 1  # not sampled


def test_names_cannot_end_the_script(taken):
    taken.mappings = [of_code("/opt/</script><script>alert(1)</script>")]
    assert "script>alert" in json.dumps(data_of(flame.page(taken, Symbols(taken))))


def test_page_works_without_a_network(hakmem, taken, tmp_path):
    chromium = shutil.which("chromium")
    if not chromium:
        pytest.skip("no chromium")
    taken.mappings = [of_code("/opt/program", offset=0x1000)]
    file, out, probed = tmp_path / "heap", tmp_path / "heap.html", tmp_path / "probed.html"
    file.write_text(text_of(taken))
    assert hakmem("profile", str(file), "--html", str(out)).returncode == 0
    probed.write_text(out.read_text().replace("<head>", "<head>" + POLICY + PROBE, 1))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1300,900", "--enable-logging=stderr"]
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    done = subprocess.run(
        [chromium, *options, profile, "--dump-dom", probed.as_uri()], capture_output=True, text=True, timeout=120
    )
    found = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    say = json.loads(html.unescape(found[1]))
    assert say["resources"] == 0
    assert "one for each 128.0 KiB" in say["heading"]
    whole = {box["name"]: box for box in say["whole"]}
    assert whole["program+0x103f"]["width"] == pytest.approx(
        whole["live"]["width"] * (3 << 20) / taken.live_bytes, abs=1
    )
    assert whole["live"]["top"] < whole["program+0x100f"]["top"] < whole["program+0x103f"]["top"]
    zoomed = {box["name"]: box["width"] for box in say["zoomed"]}
    assert zoomed == {name: whole["live"]["width"] for name in ("live", "program+0x100f", "program+0x103f")}
    assert say["again"] == say["whole"]
    assert [box["name"] for box in say["searched"] if box["found"]] == ["program+0x103f"]
    assert say["hits"].startswith("3.0 MiB")
    assert say["rows"][0].startswith("3.0 MiB0 B")
