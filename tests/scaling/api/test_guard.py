"""A saved price, and what is held against it: seeded regressions are found, none is invented."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import scaling as sc
from scaling.comparing.breakdown import OPERATION_SUMS
from scaling.comparing.difference import difference
from scaling.comparing.limits import read_limits
from scaling.meshes.errors import InputError
from scaling.profiles.io import write_profile
from scaling.profiles.profile import CollectiveFit
from scaling.program.ir import COLLECTIVE_KINDS
from scaling.report.difference import headlines
from tests.scaling.cli.running import check_refused, run
from tests.scaling.host_profile import HERE, host_profile

ROOT = Path(__file__).resolve().parents[3]
STEP = """
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P


def layer(x, w):
    hidden = jnp.tanh(x @ w["up"].astype(jnp.bfloat16))
    return x + hidden @ w["down"].astype(jnp.bfloat16), None


def loss(w, x):
    y, _ = jax.lax.scan(layer, x, w)
    return jnp.mean(jnp.square(y.astype(jnp.float32)))


def update(state, x):
    grown = jax.grad(loss)(state["w"], x)
    mean = jax.tree.map(lambda m, g: 0.9 * m + g, state["mean"], grown)
    square = jax.tree.map(lambda v, g: 0.9 * v + g * g, state["square"], grown)
    w = jax.tree.map(lambda w, m, v: w - m / jnp.sqrt(v + 1.0), state["w"], mean, square)
    return {"w": w, "mean": mean, "square": square}


def make(mesh):
    array = lambda shape, dtype, *spec: jax.ShapeDtypeStruct(
        shape, dtype, sharding=NamedSharding(mesh, P(*spec))
    )
    up = array((4, SIZE, 4 * SIZE), jnp.float32, None, None, "model")
    down = array((4, 4 * SIZE, SIZE), jnp.float32, None, "model", None)
    w = {"up": up, "down": down}
    x = array((ROWS, SIZE), jnp.bfloat16, "data", None)
    return jax.jit(update, donate_argnums=0), ({"w": w, "mean": w, "square": w}, x)
"""
# What is written otherwise, and which figures grow by it: compiled for CPUs, for H100s.
SEEDED = {
    "a lost donation": ((", donate_argnums=0", ""), {"peak"}, {"peak"}),
    "an fp32 cast": (  # CPUs multiply in that format in any case
        ('x @ w["up"].astype(jnp.bfloat16))', 'x @ w["up"]).astype(jnp.bfloat16)'),
        None,
        {"time", "peak"},
    ),
    "a resharding": (
        ('down = array((4, 4 * SIZE, SIZE), jnp.float32, None, "model", None)',
         'down = array((4, 4 * SIZE, SIZE), jnp.float32, None, None, "model")'),
        {"communication"},
        {"communication"},
    ),
    "a remat change": (("scan(layer,", "scan(jax.checkpoint(layer),"), {"flops"}, {"flops"}),
    "a batch change": (("(ROWS,", "(ROWS * 3 // 2,"), {"flops"}, {"time", "flops", "peak"}),
}  # fmt: skip
LIMITS = "time>5%,peak>2%,flops>1%,communication>1%"


def written(folder, size, rows, change=("", "")):
    text = STEP.replace("SIZE", str(size)).replace("ROWS", str(rows))
    before, after = (part.replace("SIZE", str(size)).replace("ROWS", str(rows)) for part in change)
    assert before in text
    path = folder / "step.py"
    path.write_text(text.replace(before, after, 1) if before else text)
    return f"{path}:make"


@pytest.fixture
def on_host(tmp_path):
    fits = [
        CollectiveFit(kind, n, 8 // n, 1e-5, 1e9, HERE)
        for kind in COLLECTIVE_KINDS
        for n in (2, 4, 8)
    ]
    write_profile(host_profile(collectives=tuple(fits)), tmp_path / "host.toml")
    options = ("--cluster", "host", "--calibration", tmp_path / "host.toml")
    return 128, 64, (*options, "--mesh", "data=4,model=2")


@pytest.fixture
def on_h100():
    return 2048, 8192, ("--cluster", "dgx-h100", "--mesh", "data=4,model=2")


@pytest.mark.parametrize(
    "where", ["on_host", pytest.param("on_h100", marks=pytest.mark.deviceless)]
)
def test_seeded_regressions_are_caught_and_a_change_that_does_nothing_passes(
    where, request, capsys, tmp_path
):
    size, rows, place = request.getfixturevalue(where)
    base = tmp_path / "base.json"
    cli = lambda step, *more: run(capsys, "price", step, *place, *more)
    code, out, _ = cli(written(tmp_path, size, rows), "--save", base)
    assert code == 0 and out.startswith("step on data=4,model=2 of ")
    held = ("--against", base, "--fail-if", LIMITS)
    moved = ("\ndef layer", "\n# a comment moves every line\ndef layer")
    code, out, _ = cli(written(tmp_path, size, rows, moved), *held)
    assert code == 0 and out.startswith("### step: within its limits\n\n| ")
    assert "classes of operations" not in out and "| memory |" not in out
    for name, (change, *expected) in SEEDED.items():
        grown = expected[where == "on_h100"]
        if grown is None:
            continue
        code, out, _ = cli(written(tmp_path, size, rows, change), *held, "--json")
        found = json.loads(out)["against"]
        exceeded = {limit.partition(">")[0] for limit in found["exceeded"]}
        assert code == 3 and grown <= exceeded, (name, exceeded)


@pytest.fixture
def two():
    """A closed form, and the same on a mesh whose collectives are others."""
    where = {"cluster": "dgx-h100", "source": "analytic"}
    return [sc.predict("gpt2-124m", mesh=mesh, **where) for mesh in ("data=8", "fsdp=8")]


def test_what_is_saved_tells_what_grew_and_where(two, tmp_path):
    two[0].save(tmp_path / "a.json")
    two[1].save(tmp_path / "b.json")
    found = sc.diff(tmp_path / "a.json", two[1])
    assert (
        found
        == sc.diff(tmp_path / "a.json", tmp_path / "b.json")
        == sc.compare(tmp_path / "a.json", tmp_path / "b.json")
    )
    by_class = {part.name: part.figures["time"] for part in found.classes}
    assert by_class["all-gather bf16"].first is None or by_class["all-gather bf16"].difference > 0
    sizes = sum(part.figures["bytes"].difference for part in found.buffers)
    assert sizes == pytest.approx(found.memory["peak"].difference, abs=1e3)
    flops = sum(part.figures["flops"].first or 0.0 for part in found.lines)
    assert flops == pytest.approx(found.work["flops"].first)
    assert "lines of code" in str(found) and "buffers at the peak" in str(found)


def operation(line, code, **figures):
    return {
        "class": "fusion",
        "line": line,
        "code": code,
        **dict.fromkeys(OPERATION_SUMS, 2.0),
    } | figures


def saved(*rows, buffers=(), peak=1e9):
    memory = {"peak": peak}
    return {
        "name": "x",
        "step_time": 1.0,
        "memory": memory,
        "collectives": [],
        "operations": rows,
    } | {"buffers": buffers}


def test_a_line_that_moved_or_was_edited_is_the_same_line():
    first = saved(operation("step.py:7", "x + y"), operation("step.py:9", "x * 2"))
    second = saved(
        operation("step.py:8", "x + y"), operation("step.py:9", "x * 3"), operation("b.py:1", "z")
    )
    found = {line.name: line.figures["time"] for line in difference(first, second).lines}
    assert found["step.py:8 x + y"].difference == found["step.py:9 x * 3"].difference == 0
    assert found["b.py:1 z"].first is None and len(found) == 3


def test_a_fusion_that_xla_split_is_told_in_one_line():
    buffer = {"category": "temporary", "made": "", "line": "step.py:7", "code": "x + y", "count": 1}
    first = saved(operation("step.py:7", "x + y", count=1.0))
    second = saved(
        operation("step.py:7", "x + y", count=2.0), buffers=({**buffer, "bytes": 5e9},), peak=6e9
    )
    assert [*headlines(difference(first, second))] == [
        "+5 GB at the peak, most by temporary step.py:7 x + y (+5 GB); "
        "XLA made 2 operations of 1 at step.py:7 x + y"
    ]


DUMP = """HloModule step, is_scheduled=true, num_partitions=8
ENTRY %main (x: f32[1048576]) -> f32[1048576] {
  %x = f32[1048576]{0} parameter(0)
  %a = f32[1048576]{0} add(%x, %x), metadata={source_file="/opt/step.py" source_line=6}
  ROOT %b = f32[1048576]{0} ROOT_OF, metadata={source_file="/opt/step.py" source_line=7}
}
"""


def test_two_dumps_are_priced_and_compared(capsys, tmp_path):
    for name, root in (
        ("a", "negate(%a)"),
        ("b", "all-to-all(%a), replica_groups={{0,1,2,3,4,5,6,7}}"),
    ):
        (tmp_path / name).write_text(DUMP.replace("ROOT_OF", root))
    files = tmp_path / "a", tmp_path / "b"
    check_refused(run(capsys, "diff", *files), "is XLA's dump: for which cluster? add --cluster")
    code, out, _ = run(capsys, "diff", *files, "--cluster", "dgx-h100")
    assert code == 0 and "most by all-to-all fp32 (" in out and "step.py:7" in out


def test_a_saved_price_is_the_same_in_another_process(two, tmp_path):
    two[0].save(tmp_path / "here.json")
    code = f"""import scaling as sc
p = sc.predict("gpt2-124m", mesh="data=8", cluster="dgx-h100", source="analytic")
p.save({str(tmp_path / "there.json")!r})"""
    other = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7"}
    subprocess.run([sys.executable, "-c", code], env=other, cwd=tmp_path, check=True)
    assert (tmp_path / "there.json").read_bytes() == (tmp_path / "here.json").read_bytes()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time", "write FIGURE>N%, such as time>5%"),
        ("time>5", "write FIGURE>N%"),
        ("tiem>5%", "unknown figure 'tiem'; did you mean 'time'"),
        ("time>5%, time>6%", "limits time twice"),
        ("", "write FIGURE>N%"),
    ],
)
def test_limits_that_cannot_be_read_say_how_they_are_written(text, message):
    with pytest.raises(InputError, match=message.replace("(", "\\(")):
        read_limits(text)


def test_a_base_that_is_no_base_of_this_is_refused_before_or_told_first(
    capsys, tmp_path, on_host, two
):
    size, rows, place = on_host
    price = lambda *more: run(capsys, "price", written(tmp_path, size, rows), *place, *more)
    missing = tmp_path / "none.json"
    check_refused(price("--against", missing), f"there is no base {missing}: write it with --save")
    check_refused(price("--fail-if", "time>5%"), "add --against BASE")
    two[0].save(base := tmp_path / "base.json")
    check_refused(price("--against", base, "--fail-if", "tme>5%"), "unknown figure 'tme'")
    refused = "is of cluster dgx-h100, mesh data=8, the price of cluster host", "--save"
    check_refused(price("--against", base), *refused)
    older = json.loads(base.read_text())
    older["made_with"]["jax"] = "0.9.1"
    older["unknown"] = [{"kind": "loop", "name": "step.py:31", "calls": 1.0, "time": 1e-3}]
    base.write_text(json.dumps(older))
    from scaling.api.diff import guard

    held = guard(two[0], base)
    assert not held.exceeded and "jax 0.9.1 -> " in held.notes[0]
    assert str(held).split("\n\n")[1] == held.notes[0]
    assert held.notes[1] == "times are at least: not known is step.py:31"


TESTS = """
import sys

import pytest
import scaling as sc

@pytest.mark.parametrize("length", LENGTHS)
def test_price(length, scaling_guard):
    assert length > 1 or not {"jax", "scaling.api.result"} & set(sys.modules)
    seq_len = GROWN if length == 512 else 256
    where = {"cluster": "dgx-h100", "mesh": "data=8", "source": "analytic"}
    p = sc.predict("gpt2-124m", **where, seq_len=seq_len)
    assert scaling_guard(p, fail_if="time>5%") is p
    scaling_guard(p)

@pytest.mark.parametrize("name", ["a b", "a-b"])
def test_names(name, scaling_guard):
    where = {"cluster": "dgx-h100", "mesh": "data=8", "source": "analytic"}
    scaling_guard(sc.predict("gpt2-124m", **where, seq_len=256 if "-" in name else 512))

class TestOther:
    def test_price(self, scaling_guard, pytestconfig):
        where = {"cluster": "dgx-h100", "mesh": "data=8", "source": "analytic"}
        scaling_guard(sc.predict("gpt2-124m", **where))
        if pytestconfig.getoption("--scaling-update"):
            with pytest.raises(Exception, match="gone.py"):
                scaling_guard("gone.py:make", cluster="dgx-h100")
"""


def test_the_fixture_holds_a_test_against_the_base_beside_it(tmp_path):
    def pytest_of(lengths, grown, *options):
        text = TESTS.replace("LENGTHS", str(lengths)).replace("GROWN", str(grown))
        (tmp_path / "test_step.py").write_text(text)
        clean = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "scaling.api.pytest_guard", *options]
        return subprocess.run(
            command, cwd=tmp_path, env={**os.environ, **clean}, capture_output=True, text=True
        )

    first = pytest_of([1, 512], 512, "--scaling-update")
    assert first.returncode == 0, first.stdout
    bases = sorted(path.name for path in (tmp_path / "scaling_guard" / "test_step").iterdir())
    names = [f"test_price-{n}" for n in (1, 512)]
    names = [f"{name}{again}.json" for name in names for again in ("", "-2")]
    alike = ["test_names-a-b-b55cda1c.json", "test_names-a-b.json"]
    assert bases == sorted([*names, *alike, "TestOther-test_price.json"])
    later = pytest_of([1, 512, 2], 1024).stdout
    assert "4 passed" in later and "2 failed" in later
    assert "| time |" in later and "**exceeded**" in later
    assert "run pytest --scaling-update once" in later
