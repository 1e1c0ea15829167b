"""A lesson in another language: the notebook with its texts replaced, before it runs.

A text of a notebook is a string or an f-string. The catalogue names an f-string by its source,
`"{n:,} tokens"`: a translation has the same fields, in its own order, so that all numbers stay.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from itertools import accumulate
from textwrap import TextWrapper
from typing import TypeGuard

NO_BREAK = "\0"  # stands for a space where a line cannot end
LINE = TextWrapper(
    80, break_long_words=False, break_on_hyphens=False, drop_whitespace=False, expand_tabs=False
)
LOOK_UP = ("parts.stored", "measured_series")  # functions of a notebook that take a name
Text = ast.Constant | ast.JoinedStr


def texts(source: str) -> list[str]:
    """Return the texts of a notebook as the catalogue names them.

    Headings of its own tables are among them, though they are translated where they are shown.
    """
    tree = ast.parse(source)
    known = [*_looked_up(tree)]
    every = (one for node in _outer(tree) for one in _strings(node) if one not in known)
    return list(dict.fromkeys(map(name_of, every)))


def translated(source: str, messages: Mapping[str, str]) -> str:
    """Return a notebook with every text that the catalogue has replaced by its translation.

    What is looked up by name stays: `Page.table` translates headings when it shows them. So does a
    single word, which names something, but for the label of a control.
    """
    lines = source.encode().splitlines(keepends=True)  # columns of `ast` count bytes
    starts = [0, *accumulate(map(len, lines))]
    tree = ast.parse(source)
    names = {name_of(text) for text in _looked_up(tree)}  # of what others made
    texts = {key: text for key, text in messages.items() if " " in key and key not in names}
    labels = _labels(tree)
    place = lambda node: (node.lineno, node.col_offset)
    found = b"".join(lines)
    for node in sorted(_outer(tree), key=place, reverse=True):
        line = lines[node.lineno - 1]
        new = _literal(
            node, messages if node in labels else texts, len(line) - len(line.lstrip()) + 4
        )
        if new is not None:
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            found = found[:start] + new.encode() + found[end:]
    return found.decode()


def name_of(node: Text) -> str:
    """Return the name of a text in the catalogue: the string, or the source of the f-string."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    return "".join(
        _braced(str(value.value)) if isinstance(value, ast.Constant) else _field(value)
        for value in node.values
    )


def _outer(tree: ast.AST) -> Iterator[Text]:
    """Yield strings and f-strings that stand in no f-string; no docstrings."""
    nodes = list(ast.iter_child_nodes(tree))
    if isinstance(tree, ast.FunctionDef | ast.Module) and ast.get_docstring(tree) is not None:
        nodes.remove(tree.body[0])
    for node in nodes:
        if _is_text(node):
            yield node
        else:
            yield from _outer(node)


def _strings(node: Text) -> Iterator[Text]:
    """Yield a text and those in the expressions of its fields."""
    yield node
    for value in getattr(node, "values", ()):
        if isinstance(value, ast.FormattedValue):
            yield from _all_texts(value.value)


def _labels(tree: ast.AST) -> list[ast.expr]:
    keywords = (node for node in ast.walk(tree) if isinstance(node, ast.keyword))
    return [keyword.value for keyword in keywords if keyword.arg == "label"]


def _looked_up(tree: ast.AST) -> Iterator[Text]:
    """Yield texts in brackets or given to LOOK_UP, and those of names that stand there."""
    assigned: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            assigned.setdefault(node.targets[0].id, []).append(node.value)
    for node in ast.walk(tree):
        inner: list[ast.expr] = []
        if isinstance(node, ast.Subscript):
            inner = [node.slice]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in LOOK_UP:
            inner = node.args
        parts = [one for part in inner for one in ast.walk(part)]
        named = [value for one in parts for value in assigned.get(getattr(one, "id", ""), ())]
        yield from filter(_is_text, (*parts, *named))


def _all_texts(tree: ast.AST) -> Iterator[Text]:
    return filter(_is_text, ast.walk(tree))


def _is_text(node: ast.AST) -> TypeGuard[Text]:
    is_string = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return is_string or isinstance(node, ast.JoinedStr)


def _literal(node: Text, messages: Mapping[str, str], indent: int) -> str | None:
    """Return the source of a translated text; None where the catalogue changes nothing."""
    name, fields = name_of(node), {}
    if isinstance(node, ast.JoinedStr):
        for value in node.values:
            if isinstance(value, ast.FormattedValue):
                field = _field(value)
                fields[field] = _field(_Inner(messages).visit(value))
    text = messages.get(name, name)
    if text == name and all(old == new for old, new in fields.items()):
        return None
    return _written(text, fields, indent)


class _Inner(ast.NodeTransformer):
    """Replaces strings in the expressions of fields."""

    def __init__(self, messages: Mapping[str, str]) -> None:
        self.messages = messages

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, str):
            return ast.Constant(self.messages.get(node.value, node.value))
        return node


def _written(text: str, fields: Mapping[str, str], indent: int) -> str:
    """Return the literal of a text, over several lines if it is long; no line breaks a field."""
    parts = re.split(f"({'|'.join(map(re.escape, fields))})", text) if fields else [text]
    whole = "".join(
        fields[part].replace(" ", NO_BREAK) if part in fields else _escaped(part) for part in parts
    )
    lines = []
    for line in LINE.wrap(whole) or [""]:
        is_f = bool(fields) and ("{" in line or "}" in line)
        lines.append(f'{"f" * is_f}"{line.replace(NO_BREAK, " ")}"')
    between = "\n" + " " * indent
    return lines[0] if len(lines) == 1 else f"({between.join(lines)})"


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _braced(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _field(value: ast.expr) -> str:
    assert isinstance(value, ast.FormattedValue)
    conversion = "" if value.conversion == -1 else f"!{chr(value.conversion)}"
    spec = f":{name_of(value.format_spec)}" if isinstance(value.format_spec, ast.JoinedStr) else ""
    return f"{{{ast.unparse(value.value)}{conversion}{spec}}}"
