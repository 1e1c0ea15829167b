"""The words of the pages, from one file: texts.toml, by page and name.

`page_text` fills `{{page.name}}` of a body (bodies/*.html); scripts find theirs in `TEXTS`, of
texts.js. What a text writes `{name}` is filled by the page or its script. Markup in a text stays.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from scaling.meshes.reading import parse_toml

FILE = Path(__file__).with_name("texts.toml")
PLACE = re.compile(r"\{\{([\w.]+)\}\}")
# pages whose words scripts use
SCRIPTS = ("ask", "quizzes", "explorer", "search", "index", "lessons", "sweeps")


def read_texts(file: Path) -> dict[str, str]:
    """Return the texts of a file by their whole name: "quizzes.title"."""
    tables = parse_toml(file.read_text(encoding="utf-8"), file.name)
    return {f"{page}.{name}": text for page, some in tables.items() for name, text in some.items()}


ENGLISH: Mapping[str, str] = read_texts(FILE)


def page_text(body: str, texts: Mapping[str, str] = ENGLISH, **filled: object) -> str:
    """Return a body with its `{{page.name}}` written out, and `{name}` in them where filled."""

    def said(match: re.Match[str]) -> str:
        text = texts[match[1]]
        for name, value in filled.items():
            text = text.replace(f"{{{name}}}", str(value))
        return text

    return PLACE.sub(said, body)


def script_texts(texts: Mapping[str, str] = ENGLISH) -> str:
    """Return the script that gives scripts of a page their words."""
    used = {name: text for name, text in texts.items() if name.partition(".")[0] in SCRIPTS}
    return f"const TEXTS = {json.dumps(used, ensure_ascii=False, indent=1)};\n"
