"""Sphinx's settings for the site of documents: `make docs`.

The source directory is the root of the repository, so that README.md and docs/cluster.md have the
same relative links on the site and on a code host. `navigation.py` has the tree of pages.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from docs.site import extension  # noqa: E402

project = "Weft"
copyright = "the authors of Weft, Apache-2.0"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "docs/README"

# --- pages: Markdown of the root, of docs and of examples; Sphinx need not walk other folders ---
FOLDERS = ("docs", "examples")
include_patterns = ["*.md", *(f"{folder}/**" for folder in FOLDERS)]
exclude_patterns = [
    path.name for path in ROOT.iterdir() if path.is_dir() and path.name not in FOLDERS
] + ["docs/site", "**/node_modules"]

# --- Markdown: headings have the anchors that a code host gives them, so that links are checked ---
myst_heading_anchors = 6
# `--flag` in a sentence must not become a dash.
smartquotes = False

# --- docstrings: backticks enclose code, as in the Markdown of the documents ---
default_role = "code"
autodoc_member_order = "bysource"
autodoc_default_options = {
    "members": True,
    "undoc-members": True,
    # Members of Weft's own base classes are listed, those of Python's and msgspec's are not.
    "inherited-members": "object,BaseException,Exception,Struct,dict,int",
    "exclude-members": "of, __init__, __new__",
}
# Without a network there is no index of Python's own names: only names of Weft must resolve.
nitpick_ignore_regex = [(r"py:.*", r"(?!weft\b).*")]

# --- looks ---
html_theme = "furo"
html_title = "Weft"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
html_static_path = ["style.css"]
html_css_files = ["style.css"]
# A longer signature has one argument a line.
python_maximum_signature_line_length = 88

setup = extension.setup
