"""Figures of the catalogue that follow from each other; what it says of often repeated mistakes."""

from importlib.resources import files

import pytest

from scaling.meshes import catalog

NAMES = sorted(
    path.name.removesuffix(".toml")
    for path in files("scaling.meshes.catalog").joinpath("accelerators").iterdir()
    if path.name.endswith(".toml") and path.name != "cpu.toml"
)
# Chip: dense fp16 FLOP of one core and cycle, summed in fp32; GHz of its matrix units. The first
# are those of the documents that the chip's file names, the second those of XLA's target files.
MATRIX_UNITS = {
    "p100-sxm": (256, 1.4805),  # packed halves
    "v100-sxm-16g": (1024, 1.53),
    "v100-sxm-32g": (1024, 1.53),
    "a100-sxm-40g": (2048, 1.41),
    "a100-sxm-80g": (2048, 1.41),
    "h100-sxm": (4096, 1.8295201),
    "h100-pcie": (4096, 1.62162),
    "h200-sxm": (4096, 1.8295201),
    "b200-sxm": (8192, 1.8353101),
    "gb200": (8192, 1.9259081),
    "gb300": (8192, 1.93338),
    "rtx2080ti": (512, 1.545),
    "t4": (1024, 1.59),
    "rtx3090": (512, 1.695),
    "rtx4090": (512, 2.52),
    "rtx-pro-6000": (1024, 2.6),
    "mi250x-gcd": (1024, 1.7),
    "mi300x": (2048, 2.1),
}
ROUNDED = 0.045  # NVIDIA prints 2,500 for the 2,400 that clock and units of a GB200 give


def test_every_chip_with_cores_is_among_those_worked_out():
    assert set(MATRIX_UNITS) == {n for n in NAMES if catalog.accelerator(n).cores}


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


@pytest.mark.parametrize(
    ("name", "bits", "rate"),
    [
        # bits of the memory bus, Gb/s of a pin: NVIDIA's whitepapers, XLA's target files
        ("p100-sxm", 4096, 2 * 0.715),
        ("v100-sxm-32g", 4096, 2 * 0.8775),
        ("a100-sxm-40g", 5120, 2 * 1.215),
        ("h100-sxm", 5120, 2 * 2.619),
        ("rtx2080ti", 352, 14),
        ("rtx3090", 384, 19.5),
        ("rtx4090", 384, 21),
        ("t4", 256, 10),
    ],
)
def test_memory_bandwidth_is_bus_times_rate(name, bits, rate):
    bandwidth = catalog.accelerator(name).required("memory_bandwidth")
    assert bandwidth == pytest.approx(bits * rate * 1e9 / 8, rel=0.003)
