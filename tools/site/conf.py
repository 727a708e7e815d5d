"""How Sphinx builds the site; tools/site/make starts it, with the settings that depend on the repository.

Sphinx with MyST and Furo, since all three are kept, and read the documents as they are.  mkdocs has had no release since 2024, and
mkdocs-material, which needs it, only mends what breaks; zensical, which follows, is at 0.1 and has no hooks yet.  Everything is in the
site itself: Furo uses the reader's fonts, and the search runs in the browser.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

project = "hakmem"
extensions = ["myst_parser", "links"]
source_suffix = {".md": "markdown"}
root_doc = "index"
highlight_language = "none"  # what is indented is a command, output or C: a block with a fence says what it is
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
