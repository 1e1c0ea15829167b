"""The distribution is `jax-scaling`; `scaling` on the package index is another project.

Whoever is told to `pip install scaling` installs foreign code, over the package of the same name.
"""

import os
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NAME = "jax-scaling"
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
KINDS = (".py", ".md", ".sh", ".toml", ".yaml", ".yml", ".js", ".html", ".css", "Makefile")
NOT_OURS = ("results", "node_modules", "runs", "build", "dist")
FOREIGN = re.compile(
    r"(?<![-\w./])scaling\\?\[(?=[a-z${])"  # an extra; a subscript has a quote or a number
    r"|\b(?:install|download|add|upgrade)\b[^\n`;]*?[ '\"]scaling(?=[ '\"`\[=<>~!@\\]|$)"
    r"|(?:\bversion|\bmetadata|\bdistribution|\brequires)\(\s*['\"]scaling['\"]"
    r"|['\"` ]scaling\s*(?:@|==|~=|>=)\s*[^=\s]"
    r"|pypi\.org/project/scaling\b"
)
EXTRA = re.compile(r"jax-scaling\\?\[([a-z0-9,-]+)\\?\]|'\.\[([a-z0-9,-]+)\]'")


def texts() -> dict[str, str]:
    """Every text of the checkout by its path, without environments, results and this file."""
    found = {}
    for place, folders, files in os.walk(ROOT):
        folders[:] = [f for f in folders if f not in NOT_OURS and (f == ".ci" or f[0] not in "._")]
        for path in (Path(place, file) for file in files if file.endswith(KINDS)):
            if path != Path(__file__):
                found[str(path.relative_to(ROOT))] = path.read_text(encoding="utf-8")
    found[".ci/run"] = (ROOT / ".ci" / "run").read_text() if (ROOT / ".ci").exists() else ""
    return found


def test_nothing_names_the_other_project_where_ours_is_meant() -> None:
    wrong = [
        f"{path}: {line}"
        for path, text in texts().items()
        for line in text.splitlines()
        if "scaling" in line and FOREIGN.search(line)
    ]
    assert not wrong, "\n".join(wrong)


def test_every_extra_that_is_named_is_there() -> None:
    named = {
        extra
        for text in texts().values()
        for match in EXTRA.finditer(text)
        for extra in (match[1] or match[2]).split(",")
    }
    assert {"deviceless", "data", "lessons", "lm-eval"} <= named <= set(EXTRAS)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("pip install 'scaling[deviceless]'", True),
        ("uv add scaling", True),
        (r"match='scaling\[data\]'", True),
        ('say "Installing scaling[$extras]"', True),
        ('f"scaling[{name}]"', True),
        ("python -m pip install --upgrade scaling==0.2.3", True),
        ('version("scaling")', True),
        ('f"scaling @ {wheel}"', True),
        ("pip install 'jax-scaling[data]'", False),
        ("pip install '.[data]'", False),
        ('scaling["factor"] == scaling["type"]', False),
        ("rope_scaling[key]; self.scaling[0]", False),
        ("pip install xprof; then `scaling train`", False),
    ],
)
def test_what_counts_as_the_other_project(text: str, found: bool) -> None:
    assert bool(FOREIGN.search(text)) == found
