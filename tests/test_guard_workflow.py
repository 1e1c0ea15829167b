"""docs/guard/github_workflow.yml: its YAML, its commands, and what its steps do, one by one."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from scaling.cli.commands import GENERATED
from scaling.cli.generated import parse_command
from tests.scaling.api.test_guard import STEP

FILE = Path(__file__).resolve().parents[1] / "docs" / "guard" / "github_workflow.yml"
TEXT = FILE.read_text(encoding="utf-8")
STEPS = yaml.safe_load(TEXT)["jobs"]["price"]["steps"]
SHELL = {"set", "cat", "echo", "exit"}  # of a runner's bash
# Of the runner's GitHub CLI: `gh pr comment` by its manual (cli.github.com/manual/gh_pr_comment)
GH = {"--edit-last", "--create-if-none", "--body-file"}
EXPRESSION = re.compile(
    r"\$\{\{ *([\w.]+) *\}\}"
)  # GitHub's own, `${{ steps.price.outputs.code }}`
# Without what the tests set of jax; `scaling` is the first on the path, else this environment's.
RUNNER = {n: v for n, v in os.environ.items() if not n.startswith(("XLA_", "JAX_"))}
RUNNER["PATH"] += f":{Path(sys.executable).parent}"
COMMENT = r'[ "$1 $2" = "pr comment" ] && cp "${@: -1}" "$COMMENTS/pr-$3.md"'
PRICE = "scaling price train/step.py:make --cluster dgx-h100 --mesh data=8,model=8"


def commands(script: str) -> list[list[str]]:
    """The words of each command of a script, without assignments and what is redirected."""
    joined = script.replace("\\\n", " ").replace("||", "\n")
    lines = (shlex.split(line, comments=True) for line in joined.splitlines())
    kept = (words[: next((i for i, w in enumerate(words) if w[0] == ">"), None)] for words in lines)
    return [words for words in kept if words and not re.match(r"\w+=", words[0])]


def test_the_workflow_is_yaml_of_steps_that_are_used_or_run():
    assert yaml.safe_load(TEXT)[True] == "pull_request"  # YAML's `on`
    assert all(("uses" in step) != ("run" in step) for step in STEPS)
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", name) for name in used)
    names = {step["id"] for step in STEPS if "id" in step}
    inputs = set(EXPRESSION.findall(TEXT)) | set(re.findall(r"steps\.[\w.]+", TEXT))
    assert {name.split(".")[1] for name in inputs if name.startswith("steps.")} <= names
    assert {name.split(".")[0] for name in inputs} <= {"steps", "github"}


def test_every_command_of_it_exists_with_its_options():
    found = [words for step in STEPS for words in commands(step.get("run", ""))]
    found += [shlex.split(line) for line in re.findall(r"^# +\d\. (scaling .*)$", TEXT, re.M)]
    for program, *words in found:
        if program == "scaling":
            assert parse_command(words[0], GENERATED[words[0]], words[1:])
        elif program == "gh":
            assert words[:2] == ["pr", "comment"]
            assert {word for word in words if word.startswith("--")} <= GH
        else:
            assert program in SHELL or (program, words[0]) == ("pip", "install")
    assert {words[0] for words in found} == {*SHELL, "scaling", "gh", "pip"}
    for step in (step for step in STEPS if "run" in step):
        subprocess.run(["bash", "-n", "-c", step["run"]], check=True)


def carried_out(folder: Path) -> tuple[int, dict[str, str]]:
    """The exit code of the steps after the installation, and what they write, by file.

    Each is a process of bash as on a runner; GitHub's CLI is a script that keeps the comment.
    """
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / "gh").write_text(f"#!/bin/bash\n{COMMENT}\n")
    (folder / "bin" / "gh").chmod(0o755)
    outputs, summary = folder / "outputs", folder / "summary.md"
    for file in (outputs, summary, folder / "pr-7.md"):
        file.write_text("")
    around = RUNNER | {"PATH": f"{folder / 'bin'}:{RUNNER['PATH']}", "COMMENTS": str(folder)}
    around |= {"GITHUB_OUTPUT": str(outputs), "GITHUB_STEP_SUMMARY": str(summary)}
    known = {"github.token": "none", "github.event.pull_request.number": "7"}
    filled = lambda text: EXPRESSION.sub(lambda hit: known[hit[1]], text)
    for step in (s for s in STEPS if "run" in s and "pip install" not in s["run"]):
        if "if" in step and not eval(step["if"].replace("||", "or"), {"steps": Known(known)}):
            continue
        own = {name: filled(value) for name, value in step.get("env", {}).items()}
        script = ["bash", "-e", "-c", filled(step["run"])]
        code = subprocess.run(script, cwd=folder, env=around | own, check=False).returncode
        if code:
            break
        pairs = (line.split("=") for line in outputs.read_text().splitlines())
        known |= {f"steps.price.outputs.{key}": value for key, value in pairs}
    return code, {"summary": summary.read_text(), "comment": (folder / "pr-7.md").read_text()}


class Known:
    """`steps.price.outputs.code` of an `if`."""

    def __init__(self, values, name="steps"):
        self.values, self.name = values, name

    def __getattr__(self, part):
        name = f"{self.name}.{part}"
        return self.values[name] if name in self.values else Known(self.values, name)


@pytest.mark.slow
@pytest.mark.deviceless
def test_its_steps_pass_what_is_as_it_was_and_fail_with_a_comment_what_grew(tmp_path):
    (tmp_path / "train").mkdir()
    file = tmp_path / "train" / "step.py"
    file.write_text(f"SIZE, ROWS = 512, 4096\n{STEP}")
    save = [*shlex.split(PRICE), "--save", "train/price.json"]
    subprocess.run(save, cwd=tmp_path, env=RUNNER, check=True)
    code, written = carried_out(tmp_path)
    assert code == 0 and written["comment"] == written["summary"] != ""
    assert "limits exceeded" not in written["summary"]
    file.write_text(file.read_text().replace(", donate_argnums=0", ""))
    code, written = carried_out(tmp_path)
    assert code == 3 and "1 of 3 limits exceeded" in written["comment"]
    file.write_text("def make(mesh):\n    return 3\n")
    code, written = carried_out(tmp_path)
    assert code == 2 and written["comment"] == ""
