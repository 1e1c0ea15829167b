"""The page of a lesson's run as plain HTML: it opens from a file, without scripts.

    python -m experiments.site.read NOTEBOOK.py     prints what its cells show, after the guess 1

Controls of marimo become lines that say how they are set, accordions `details`, formulas MathML.
"""

import json
import re
import sys
from collections.abc import Mapping
from html import escape, unescape
from html.parser import HTMLParser
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

VOID = ("area", "br", "col", "hr", "img", "input", "wbr")  # of HTML: no end tag
SIGNS = ("||(", "||)", "||[", "||]")  # around a formula, as marimo marks it
SVG = ("svg", "g", "polyline", "polygon", "rect", "circle", "text", "title")  # as pictures have
WIDE = ("figure", "pre", "table")  # moved sideways on a phone, by the keyboard too
SVG_CASE = {"viewbox": "viewBox"}  # the parser writes names small
KEPT = re.compile(r"^(href|id|role|aria-.*|colspan|rowspan|scope|class|tabindex)$")


def cells_of(file: Path) -> list[str]:
    """Return the HTML of what the cells of a notebook show when it is run as a script."""
    import marimo

    spec = spec_from_file_location("lesson", file)
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    outputs, _ = module.app.run()
    return [marimo.as_html(output).text for output in outputs if output is not None]


class _Plain(HTMLParser):
    """Writes HTML anew without marimo's elements."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.text: list[str] = []
        self.formula: list[str] | None = None
        self.labels: list[str] = []  # of the accordion's parts that are not yet open
        self.depth: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "marimo-tex":
            self.formula = []
        elif tag == "marimo-accordion":
            self.labels = [plain(label) for label in json.loads(given["data-labels"])]
            self.text.append('<div class="accordion">')
        elif tag == "marimo-callout-output":
            kind = json.loads(given.get("data-kind", '""'))
            html = plain(json.loads(given.get("data-html", '""')))
            self.text.append(f'<div class="callout {escape(kind)}">{html}')
        elif tag.startswith("marimo-"):
            self.text.append(_control(tag, given))
        elif self.depth and self.depth[-1] == "marimo-accordion" and tag == "div":
            label = self.labels.pop(0) if self.labels else ""
            self.text.append(f"<details><summary>{label}</summary>")
            self.depth.append("details")
            return
        else:
            if tag in WIDE:
                given["tabindex"] = "0"
            self.text.append(f"<{tag}{_attributes(tag, given)}>")
        if tag not in VOID:
            self.depth.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID or not self.depth:
            return
        opened = self.depth.pop()
        if tag == "marimo-tex":
            from latex2mathml.converter import convert

            text = unescape("".join(self.formula or []))
            block = "||[" in text
            for sign in SIGNS:
                text = text.replace(sign, "")
            self.text.append(convert(text, display="block" if block else "inline"))
            self.formula = None
        elif opened == "details":
            self.text.append("</details>")
        elif tag in ("marimo-accordion", "marimo-callout-output"):
            self.text.append("</div>")
        elif tag == "th" and self.text[-1].startswith("<th"):  # a heading of no words is none
            self.text[-1] = self.text[-1].replace("<th", "<td", 1)
            self.text.append("</td>")
        elif not tag.startswith("marimo-"):
            self.text.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        (self.text if self.formula is None else self.formula).append(data)

    def handle_entityref(self, name: str) -> None:
        self.handle_data(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self.handle_data(f"&#{name};")


def plain(html: str) -> str:
    """Return HTML without elements of marimo."""
    parser = _Plain()
    parser.feed(html)
    parser.close()
    return "".join(parser.text)


def _attributes(tag: str, given: Mapping[str, str]) -> str:
    kept = {k: v for k, v in given.items() if tag in SVG or KEPT.match(k)}
    if tag == "div" and "flex-direction: row" in given.get("style", ""):
        kept["class"] = "line"
    return "".join(f' {SVG_CASE.get(k, k)}="{escape(v)}"' for k, v in kept.items())


def _control(tag: str, given: Mapping[str, str]) -> str:
    """A line that says what a control asks for and how it is set."""
    if "data-label" not in given or given["data-label"] == "null":
        return ""
    label = plain(json.loads(given["data-label"]))
    value = json.loads(given.get("data-initial-value", "null"))
    if steps := json.loads(given.get("data-steps", "null")):  # of which a slider says the place
        value = steps[int(value)]
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    said = "" if value is None else f" <b>{escape(str(value))}</b>"
    return f'<div class="control">{label}{said}</div>'


if __name__ == "__main__":
    for cell in cells_of(Path(sys.argv[1])):
        print(f'<section class="cell">{plain(cell)}</section>')
