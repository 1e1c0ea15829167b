"""`import scaling`: what its names do, and that it is light."""

import doctest
import importlib
import importlib.util
import inspect
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import scaling as sc
from scaling.api.inputs import keep_devices_free
from scaling.api.public_api import in_python
from scaling.meshes import catalog
from scaling.meshes.result import Result

ROOT = Path(__file__).resolve().parents[3]
COMPILED = ("predict", "predict_step", "pretend", "device_mesh", "compare", "plan_step")  # for GPUs
ON_DEVICES = ("calibrate", "train", "sample", "compare")  # each has a file of those before it


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)


def examples(name, is_run=False):
    """Run the examples of a docstring, of `is_run` those that are skipped too: (failed, tried)."""
    function = getattr(sc, name)
    (test,) = doctest.DocTestFinder(recurse=False).find(function, name, False, {})
    for example in test.examples if is_run else ():
        example.options.pop(doctest.SKIP, None)
    return doctest.DocTestRunner().run(test)


@pytest.mark.parametrize("name", [n for n in sc.__all__ if n not in (*COMPILED, *ON_DEVICES)])
def test_the_example_of_a_docstring_runs(name):
    failed, tried = examples(name)
    assert (failed, tried > 0) == (0, True)


@pytest.mark.deviceless
@pytest.mark.parametrize("name", COMPILED)
def test_the_example_that_compiles_for_gpus_runs(name):
    assert examples(name).failed == 0


@pytest.mark.slow
def test_the_examples_that_need_devices_run_one_after_the_other(tmp_path, monkeypatch):
    """In a process of their own: the devices of this one may be in use."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCALING_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    done = python(
        f"from {__name__} import examples\n"
        f"for name in {ON_DEVICES}:\n"
        "    failed, tried = examples(name, is_run=True)\n"
        "    assert (failed, tried > 1) == (0, True), name"
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", [n for n in sc._MODULES if n[0].islower()])
def test_every_function_has_an_example_and_checks_its_arguments(name):
    function = getattr(sc, name)
    assert ">>> import scaling as sc" in function.__doc__
    assert function.__wrapped__  # by `entrance`


def test_importing_the_package_loads_nothing_else():
    code = (
        "import sys; before = set(sys.modules); import scaling\n"
        "new = {n for n in set(sys.modules) - before if n.partition('.')[0] not in "
        "sys.stdlib_module_names}\n"
        "assert new == {'scaling'}, new\n"
        "assert {'predict', 'train', '__version__'} <= set(dir(scaling))"
    )
    done = python(code)
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_there():
    assert all(getattr(sc, name) is not None for name in sc._MODULES)
    assert set(sc.__all__) < set(sc._MODULES) and len(sc.__all__) == 21
    assert set(dir(sc)) == {*sc.__all__, "learn", "__version__"}
    assert set(sc.learn.__all__) == set(dir(sc.learn)) > set(sc._OF_LEARN)
    assert all(getattr(sc.learn, name) is getattr(sc, name) for name in sc._OF_LEARN)
    assert all(callable(getattr(sc.learn, name)) for name in sc.learn.__all__)
    with pytest.raises(sc.InputError, match="'limit'.*did you mean 'limits'"):
        sc.learn.limit  # noqa: B018


def test_an_unknown_name_gives_the_nearest():
    for kind in (sc.InputError, AttributeError):
        with pytest.raises(kind, match="'predit'.*did you mean 'predict'"):
            sc.predit  # noqa: B018
    assert not hasattr(sc, "predit")


def test_functions_stay_functions_whatever_is_imported():
    for path in (ROOT / "scaling").glob("*/*.py"):
        if path.parent.name not in ("course", "cli", "training", "calibration", "compile"):
            importlib.import_module(f"scaling.{path.parent.name}.{path.stem}")
    for name in ("plan", "train", "compare", "calibrate", "predict"):
        assert inspect.isfunction(getattr(sc, name))


def test_without_jax_prices_are_made_and_what_needs_it_names_the_package():
    code = (
        "import sys\n"
        "sys.modules['jax'] = None\n"
        "import scaling as sc\n"
        "assert sc.price_collective('all-reduce', '1MiB', cluster='dgx-h100').time > 0\n"
        "try: sc.predict_step(print, cluster='dgx-h100')\n"
        "except sc.InputError as error: print(error)\n"
    )
    done = python(code)
    assert done.stdout.startswith("predict_step needs the package jax, which is not installed")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sc.load_run("tini"), "did you mean 'tiny'"),
        (lambda: sc.load_run("tiny", mesh={"tensr": 2}), "'tensor'"),
        (lambda: sc.load_run("tiny", device_order="tensr"), "'tensor'"),
        (lambda: sc.load_run({"model": {"preset": "tiny"}, "bach": {}}), "'batch'"),
        (lambda: sc.load_run("tiny", set={"bach.seq_len": 1}), "'batch'"),
        (lambda: sc.load_cluster("dgx-h10"), "'dgx-h100'"),
        (lambda: sc.load_cluster("dgx-h100", overrides={"network_bandwith": 1}), "bandwidth"),
        (lambda: sc.predict("tiny", source="compild"), "'compiled'"),
        (lambda: sc.predict("tiny", what_if=["netwrk x2"]), "'network'"),
        (lambda: sc.price_collective("allreduce", 8, "p5"), "'all-reduce'"),
        (lambda: sc.price_collective("all-reduce", "8 parsecs", "p5"), "8 parsecs"),
        (lambda: sc.price_collective("all-reduce", 8, "p5", algorithm="rng"), "'ring'"),
        (lambda: sc.price_collective("all-reduce", 8, sc.load_cluster("p5"), nodes=2), "already"),
        (lambda: sc.predict_hlo("nowhere.txt", "p5"), "cannot read nowhere.txt"),
        (lambda: sc.predict_hlo(HLO, "rtx-pro-6000-4", nodes=1), "nodes=2"),
        (lambda: sc.predict_hlo(HLO, "p5", mesh="data=16"), "8 partitions.*16 devices"),
        (lambda: sc.predict_hlo("HloModule x\n", "p5"), "is not scheduled"),
        (lambda: sc.predict_hlo("%x\n", "p5"), "no HLO text"),
        (lambda: sc.predict_hlo(HLO, "p5", mesh="data=x"), "'data=x'"),
        (
            lambda: sc.predict_hlo(HLO, "p5", mesh={"data": 1.5}),
            "mesh: .data=1.5.: the size of an axis",
        ),
        (lambda: sc.predict_hlo(HLO, "p5", mesh="=8"), "mesh: expected axis=size"),
        (lambda: sc.plan("tiny", "dgx-h100", set={"train.ema": 2}), "train.ema=2"),
        (lambda: sc.compare("nowhere"), "nowhere"),
        # parameters by their own names
        (lambda: sc.scaling_curves("tiny", "p5", (2, 1)), "nodes='2,1': give two numbers"),
        (lambda: sc.serve(), "name a model, such as llama3-70b, or .* by parameters=70e9"),
        (lambda: sc.predict("tiny", "p5", batch=0), "^batch=0 must be a whole number"),
        # values of other types
        (lambda: sc.train("tiny", devices="8"), "train: devices='8' must be a whole number or N"),
        (
            lambda: sc.compare(None),
            "compare: run_dir=None must be a text, a path or a PredictionResult",
        ),
        (lambda: sc.predict_hlo(None, "p5"), "text=None must be a path or a text"),
        (lambda: sc.load_run("tiny", mesh=8), "mesh=8 must be a MeshShape, a text, a mapping or N"),
        (lambda: sc.load_cluster("p5", nodes=1.5), "nodes=1.5 must be a whole number"),
        (lambda: sc.load_cluster("p5", nodes=True), "nodes=True must be a whole number"),
        (lambda: sc.load_cluster("p5", overrides=["memory=1GB"] * 2), "'memory' is given twice"),
        (lambda: sc.price_collective("permute", 8, "p5", skew="2"), "skew='2' must be a number"),
        (lambda: sc.price_collective("permute", 8, "p5", skew=True), "skew=True must be a number"),
        (lambda: sc.price_collective("permute", 8, "p5", axis=3), "axis=3 must be a text, a seq"),
        (lambda: sc.price_collective("permute", 0, "p5"), "bytes=0 must be .* at least 1"),
        (lambda: sc.price_collective("permute", float("nan"), "p5"), "bytes=nan must be a whole"),
        (lambda: sc.price_collective("permute", 8, "p5", mesh="fsdp=8", axis=[3]), "axis: exp"),
    ],
)
def test_bad_input_is_an_input_error_with_the_nearest_name(call, message):
    with pytest.raises(sc.InputError, match=message):
        call()


# --- results ------------------------------------------------------------------------------------

HLO = """HloModule step, is_scheduled=true, num_partitions=8

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

ENTRY %main (x: f32[4194304]) -> f32[4194304] {
  %x = f32[4194304]{0} parameter(0)
  ROOT %reduced = f32[4194304]{0} all-reduce(%x), channel_id=1, replica_groups=[2,4]<=[8], use_global_device_ids=true, to_apply=%add
}
"""  # noqa: E501


@pytest.fixture(scope="module")
def result():
    return sc.predict_hlo(HLO, cluster="dgx-h100", mesh="data=2,model=4", name="reduce")


def test_a_result_has_the_keys_of_its_document_as_attributes(result):
    document = result.to_dict()
    assert json.loads(json.dumps(document)) == document
    assert isinstance(result, sc.Prediction)
    assert result.step_time == document["step_time"] > 0
    assert result.memory.peak == document["memory"]["peak"]
    assert [c.axis for c in result.collectives] == ["model"]
    assert [document[key] for key in ("mesh", "cluster", "nodes", "batch")] == [
        "data=2,model=4", "dgx-h100", 1, None,
    ]  # fmt: skip


def test_a_result_prints_as_the_page_and_shows_as_a_table(result):
    assert str(result).startswith("reduce on data=2,model=4 of dgx-h100, 8 devices")
    table = result._repr_html_()
    assert table.startswith("<table>") and "<svg" in table and "bottleneck" in table
    assert "reduce on data=2,model=4 of dgx-h100" in repr(result)


RESULTS = {
    "cluster": lambda: sc.load_cluster("tpu-v5p", 4),
    "price": lambda: sc.price_collective("all-gather", "1MiB", "dgx-h100"),
    "answer": lambda: sc.learn.kernel("matmul", (4096, 4096, 4096), accelerator="h100-sxm"),
    "curves": lambda: sc.scaling_curves("gpt2-124m", "dgx-h100", (1, 2), source="analytic"),
    "plans": lambda: sc.plan("gpt2-124m", "dgx-h100", top=2),
    "ladder": lambda: sc.learn.kernel_ladder("matmul", (4096, 4096, 4096), "h100-sxm"),
    "prediction": lambda: sc.predict("tiny", "dgx-h100", source="analytic"),
    "difference": lambda: sc.compare(RESULTS["prediction"](), RESULTS["prediction"]()),
    "puzzle": lambda: sc.learn.check_puzzle(
        1,
        {
            **{"name": "mine", "model": "llama3-8b", "mesh": {"fsdp": 8}, "remat": "full"},
            "batch": {"global_batch": 16, "seq_len": 4096, "microbatches": 2},
        },
        source="analytic",
    ),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_are_alike(name):
    """A page, a line, HTML for a notebook, and a document."""
    found = RESULTS[name]()
    assert isinstance(found, Result)
    assert len(str(found).splitlines()) > 1
    assert repr(found).startswith("<") and "\n" not in repr(found) and len(repr(found)) < 150
    assert found._repr_html_().startswith(("<pre>", "<table>"))
    assert json.loads(json.dumps(found.to_dict()))


@pytest.mark.parametrize("name", ["cluster", "price", "curves", "plans"])
def test_a_result_with_a_picture_writes_it(name, tmp_path):
    found = RESULTS[name]()
    found.plot(tmp_path / "picture.svg")
    assert "<svg" in (tmp_path / "picture.svg").read_text(encoding="utf-8")
    with pytest.raises(sc.InputError, match=r"^plot .*picture.txt: end the name with .png"):
        found.plot(tmp_path / "picture.txt")


def test_a_cluster_with_a_page_is_the_catalogue_s():
    found, plain = sc.load_cluster("p5", 2, overrides="memory=40GB"), sc.load_cluster("p5", 2)
    shipped = catalog.load("p5", 2)
    assert plain == shipped and shipped == plain and hash(plain) == hash(shipped)
    assert found != shipped and found.accelerator.memory == 40e9
    assert pickle.loads(pickle.dumps(found)) == found
    assert str(plain).startswith("p5") and plain.to_dict()["devices"] == plain.devices == 16


def test_a_price_is_that_of_the_same_collective_at_another_size():
    price = sc.price_collective("all-to-all", "1MiB", "dgx-h100", skew=2.0, algorithm="pairwise")
    again = sc.price_collective("all-to-all", "8MiB", "dgx-h100", skew=2.0, algorithm="pairwise")
    assert price.at("8MiB").to_dict() == again.to_dict() != price.to_dict()


def test_an_answer_is_a_number_with_named_figures():
    found = RESULTS["answer"]()
    assert float(found) == found.answer > 0
    assert found.figures["compute time"] == found["compute time"].answer > 0
    with pytest.raises(TypeError, match="the link: nvlink is no number"):
        float(sc.Answer("the link", "nvlink"))


def test_what_if_prices_the_same_program_again(result):
    faster = result.what_if("nvlink x2")
    assert faster.step_time < result.step_time and faster != result
    assert "what if nvlink x2" in str(faster)
    assert sc.predict_hlo(HLO, "dgx-h100", what_if="nvlink x2").step_time == faster.step_time
    with pytest.raises(sc.InputError, match="expected a text such as 'network x2', got 3"):
        result.what_if(3)
    assert faster.what_if("nvlink x0.5").step_time == pytest.approx(float(result.step_time))
    (warning,) = result.what_if("network x2").warnings[:1]
    assert warning.startswith("what_if='network x2' changed nothing")


def test_a_what_if_that_no_machine_has_is_warned_of(result):
    warnings = result.what_if("network x1000", "memory x2").warnings
    found = [text for text in warnings if text.startswith("what_if: ")]
    assert len(found) == 1 and "node_network_bandwidth" in found[0] and "plausible is" in found[0]


def test_results_pickle_and_compare(result):
    again = pickle.loads(pickle.dumps(result))
    assert again == result and hash(again) == hash(result)
    assert again.what_if("nvlink x2") == result.what_if("nvlink x2")
    assert result != "reduce"
    assert pickle.loads(pickle.dumps(sc.predict)) is sc.predict  # as a pool of processes asks for


def test_a_result_writes_its_trace_and_explains_itself(result, tmp_path):
    result.trace(tmp_path / "step.json")
    events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    assert any(event["name"].startswith("all-reduce[model]") for event in events)
    assert "all-reduce[model]" in result.explain()
    assert result.advice() == []
    with pytest.raises(sc.InputError, match="cannot write .*: No such file or directory"):
        result.trace(tmp_path / "nowhere" / "step.json")


@pytest.mark.deviceless
def test_a_step_whose_arguments_have_no_mesh_is_predicted_on_the_one_given():
    import jax
    import jax.numpy as jnp
    from jax.sharding import PartitionSpec as P

    step = jax.jit(lambda x: x.sum(), in_shardings=P("data"), out_shardings=P())
    x = jax.ShapeDtypeStruct((4096, 64), jnp.float32)
    p = sc.predict_step(step, x, cluster="dgx-h100", mesh={"data": 8})
    assert p.mesh == "data=8" and [c.axis for c in p.collectives] == ["data"]
    with pytest.raises(sc.InputError, match="mesh"):
        sc.predict_step(step, x, cluster="dgx-h100")


def test_an_hlo_file_is_read_and_its_cluster_gets_the_nodes_it_needs(tmp_path):
    (tmp_path / "dumped.txt").write_text(HLO)
    p = sc.predict_hlo(tmp_path / "dumped.txt", "rtx-pro-6000-4", mesh={"data": 2, "model": 4})
    assert (p.name, p.cluster.nodes, p.devices) == ("dumped", 2, 8)
    assert sc.predict_hlo(HLO, "p5").mesh == "data=8"


def test_a_price_equals_that_of_a_loaded_cluster_and_of_numbers():
    by_name = sc.price_collective("all-gather", "1MiB", "dgx-h100", 2, "fsdp=2,tensor=8", "fsdp")
    cluster = sc.load_cluster("dgx-h100", 2)
    mesh = sc.MeshShape(fsdp=2, tensor=8)
    assert sc.price_collective("all-gather", 2.0**20, cluster, mesh=mesh, axis=["fsdp"]) == by_name
    joined = [
        sc.price_collective("all-gather", "1MiB", cluster, 2.0, mesh, axis)
        for axis in ("fsdp+tensor", "fsdp,tensor", ["fsdp", "tensor"])
    ]
    assert joined[0] == joined[1] == joined[2]


def test_a_process_without_jax_is_kept_off_gpus_and_one_with_it_off_absent_ones(monkeypatch):
    jax = SimpleNamespace(config=SimpleNamespace(update=lambda *words: told.append(words)))
    told = []
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    keep_devices_free()
    assert os.environ.pop("JAX_PLATFORMS") == "cpu"
    monkeypatch.setitem(sys.modules, "jax", jax)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
    keep_devices_free()
    without_driver = os.environ.pop("JAX_PLATFORMS", None) == "cpu"
    assert told == ([("jax_platforms", "cpu")] if without_driver else [])


def test_a_figure_that_no_machine_has_is_warned_of():
    with pytest.warns(UserWarning, match="100 bytes/s .*looks like GB/s"):
        sc.price_collective(
            "all-reduce",
            "1MiB",
            "dgx-h100",
            nodes=2,
            overrides={"node_network_bandwidth": 100},
        )


def test_calibrating_keeps_the_noise_of_an_import_of_jax_in_the_log(tmp_path):
    code = (
        "import sys, types\n"
        "stub = sys.modules['scaling.calibration.calibrate'] = types.ModuleType('stub')\n"
        "from tests.scaling.host_profile import host_profile\n"
        "stub.calibrate = lambda quick, report: host_profile()\n"
        "import scaling.profiles.io as io\n"
        "io.write_profile = lambda profile, path: None\n"
        "from scaling.api.calibrate import calibrate\n"
        f"calibrate({str(tmp_path / 'host.json')!r}, True, 2)"
    )
    done = python(code)
    assert (done.returncode, done.stderr) == (0, "")


WRONG = {
    "mesh: 'fsdp=8.5': the size of an axis is a whole number, at least 1": lambda: sc.predict(
        "tiny", "dgx-h100", mesh={"fsdp": 8.5}
    ),
    "use nodes=2 or a smaller mesh": lambda: sc.predict("tiny", "dgx-h100", mesh="fsdp=16"),
    "device_order data orders the axes of a mesh: add mesh": lambda: sc.price_collective(
        "all-gather", "1MiB", "dgx-h100", device_order="data"
    ),
    "add cluster, such as cluster='dgx-h100'": lambda: sc.limits("llama3-8b"),
    "set={'model.vocab_size': 32000, 'model.d_model': 4096,": lambda: sc.load_run("custom"),
    "use source='compiled'": lambda: sc.predict(
        "tiny", "dgx-h100", source="analytic", dump_hlo="x"
    ),
    "set: batch: unknown key 'seqlen'": lambda: sc.load_run("tiny", set={"batch.seqlen": 8}),
    "overrides='nic'": lambda: sc.load_cluster("dgx-h100", overrides="nic"),
    "overrides: unknown key 'nic'": lambda: sc.chip("h100-sxm", override=["nic=3"]),
    "source='x' is not a rate": lambda: sc.kernel("read", 8, accelerator="t4", source="x"),
    "add active, such as 8": lambda: sc.price_collective("all-to-all", 8, "dgx-h100", random=True),
    "unknown axis 'dp'; here 'dp' is 'data'": lambda: sc.plan("tiny", "dgx-h100", mesh={"dp": 8}),
    "use set={'precision.compute': 'fp32'}": lambda: sc.predict(
        "tiny", "dgx-v100", mesh="data=8", source="compiled", set={"precision.compute": "bf16"}
    ),
    "what_if: unknown figure 'ntwork'": lambda: sc.predict(
        "tiny", "dgx-h100", source="analytic"
    ).what_if("ntwork x2"),
}


@pytest.mark.parametrize("words", WRONG)
def test_in_python_a_message_speaks_of_parameters(words):
    with pytest.raises(sc.InputError) as raised:
        WRONG[words]()
    assert words in str(raised.value) and "--" not in str(raised.value)


def test_a_whole_float_is_a_size_of_an_axis():
    assert sc.load_run("tiny", mesh={"fsdp": 8.0}).mesh.fsdp == 8


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("run `scaling calibrate --quick`", "run `scaling calibrate --quick`"),
        ("--mesh data=2,fsdp=4, or --nodes", "mesh='data=2,fsdp=4', or nodes"),
        ("XLA_FLAGS=--xla_dump_to=DIR", "XLA_FLAGS=--xla_dump_to=DIR"),
        ("(--set a.b=1 --set c=x)", "(set={'a.b': 1, 'c': 'x'})"),
        ("give --trips a/decode.py:40=N: so", "give trips={'a/decode.py:40': ...}: so"),
        ("--trips 'jit(f)/while=N'", "trips={'jit(f)/while': ...}"),
        ("--branches soap.py:12=0.1, or", "branches={'soap.py:12': 0.1}, or"),
        ("--branches a.py:7=SHARE,SHARE, the", "branches={'a.py:7': [...]}, the"),
        ("--local mha=FLOPS,FORMAT", "kernels={'mha': Work(flops=..., dtype=...)}"),
        ("say so: --local mosaic_gpu", "say so: kernels={'mosaic_gpu': 'local'}"),
        ("--local: 'f' is given", "kernels: 'f' is given"),
    ],
)
def test_options_become_parameters_and_commands_stay(message, words):
    assert in_python(message) == words
