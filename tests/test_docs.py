"""Every command, output and Python block of README.md and docs/ is run, page by page.

    ```console         `$ command` and what it prints; a line `...` stands for any lines
    ```console shape   likewise, where numbers depend on the machine: digits are not compared
    ```sh              commands alone
    ```python          run in a process of its own, from the file that its first line may name

The blocks of a page run in order in one empty folder, as a reader would type them. Figures of
compiled programs are those of the jax named below; with another one digits are not compared.
"""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
GUIDE = "clusters.md"  # its commands need files: tests/meshes/catalog/test_guide.py runs them
JAX = "0.10.2"  # made the figures that the pages show
BLOCK = re.compile(r"^(`{3,})(\w+)(?: (\w+))?\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
# What is not run here, by its first word, and what tries it instead.
NOT_RUN = {
    "make": "targets of the Makefile: tests/test_makefile.py, and .ci/run",
    "git": "needs a server",
    "pip": "tests/test_packaging.py",
    "sudo": "tests/scaling/testbed/test_real.py",
    "srun": "tests/experiments/test_launch_files.py",
    "mpirun": "tests/experiments/test_launch_files.py",
    "kubectl": "tests/experiments/test_launch_files.py",
    "JAX_COORDINATOR_ADDRESS=node0:1234": "tests/scaling/testbed/test_training.py",
}


@dataclass(frozen=True)
class Command:
    """A command line of a page with the text that is to follow; None: any."""

    line: str
    expected: str | None = None
    digits: bool = True  # whether numbers are compared


def blocks(page: Path) -> list[tuple[str, str, str]]:
    """Language, second word and text of every fenced block."""
    return [tuple(found) for _, *found in BLOCK.findall(page.read_text(encoding="utf-8"))]


def commands_of(language: str, word: str, text: str) -> list[Command]:
    if language == "sh":
        lines = text.replace("\\\n", " ").splitlines()
        return [Command(line) for line in lines if line.strip() and not line.startswith("#")]
    parts = re.split(r"^\$ ", text.replace("\\\n", " "), flags=re.MULTILINE)
    assert not parts[0].strip(), f"a console block begins with `$ `: {text}"
    pairs = (part.partition("\n") for part in parts[1:])
    return [Command(line, rest, word != "shape") for line, _, rest in pairs]


def pattern(expected: str, digits: bool) -> str:
    """A regular expression for the text that is shown."""
    lines = expected.rstrip().split("\n")
    marked = ["<any>" if line.strip() == "..." else re.escape(line.rstrip()) for line in lines]
    text = "\n".join(marked).replace("<any>\n", r"(?:.*\n)*?")
    text = text.replace("\n<any>", r"(?s:\n.*)?").replace("<any>", r"(?s:.*)")
    return text if digits else re.sub(r"[\d,]+(?:\\\.\d+)?", r"[\\d,.]+", text)


def matches(command: Command, printed: str) -> bool:
    """Whether `printed` is what the page shows."""
    digits = command.digits and version("jax") == JAX
    lines = "\n".join(line.rstrip() for line in printed.rstrip().split("\n"))
    return re.fullmatch(pattern(command.expected or "", digits), lines) is not None


def run(line: str, folder: Path, cache: Path) -> str:
    """What a command prints, errors too; it must succeed."""
    (folder / "bin").mkdir(exist_ok=True)
    for name, words in {"scaling": "-m scaling", "python": ""}.items():
        script = folder / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words} "$@"\n')
        script.chmod(0o755)
    environment = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_PLATFORMS")}
    environment |= {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    environment |= {"SCALING_CACHE": str(cache), "COLUMNS": "100"}
    environment.pop("JAX_NUM_CPU_DEVICES", None)
    result = subprocess.run(
        ["sh", "-c", line], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, f"$ {line}\n{result.stdout}{result.stderr}"
    return result.stdout + result.stderr


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    """Programs and calibrations that all pages share."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.slow
@pytest.mark.deviceless
@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.name != GUIDE], ids=lambda p: p.relative_to(ROOT).as_posix()
)
def test_a_page_runs_as_it_stands(page, tmp_path, cache):
    """All mismatches of a page are shown at once."""
    wrong = []
    for language, word, text in blocks(page):
        if language == "python":
            named = re.match(r"# (\w+\.py)\n", text)
            file = named[1] if named else "page.py"
            (tmp_path / file).write_text(text)
            run(f"{shlex.quote(sys.executable)} {file}", tmp_path, cache)
        elif language in ("sh", "console"):
            for command in commands_of(language, word, text):
                if command.line.split()[0] in NOT_RUN:
                    continue
                printed = run(command.line, tmp_path, cache)
                if command.expected is not None and not matches(command, printed):
                    wrong.append(f"$ {command.line}\n{printed}")
    assert not wrong, "\n\n".join(wrong)


def test_every_block_has_a_language_that_is_known():
    found = {language for page in PAGES for language, _, _ in blocks(page)}
    assert found <= {"sh", "console", "python", "json", "toml", "text"}
    for page in PAGES:
        outside = re.sub(r"^(`{4,})\w+\n.*?^\1$", "```\n```", page.read_text(), flags=re.M | re.S)
        fences = [line for line in outside.splitlines() if line.startswith("```")]
        assert len(fences) == 2 * len(blocks(page)), f"{page.name}: a fence without a language"


def test_the_first_line_of_a_page_says_for_whom_it_is():
    ours = [p for p in PAGES if p.name not in ("README.md", "ko.md") and "_ko." not in p.name]
    firsts = {str(page): page.read_text(encoding="utf-8").splitlines()[2] for page in ours}
    assert not {name: line for name, line in firsts.items() if not line.startswith("For ")}


def test_messages_of_the_troubleshooting_page_are_those_of_the_code():
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
    said = {text for cell in cells for text in re.findall(r"`([^`]+)`", cell)}
    folders = [ROOT / "scaling", ROOT / "meshes", ROOT / "models", ROOT / "tools"]
    files = [f for folder in folders for f in folder.rglob("*") if f.suffix in (".py", ".sh")]
    sources = "\n".join(f.read_text(encoding="utf-8") for f in files)
    sources = re.sub(r'"\s*\n\s*f?"', "", sources)  # messages over several lines
    jax = {"Could not find cuda drivers on your machine"}
    assert len(said) > 20 and not {text for text in said - jax if text not in sources}


def test_no_page_has_the_marks_of_a_merge():
    assert not [p.name for p in PAGES if re.search("^(<{7}|>{7}) ", p.read_text(), re.MULTILINE)]


def test_our_own_lines_of_code_are_not_wider_than_a_page():
    wide = []
    for page in PAGES:
        for language, _, text in blocks(page):
            ours = text if language != "console" else "".join(re.findall(r"^\$ .*\n", text, re.M))
            if language != "text":
                wide += [f"{page.name}: {line}" for line in ours.splitlines() if len(line) > 100]
    assert not wide


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_links_between_pages_lead_somewhere():
    wrong = []
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if "://" not in target and not (page.parent / target).exists():
                wrong.append(f"{page.name}: {target}")
    assert not wrong


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("a 1.5 s\n...\nend", "a 1.5 s\nb\nc\nend", True),
        ("a 1.5 s\n...\nend", "a 1.6 s\nb\nend", False),
        ("a\n...", "a", True),
        ("a\n...", "b\nc", False),
        ("a", "a\nb", False),
    ],
)
def test_what_counts_as_the_same_output(expected, printed, same):
    assert (re.fullmatch(pattern(expected, digits=True), printed) is not None) == same


def test_digits_may_differ_where_the_page_says_so():
    assert re.fullmatch(pattern("took 1,024.5 ms", digits=False), "took 7 ms")
    assert not re.fullmatch(pattern("took 1,024.5 ms", digits=False), "took 7 s")
