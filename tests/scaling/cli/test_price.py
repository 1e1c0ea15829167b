"""`scaling price`: a step of a script, or a program that XLA dumped."""

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from scaling import predict_hlo
from scaling.meshes import catalog
from scaling.profiles.io import write_profile
from scaling.profiles.profile import CollectiveFit
from scaling.program.ir import COLLECTIVE_KINDS
from tests.scaling.cli.running import check_refused, run
from tests.scaling.comparing.gpu_traces import write_run
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
def ends(mesh): raise SystemExit(3)
def talks(mesh): print("parameters: 7B"); return make(mesh)

def own():
    mesh = jax.make_mesh((8,), ("own",), axis_types=(jax.sharding.AxisType.Explicit,))
    x = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=NamedSharding(mesh, P("own")))
    return jax.jit(lambda x: 2 * x), (x,)
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


def test_options_of_xla_reach_its_compiler(capsys, script, dump, on_host):
    options = (f"{script}:make", *on_host, "--mesh", "rows=8", "--option")
    check_refused(run(capsys, "price", *options, "xla_nothing=1"), "no option 'xla_nothing'")
    code, out, _ = run(capsys, "price", *options, "xla_llvm_disable_expensive_passes", "--json")
    document = json.loads(out)
    assert (code, document["added_options"], document["notes"]) == (0, {}, [])  # none on a CPU
    options = ("--hlo", dump, "--cluster", "dgx-h100", "--option", "xla_nothing=1")
    check_refused(run(capsys, "price", *options), "--hlo is compiled already")


def test_what_a_script_prints_is_not_in_the_document(capsys, script, on_host):
    options = (*on_host, "--mesh", "rows=8", "--json")
    code, out, err = run(capsys, "price", f"{script}:talks", *options)
    assert (code, json.loads(out)["mesh"]) == (0, "rows=8") and err == "parameters: 7B\n"


def test_a_mesh_that_the_script_makes_goes_before_the_one_of_the_command(capsys, script, on_host):
    options = (*on_host, "--mesh", "rows=8", "--json")
    code, out, _ = run(capsys, "price", f"{script}:own", *options)
    assert (code, json.loads(out)["mesh"]) == (0, "own=8")


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
        ("ends", "line 22: SystemExit: 3"),
        ("mke", "has no function 'mke'; did you mean 'make'"),
    ],
)
def test_a_function_that_makes_no_step_is_refused(capsys, script, on_host, function, message):
    options = (*on_host, "--mesh", "rows=8")
    check_refused(run(capsys, "price", f"{script}:{function}", *options), message)


def test_a_script_of_the_folder_one_is_in_has_its_lines_too(capsys, script, on_host, monkeypatch):
    monkeypatch.chdir(script.parent)
    refused = run(capsys, "price", f"{script.name}:fails", *on_host, "--mesh", "rows=8")
    check_refused(refused, f"{script.name}, line 20: KeyError: 'columns'")


@pytest.fixture
def profile(dump, tmp_path):
    """A profile of three steps of the dump's program, as if it ran as predicted."""
    return write_run(tmp_path / "host.trace.json.gz", predict_hlo(dump, "dgx-h100"), steps=3)


def test_a_price_stands_beside_a_profile_of_the_run(capsys, dump, profile, tmp_path):
    options = ("--hlo", dump, "--cluster", "dgx-h100", "--compare", profile)
    code, out, _ = run(capsys, "price", *options, "--trace", tmp_path / "t.json")
    assert code == 0 and "error +0.0% over 3 steps" in out
    assert "seconds by class" in out and "all-to-all" in out.partition("seconds by class")[2]
    trace = json.loads((tmp_path / "t.json").read_text())
    assert {event["pid"] for event in trace["traceEvents"]} == {1, 2}
    code, out, _ = run(capsys, "price", *options, "--json")
    document = json.loads(out)["compare"]
    assert (code, document["match"]["share"], document["match"]["module"]) == (0, 1.0, "jit_step")
    assert document["classes"]["all-to-all"]["error"] == pytest.approx(0, abs=1e-6)
    assert list(document["collectives"][0]["instructions"]) == ["gathered"]


def test_a_step_of_a_script_stands_beside_its_run_on_this_machine(
    capsys, script, on_host, tmp_path
):
    """Recorded here, by its own jit on real (CPU) devices; the other way round is refused."""
    mesh = jax.make_mesh((8,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.NamedSharding(mesh, jax.P("rows"))

    def apply(x, n):
        return n * x @ x

    step = jax.jit(apply)
    x = jax.device_put(jnp.ones((64, 64)), sharding)
    jax.block_until_ready(step(x, n=2.0))
    with jax.profiler.trace(str(tmp_path / "profile")):
        for _ in range(3):
            jax.block_until_ready(step(x, n=2.0))
    options = (f"{script}:make", *on_host, "--mesh", "rows=8", "--compare", tmp_path / "profile")
    code, out, _ = run(capsys, "price", *options, "--json")
    document = json.loads(out)["compare"]
    assert (code, document["step_time"]["steps"], document["match"]["share"]) == (0, 3, 1.0)
    assert document["machine"] == "8 x CPU device, recorded"
    assert [c["axis"] for c in document["collectives"]] == ["rows"]
    assert document["time"]["compute"]["measured"] > 0
    options = ("nowhere.py:make", "--cluster", "dgx-h100", "--compare", tmp_path / "profile")
    check_refused(run(capsys, "price", *options), "the profile is of CPU devices")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--compare", "nowhere"), "no profile in nowhere, which does not exist: record some"),
        (("--compare", "{dump}"), "is no profile that jax.profiler writes: give HOST.xplane.pb"),
        (("--compare", "{profile}", "--steps", "0"), "steps=0 must be a whole number from 1"),
        (("--compare", "{profile}", "--steps", "7"), "holds 3 steps of the program, not 7"),
        (("--steps", "3"), "--steps is of a profile: add --compare PROFILE"),
        (("--compare", "{profile}", "--cluster", "host"), "the profile is of GPUs"),
        (("--compare", "{profile}", "--trace", "{profile}"), "--trace"),
    ],
)
def test_a_profile_that_does_not_fit_is_refused(capsys, dump, profile, options, message):
    """Before the dump is read, where that can be."""
    options = [text.format(dump=dump, profile=profile) for text in options]
    cluster = () if "--cluster" in options else ("--cluster", "dgx-h100")
    check_refused(run(capsys, "price", "--hlo", dump, *cluster, *options), message)


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
        (("--trips", "while.3"), "'while.3' is no pair: write NAME=NUMBER"),
        (("--trips", "while.3=2", "--trips", "while.3=3"), "--trips says while.3 twice"),
        (("--trips", "while.3=x"), "--trips while.3=x: 'x' is no number"),
        (("--trips", "while.3=2k"), "the program has no loop of unknown length 'while.3'"),
        (("--branches", "soap.py:12"), "'soap.py:12' is no pair: write NAME=NUMBER"),
        (("--branches", "soap.py:12=x"), "--branches soap.py:12=x: 'x' is no number"),
        (("--branches", "soap.py:12=every=10"), "the program has no conditional 'soap.py:12'"),
        (("--branches", "soap.py:12=every=0"), "write every=10 for one run in ten"),
        (("--local", "mine"), "the program has no custom kernel 'mine'"),
        (("--local", "mine=x"), "'x' is no number"),
        (("--tokens", "-1"), "tokens=-1.0 must be a positive number"),
        (("--nodes", "2", "--override", "gpus_per_node=2"), "use --nodes 4"),
        (("--verbos",), "--verbose"),
        (("--plot", "tim=x.svg"), "'time'"),
    ],
)
def test_options_that_a_program_has_not_are_refused(capsys, dump, options, message):
    check_refused(run(capsys, "price", "--hlo", dump, "--cluster", "dgx-h100", *options), message)


def test_a_dump_is_priced_without_jax_and_without_what_other_commands_import(dump):
    code = (
        "import sys; from scaling.cli.main import main\n"
        f"code = main(['price', '--hlo', {str(dump)!r}, '--cluster', 'dgx-h100'])\n"
        "late = {'jax', 'scipy', 'matplotlib', 'typeguard', 'asyncio', 'numpy.ma'}\n"
        "late |= {'scaling.comparing.compare', 'scaling.analytic.program'}\n"
        "late |= {'scaling.comparing.audit', 'scaling.pictures.files'}\n"
        "sys.exit(code or ' '.join(late & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
