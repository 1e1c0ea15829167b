"""Settings of Sphinx for `make docs`: Markdown by MyST, formulas as MathML, nothing to load."""

import importlib
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE / "extensions")]

import scaling  # noqa: E402

project = "scaling"
author = "the authors of scaling"
copyright = author
release = scaling.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "mathml",
    "source_pages",
    "docstrings",
]
exclude_patterns = ["extensions"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
default_role = "code"  # docstrings write `names` as Markdown does

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
myst_dmath_double_inline = False
html_math_renderer = "mathml"

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = "scaling"
html_show_sourcelink = False
html_copy_source = False
html_static_path = ["extensions/static"]
html_css_files = ["docs.css"]
# The search quotes what it finds from the pages, which a browser fetches of a server alone.
QUOTES = 'if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;'
html_js_files = [(None, {"body": QUOTES})]

# Names are loaded when they are first used: all are, so that they are found.
for package in (scaling, scaling.learn):
    for name, module in package._MODULES.items():
        vars(package)[name] = getattr(importlib.import_module(module), name)
