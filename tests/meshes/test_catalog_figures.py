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


@pytest.mark.parametrize(
    ("name", "warning"),
    [
        # figures that circulate in texts on these machines, and what the catalogue says of them
        ("h200-sxm", "1,979 of the datasheet is bf16 with 2:4 sparsity"),
        ("h100-sxm", "60e12 was a preliminary figure"),
        ("h100-sxm", "40 MiB is the A100"),
        ("b200-sxm", "4.5, 9 and 18 PFLOP/s in bf16, fp8 and fp4 are with 2:4 sparsity"),
        ("v100-sxm-32g", "112e12 is the PCIe card, which has no NVLink"),
        ("p100-sxm", "18.7e12 is the PCIe card"),
        ("rtx3090", "35.6e12 are the shaders, without tensor cores"),
        ("rtx4090", "330.3e12 with fp16 accumulation"),
        ("rtx-pro-6000", "125e12 are the shaders, without tensor cores"),
        ("tpu-v5e", "adds four links and both directions: 50 each way"),
        ("trainium2", "trn1 has the first Trainium"),
        ("gb200", "13.8 counts all 192 on the board"),
        ("dgx-h100", "the 900 of the datasheet adds both directions"),
        ("dgx-h100", "400 GB/s a node and direction, not 3.2 TB/s"),
        ("dgx-h100", "50 GB/s per GPU at the spines too, not 25"),
        ("rtx3090-10-nvlink", "the 112.5 of the report adds both directions"),
        ("rtx-pro-6000-8", "no NVLink connector and no NVSwitch"),
        ("gb200-nvl72", "900 GB/s of a superchip add both directions and both GPUs"),
    ],
)
def test_figures_that_are_often_wrong_elsewhere_are_explained(name, warning):
    folder = "clusters" if name in catalog.names() else "accelerators"
    path = files("scaling.meshes.catalog").joinpath(folder, f"{name}.toml")
    assert warning in path.read_text(encoding="utf-8").replace("\n# ", " ")
