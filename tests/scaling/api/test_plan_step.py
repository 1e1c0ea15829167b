"""`sc.plan_step`: meshes, variants and settings of anybody's step, compiled and ranked."""

import json
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import scaling as sc
from scaling.meshes.shape import axes_text
from scaling.meshes.units import format_time
from scaling.profiles.profile import CollectiveFit
from scaling.program.ir import COLLECTIVE_KINDS
from tests.scaling.cli.running import check_refused, run
from tests.scaling.host_profile import HERE, host_profile

FITS = [
    CollectiveFit(kind, n, 8 // n, 1e-5, 1e9, HERE) for kind in COLLECTIVE_KINDS for n in (2, 4, 8)
]
HOST = {"cluster": "host", "calibration": host_profile(collectives=tuple(FITS))}
TEXT = (
    "HloModule m, is_scheduled=true, num_partitions=8\nENTRY %main (x: f32[8]) -> f32[8] {\n"
    "  %x = f32[8]{0} parameter(0)\n  ROOT %y = f32[8]{0} add(%x, %x)\n}"
)
EXAMPLE = "experiments/foreign/planned/flax_mlp.py"
SMALL = "width=256,layers=2,rows=2048"


@pytest.fixture
def make():
    """A product whose sum travels over `model`; it needs an even number of devices there."""

    def product(mesh, power=1):
        if mesh.shape["model"] == 1:
            raise RuntimeError("model is too short")
        array = lambda *spec: jax.ShapeDtypeStruct(
            (64, 64), jnp.float32, sharding=NamedSharding(mesh, P(*spec))
        )
        step = jax.jit(lambda x, w: jnp.linalg.matrix_power(x @ w, power))
        return step, (array("data", "model"), array("model"))

    return product


def test_meshes_are_ranked_and_what_fails_says_why(make):
    found = sc.plan_step(make, meshes="data=4,model=2; data=2,model=4; data=8,model=1", **HOST)
    rows = found.rows()
    assert [row["rank"] for row in rows] == [1, 2, 3]
    assert rows[0]["step_time"] <= rows[1]["step_time"] and rows[0]["fits"] is not False
    assert rows[2]["mesh"] == "data=8,model=1" and "model is too short" in rows[2]["why"]
    assert found.best.mesh == rows[0]["mesh"] in repr(found)
    page = " ".join(str(found).split())  # a long path folds the reason
    assert "2 of 3 programs compiled" in page and "model is too short" in page
    assert (
        json.loads(json.dumps(found.to_dict(), allow_nan=False))["plans"][2]["prediction"] is None
    )
    assert found.best.prediction == sc.predict_step(
        *_flat(make(sc.device_mesh(rows[0]["mesh"], "host"))), name="product", **HOST
    )


def _flat(made):
    step, arguments = made
    return step, *arguments


def test_settings_and_options_are_variants_of_each_mesh(make, tmp_path):
    variants = {"once": {}, "thrice": {"power": 3, "options": {}}}
    found = sc.plan_step(make, meshes=["data=4,model=2"], variants=variants, **HOST)
    times = {row["variant"]: row["step_time"] for row in found.rows()}
    assert times["once"] < times["thrice"] and "thrice" in str(found)
    found.plot(tmp_path / "plans.svg")
    assert "thrice" in (tmp_path / "plans.svg").read_text()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, "over which axes?"),
        ({"axes": "data,model", "max": "tensor=2"}, "--max: unknown axis 'tensor'"),
        ({"axes": "data,model", "max": {"data": 2, "model": 2}}, "no mesh over data,model"),
        ({"meshes": "data=8,model=1"}, "RuntimeError: model is too short"),
        ({"meshes": "data=8,model"}, "expected axis=size"),
        ({"axes": "data,rows", "like": "tiny", "top": 1}, "axis 'rows'"),
        ({"meshes": "model=2", "variants": "remat"}, "write NAME=VALUE"),
        ({"meshes": "model=2", "variants": {"a": 3}}, "must be a mapping"),
        ({"meshes": "model=2", "variants": "layers=2"}, "unexpected keyword"),
        ({"meshes": "model=2", "tokens": -1}, "must be a positive number"),
        ({"meshes": "model=2", "top": 0}, "must be a whole number"),
        ({"meshes": "model=2", "trips": "while"}, "write NAME=NUMBER"),
        ({"meshes": "data=2;data=4"}, "meshes='data=2' has 2 devices, the plans are of 4"),
    ],
)
def test_bad_input_is_one_line(make, asked, words):
    with pytest.raises(sc.InputError) as error:
        sc.plan_step(
            make, **{**HOST, "cluster": "dgx-h100" if "axes" in asked else "host"}, **asked
        )
    told = str(error.value)
    assert words.replace("--", "") in told.replace("--", "") and "\n" not in told


@pytest.fixture
def shapes(tmp_path, monkeypatch):
    """A `make` of the user, in a file; the cache is empty."""
    monkeypatch.setenv("SCALING_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "step.py"
    file.write_text(
        "import jax\n"
        "from jax.sharding import NamedSharding, PartitionSpec as P\n"
        "def make(mesh):\n"
        "    rows = NamedSharding(mesh, P('data'))\n"
        "    x = jax.ShapeDtypeStruct((64, 64), 'float32', sharding=rows)\n"
        "    return jax.jit(lambda x: x @ x), (x,)\n"
    )
    return file


def kept(tmp_path):
    return {file.name: file.stat().st_mtime_ns for file in tmp_path.rglob("*.hlo.gz")}


MESHES = ("data=8,model=1", "data=4,model=2", "data=2,model=4", "data=1,model=8")


def test_a_search_that_was_interrupted_goes_on_where_it_ended(shapes, tmp_path, monkeypatch):
    from scaling.compile import jitted

    made, compiled = jitted.compile_text, []

    def compile_text(*given):
        if len(compiled) == 2:
            raise KeyboardInterrupt
        compiled.append(given)
        return made(*given)

    load = {}
    exec(shapes.read_text(), load)
    search = lambda: sc.plan_step(lambda mesh: load["make"](mesh), meshes=MESHES[:3], **HOST)
    monkeypatch.setattr(jitted, "compile_text", compile_text)
    with pytest.raises(KeyboardInterrupt):
        search()
    first = kept(tmp_path)
    assert len(first) == 2
    monkeypatch.setattr(jitted, "compile_text", lambda *g: compiled.append(g) or made(*g))
    assert len(search().rows()) == 3 == len(compiled)
    assert kept(tmp_path).items() > first.items()  # and nothing was written anew


@pytest.mark.deviceless
@pytest.mark.slow
def test_a_search_that_was_killed_leaves_no_process_and_goes_on(shapes, tmp_path, capsys):
    command = ["plan-step", f"{shapes}:make", "--cluster", "dgx-h100", "--meshes", ";".join(MESHES)]
    started = [sys.executable, "-m", "scaling", *command, "--jobs", "1"]
    with subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while not kept(tmp_path):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
        process.kill()
        assert process.stderr.read() == b""  # no bar where there is no terminal
    first = kept(tmp_path)
    assert 0 < len(first) < len(MESHES)
    code, out, _ = run(capsys, *command, "--json")
    assert code == 0 and len(json.loads(out)["plans"]) == len(MESHES)
    assert kept(tmp_path).items() > first.items()


@pytest.mark.deviceless
def test_all_meshes_are_compiled_whatever_the_top(make):
    found = sc.plan_step(make, "dgx-h100", axes="data,model", meshes="all", max="model=4", top=1)
    assert len(found.plans) == 3 and not found.left_out


def test_a_step_that_nobody_can_price_has_no_point_figure():
    def until(mesh):
        x = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=NamedSharding(mesh, P("data")))
        far = lambda x: jnp.sum(x) < 1e3
        return jax.jit(lambda x: jax.lax.while_loop(far, lambda x: x + jnp.tanh(x), x)), (x,)

    found = sc.plan_step(until, meshes="data=2", **HOST)
    low = format_time(found.best.prediction.step_time_low)
    assert f"at least {low}  not known" in str(found) and f"data=2 at least {low}" in found.line()


def test_what_is_no_step_is_said(make):
    with pytest.raises(sc.InputError, match="returned an int: return \\(step, arguments\\)"):
        sc.plan_step(lambda mesh: 3, meshes="data=2", **HOST)


def test_a_mesh_of_fewer_devices_than_the_plans_are_of_is_refused(make, capsys):
    words = "meshes='data=4' has 4 devices, the plans are of 8: write meshes of all of them, or "
    with pytest.raises(sc.InputError, match=words + "overrides={'gpus_per_node': '?4'?}"):
        sc.plan_step(make, "dgx-h100", meshes="data=4")
    with pytest.raises(sc.InputError, match="has 8 devices, the plans are of 16: write meshes of"):
        sc.plan_step(make, "dgx-h100", nodes=2, meshes="data=16; data=8")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("--axes data,data", "--axes names 'data' twice"),
        ("--axes data,model --jobs 0", "--jobs=0 must be a whole number, at least 1"),
    ],
)
def test_what_names_no_mesh_or_processes_is_one_line(capsys, more, words):
    where = ("plan-step", f"{EXAMPLE}:make", "--cluster", "host", "--nodes", "1", *more.split())
    check_refused(run(capsys, *where), words)


@pytest.mark.parametrize(
    ("given", "words"),
    [("none.py:make", "there is no file none.py"), ("llama3-8b", "write FILE.py:FUNCTION")],
)
def test_what_names_no_function_is_one_line(capsys, given, words):
    where = ("plan-step", given, "--cluster", "host", "--meshes", "data=2")
    check_refused(run(capsys, *where), words)


@pytest.mark.deviceless
def test_the_flax_example_is_planned_in_processes(capsys):
    where = ("--cluster", "dgx-h100", "--axes", "data,model", "--max", "model=2", "--json")
    code, out, _ = run(capsys, "plan-step", f"{EXAMPLE}:make", *where, "--variants", SMALL)
    rows = json.loads(out)["plans"]
    assert code == 0 and {row["mesh"] for row in rows} == {"data=8,model=1", "data=4,model=2"}
    assert all(row["fits"] and row["variant"] == SMALL for row in rows)


@pytest.mark.deviceless
def test_meshes_beyond_the_first_are_ranked_without_their_programs(make):
    found = sc.plan_step(make, "dgx-h100", axes="data,model", max="model=4", top=2, like="tiny")
    assert len(found.plans) == 2 and len(found.left_out) == 1
    assert "closed form" in found.ranked_by


def test_what_is_compiled_to_rank_the_others_takes_no_place_of_the_best(make, monkeypatch):
    module = sys.modules["scaling.api.plan_step"]
    by = {"data=1,model=64": 1.0, "data=64,model=1": 2.0}  # the best are far from balanced
    ranked = lambda probes, meshes: {m: by.get(m, 3.0) for m in map(axes_text, meshes)}
    monkeypatch.setattr(module, "_by_collectives", ranked)
    asked = []

    def instead(make, requests, jobs, title):
        asked.extend(axes_text(request["axes"]) for request in requests)
        return [prediction] * len(requests)

    prediction = sc.predict_hlo(TEXT, "dgx-h100", 1)
    monkeypatch.setattr(module, "predict_elsewhere", instead)
    sc.plan_step(make, "dgx-h100", nodes=8, axes="data,model", top=2)
    assert sorted(asked[:3]) == ["data=16,model=4", "data=4,model=16", "data=8,model=8"]
    assert asked[3:] == ["data=1,model=64", "data=64,model=1"]


def test_loops_conditionals_and_kernels_are_said_as_to_a_prediction():
    def until(mesh):
        x = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=NamedSharding(mesh, P("data")))
        far = lambda x: jnp.sum(x) < 1e3
        return jax.jit(lambda x: jax.lax.while_loop(far, lambda x: x + jnp.tanh(x), x)), (x,)

    twice, ten = (
        sc.plan_step(until, meshes="data=2", trips={"while": n}, **HOST).best.prediction
        for n in (2, 10)
    )
    assert not twice.unknown and twice.step_time < ten.step_time
    assert ten == sc.plan_step(until, meshes="data=2", trips="while=10", **HOST).best.prediction
    for name, words in (("branches", "no conditional 'x'"), ("kernels", "no custom kernel 'x'")):
        with pytest.raises(sc.InputError, match=words):
            sc.plan_step(until, meshes="data=2", **{name: "x=0.5"}, **HOST)


@pytest.mark.deviceless
def test_a_script_that_plans_by_itself_is_not_run_again_and_again(tmp_path):
    (tmp_path / "own.py").write_text(
        "import jax, scaling as sc\n"
        "def make(mesh):\n"
        "    return jax.jit(lambda x: x + 1), (jax.ShapeDtypeStruct((8,), 'float32'),)\n"
        "print(len(sc.plan_step(make, 'dgx-h100', meshes='data=8').plans), 'planned')\n"
    )
    done = subprocess.run(
        [sys.executable, tmp_path / "own.py"], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("1 planned\n", 0), done.stderr


def test_maxtext_has_its_outermost_axes_over_the_nodes():
    from experiments.foreign.planned.maxtext_llama2_7b import flags

    found = flags({"data": 4, "fsdp": 4, "tensor": 4}, nodes=8)
    assert "dcn_data_parallelism=4" in found and "ici_data_parallelism=1" in found
    assert "dcn_fsdp_parallelism=2" in found and "ici_fsdp_parallelism=2" in found
    assert "dcn_tensor_parallelism=1" in found and "ici_tensor_parallelism=4" in found
