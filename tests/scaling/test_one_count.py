"""One count for one thing: FLOPs, bytes, parameters and KV cache agree in all commands.

A product or an attention takes as long in a predicted step, in `serve`, in `limits` and alone in
`kernel`. Parameters of real models are tests/models/test_accounting_of_built_models.py.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scaling as sc
from scaling.api.pricing import price_program
from scaling.meshes import catalog
from scaling.meshes.shape import MeshShape
from scaling.models.accounting import count_parameters
from scaling.models.accounting.matrices import STORED_BYTES
from scaling.models.presets import preset_names
from scaling.profiles.io import profile_of
from scaling.profiles.profile import ANY
from scaling.program.ir import Kernel
from scaling.questions.exchanges import UNSHARDED, MlpShape, math_time
from scaling.questions.serving.case import Formats, Servers, served_model
from scaling.questions.serving.kernels import ForwardPass, attention_kernel, weight_kernels
from scaling.simulate.attention import fit_of
from scaling.simulate.kernels import kernel_time
from scaling.simulate.step import running_kernels

CLUSTERS = ("dgx-h100", "dgx-a100", "tpu-v5p", "mi300x-8")
DENSE = ("llama3-8b", "gpt2-124m", "qwen3-8b", "llama2-13b")
SAME = 1e-9
THOROUGH = not settings().derandomize


def check(kernel: Kernel, seconds: float, chip: str, **formats: object) -> None:
    """The kernel alone, asked by its sizes, has the same FLOPs, bytes and seconds."""
    alone = sc.kernel("matmul", kernel.dims, dtype=kernel.dtype, accelerator=chip, **formats)
    assert alone["FLOPs"].answer == pytest.approx(kernel.flops, rel=SAME), kernel.name
    assert alone["bytes"].answer == pytest.approx(kernel.bytes, rel=SAME), kernel.name
    assert seconds == pytest.approx(alone.fitted, rel=SAME), kernel.name


def format_of_result(kernel: Kernel) -> str:
    """Logits are float32, and so are gradients of the table where they are summed."""
    batch, m, n, k = kernel.dims
    bytes = (kernel.bytes / batch - 2 * (m * k + k * n)) / (m * n)
    of_head = kernel.name in ("forward head", "backward w head")
    return {2: "bf16", 4: "fp32" if of_head else ""}[round(bytes, 6)]


@settings(max_examples=60 if THOROUGH else 3)
@given(
    st.sampled_from(DENSE),
    st.sampled_from(CLUSTERS),
    st.sampled_from(["fsdp=4", "fsdp=2,tensor=2"]),
    st.sampled_from([1, 2, 4]),
)
def test_kernels_of_a_predicted_step_take_as_long_alone(run, cluster, mesh, microbatches):
    sets = {"batch.microbatches": microbatches, "batch.global_batch": 16}
    found = sc.predict(run, cluster=cluster, mesh=mesh, source="analytic", set=sets)
    priced, model = price_program(found.pricing), sc.load_run(run).model
    chip, tensor = priced.cluster.accelerator.name, 2 if "tensor" in mesh else 1
    kinds = set()
    for kernel, _ in running_kernels(priced):
        seconds = float(priced.kernels[kernel.name].time)
        if kernel.kind == "matmul":
            check(kernel, seconds, chip, output=format_of_result(kernel))
        elif kernel.kind == "attention":
            sizes = (*kernel.dims, max(1, model.n_kv_heads // tensor))
            how = {"causal": True, "backward": kernel.origin.phase == "backward"}
            runs = fit_of(kernel, priced.profile)  # of a library, where the chip's table names it
            how |= {"library": runs.library} if runs.library != ANY else {}
            alone = sc.kernel("attention", sizes, dtype=kernel.dtype, accelerator=chip, **how)
            assert alone["FLOPs"].answer == pytest.approx(kernel.visible * kernel.flops, rel=SAME)
            assert alone["bytes"].answer == pytest.approx(kernel.bytes, rel=SAME)
            assert seconds == pytest.approx(alone.fitted, rel=SAME)
        kinds.add(kernel.kind)
    assert {"matmul", "attention"} <= kinds


@settings(max_examples=200 if THOROUGH else 10)
@given(
    st.sampled_from(DENSE),
    st.sampled_from(CLUSTERS),
    st.sampled_from([1, 2, 4]),
    st.sampled_from(["bf16", "int8"]),
    st.integers(1, 64),
    st.sampled_from([1, 512]),
)
def test_kernels_of_serving_take_as_long_alone(run, cluster, tensor, weights, batch, queries):
    place, model = catalog.load(cluster, 1), sc.load_run(run).model
    served = served_model(run, model, Formats(weights=weights))
    work = ForwardPass(served, Servers(place, MeshShape(tensor=tensor)), batch, queries, 1024)
    profile, chip = profile_of(place.accelerator), place.accelerator.name
    for kernel, _ in weight_kernels(work):
        seconds = float(kernel_time(kernel, place.accelerator, profile).time)
        check(kernel, seconds, chip, weights=weights)
    kernel, _ = attention_kernel(work)
    if model.n_kv_heads % tensor == 0:
        sizes = (*kernel.dims, model.n_kv_heads // tensor)
        alone = sc.kernel("attention", sizes, accelerator=chip)
        assert alone["bytes"].answer == pytest.approx(kernel.bytes, rel=SAME)
        assert alone["FLOPs"].answer == pytest.approx(kernel.flops, rel=SAME)


@settings(max_examples=100 if THOROUGH else 30)
@given(st.sampled_from(CLUSTERS), st.integers(1, 64), st.integers(1, 64), st.integers(1, 32))
def test_products_of_limits_take_as_long_alone_where_arithmetic_binds(cluster, D, F, rows):
    """Limits hold communication against arithmetic, as the guide does: bytes do not count there."""
    place, width, inner, tokens = catalog.one_host(cluster), 256 * D, 256 * F, 256.0 * rows
    profile, chip = profile_of(place.accelerator), place.accelerator
    time = math_time(MlpShape(width, inner), tokens, UNSHARDED, chip, profile)
    pair = [(tokens, inner, width), (tokens, width, inner)]
    alone = [sc.kernel("matmul", sizes, accelerator=chip.name) for sizes in pair]
    assert time <= sum(each.fitted for each in alone) * (1 + SAME)
    if all(each.binds == "compute" for each in alone):  # bytes beside it: at most hypot(1, 1)
        assert sum(each.fitted for each in alone) <= 2**0.5 * time * (1 + SAME)


@pytest.mark.parametrize("name", preset_names())
def test_parameters_and_caches_are_counted_alike(name):
    run = sc.load_run(name)
    counted, accounted = sc.count(name), count_parameters(run.model)
    assert counted.answer == accounted.total
    for kv in ("bf16", "int8"):
        served = served_model(name, run.model, Formats(kv=kv))
        of_token = sc.count(name, kv=kv)["KV cache of a token"].answer
        assert (served.total, served.active) == (accounted.total, accounted.active)
        assert of_token == pytest.approx(served.kv_token)
    assert STORED_BYTES["int8"] < STORED_BYTES["bf16"]
