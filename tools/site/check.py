"""Checks a built site as a reader's browser would see it: every link has a target, and nothing is fetched from elsewhere."""
import html.parser
import pathlib
import re
import urllib.parse

# What a browser fetches without a click.
FETCHED = {("img", "src"), ("script", "src"), ("link", "href"), ("source", "src"), ("iframe", "src"), ("object", "data")}


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.anchors, self.links, self.fetched = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value)
            elif (tag, name) in FETCHED:
                self.fetched.append(value)
            elif tag == "a" and name == "href":
                self.links.append(value)


def outside(url):
    return bool(re.match(r"[a-z]+:|//", url)) and not url.startswith("data:")


def problems(output):
    """A line for each link without a target, and for each thing that a page fetches from elsewhere."""
    output = pathlib.Path(output).resolve()
    pages = {path: Page(path.read_text()) for path in sorted(output.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(output)
        for url in page.fetched:
            if outside(url):
                yield f"{name}: fetches {url}"
        for url in [*page.links, *page.fetched]:
            if outside(url) or url.startswith("data:"):
                continue
            parts = urllib.parse.urlsplit(url)
            to = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if not to.is_file() or output not in to.parents:
                yield f"{name}: leads to {url}, which is not there"
            elif parts.fragment and to in pages and urllib.parse.unquote(parts.fragment) not in pages[to].anchors:
                yield f"{name}: leads to {url}, where there is no such place"
    for path in sorted(output.rglob("*.css")):
        for url in re.findall(r"url\(\s*['\"]?([^'\")]+)", path.read_text()) + re.findall(r"@import\s+['\"]([^'\"]+)", path.read_text()):
            if outside(url):
                yield f"{path.relative_to(output)}: fetches {url}"
