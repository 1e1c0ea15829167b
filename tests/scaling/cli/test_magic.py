"""`%%price`: the call at a cell's end is priced and not made."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

import scaling as sc
from tests.scaling.host_profile import host_profile

X = jax.ShapeDtypeStruct((64, 64), jnp.float32)


@pytest.fixture
def price(monkeypatch):
    """The magic as IPython has it, with a calibration that needs no measurement."""
    priced = sc.predict_step
    calibrated = lambda *a, **k: priced(*a, calibration=host_profile(), **k)
    monkeypatch.setattr(sc, "predict_step", calibrated, raising=False)
    magics = {}
    register = lambda function, magic_kind, magic_name: magics.update({magic_name: function})
    notebook = SimpleNamespace(user_ns={"jax": jax, "x": X}, register_magic_function=register)
    sc.load_ipython_extension(notebook)
    return magics["price"], notebook.user_ns


def test_the_call_at_the_end_is_priced_and_what_is_before_it_is_run(price):
    magic, names = price
    cell = "step = jax.jit(lambda x, *, w: x @ w)\nstep(*[x], w=x)"
    found = magic("--cluster host --mesh data=1 --tokens 64", cell)
    assert found.tokens_per_second == pytest.approx(64 / found.step_time)
    assert callable(names["step"])


def test_its_help_is_its_own_and_runs_nothing(price, capsys):
    assert price[0]("--help", "no Python at all (") is None
    said = capsys.readouterr().out
    assert said.startswith("usage: %%price [-h] [OPTIONS]") and "Example: %%price --" in said
    for option in ("--option NAME=VALUE", "--trips KEY=VALUE", "--branches", "--local"):
        assert option in said
    assert "the run's" not in said and "--json" not in said


def test_options_of_xla_and_what_is_said_about_loops_are_taken(price, monkeypatch):
    given = {}
    monkeypatch.setattr(sc, "predict_step", lambda *a, **k: given.update(k), raising=False)
    price[1]["f"] = None
    price[0]("--cluster host --option xla_a=false --trips w.py:3=5", "f(x)")
    assert given["options"] == ("xla_a=false",) and given["trips"] == ("w.py:3=5",)


@pytest.mark.parametrize(
    ("line", "cell", "message"),
    [
        ("--cluster host", "x = 3", "end the cell with the call of a jitted step"),
        ("--cluster host", "", "end the cell with the call"),
        ("--nodes 2", "step(x)", "Missing --cluster NAME"),
        ("--cluster host --clutser a", "step(x)", "has no option --clutser"),
        ("--cluster 'dgx", "step(w, x)", "No closing quotation"),
    ],
)
def test_a_cell_that_cannot_be_priced_says_why(price, line, cell, message, capsys):
    assert price[0](line, cell) is None
    said = capsys.readouterr().err
    assert said.startswith("error: ") and message in said and said.count("\n") == 1
