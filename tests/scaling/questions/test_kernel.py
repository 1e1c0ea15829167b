"""`scaling kernel`: the formula, the engine with the ideal profile, and the guide's figures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scaling as sc
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.profiles.io import ideal, profile_of
from scaling.program import ops
from scaling.questions.roofline import KernelTarget, priced_kernel, timed
from scaling.questions.workloads import KINDS, KernelFormats, work_of
from scaling.simulate.kernels import kernel_time
from tests.scaling.cli.running import check_refused, run
from tests.scaling.questions.formulas import check

V5E = {"accelerator": "tpu-v5e"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("devices", [1, 4])
def test_formula_and_engine_give_the_same_textbook_time(kind, devices):
    """The engine with the ideal profile prices the same FLOPs and bytes by itself."""
    answer = check(sc.kernel(kind, KINDS[kind].example, devices=devices, **V5E))
    place = KernelTarget(catalog.accelerator("tpu-v5e"), "bf16", devices)
    counts = [part for part in answer.parts if part.name in ("FLOPs", "bytes")]
    numbers = {i.symbol: i.value for part in counts for i in part.inputs}
    sizes = {name: numbers[name] for name in KINDS[kind].sizes if name in numbers}
    engine = timed(work_of(kind, sizes, KernelFormats()), place)
    assert answer.ideal == pytest.approx(engine.time, rel=1e-12)
    assert answer.ideal_binds == engine.binds
    assert answer.fitted > answer.ideal


@pytest.mark.parametrize("chip", ["h100-sxm", "gb300", "tpu-v5e", "mi300x"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_answer_and_every_row_of_a_sweep_has_the_ends_of_its_range(kind, chip):
    example = KINDS[kind].example
    first = next(iter(KINDS[kind].sizes))
    answer = sc.kernel(kind, example, accelerator=chip, sweep=f"{first}={example.split(',')[0]}")
    document = answer.to_dict()
    assert 0 < document["low"] <= document["answer"] <= document["high"]
    (row,) = answer.rows
    assert (row["low (s)"], row["high (s)"]) == (answer.low, answer.high)
    assert " to " in str(answer).splitlines()[0]


def test_a_grouped_product_is_that_of_a_step_with_each_group_s_weights_read_once():
    answer = sc.kernel("grouped", (64, 512, 4096, 7168), accelerator="h100-sxm")
    assert answer["FLOPs"].answer == 2 * 64 * 512 * 4096 * 7168
    assert answer["bytes"].answer == 2 * 64 * (512 * 7168 + 7168 * 4096 + 512 * 4096)
    kernel = ops.matmul("e", (64, 512, 4096, 7168), "bf16", (2, 2, 2), grouped=True)
    chip = catalog.accelerator("h100-sxm")
    assert float(answer) == pytest.approx(kernel_time(kernel, chip, profile_of(chip)).time)


sizes = st.integers(1, 1 << 16)


@given(sizes, sizes, sizes, st.sampled_from(["bf16", "int8", "int4"]))
def test_a_matmul_is_compute_bound_from_the_closed_form_of_its_batch_on(m, n, k, weights):
    chip = catalog.accelerator("tpu-v5e")
    place = KernelTarget(chip, "bf16")
    batch = sc.kernel("matmul", (m, n, k), weights=weights, **V5E)["critical batch"].ideal
    bound = lambda size: (
        timed(
            work_of("matmul", {"m": size, "n": n, "k": k}, KernelFormats("bf16", weights)), place
        ).binds
    )
    if batch is None:
        assert bound(2.0**60) == "memory"
    else:
        assert bound(batch * 1.001) == "compute"
        assert bound(batch * 0.999) == "memory"


@pytest.mark.parametrize(("size", "batch"), [(4096, 136.09), (1024, 226.31)])
def test_exact_critical_batches_of_int8_weights(size, batch):
    answer = sc.kernel("matmul", (1, size, size), weights="int8", **V5E)
    exact = answer["critical batch"]
    assert float(exact.ideal) == pytest.approx(batch, rel=4e-3)  # 820 for 819 GB/s
    assert float(answer["critical batch by the weights alone"]) == pytest.approx(120, rel=3e-3)


def test_a_batched_product_reads_weights_for_each_of_its_batch():
    answer = sc.kernel("matmul", (64, 1, 8192, 8192), dtype="int8", **V5E)
    assert float(answer["intensity"]) == pytest.approx(2, rel=1e-3)


def test_weights_over_pcie_need_57_500_rows():
    answer = sc.kernel("matmul", (1, 8192, 8192), accelerator="tpu-v6e", source="16GB/s")
    assert float(answer["critical batch"].ideal) == pytest.approx(57_500, rel=3e-3)
    assert (answer.binds, answer.ideal_binds) == ("link", "link")


def test_reading_from_the_host_takes_its_link_and_reads_at_what_copies_reach():
    answer = check(sc.kernel("read", "16GB", devices=16, source="host", **V5E))
    assert answer.ideal == pytest.approx(62.5e-3)
    assert answer.fitted > answer.ideal
    with pytest.raises(InputError, match="add cluster, one of a3-mega 31.5 GB/s, dgx-h100 63"):
        sc.kernel("read", "16GB", accelerator="h100-sxm", source="host")
    near = sc.kernel("read", "16GB", cluster="dgx-h100", source="host")
    assert near.ideal == pytest.approx(16e9 / 63e9)


@pytest.mark.parametrize(("T", "S", "intensity"), [(4096, 4096, 4096 * 8 / 9), (1, 32768, 7.998)])
def test_intensity_of_prefill_and_decode(T, S, intensity):
    answer = check(sc.kernel("attention", (1, 8, T, S, 128, 1), **V5E))
    assert float(answer["intensity"]) == pytest.approx(intensity, rel=1e-3)
    assert float(answer["intensity of T queries over many keys"]) == 8 * T


@pytest.mark.parametrize(("heads", "length"), [(1, 480), (512, 240)])
def test_length_at_which_attention_is_compute_bound(heads, length):
    answer = sc.kernel("attention", (1, heads, 4096, 4096, 128, 1), **V5E)
    critical = float(answer["critical length of queries and keys"])
    assert critical == pytest.approx(length, rel=5e-3)
    at = sc.kernel("attention", (1, heads, round(critical), round(critical), 128, 1), **V5E)
    assert float(at["intensity"]) == pytest.approx(float(at["intensity of the ridge"]), rel=5e-3)


def test_a_causal_mask_halves_and_a_backward_pass_has_five_products():
    shape = (2, 16, 4096, 4096, 128, 4)
    whole = sc.kernel("attention", shape, accelerator="h100-sxm")
    masked = sc.kernel("attention", shape, accelerator="h100-sxm", causal=True)
    back = check(sc.kernel("attention", shape, accelerator="h100-sxm", backward=True))
    assert masked["FLOPs"].answer == whole["FLOPs"].answer / 2
    half = whole["compute time"].fitted / 2
    assert masked["compute time"].fitted == pytest.approx(half, rel=0.15)  # tiles on the diagonal
    assert back["FLOPs"].answer == 2.5 * whole["FLOPs"].answer
    assert masked["fraction of the peak"].fitted < 1


def test_a_faster_memory_and_figures_of_ones_own():
    answer = sc.kernel("matmul", (8, 16384, 4096), dtype="int8", bandwidth="22x", **V5E)
    assert float(answer["critical batch"].ideal) == pytest.approx(10.96, abs=0.05)
    own = ("peak_bf16=1e15", "memory_bandwidth=1TB/s")
    answer = sc.kernel("matmul", (8, 4096, 4096), overrides=own, **V5E)
    assert float(answer["intensity of the ridge"]) == 1000


def test_a_short_burst_is_faster_than_what_power_sustains():
    """The guide expects 10 to 12 us for 64 rows and about 20 us for 512, without a call's."""
    ask = lambda m: sc.kernel("matmul", (m, 8192, 4096), dtype="fp16", accelerator="b200-sxm")
    burst = check(ask(2048))["time of a short burst, before power limits the clock"]
    assert ask(2048).ideal < burst.answer < ask(2048).answer
    assert 10e-6 < ask(64).answer < 20e-6 < ask(512).answer < 30e-6
    assert "time of a short burst, before power limits the clock" not in [
        part.name for part in sc.kernel("read", "1GB", accelerator="b200-sxm").parts
    ]


def test_a_sweep_has_a_row_for_every_size_and_is_drawn(tmp_path):
    path = tmp_path / "roofline.svg"
    answer = check(sc.kernel("matmul", (1, 4096, 4096), sweep="M=1:1024", plot=path, **V5E))
    assert [row["m"] for row in answer.rows] == [2**i for i in range(11)]
    times = [row["textbook (s)"] for row in answer.rows]
    assert times == sorted(times)
    assert "<svg" in path.read_text()


def test_the_ideal_profile_has_no_vector_rate_of_its_own():
    """So an elementwise kernel is given the lanes' rate, and binds on them where it computes."""
    assert ideal().vector.flops == float("inf")
    answer = check(sc.kernel("elementwise", (10**9, 2, 100), accelerator="h100-sxm"))
    assert answer.ideal == pytest.approx(100e9 / 33.45e12)
    assert answer.ideal_binds == "compute"


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("matmul 1,2", ("m, n, k", "got 2", "8192,8192,8192")),
        ("matmull 1,2,3", ("did you mean 'matmul'?",)),
        ("matmul 0,2,3", ("m: '0' is not a count",)),
        ("matmul 1.5,2,3", ("m=1.5 must be a whole number",)),
        ("matmul 1e16,2,3", ("too large",)),
        ("matmul 1,2,3 --dtype int16", ("format 'int16' is not known", "int8")),
        ("matmul 1,2,3 --weights int9", ("did you mean 'int8' or 'int4'?",)),
        ("matmul 1,2,3 --causal", ("--causal is of attention",)),
        ("attention 1,32,8,8,128 --weights int8", ("--weights is of matmul, grouped, embedding",)),
        ("matmul 1,2,3 --kv int8", ("--kv is of attention, not of matmul",)),
        ("elementwise 5 --compute fp8", ("--compute is of",)),
        ("reduce 5 --from 16GB/s", ("--from is of",)),
        ("attention 1,32,8,8,128,5", ("32 heads are not a multiple of 5",)),
        ("attention 1,32,8,4,128 --causal", ("T <= S",)),
        ("read 4XB", ("unknown unit 'XB'",)),
        ("read 4GB --devices 0", ("--devices=0",)),
        ("read 4GB --plot x.svg", ("no intensity",)),
        ("matmul 1,2,3 --plot x.txt", (".png",)),
        ("matmul 1,2,3 --bandwidth x", ("22x",)),
        ("matmul 1,2,3 --bandwidth 1e-300", ("--bandwidth=1e-300 must be from 1",)),
        ("matmul 1,2,3 --from 1e-300", ("--from=1e-300 must be from 1",)),
        ("matmul 1,2,3 --override peak_bf16=1e300", ("must be from 1e-09 to 1e+24",)),
        ("matmul 1,2,3 --override foo=3", ("unknown key 'foo'",)),
        ("matmul 1,2,3 --sweep q=1:4", ("m=1:8192",)),
        ("matmul 1,2,3 --sweep m=4:1", ("ends below its start",)),
        ("matmul 1,2,3 --from host --from host", ("--from is given twice",)),
    ],
)
def test_bad_input_is_refused_in_one_line(capsys, words, parts):
    result = run(capsys, "kernel", *words.split(), "--accelerator", "h100-sxm")
    check_refused(result, *parts)


def test_a_chip_of_ones_own_needs_its_vector_rate_as_well(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(
        'name = "mine"\nvendor = "me"\n[peaks]\nbf16 = "100TFLOP/s"\n'
        '[figures]\nmemory_bandwidth = "1TB/s"\n'
    )
    with pytest.raises(InputError, match="mine has no peak rate for 'fp32'.*overrides peak_fp32="):
        sc.kernel("matmul", (64, 4096, 4096), accelerator=str(file))
    own = sc.kernel("matmul", (64, 4096, 4096), accelerator=str(file), overrides="peak_fp32=1e13")
    assert float(own["intensity of the ridge"]) == 100


def test_a_chip_must_be_named(capsys):
    check_refused(run(capsys, "kernel", "matmul", "1,2,3"), "--accelerator h100-sxm")


@pytest.mark.parametrize(
    ("chip", "dtype", "words"),
    [
        ("a100-sxm-80g", "fp8", "dense bf16 peak, without units for fp8"),
        ("v100-sxm-32g", "bf16", "dense fp32 peak, without units for bf16"),
        ("h100-sxm", "fp8", "dense fp8 peak"),
    ],
)
def test_a_peak_in_a_wider_format_is_called_that(chip, dtype, words):
    found = sc.kernel("matmul", (64, 64, 64), dtype=dtype, accelerator=chip)
    assert next(i.meaning for i in found.inputs if i.symbol == "C") == words


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("backward", [False, True])
def test_the_flops_of_an_attention_as_text_are_those_of_the_kernel(causal, backward):
    sizes = dict(zip("BNTSHK", (2, 32, 1000, 3000, 128, 8), strict=True))
    work = work_of("attention", sizes, KernelFormats(), causal, backward)
    kernel = priced_kernel(work, KernelTarget(catalog.accelerator("h100-sxm"), "bf16", devices=4))
    assert kernel.flops == work.amount(work.flops) / 4
    assert kernel.transcendentals == work.amount(work.scores) / 4
