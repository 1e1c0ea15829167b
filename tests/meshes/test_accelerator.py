"""Chips: dense peaks, nothing assumed, and a target text that XLA's own files agree with."""

import pytest

from meshes import catalog
from meshes.accelerator import with_figures
from meshes.errors import InputError
from meshes.figures import overridden
from meshes.xla_target import xla_target_text

GPUS = [name for name in catalog.accelerator_names() if name != "cpu"]


def test_the_chips_of_the_catalogue():
    assert {"a100-sxm-80g", "b200-sxm", "cpu", "h100-sxm", "h200-sxm", "rtx3090"} <= set(
        catalog.accelerator_names()
    )


@pytest.mark.parametrize(
    ("name", "cores", "flops_per_core_and_cycle", "tensor_clock"),
    [
        # dense bf16 of four tensor cores: 1024 each on Hopper at 1.83 GHz, 512 on A100
        ("h100-sxm", 132, 4096, 1.83e9),
        ("h200-sxm", 132, 4096, 1.83e9),
        ("a100-sxm-80g", 108, 2048, 1.41e9),
        ("rtx3090", 82, 512, 1.695e9),
    ],
)
def test_peaks_are_dense_and_follow_from_cores_and_clock(
    name, cores, flops_per_core_and_cycle, tensor_clock
):
    chip = catalog.accelerator(name)
    assert chip.cores == cores
    assert chip.peak("bf16") == pytest.approx(
        cores * flops_per_core_and_cycle * tensor_clock, rel=0.01
    )


def test_b200_is_2_27_times_h100_like_for_like():
    b200, h100 = catalog.accelerator("b200-sxm"), catalog.accelerator("h100-sxm")
    assert b200.peak("bf16") / h100.peak("bf16") == pytest.approx(2.27, abs=0.01)


@pytest.mark.parametrize("name", GPUS)
def test_narrower_formats_are_never_slower(name):
    chip = catalog.accelerator(name)
    order = [d for d in ("fp32", "tf32", "bf16", "fp8", "fp4") if d in chip.peaks]
    rates = [chip.peak(d) for d in order]
    assert rates == sorted(rates)
    assert chip.peak("fp32") == pytest.approx(
        2 * chip.cores * chip.fpus_per_core * chip.clock, rel=0.08
    )  # one multiply and one add per lane and cycle


@pytest.mark.parametrize("name", GPUS)
def test_a_framework_gets_less_than_the_board_has(name):
    chip = catalog.accelerator(name)
    assert 0.97 * chip.memory < chip.usable_memory < chip.memory


def test_ridge_points_of_the_scaling_book():
    """jax-ml.github.io/scaling-book: FLOPs per byte at which memory stops being the limit."""
    for name, ridge in {"h100-sxm": 295, "b200-sxm": 281}.items():
        chip = catalog.accelerator(name)
        assert chip.peak("bf16") / chip.memory_bandwidth == pytest.approx(ridge, rel=0.005)


def test_a_format_the_chip_lacks_names_those_it_has():
    with pytest.raises(InputError, match="a100-sxm-80g has no peak rate for 'fp8'.*bf16, fp16"):
        catalog.accelerator("a100-sxm-80g").peak("fp8")


def test_nothing_is_assumed_of_a_cpu():
    cpu = catalog.accelerator("cpu")
    assert cpu.memory_bandwidth is None and not cpu.peaks
    for ask in (lambda: cpu.peak("fp32"), lambda: cpu.required("memory_bandwidth")):
        with pytest.raises(InputError, match="scaling calibrate"):
            ask()


def test_launch_times_come_from_calibration_only():
    assert all(catalog.accelerator(n).launch_time is None for n in catalog.accelerator_names())


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


def test_the_target_text_takes_the_users_cuda_versions():
    text = xla_target_text(catalog.accelerator("h100-sxm"), cudnn=(9, 12), cuda_runtime=(13, 0))
    assert "dnn_version_info { major: 9 minor: 12 patch: 0 }" in text
    assert "runtime_version { major: 13 minor: 0 patch: 0 }" in text


def test_only_nvidia_chips_have_a_target_text():
    with pytest.raises(InputError, match="cpu cannot be compiled for without the device"):
        xla_target_text(catalog.accelerator("cpu"))
