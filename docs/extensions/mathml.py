"""Formulas as MathML, which browsers draw without scripts or fonts of their own."""

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _inline(writer: HTML5Translator, node: nodes.Element) -> None:
    writer.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block(writer: HTML5Translator, node: nodes.Element) -> None:
    writer.body.append(f'<div class="formula">{convert(node.astext(), display="block")}</div>\n')
    raise nodes.SkipNode
