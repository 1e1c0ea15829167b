"""`scaling serve`."""

import json
import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scaling as sc
from scaling.cli.main import main
from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape
from scaling.meshes.units import parse_count
from scaling.models.presets import preset
from scaling.profiles.io import ideal
from scaling.program.ir import Kernel
from scaling.questions.answer import textbook
from scaling.questions.serving.case import Formats, Servers, served_model
from scaling.questions.serving.kernels import ForwardPass, weight_kernels
from scaling.questions.serving.step import decode_pass, pass_seconds
from scaling.simulate.kernels import kernel_time
from tests.scaling.questions.formulas import check

V5E = {"memory": 16e9, "memory_bandwidth": 8.2e11}  # as the guide rounds them
CASES = [
    {"model": "llama3-70b", "cluster": "dgx-h100", "batch": 32, "prompt": 512, "generate": 64},
    {"model": "deepseek-v3", "cluster": "dgx-h200", "mesh": "expert=16", "batch": 64},
    {"model": "mixtral-8x7b", "cluster": "dgx-a100", "mesh": "data=2,tensor=4", "batch": 6},
    {"model": "mistral-7b", "cluster": "tpu-v5e", "devices": 4, "weights": "int4", "kv": "int8"},
    {"model": "gpt2-124m", "cluster": "rtx4090-8", "devices": 1},
    {"model": "gpt2-124m", "cluster": "dgx-v100", "batch": 8, "step_time": 0.01},
    {"model": "llama3-8b", "cluster": "tpu-v5p", "compute": "int8", "weights": "int8"},
    {"parameters": 30e9, "kv_per_token": "100kB", "context": 8192, "mfu": 0.4, "prompt": 8192},
    {"model": "qwen3-30b-a3b", "software": "vllm", "expert_parallel": True, "experts": "fp8"}
    | {"batch": 16, "prompt": 512, "generate": 64},
    {"parameters": 30e9, "context": 8192, "software": "vllm", "prompt": 10, "generate": 10},
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.get("model", "bare"))
def test_formulas_give_the_textbooks_numbers(case):
    answer = check(sc.serve(**case))
    assert 0 < answer.ideal <= answer.fitted
    assert sum(float(part) for part in answer.parts[:4] if part.unit == "s") > 0
    steps = [row["step (s)"] for row in answer.rows]
    rates = [row["tokens/s"] for row in answer.rows]
    assert steps == sorted(steps)
    assert rates[-1] > rates[0] or len(rates) == 1


def bare(**more: object) -> "sc.Answer":
    """The guide's 30B model in int8 on a slice of 4x4 TPU v5e."""
    case = {"kv_per_token": "100kB", "weights": "int8", "context": 8192, "overrides": V5E} | more
    return textbook(sc.serve(None, "tpu-v5e", parameters=30e9, devices=16, **case))


def test_the_guides_steps_of_a_30b_model():
    assert float(bare(batch=4)) == pytest.approx(2.536e-3, rel=1e-3)
    assert float(bare(batch=256)) == pytest.approx(20.857e-3, rel=1e-3)


def test_small_batches_wait_for_memory_and_large_ones_for_flops():
    small, large = bare(batch=1, kv_per_token=0), bare(batch=4096, kv_per_token=0)
    assert small["products of weights"].binds == "memory bandwidth"
    assert large["products of weights"].binds == "FLOPs"
    critical = float(small["critical batch"])
    assert critical == pytest.approx(197e12 / 8.2e11 / 2)
    at = bare(batch=round(critical), kv_per_token=0)["products of weights"]
    assert float(at["FLOPs"]) == pytest.approx(float(at["weights read"]), rel=5e-3)


def test_the_guides_table_of_llama_2_13b():
    case = {"devices": 8, "context": 8192, "overrides": V5E}
    steps = [sc.serve("llama2-13b", "tpu-v5e", batch=b, **case).ideal * 1e3 for b in (1, 16, 240)]
    assert steps == pytest.approx([4.98, 20.3, 249.09], rel=3e-3)


def test_llama_3_70b_on_v5e():
    """Fewest chips by format, sequences of 8k beside the weights, prefill against decoding."""
    for weights, fill, slice_of in (("bf16", 8.75, 16), ("int8", 4.38, 8), ("int4", 2.19, 4)):
        formats = {"weights": weights, "kv": weights, "context": 8192, "overrides": V5E}
        answer = sc.serve("llama3-70b", "tpu-v5e", devices=slice_of, batch=4, **formats)
        assert float(answer["devices that the weights fill"]) == pytest.approx(fill, rel=1e-2)
        assert f"next topology: {slice_of} " in answer["fewest devices for the weights"].notes[0]
        assert answer["largest batch"].ideal in (42, 43)
    servers = sc.serve(
        *("llama3-70b", "tpu-v5e"),
        **{"devices": 16, "batch": 43, "context": 8192, "overrides": V5E},
        **{"prompt": 8192, "generate": 512, "mfu": 0.4},
    )
    assert servers["prefill"].ideal == pytest.approx(0.91, rel=1e-2)


def test_experts_are_read_as_far_as_a_batch_touches_them():
    model = served_model("m", preset("mixtral-8x7b"), Formats())
    assert model.touched(1) == pytest.approx(2 / 8)
    assert model.touched(10_000) == pytest.approx(1.0)
    one = sc.serve("mixtral-8x7b", batch=1, context=1)["products of weights"]["weights read"]
    assert float(one) == pytest.approx(2 * model.active / (8 * 3.35e12), rel=1e-6)
    rule = sc.serve("mixtral-8x7b", batch=1, context=1)["critical batch of the experts"]
    assert float(rule) == pytest.approx(989.4e12 / 3.35e12 * 8 / 2)


def test_kernels_with_ideal_figures_are_the_textbooks_terms():
    """Two derivations: layer by layer from the matrices, and from the number of parameters."""
    config = preset("llama3-70b")
    model = served_model("m", config, Formats())
    servers = Servers(sc.load_cluster("dgx-h100"), MeshShape(tensor=8))
    work = decode_pass(servers, model, 16, 8192)
    found = pass_seconds(work, ideal())
    answer = sc.serve("llama3-70b", batch=16, context=8192)
    table = config.vocab_size * config.d_model * 2 / (8 * 3.35e12)  # no product reads it
    weights = answer["products of weights"].ideal
    assert found.weights + table == pytest.approx(weights, rel=1e-2)  # and activations
    assert found.cache == pytest.approx(answer["KV cache read"].ideal, rel=2e-3)
    lump = Kernel("", kind="matmul", flops=2 * 16 * model.active / 8, dtype="bf16")
    chip = servers.cluster.accelerator
    math = answer["products of weights"]["FLOPs"]
    assert kernel_time(lump, chip, ideal()).time == pytest.approx(float(math))


def test_every_matrix_is_read_once_whatever_layers_are_dense():
    config = preset("tiny-moe")
    assert config.moe is not None
    config = replace(config, moe=replace(config.moe, first_dense_layers=1))
    model = served_model("m", config, Formats())
    servers = Servers(sc.load_cluster("dgx-h100"), MeshShape())
    kernels = list(weight_kernels(ForwardPass(model, servers, 1e4, 1, 1)))
    counts = Counter(kernel.name for kernel, _ in kernels)
    assert counts["q+k+v"] == 2 and all(layers == 1 for _, layers in kernels)
    sizes = [math.prod(kernel.dims[i] for i in (0, 2, 3)) for kernel, _ in kernels]
    norms = (2 * config.n_layers + 1) * config.d_model
    embedding = config.vocab_size * config.d_model * (not config.tied_embeddings)
    assert sum(sizes) == pytest.approx(model.total - norms - embedding)


def test_one_device_sends_nothing_and_more_bytes_per_weight_take_longer():
    one = sc.serve("llama3-8b", devices=1, batch=4)
    assert not [part for part in one.parts if "all-" in part.name]
    times = [float(sc.serve("llama3-8b", weights=w)) for w in ("int4", "int8", "bf16", "fp32")]
    assert times == sorted(times)


def test_the_largest_batch_within_a_step_time_takes_that_long():
    for seconds in (0.02, 0.1):
        found = bare(batch=1, step_time=seconds)["largest batch within the step time"]
        count = int(float(found))
        assert float(bare(batch=count)) <= seconds < float(bare(batch=count + 1))
        case = {"parameters": 30e9, "kv_per_token": "100kB", "context": 8192, "weights": "int8"}
        fitted = int(found.fitted)
        steps = [
            sc.serve(None, "tpu-v5e", devices=16, overrides=V5E, batch=b, **case).fitted
            for b in (fitted, fitted + 1)
        ]
        assert steps[0] <= seconds < steps[1]
    assert bare(batch=1, step_time=1e-3)["largest batch within the step time"].answer == 0


def test_the_bytes_below_which_hops_decide():
    """Eight ways of Megatron's sharding on v5e: 8 x 45 GB/s x 1 us."""
    answer = sc.serve("llama2-13b", "tpu-v5e", devices=8, batch=16)
    assert float(answer["bytes of a sum below which its hops decide"]) == pytest.approx(360e3)


def test_a_sliding_window_bounds_the_cache():
    short, long = (sc.serve("mistral-7b", context=n) for n in (4096, 65_536))
    assert float(short["KV cache read"]) == float(long["KV cache read"])


BAD = {
    "name a model": {},
    "not both": {"model": "llama3-8b", "parameters": 1e9},
    "leave model out": {"model": "llama3-8b", "kv_per_token": "1kB"},
    "context is needed": {"parameters": 1e9},
    "did you mean 'int4'": {"model": "llama3-8b", "weights": "in4"},
    "no peak rate for 'int4'": {"model": "llama3-8b", "compute": "int4"},
    "not fsdp": {"model": "llama3-8b", "mesh": "fsdp=8"},
    "no routed experts": {"model": "llama3-8b", "mesh": "expert=8"},
    "tensor=8 does not divide": {"model": "llama3-8b", "expert_parallel": True},
    "did you mean 'vllm'": {"model": "llama3-8b", "software": "vlm"},
    "did you mean 'fp8'": {"model": "llama3-8b", "experts": "fp"},
    "without a sequence": {"model": "llama3-8b", "mesh": "data=8", "batch": 4},
    "batch=0": {"model": "llama3-8b", "batch": 0},
    "at most": {"model": "llama3-8b", "context": 10**15},
    "from 0.001 to 1": {"model": "llama3-8b", "prompt": 8, "mfu": 1.5},
    "learned positions": {"model": "gpt3-175b", "context": 10**6},
    "active": {"parameters": 1e9, "active": 2e9, "context": 8},
    "devices asks for 4": {"model": "llama3-8b", "mesh": "tensor=8", "devices": 4},
    "price": {"model": "llama3-8b", "price": -1.0},
    "step_time": {"model": "llama3-8b", "step_time": 0.0},
    "no cluster is called": {"model": "llama3-8b", "cluster": "dgx-h1000"},
    "at most 10,000,000": {"model": "llama3-8b", "devices": 10**12},
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_one_message(message):
    with pytest.raises(InputError, match=message):
        sc.serve(**BAD[message])


@pytest.mark.parametrize("command", ["serve", "budget"])
def test_an_error_names_its_model(command, capsys):
    assert main([command, "llama", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["name"] == "llama"


def test_a_slice_of_any_shape_is_priced_where_its_sums_can_be():
    assert float(sc.serve("llama3-70b", "tpu-v5e", devices=24)) > 0


def test_counts_as_people_write_them():
    assert [parse_count(t) for t in ("70B", "15T", "4Mi", "3e9")] == [70e9, 15e12, 2**22, 3e9]
    for text in ("", "70X", "-1", "inf", "1e400", "0"):
        with pytest.raises(InputError, match="is not a count"):
            parse_count(text)


WITH_PROMPTS = {"prompt": 450, "generate": 600, "context": 810}


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(["qwen3-8b", "qwen3-30b-a3b", "deepseek-v3", "llama3-70b"]),
    st.sampled_from([1, 2, 8]),
    st.integers(1, 9).map(lambda n: 1 << n),
)
def test_an_engine_adds_time_that_grows_with_the_batch(model, tensor, batch):
    case = {"cluster": "dgx-h200", "devices": tensor, "software": "vllm", **WITH_PROMPTS}
    steps = [sc.serve(model, batch=b, **case) for b in (batch, 2 * batch)]
    for step in steps:
        rate, mixed = step["tokens/s"], step["tokens/s with prompts mixed in"]
        assert float(step["what the engine adds"]) > 0
        assert 0 < float(mixed) <= float(rate) * (1 + 1e-9)
        between = float(step["median time between tokens"])
        assert float(step) <= between <= float(step["step with prompts mixed in"])
        for part in (step, rate, mixed, step["energy of a token"]):
            assert 0 < part.low < float(part) < part.high
        chip = sc.load_cluster("dgx-h200").accelerator
        assert 0 < float(step["power of a device"]) <= chip.power
    assert float(steps[0]) < float(steps[1])
    assert float(steps[0]["energy of a token"]) > float(steps[1]["energy of a token"])


def test_an_engine_has_whole_heads_and_reduces_at_the_rate_of_the_links():
    """DeepSeek's one latent is on all devices; without an engine it is cut over sequences."""
    plain, own = (
        sc.serve("deepseek-v3", "dgx-b200", batch=64, context=4096, weights="fp8", software=name)
        for name in (None, "vllm")
    )
    assert "all-to-alls of heads for sequences" in [part.name for part in plain.parts]
    assert "all-to-alls of heads for sequences" not in [part.name for part in own.parts]
    assert float(own["KV cache read"]) > 2 * float(plain["KV cache read"])
    assert own["largest batch"].ideal == plain["largest batch"].ideal
    assert float(own["largest batch"]) == pytest.approx(float(plain["largest batch"]) / 8, abs=1)
    sums = own["all-reduces of [B, D]"]
    assert sums.fitted == pytest.approx(sums.ideal) and sums.fitted < float(plain[sums.name])


def test_whole_experts_are_read_by_the_busiest_device():
    """At a batch that touches all of them each device reads as much either way."""
    model = served_model("m", preset("qwen3-235b-a22b"), Formats())
    cluster = sc.load_cluster("dgx-h100")
    moved = {}
    for whole in (False, True):
        servers = Servers(cluster, MeshShape(tensor=8), whole_experts=whole)
        for batch in (8, 4096):
            kernels = weight_kernels(decode_pass(servers, model, batch, 1))
            matrices = [
                math.prod(k.dims[i] for i in (0, 2, 3)) for k, _ in kernels if "exp" in k.name
            ]
            moved[whole, batch] = sum(matrices)
    assert moved[True, 4096] == pytest.approx(moved[False, 4096], rel=1e-9)
    assert moved[True, 8] > 1.2 * moved[False, 8]


def test_experts_alone_may_be_stored_in_another_format():
    case = {"cluster": "dgx-h100", "devices": 1, "batch": 8, "context": 1024}
    all_bf16, some, all_fp4 = (
        sc.serve("qwen3-30b-a3b", **case, **formats)
        for formats in ({}, {"experts": "fp4"}, {"weights": "fp4"})
    )
    sizes = [float(answer["weights"]) for answer in (all_bf16, some, all_fp4)]
    assert sizes[0] > 3 * sizes[1] and sizes[1] > sizes[2]
    assert float(all_bf16) > float(some) > float(all_fp4)
    check(some)
    rule = "critical batch of the experts"
    assert float(some[rule]) == pytest.approx(float(all_bf16[rule]) / 4)
