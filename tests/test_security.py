"""docs/security.md: nothing that is read is executed, and what is shown is shown as it is."""

import ast
import json
from pathlib import Path

import pytest

from scaling.cli.main import main
from scaling.meshes.errors import InputError
from scaling.run import read_run, run_dict
from scaling.run.recipes import recipe
from scaling.training.data.sums import named

ROOT = Path(__file__).parents[1]
# What executes text or rebuilds objects from bytes. `user_code` runs Python files that a user
# names; `elsewhere` talks to processes that it has started, over pipes that nobody else has;
# `magic` runs the cell of a notebook that the user runs; `index` runs notebooks of this package.
EXECUTE = {"eval", "exec", "compile", "__import__", "system", "popen", "getoutput"}
MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "yaml", "code", "runpy"}
MAY_LOAD_CODE = {
    "scaling/course/lessons/index.py": {"exec_module"},
    "scaling/run/user_code.py": {"exec_module"},
    "scaling/api/elsewhere.py": {"pickle"},
    "scaling/cli/magic.py": {"compile", "eval", "exec"},
}
ESCAPE = "\x1b[2J"


def executed(path: Path) -> set[str]:
    """What a file imports or calls that could execute what it reads."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names=names):
                found |= {name.name.split(".")[0] for name in names} & MODULES
            case ast.ImportFrom(module=str(module)):
                found |= {module.split(".")[0]} & MODULES
            case ast.Call(func=ast.Name(id=name)):
                found |= {name} & EXECUTE
            case ast.Call(func=ast.Attribute(attr="exec_module")):
                found |= {"exec_module"}
            case ast.Call(func=ast.Attribute(value=ast.Name(id="os"), attr=name)):
                found |= {name} & EXECUTE
            case ast.keyword(arg="shell" | "allow_pickle"):
                found |= {str(node.arg)}
    return found


def test_nothing_that_is_read_is_executed():
    sources = [p for part in ("scaling", "models", "meshes") for p in (ROOT / part).rglob("*.py")]
    assert len(sources) > 300  # the links among them are followed once at most
    found = {str(path.relative_to(ROOT)): executed(path) for path in sources}
    assert {name: what for name, what in found.items() if what} == MAY_LOAD_CODE


@pytest.mark.parametrize("text", [f"a{ESCAPE}", "a\rb", "a\x9b2J", "a\0"])
def test_texts_that_would_move_the_cursor_are_refused(text):
    with pytest.raises(InputError, match="control characters"):
        read_run(run_dict(recipe("tiny")) | {"name": text})


def test_texts_that_would_move_the_cursor_are_escaped_in_messages(tmp_path):
    assert str(InputError(f"a{ESCAPE}\n\té\r")) == r"a\x1b[2J" + "\n\té" + r"\r"
    assert named([f"a{ESCAPE} is new"]) == r"a\x1b[2J is new"


@pytest.mark.parametrize("name", ["", "..", "../up", "/etc", "a/b"])
def test_a_run_s_name_cannot_leave_the_folder_of_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps(run_dict(recipe("tiny")) | {"name": name}))
    assert main(["train", "run.json", "--steps", "1", "--devices", "8"]) == 2
    assert "cannot be a folder's name" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_a_title_is_no_formula(tmp_path, capsys):
    assert main(["cluster", "show", "dgx-h100", "--toml"]) == 0
    text = capsys.readouterr().out.replace('title = "', 'title = "$\\\\frac{$ ', 1)
    (tmp_path / "mine.toml").write_text(text)
    plot = tmp_path / "plot.svg"
    words = ["collective", "all-reduce", "--cluster", str(tmp_path / "mine.toml")]
    assert main([*words, "--plot", str(plot)]) == 0
    assert "<svg" in plot.read_text()
