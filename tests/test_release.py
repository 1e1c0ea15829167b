"""`make release`: the changelog that its notes come from, and the whole command (slow)."""

import os
import re
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

import scaling
from tools.release import UNRELEASED, Section, contents, notes, sections

ROOT = Path(__file__).resolve().parents[1]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
MOST_LINES = 14  # of a version: about ten, of 120 columns
TEXT = """# Changelog

## [Unreleased]

- soon

## [0.2.0] - 2026-02-03

- [later](docs/x.md)
- twice

## [0.1.0] - 2026-01-02
"""


def number(section: Section) -> tuple[int, ...]:
    return tuple(map(int, section.version.split(".")))


def test_a_changelog_is_read_by_versions() -> None:
    assert sections(TEXT) == [
        Section(UNRELEASED, "", "- soon"),
        Section("0.2.0", "2026-02-03", "- [later](docs/x.md)\n- twice"),
        Section("0.1.0", "2026-01-02", ""),
    ]
    assert notes(TEXT, "0.2.0").splitlines()[0] == "# jax-scaling 0.2.0, 2026-02-03"
    assert notes(TEXT, "0.2.0").endswith("- twice\n")


@pytest.mark.parametrize("version", ["0.3.0", "0.2", UNRELEASED])
def test_a_version_without_a_dated_section_has_no_notes(version: str) -> None:
    with pytest.raises(SystemExit, match=rf"no section `## \[{version}\] - YYYY"):
        notes(TEXT, version)


def test_our_changelog_begins_with_what_is_unreleased_then_this_version() -> None:
    first, newest, *_ = sections(CHANGELOG)
    assert (first.version, first.date) == (UNRELEASED, "")
    assert newest.version == scaling.__version__
    assert notes(CHANGELOG, scaling.__version__)


def test_versions_and_dates_fall_and_every_heading_is_one_of_them() -> None:
    _, *dated = sections(CHANGELOG)
    assert [number(s) for s in dated] == sorted({number(s) for s in dated}, reverse=True)
    days = [date.fromisoformat(section.date) for section in dated]
    assert days == sorted(days, reverse=True)
    assert len(re.findall(r"^#+ ", CHANGELOG, re.MULTILINE)) == 1 + len(sections(CHANGELOG))


def test_a_version_is_about_ten_lines() -> None:
    for section in sections(CHANGELOG)[1:]:
        lines = [line for line in section.text.splitlines() if line]
        assert 1 < len(lines) <= MOST_LINES, section.version
        assert max(map(len, lines)) <= 122, section.version  # as the other pages


def test_links_of_the_changelog_lead_to_pages() -> None:
    for target in re.findall(r"\]\(((?!http)[^)#]+)", CHANGELOG):
        assert (ROOT / target).exists(), target


@pytest.mark.slow
def test_make_release_builds_tries_and_writes_the_notes(tmp_path: Path) -> None:
    """In a copy of the checkout, with the dependencies of a package index."""
    copy = tmp_path / "checkout"
    ignore = shutil.ignore_patterns(".*", "runs", "build", "dist", "__pycache__", "results")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=ignore)
    shutil.copy(ROOT / ".pre-commit-config.yaml", copy)
    command = [sys.executable, "tools/release.py"]
    environment = os.environ | {"HOME": str(tmp_path), "PIP_CACHE_DIR": str(tmp_path / "pip")}
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    version = scaling.__version__
    wheel, sdist, text = map(copy.joinpath, done.stdout.split())
    assert wheel.name == f"jax_scaling-{version}-py3-none-any.whl"
    assert sdist.name == f"jax_scaling-{version}.tar.gz"
    assert text.read_text() == notes(CHANGELOG, version)
    assert not [name for name in contents(wheel) if name.startswith(("tests/", "experiments/"))]
