"""Links from the documents into the repository, on the site: an extension for Sphinx.

The site has the folders of the repository, so a link between documents is the same in both.  A link to a file or folder leads to a
page that shows it, which is made here; a link to README.md leads to the site's first page.  Names of the interface become links to
their descriptions.
"""
import html
import pathlib
import posixpath
import shutil

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx import addnodes
from sphinx.util import logging

log = logging.getLogger(__name__)


class Links:
    """The links of one build."""

    def __init__(self, app):
        self.app, self.shown = app, set()
        app.connect("doctree-read", self.read, priority=100)  # before Sphinx treats files as downloads
        app.connect("html-collect-pages", self.pages)

    @property
    def repository(self):
        return pathlib.Path(self.app.config.repository)

    def read(self, app, tree):
        docname = app.env.docname
        for node in list(tree.findall(lambda node: isinstance(node, (addnodes.pending_xref, addnodes.download_reference)))):
            if node.get("reftype") == "myst" and node.get("refdomain") != "doc":
                self.lead(node, docname)
        for node in list(tree.findall(nodes.literal)):
            self.name(node)

    def lead(self, node, docname):
        """Makes a link to something that is no document of the site lead to what the repository has there."""
        target, _, fragment = node["reftarget"].partition("#")
        if not target:
            return  # a heading of this page
        path = posixpath.normpath(posixpath.join(posixpath.dirname(docname), target))
        where = self.repository / path
        if path.startswith("..") or not where.exists():
            return  # MyST reports it
        if path.endswith(".md") and path != "README.md":
            log.warning("%s has no place among the pages: give it one in tools/site/navigation.txt", path, location=node)
            return
        pages = self.app.env.found_docs
        page = "index" if path == "README.md" else path if where.is_file() else path + "/README"
        if page not in pages:
            self.shown.add(path)
            page = path if where.is_file() else path + "/index"
        uri = posixpath.relpath(page + ".html", posixpath.dirname(docname) or ".") + ("#" + fragment if fragment else "")
        link = nodes.reference("", "", internal=True, refuri=uri)
        link += [child.deepcopy() for child in node.children]
        node.replace_self(link)

    def name(self, node):
        """Turns a name of the interface in the text into a link."""
        word = node.astext().removesuffix("()")
        kind = self.app.config.interface.get(word)
        if not kind or isinstance(node.parent, (nodes.reference, addnodes.pending_xref, nodes.title)):
            return
        domain, _, role = kind.partition(":")
        role = {"function": "func"}.get(role, role)
        link = addnodes.pending_xref("", refdomain=domain, reftype=role, reftarget=word, refexplicit=True, refwarn=True,
                                     refdoc=self.app.env.docname)
        node.replace_self(link)
        link += node

    def pages(self, app):
        """The pages of files and folders that links lead to."""
        for path in sorted(self.shown):
            where = self.repository / path
            if where.is_dir():
                names = sorted(entry.name + "/" * entry.is_dir() for entry in where.iterdir() if not entry.name.startswith((".", "__pycache__")))
                body = "<ul>" + "".join(f"<li><code>{html.escape(name)}</code></li>" for name in names) + "</ul>"
                yield path + "/index", self.context(path, body), "page.html"
            elif where.suffix in (".svg", ".png"):
                to = pathlib.Path(app.outdir, path)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(where, to)
                yield path, self.context(path, f'<img src="{html.escape(where.name)}" alt="">'), "page.html"
            else:
                yield path, self.context(path, self.shown_file(where)), "page.html"

    @staticmethod
    def context(path, body):
        return {"title": path, "body": f"<section><h1>{html.escape(path)}</h1>{body}</section>", "pageurl": None}

    @staticmethod
    def shown_file(where):
        text = where.read_text(errors="replace")
        try:
            lexer = get_lexer_for_filename(where.name, text)
        except ClassNotFound:
            lexer = TextLexer()
        return highlight(text, lexer, HtmlFormatter(cssclass="highlight", linenos="inline", lineanchors="L", anchorlinenos=False))


def setup(app):
    app.add_config_value("repository", "", "env")
    app.add_config_value("interface", {}, "env")
    Links(app)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
