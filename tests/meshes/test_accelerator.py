"""Chips: dense peaks, nothing assumed, and a target text that XLA's own files agree with."""

import pytest

from scaling.meshes import catalog
from scaling.meshes.accelerator import with_figures
from scaling.meshes.errors import InputError
from scaling.meshes.provenance import overridden
from scaling.meshes.xla_target import xla_target_text

CHIPS = [name for name in catalog.accelerator_names() if name != "cpu"]
RESERVED = {"Google": 0.05}  # share that the system keeps; 3 % elsewhere


@pytest.mark.parametrize(
    ("name", "bf16", "fp32", "gigabytes", "terabytes_per_second"),
    [
        # typed in from the vendors' data sheets: dense TFLOP/s (fp16 where there is no bf16)
        ("p100-sxm", 21.2, 10.6, 16, 0.732),  # Tesla P100 datasheet, NVLink column
        ("v100-sxm-16g", 125, 15.7, 16, 0.9),  # V100 datasheet, SXM2 column
        ("v100-sxm-32g", 125, 15.7, 32, 0.9),
        ("t4", 65, 8.1, 16, 0.32),  # T4 datasheet: "320+ GB/s"
        ("rtx2080ti", 53.8, 13.4, 11, 0.616),  # Turing whitepaper, reference card
        ("a100-sxm-40g", 312, 19.5, 40, 1.555),  # A100 datasheet
        ("a100-sxm-80g", 312, 19.5, 80, 2.039),
        ("rtx3090", 71, 35.6, 24, 0.936),  # GA102 whitepaper
        ("h100-pcie", 756, 51, 80, 2.0),  # H100 datasheet, half of the sparse 1,513
        ("h100-sxm", 989, 67, 80, 3.35),
        ("h200-sxm", 989, 67, 141, 4.8),  # H200 datasheet
        ("rtx4090", 165.2, 82.6, 24, 1.008),  # Ada whitepaper, accumulated in fp32
        ("b200-sxm", 2250, 75, 180, 8.0),  # DGX B200: 1,440 GB and 64 TB/s over eight
        ("b300-sxm", 2250, 75, 279, 8.0),  # HGX B300: 36 PF sparse and 600 TF over eight
        ("gb200", 2500, 80, 186, 8.0),  # GB200 NVL72: 360 PF sparse, 13.4 TB, 576 TB/s over 72
        ("gb300", 2500, 80, 279, 8.0),  # GB300 NVL72: 20.1 TB over 72
        ("rtx-pro-6000", 500, 120, 96, 1.597),  # Server Edition: datasheet, product page
        ("mi300x", 1307.4, 163.4, 192, 5.3),  # MI300X data sheet
        ("mi250x-gcd", 383 / 2, 95.7 / 2, 64, 3.2768 / 2),  # MI250X data sheet, half a module
        ("tpu-v4", 275, None, 32, 1.2),  # Cloud TPU documentation
        ("tpu-v5e", 197, None, 16, 0.819),
        ("tpu-v5p", 459, None, 96, 2.765),
        ("tpu-v6e", 918, None, 32, 1.638),
        ("trainium1", 190, 47.5, 32, 0.82),  # Neuron documentation
        ("trainium2", 667, 181, 96, 2.9),
    ],
)
def test_the_headline_figures_of_every_chip(name, bf16, fp32, gigabytes, terabytes_per_second):
    chip = catalog.accelerator(name)
    assert chip.peak("bf16" if "bf16" in chip.peaks else "fp16") == pytest.approx(
        bf16 * 1e12, rel=0.002
    )
    assert chip.peaks.get("fp32") == (fp32 and pytest.approx(fp32 * 1e12, rel=0.01))
    assert chip.memory_bandwidth == pytest.approx(terabytes_per_second * 1e12, rel=0.002)
    sold = gigabytes if name != "t4" else 15  # a sixteenth is for error correction
    assert chip.memory == sold * 2**30


@pytest.mark.parametrize("name", [n for n in CHIPS if catalog.accelerator(n).usable_memory])
def test_a_framework_gets_less_than_the_board_has(name):
    chip = catalog.accelerator(name)
    reserved = RESERVED.get(chip.vendor, 0.03)
    assert (1 - reserved) * chip.memory < chip.usable_memory < chip.memory


def test_a_format_the_chip_lacks_names_those_it_has():
    with pytest.raises(InputError, match="a100-sxm-80g has no peak rate for 'fp8'.*bf16, fp16"):
        catalog.accelerator("a100-sxm-80g").peak("fp8")


def test_nothing_is_assumed_of_a_cpu():
    cpu = catalog.accelerator("cpu")
    assert cpu.memory_bandwidth is None and not cpu.peaks
    for ask in (lambda: cpu.peak("fp32"), lambda: cpu.required("memory_bandwidth")):
        with pytest.raises(InputError, match="scaling calibrate"):
            ask()


def test_a_replaced_figure_carries_its_source():
    chip = with_figures(catalog.accelerator("h100-sxm"), {"memory": overridden(40e9)})
    assert chip.memory == 40e9 and chip.figures["memory"].source == "override"
    assert chip.figures["clock"] == catalog.accelerator("h100-sxm").figures["clock"]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        # openxla/xla, xla/backends/gpu/target_config/specs: h100_sxm.txtpb, a100_sxm_80.txtpb
        (
            "h100-sxm",
            ["core_count: 132", "l2_cache_size: 52428800", "clock_rate_ghz: 1.98", "major: 9 "]
            + ["device_memory_size: 84942979072", "shared_memory_per_block_optin: 232448"],
        ),
        (
            "a100-sxm-80g",
            ["core_count: 108", "l2_cache_size: 41943040", "clock_rate_ghz: 1.41", "major: 8 "]
            + ["memory_bandwidth: 2039", "shared_memory_per_core: 167936"],
        ),
        ("rtx3090", ["major: 8 minor: 6", "threads_per_core_limit: 1536", "core_count: 82"]),
        ("b200-sxm", ["major: 10 minor: 0", "core_count: 148", "l2_cache_size: 132644864"]),
    ],
)
def test_the_target_text_has_the_figures_of_xlas_own_files(name, lines):
    text = xla_target_text(catalog.accelerator(name))
    assert [line for line in lines if line not in text] == []
    assert text.count("{") == text.count("}")


@pytest.mark.parametrize("name", ["cpu", "p100-sxm", "mi300x", "tpu-v5p", "trainium2"])
def test_only_nvidia_chips_from_volta_on_have_a_target_text(name):
    with pytest.raises(InputError, match=f"{name} cannot be compiled for without the device"):
        xla_target_text(catalog.accelerator(name))


def test_every_other_nvidia_chip_has_a_target_text():
    for chip in map(catalog.accelerator, CHIPS):
        if chip.vendor == "NVIDIA" and chip.name != "p100-sxm":
            text = xla_target_text(chip)
            assert f"core_count: {chip.cores}\n" in text and f'"{chip.title}"' in text


# Peak rates follow from units and clocks

# Chip: dense fp16 FLOP of one core and cycle, summed in fp32; GHz of its matrix units. The first
# are those of the documents that the chip's file names, the second those of XLA's target files.
MATRIX_UNITS = {
    "p100-sxm": (256, 1.4805),  # packed halves
    "v100-sxm-16g": (1024, 1.53),
    "v100-sxm-32g": (1024, 1.53),
    "a100-sxm-40g": (2048, 1.41),
    "a100-sxm-80g": (2048, 1.41),
    "a100-pcie-80g": (2048, 1.41),
    "h100-sxm": (4096, 1.8295201),
    "h100-pcie": (4096, 1.62162),
    "h200-sxm": (4096, 1.8295201),
    "b200-sxm": (8192, 1.8353101),
    "b300-sxm": (8192, 1.8353101),
    "gb200": (8192, 1.9259081),
    "gb300": (8192, 1.93338),
    "rtx2080ti": (512, 1.545),
    "t4": (1024, 1.59),
    "rtx3090": (512, 1.695),
    "rtx4090": (512, 2.52),
    "l40s": (1024, 2.52),
    "rtx-pro-6000": (1024, 2.6),
    "mi250x-gcd": (1024, 1.7),
    "mi300x": (2048, 2.1),
}
ROUNDED = 0.045  # NVIDIA prints 2,500 for the 2,400 that clock and units of a GB200 give


def test_every_chip_with_cores_is_among_those_worked_out():
    assert set(MATRIX_UNITS) == {n for n in CHIPS if catalog.accelerator(n).cores}


@pytest.mark.parametrize("name", MATRIX_UNITS)
def test_peak_rates_are_cores_times_units_times_clock(name):
    chip, (flop, clock) = catalog.accelerator(name), MATRIX_UNITS[name]
    assert chip.peak("fp16") == pytest.approx(chip.cores * flop * clock * 1e9, rel=ROUNDED)
    assert chip.peak("fp32") == pytest.approx(
        chip.cores * chip.fpus_per_core * 2 * chip.clock, rel=ROUNDED
    )


@pytest.mark.parametrize("name", [n for n in MATRIX_UNITS if n not in ("p100-sxm", "mi250x-gcd")])
def test_rates_of_narrower_numbers_are_multiples(name):
    chip = catalog.accelerator(name)
    for wide, narrow in (("tf32", "bf16"), ("bf16", "fp8")):
        if {wide, narrow} <= set(chip.peaks):
            assert chip.peak(narrow) == pytest.approx(2 * chip.peak(wide), rel=0.025)


# Tera-operations/s in int8 and TFLOP/s in fp64, typed in from the sheets that the files name
INTEGER_AND_DOUBLE = {
    "gb300": (165, 1.39),
    "rtx-pro-6000": (1000, 1.87),
    "t4": (130, 0.254),
    "rtx2080ti": (215.2, 0.42),
}


@pytest.mark.parametrize("name", INTEGER_AND_DOUBLE)
def test_rates_of_int8_and_fp64_are_those_of_the_sheets(name):
    peaks = catalog.accelerator(name).peaks
    int8, fp64 = INTEGER_AND_DOUBLE[name]
    assert (peaks["int8"], peaks["fp64"]) == pytest.approx((int8 * 1e12, fp64 * 1e12))


def test_every_chip_of_nvidia_has_rates_of_int8_int32_and_fp64():
    chips = [c for c in map(catalog.accelerator, CHIPS) if c.vendor == "NVIDIA"]
    lacking = {(c.name, f) for c in chips for f in ("int8", "int32", "fp64") if f not in c.peaks}
    assert lacking == {("p100-sxm", "int8"), ("p100-sxm", "int32")}  # no such instructions
