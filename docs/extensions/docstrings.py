"""Docstrings as they are written here, for Sphinx.

An indented block is text to show as it is. The comments beside the fields of a dataclass are their
documentation, and the fields stand in place of its signature.
"""

import ast
import inspect
import io
import textwrap
import tokenize
from dataclasses import is_dataclass
from typing import Any

from sphinx.application import Sphinx

Comments = dict[int, tuple[str, bool]]  # by line: the words, and whether nothing stands before them


def setup(app: Sphinx) -> dict[str, Any]:
    """Register all."""
    app.connect("autodoc-process-docstring", _process, priority=400)  # before napoleon
    app.connect("autodoc-process-signature", _signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _process(app: Sphinx, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    lines[:] = _shown(lines)
    if what == "class" and is_dataclass(found):
        lines += ["", "Fields:", "", *_fields(found), ""]


def _signature(
    app: Sphinx, what: str, name: str, found: Any, options: Any, signature: str, returned: str
) -> tuple[str, str] | None:
    return ("", "") if what == "class" and is_dataclass(found) else None


def _shown(lines: list[str]) -> list[str]:
    """The lines with `::` before every block that is indented behind a blank line."""
    shown: list[str] = []
    inside = False
    for before, line in zip(["", *lines], lines, strict=False):
        starts = line.startswith("    ") and not before.strip()
        if starts and not inside and not _in_section(shown):
            shown += ["::", ""]
            inside = True
        elif line.strip() and not line.startswith(" "):
            inside = False
        shown.append(line if inside or "`" in line else line.replace("|", r"\|"))
    return shown


def _in_section(lines: list[str]) -> bool:
    """True below a heading such as `Args:`, which napoleon reads."""
    heads = [line for line in lines if line.strip() and not line.startswith(" ")]
    return bool(heads) and heads[-1].rstrip() in ("Args:", "Raises:", "Returns:", "Warns:")


def _fields(found: type) -> list[str]:
    """A bullet for each field of the class itself: name, type, default and comment."""
    source = textwrap.dedent(inspect.getsource(found))
    comments = _comments(source)
    (tree,) = ast.parse(source).body
    assert isinstance(tree, ast.ClassDef)
    lines = []
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            words = _comment(comments, node)
            kind = ast.unparse(node.annotation)
            kind = kind if "Literal" in kind else kind.replace("'", "")
            default = f" = {ast.unparse(node.value)}" if node.value else ""
            field = f"- ``{node.target.id}: {kind}{default}``"
            lines.append(f"{field}: {words}" if words else field)
    return lines


def _comments(source: str) -> Comments:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    kept = [token for token in tokens if token.type == tokenize.COMMENT]
    return {
        token.start[0]: (token.string.lstrip("# "), token.line.lstrip().startswith("#"))
        for token in kept
    }


def _comment(comments: Comments, node: ast.AnnAssign) -> str:
    """The comment behind a field, and the lines that go on with it."""
    line = node.end_lineno or node.lineno
    words = [comments[line][0]] if line in comments else []
    while words and comments.get(line + 1, ("", False))[1]:
        line += 1
        words.append(comments[line][0])
    return " ".join(words)
