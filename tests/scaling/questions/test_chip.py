"""`scaling chip`."""

import json

import pytest

import scaling as sc
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from tests.scaling.questions.formulas import check


@pytest.mark.parametrize("name", catalog.accelerator_names())
def test_every_chip_of_the_catalogue_is_answered(name):
    chip = catalog.accelerator(name)
    if not chip.peaks:
        with pytest.raises(InputError, match="calibrate"):
            sc.chip(name)
        return
    answer = check(sc.chip(name, dtype=next(iter(chip.peaks))))
    assert {f"peak {dtype}" for dtype in chip.peaks} <= {part.name for part in answer.parts}


def test_the_guides_figures_of_an_h100():
    answer = sc.chip("h100-sxm")
    assert float(answer) == pytest.approx(295.3, abs=0.1)
    assert answer["fp32 lanes"].answer == 16_896
    assert float(answer["vector rate"]) == pytest.approx(33.5e12, rel=2e-3)


def test_a_tensor_core_multiplies_1024_at_1_83_ghz_and_1065_would_need_1_76():
    h100 = check(sc.chip("h100-sxm"))
    assert float(h100["clock of the matrix units"]) == pytest.approx(1.83e9, rel=1e-3)
    slow = sc.chip("h100-sxm", overrides="clock=1.76GHz")
    assert float(slow["FLOPs per cycle of a matrix unit"]) == pytest.approx(1065, abs=1)
    assert float(sc.chip("b200-sxm")["clock of the matrix units"]) == pytest.approx(
        1.86e9, rel=3e-3
    )


def test_vector_rates_at_base_clock_and_of_a_tpu():
    h100 = sc.chip("h100-sxm")
    assert float(h100["vector rate at base clock"]) == pytest.approx(26.9e12, rel=2e-3)
    assert float(h100["dense bf16 peak over vector rate"]) == pytest.approx(29.6, abs=0.05)
    v5p = sc.chip("tpu-v5p")
    assert v5p["fp32 lanes"].answer == 8192
    assert float(v5p["vector rate"]) == pytest.approx(2 * 7.168e12)
    assert float(check(v5p)["vector rate of a core"]) == pytest.approx(7.168e12)


def test_registers_and_shared_memory_of_all_cores():
    """gpus.md, quiz 1 question 5: about 33 MB of registers; 228 KiB of each SM can be shared."""
    h100 = check(sc.chip("h100-sxm"))
    assert float(h100["registers of all cores in bytes"]) == 132 * 65_536 * 4
    assert float(h100["shared memory of all cores"]) == 132 * 228 * 2**10


@pytest.mark.parametrize(
    ("registers", "warps", "binds"), [(256, 8, "registers"), (32, 64, "threads"), (100, 20, "reg")]
)
def test_registers_or_threads_bound_the_warps_of_a_core(registers, warps, binds):
    """65,536 registers and 2,048 threads of an H100's SM, 32 threads in a warp."""
    found = check(sc.chip("h100-sxm", registers=registers))["warps of a core"]
    assert float(found) == warps and found.binds.startswith(binds)


@pytest.mark.parametrize("name", ["mi300x", "tpu-v5p"])
def test_chips_without_warps_say_so(name):
    with pytest.raises(InputError, match="no warps"):
        sc.chip(name, registers=64)


def test_more_registers_than_a_core_has_for_a_warp_are_refused():
    with pytest.raises(InputError, match="1 to 2,048"):
        sc.chip("h100-sxm", registers=2049)


def test_a_clock_follows_from_an_fp32_peak():
    b200 = sc.chip("b200-sxm", overrides=["peak_fp32=80e12"])
    name = "clock at which multiply-adds of all lanes give the fp32 peak"
    assert float(b200[name]) == pytest.approx(2.11e9, rel=1e-3)


def test_what_a_pod_has():
    pod = check(sc.chip("tpu-v5p", devices=8960))
    assert float(pod["dense bf16 peak of 8,960 devices"]) == pytest.approx(4.11264e18)
    assert float(pod["memory of 8,960 devices"]) == 8960 * 96 * 2**30
    assert float(pod["chip cores of 8,960 devices"]) == 17_920
    with pytest.raises(InputError, match="devices=0"):
        sc.chip("tpu-v5p", devices=0)
    with pytest.raises(InputError, match="did you mean 'base_clock'?"):
        sc.chip("tpu-v5p", overrides="bas_clock=1GHz")


def test_a_format_that_a_chip_lacks_is_named_with_those_it_has():
    with pytest.raises(InputError, match="fp16"):
        sc.chip("v100-sxm-16g", dtype="fp8")


@pytest.mark.parametrize("name", [name for name in catalog.accelerator_names() if name != "cpu"])
def test_every_chip_answers_without_a_format(name):
    answer, chip = sc.chip(name), catalog.accelerator(name)
    given = next((i for i in answer.inputs if i.symbol == "C"), None)
    assert given is None or given.meaning == f"dense {chip.usual_format} peak"


# The constants by which a chip is priced

PRICED = [name for name in catalog.accelerator_names() if catalog.accelerator(name).peaks]


@pytest.mark.parametrize("name", PRICED)
def test_every_kernel_of_a_chip_shows_its_constants_with_their_evidence(name):
    answer = sc.chip(name)
    for kernel in ("products bf16", "attention forward", "streams of bytes", "vector units"):
        part = answer[kernel]
        (row,) = part.rows
        assert {"n", "median error", "half range"} < row.keys() and row["half range"] > 0
        assert part.notes[0] and part.answer.split(",")[0] in ("calibrated", "datasheet")
    json.dumps(answer.to_dict())


def test_what_is_assumed_names_the_chip_that_it_was_measured_on():
    assert sc.chip("h100-sxm")["products bf16"].answer == "calibrated"
    assert "assumed as on b200-sxm" in sc.chip("gb300")["products bf16"].answer


def test_fp4_without_rows_is_as_fp8_and_less_sure():
    chip = sc.chip("rtx-pro-6000")
    assert "assumed as in fp8" in chip["products fp4"].answer
    (fp4,), (fp8,) = chip["products fp4"].rows, chip["products fp8"].rows
    assert fp4["efficiency"] == fp8["efficiency"] and fp4["half range"] > fp8["half range"]


@pytest.mark.parametrize("name", ["h100-sxm", "gb300", "tpu-v5p"])
def test_errors_of_left_out_chips_stand_beside_the_constants(name):
    part = sc.chip(name).parts[-1]
    assert "left out" in part.name
    assert any(row["kernel"].startswith("product bf16") for row in part.rows)
    for row in part.rows:
        assert 0 <= row["in range"] <= 1 <= row["n"] and row["median"] >= 0


# As `nvidia-smi mig -lgip` prints them.
@pytest.mark.parametrize(
    "name, mig, cores",
    [
        *(
            ("h100-sxm", mig, n)
            for mig, n in (("1g", 16), ("1g.20gb", 26), ("3g", 60), ("7g", 132))
        ),
        ("h100-pcie", "4g", 62),
        ("a100-sxm-40g", "1g", 14),
        ("a100-sxm-40g", "7g", 98),
        ("h200-sxm", "1g.35gb", 26),
        ("b200-sxm", "1g", 18),
        ("gb200", "1g", 21),  # a seventh of all, where nobody printed them
        ("rtx-pro-6000", "4g", 188),
    ],
)
def test_an_instance_multiplies_with_its_cores(name, mig, cores):
    chip, one = sc.chip(name), sc.chip(name, mig=mig)
    assert float(one["cores"]) == cores
    share = cores / float(chip["cores"])
    assert float(one["peak bf16"]) == pytest.approx(share * float(chip["peak bf16"]))


# NVIDIA Multi-Instance GPU User Guide, supported profiles
@pytest.mark.parametrize(
    "name, mig, eighths",
    [
        ("a100-sxm-40g", "1g.5gb", 1),
        ("a100-sxm-40g", "1g.10gb", 2),
        ("h100-sxm", "1g.20gb", 2),
        ("h100-sxm", "1g.10gb+me", 1),
        ("h100-sxm", "4g.40gb", 4),
        ("h200-sxm", "1g.18gb", 1),
        ("h200-sxm", "3g.71gb", 4),
        ("b200-sxm", "2g.45gb", 2),
        ("rtx-pro-6000", "2g.48gb", 4),
    ],
)
def test_a_profile_has_the_memory_of_its_name(name, mig, eighths):
    chip, one = sc.chip(name), sc.chip(name, mig=mig)
    for part in ("memory", "memory bandwidth"):
        assert float(one[part]) == pytest.approx(eighths / 8 * float(chip[part]), rel=1e-9)


@pytest.mark.parametrize(
    "name, mig",
    [
        *(("h100-sxm", mig) for mig in ("5g", "half", "3g.99gb", "2g.40gb", "1g.5gb")),
        ("t4", "1g"),
        ("mi300x", "1g"),
    ],
)
def test_instances_that_do_not_exist_are_refused(name, mig):
    with pytest.raises(InputError):
        sc.chip(name, mig=mig)
