"""Options that are made from functions of the API: nothing is declared twice, all is described."""

import inspect
import re
import subprocess
import sys
from typing import Literal

import pytest

import scaling as sc
from scaling.api.parameters import SHARED, arguments_of, texts_of
from scaling.cli.commands import GENERATED, GROUPS
from scaling.cli.generated import function_of, options_of, words
from scaling.cli.main import COMMANDS, parse
from scaling.meshes.errors import InputError
from tests.scaling.cli.running import run


@pytest.mark.parametrize("name", GENERATED)
def test_every_parameter_is_described_and_is_an_option_or_hidden(name):
    face = GENERATED[name]
    function, shown = function_of(face.function), function_of(face.shown)
    texts = {**texts_of(shown), **texts_of(function), **face.texts}
    given = {*inspect.signature(function).parameters, *inspect.signature(shown).parameters}
    assert given - {"call"} - set(face.hidden) - {"bytes"} <= set(texts)
    assert all(text[-1] == "." and "None" not in words(text, {}) for text in texts.values())
    assert set(face.positional) | set(face.hidden) | set(face.first) <= given
    assert len(options_of(face)) >= len(given) - 1 - len(face.hidden)


def test_every_command_stands_in_one_group_and_has_one_sentence(capsys):
    _, page, _ = run(capsys, "--help")
    assert sorted(COMMANDS) == sorted(name for names in GROUPS.values() for name in names)
    assert all(f"\n{title}:\n" in page for title in GROUPS)
    lines = [line for line in page.splitlines() if line.startswith("  ")]
    assert len(lines) == len(COMMANDS) and all(line.endswith(".") for line in lines)


def shown(call, *, label: str | None = None, again: tuple[str, ...] = ()) -> int:
    """Show.

    Args:
        label: how it is called; None: nothing. A second sentence.
        again: as often as needed.
    """
    print(call.keywords, label, again)
    return 0


def asked(
    run: str,
    cluster: str | None = None,
    *,
    size: float | str | None = None,
    count: int = 3,
    share: float | None = None,
    kind: Literal["long", "short"] | None = None,
    source: str | None = None,
) -> None:
    """Return what was asked. More of it.

    Args:
        size: amount, such as 15T, or a Run; None: the
            model's.
        count: how many of `size` and `run`.
        share: part of the whole.
        kind: long or short.
        source: where from.
    """


@pytest.fixture
def small(monkeypatch):
    from scaling.cli import commands, generated

    here = {"asked": asked, "shown": shown}
    monkeypatch.setattr(generated, "function_of", here.__getitem__)
    face = generated.Generated(
        *("asked", "scaling count x", ("run",), "shown"), flags={"source": "from"}
    )
    monkeypatch.setitem(commands.GENERATED, "count", face)


def test_options_are_those_of_both_functions(small, capsys):
    command = parse(["count", "r", "--size", "15T", "--count", "8k", "--again", "a", "--again=b"])
    assert command.subject == "r" and command.execute() == 0
    assert capsys.readouterr().out == "{'run': 'r', 'size': '15T', 'count': 8000} None ('a', 'b')\n"
    parse(["count", "r", "--from", "host", "--kind", "long", "--share", "0.5"]).execute()
    given = {"run": "r", "share": 0.5, "kind": "long", "source": "host"}
    assert capsys.readouterr().out == f"{given} None ()\n"


def test_a_value_may_begin_with_a_dash_and_a_positional_argument_stands_after_dashes(small):
    value = lambda name, *words: parse(["count", *words]).values.get(name)
    assert value("size", "r", "--size=--") == "--"  # which argparse drops
    assert value("size", "r", "--size", "-1e-3") == "-1e-3"  # which it takes for an option
    assert value("size", "--size=", "r") == ""
    assert value("again", "--again=--json", "r", "--again", "-x") == ("--json", "-x")
    assert value("run", "--", "--help") == "--help"
    assert value("run", "--again", "a", "r", "--") == "r"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("r --size --count 3", "--size needs a value, --size=TEXT"),
        ("r --count", "--count needs a value, --count=N"),
        ("r --count=--", "--count '--' cannot be read"),
        ("r --siz 3", "no option --siz; did you mean '--size'?"),
        ("r --size=1 --size 2", "--size is given twice"),
        ("r s", "scaling count takes RUN; what is 's'?"),
        ("r -x=3", "no option -x;"),
    ],
)
def test_words_that_fit_no_option_are_refused(small, words, said):
    with pytest.raises(InputError, match=re.escape(said)):
        parse(["count", *words.split()])


def test_the_help_is_made_from_both_docstrings(small, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    _, page, _ = run(capsys, "count", "--help")
    plain = " ".join(page.split())
    assert "Print what was asked. Example: scaling count x" in plain
    assert "RUN Recipe name, file.py:function, run.json, its folder, or a Hugging Face" in plain
    assert "--size TEXT Amount, such as 15T (default: the model's)." in plain
    assert "--count N How many of --size and RUN. (default: 3)" in plain
    assert "--kind long|short Long or short." in plain
    assert "--label TEXT How it is called (default: nothing). A second sentence." in plain
    assert "--again TEXT As often as needed. (repeatable)" in plain


def test_a_docstring_has_what_many_functions_take_in_one_wording():
    own = arguments_of(sc.predict.__wrapped__)
    assert all(SHARED[name] == own[name] for name in ("nodes", "mesh", "set", "calibration"))
    assert own["cluster"].startswith("catalogue name") and own["cluster"] != SHARED["cluster"]
    assert max(map(len, sc.predict.__doc__.splitlines())) <= 100


def test_the_parser_of_a_command_imports_no_other_command():
    code = (
        "import sys; from scaling.cli.main import main; main(['chip', '--help'])\n"
        "others = {'scaling.api.predict', 'scaling.api.plan', 'scaling.cli.predict', 'jax'}\n"
        "sys.exit(' '.join(others & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_option_s_name_is_taken_for_the_parameter_s():
    both = (sc.chip("h100-sxm", **{name: "peak_bf16=4e14"}) for name in ("override", "overrides"))
    assert len({float(answer) for answer in both}) == 1
    assert sc.load_cluster("p5", override="memory=40GB").accelerator.memory == 40e9
    with pytest.raises(TypeError, match="override"):
        sc.load_cluster("p5", overrides=["memory=40GB"], override=["memory=40GB"])
