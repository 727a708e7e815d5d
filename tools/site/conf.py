"""How Sphinx builds the site; tools/site/make starts it, with the settings that depend on the repository.

Sphinx with MyST and Furo, since all three are maintained, and read the documents unchanged.  mkdocs has had no release since 2024, and
mkdocs-material, which needs it, only gets fixes; its successor zensical is at 0.1 and has no hooks yet.  The site is self-contained:
Furo uses the reader's fonts, and the search runs in the browser.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

project = "hakmem"
extensions = ["myst_parser", "links"]
source_suffix = {".md": "markdown"}
root_doc = "index"
highlight_language = "none"  # an indented block may be a command, output or C; a fenced block names its language
smartquotes = False  # options begin with two hyphens

myst_heading_anchors = 4

html_theme = "furo"
html_title = "hakmem"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_permalinks_icon = "#"
html_theme_options = {"navigation_with_keys": False}
html_domain_indices = False
pygments_style = "friendly"
pygments_dark_style = "monokai"
toc_object_entries_show_parents = "hide"
