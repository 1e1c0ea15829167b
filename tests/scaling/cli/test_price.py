"""`scaling price`: a step of a script, or a program that XLA dumped."""

import json

import pytest

from scaling.meshes import catalog
from scaling.profiles.io import write_profile
from scaling.profiles.profile import CollectiveFit
from scaling.program.ir import COLLECTIVE_KINDS
from tests.scaling.cli.running import check_refused, run
from tests.scaling.host_profile import HERE, host_profile

HLO = """HloModule jit_step, is_scheduled=true, num_partitions=8

ENTRY %main (x: f32[4194304]) -> f32[4194304] {
  %x = f32[4194304]{0} parameter(0)
  ROOT %gathered = f32[4194304]{0} all-to-all(%x), channel_id=1, replica_groups=[2,4]<=[8]
}
"""
SCRIPT = """
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from models import apply  # the script's own, beside it

def make(mesh):
    x = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=NamedSharding(mesh, P("rows")))
    return jax.jit(apply), (x,), {"n": 2.0}

def make_lowered():
    mesh = jax.make_mesh((jax.device_count(),), ("x",))
    x = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=NamedSharding(mesh, P("x")))
    return jax.jit(apply).lower(x, n=2.0)

def nothing(): pass
def number(): return 3, ()
def keywords(): return jax.jit(apply), (), 3
def arguments(): return jax.jit(apply), 3
def fails(mesh): return mesh.shape["columns"]
def two(mesh, name): pass
"""


@pytest.fixture
def dump(tmp_path):
    path = tmp_path / "module_0001.jit_step.sm_9.0a_gpu_after_optimizations.txt"
    path.write_text(HLO)
    return path


@pytest.fixture
def script(tmp_path):
    (tmp_path / "models.py").write_text("def apply(x, n):\n    return n * x @ x\n")
    (tmp_path / "step.py").write_text(SCRIPT)
    return tmp_path / "step.py"


@pytest.fixture
def on_host(tmp_path):
    fits = [CollectiveFit(kind, 8, 1, 1e-5, 1e9, HERE) for kind in COLLECTIVE_KINDS]
    write_profile(host_profile(collectives=tuple(fits)), tmp_path / "host.toml")
    return ("--cluster", "host", "--calibration", tmp_path / "host.toml")


def test_a_dump_is_priced_with_the_axes_that_are_named(capsys, dump, tmp_path):
    options = ("--cluster", "dgx-h100", "--mesh", "data=2,model=4", "--trace", tmp_path / "t.json")
    options += ("--plot", f"time={tmp_path / 't.svg'}")
    code, out, err = run(capsys, "price", "--hlo", dump, *options, "--json")
    document = json.loads(out)
    assert (code, document["name"], document["mesh"]) == (
        0,
        "module_0001.jit_step",
        "data=2,model=4",
    )
    assert [line["axis"] for line in document["collectives"]] == ["model"]
    assert "perfetto" in err and all((tmp_path / name).exists() for name in ("t.json", "t.svg"))


def test_tokens_and_model_flops_give_rates(capsys, dump):
    rates = ("--tokens", "4096", "--model-flops", "1e9", "--explain", "--what-if", "nvlink x2")
    code, out, _ = run(capsys, "price", "--hlo", dump.parent, "--cluster", "dgx-h100", *rates)
    assert code == 0
    assert "tokens/s, MFU" in out and "of the model FLOPs given" in out and "what if nvlink" in out
    assert out.count("warning: ") == 1 and "no group of axes of the mesh {'data': 8}" in out


def test_a_script_says_what_its_step_is_called_with(capsys, script, on_host):
    code, out, _ = run(capsys, "price", f"{script}:make", *on_host, "--mesh", "rows=8", "--json")
    document = json.loads(out)
    assert (code, document["name"], document["mesh"]) == (0, "step", "rows=8")
    assert [line["axis"] for line in document["collectives"]] == ["rows"]


def test_a_script_may_lower_its_step_on_the_devices_that_jax_has(capsys, script, on_host):
    code, out, _ = run(capsys, "price", f"{script}:make_lowered", *on_host, "--json")
    assert (code, json.loads(out)["devices"]) == (0, catalog.load("host").devices)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("nothing", "returned nothing: return (step, arguments)"),
        ("number", "returned (int, tuple): return"),
        ("keywords", "write the keywords as a dict"),
        ("arguments", "write the arguments as a tuple: (step, (x,))"),
        ("fails", "line 20: KeyError: 'columns'"),
        ("two", "two(mesh, name) must take a mesh, or nothing"),
        ("mke", "has no function 'mke'; did you mean 'make'"),
    ],
)
def test_a_function_that_makes_no_step_is_refused(capsys, script, on_host, function, message):
    options = (*on_host, "--mesh", "rows=8")
    check_refused(run(capsys, "price", f"{script}:{function}", *options), message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "neither a script nor --hlo"),
        (("step.py:make", "--hlo", "x.txt"), "both a script and --hlo"),
        (("step.py:make",), "for which cluster? add --cluster"),
        (("step.py", "--cluster", "dgx-h100"), "write FILE.py:FUNCTION"),
        (("nowhere.py:make", "--cluster", "host"), "there is no file nowhere.py"),
        (("--hlo", "nowhere.txt", "--cluster", "dgx-h100"), "cannot read nowhere.txt"),
        (("--hlo", "x", "--cluster", "p5", "--dump-hlo", "y"), "--hlo has a dump already"),
    ],
)
def test_what_contradicts_itself_is_refused(capsys, options, message):
    check_refused(run(capsys, "price", *options), message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--mesh", "data=64"), "a program of 8 partitions, the mesh data=64 has 64 devices"),
        (("--trips", "while.3"), "--trips while.3: write NAME=NUMBER"),
        (("--trips", "while.3=x"), "--trips while.3=x: 'x' is no number"),
        (("--trips", "while.3=2"), "the program has no loop 'while.3'"),
        (("--local", "mine"), "the program has no kernel 'mine'"),
        (("--local", "mine=x"), "'x' is no number"),
        (("--tokens", "-1"), "tokens=-1.0 must be a positive number"),
        (("--nodes", "2", "--override", "gpus_per_node=2"), "use --nodes 4"),
        (("--verbos",), "--verbose"),
        (("--plot", "tim=x.svg"), "'time'"),
    ],
)
def test_options_that_a_program_has_not_are_refused(capsys, dump, options, message):
    check_refused(run(capsys, "price", "--hlo", dump, "--cluster", "dgx-h100", *options), message)
