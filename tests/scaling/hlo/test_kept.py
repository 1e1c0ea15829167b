"""Programs that a compiler for TPUs made: read as they stand, priced by the cycles it planned."""

import pytest

import scaling as sc
from scaling.hlo.kept import kept_texts
from scaling.hlo.reader import read_program
from scaling.meshes.errors import InputError
from scaling.program.ir import Collective, Kernel, Wait

MESH = {"X": 2, "Y": 4}


def steps(name: str) -> list:
    return [step for step, _ in read_program(kept_texts()[name], MESH, name).operations]


def priced(name: str, **options):
    return sc.predict_hlo(name, cluster="tpu-v5e", mesh="X=2,Y=4", **options)


def test_the_guides_own_kernels_and_collectives_are_all_that_takes_time():
    gathered, overlapped = steps("matmul-gathered"), steps("matmul-overlapped")
    assert [step.name for step in gathered] == ["all-gather.6", "fusion"]  # as in its picture
    kernels = [step.name for step in overlapped if isinstance(step, Kernel)]
    names = ("fusion.2", *(f"convolution_add_fusion{n}" for n in (".2", ".1", "")))
    assert kernels == [*names]  # scalars count where a slice begins, beside them
    moved = [step for step in overlapped if isinstance(step, Collective)]
    assert [(m.kind, m.axes, m.bytes) for m in moved] == [("permute", ("Y",), 2**20)] * 3
    assert sum(isinstance(step, Wait) for step in overlapped) == 3


def test_what_lies_in_the_chip_is_no_byte_of_its_memory():
    (product,) = (step for step in steps("matmul-gathered") if isinstance(step, Kernel))
    assert product.bytes == 512 * 2048 * 4  # the result; both operands are in vector memory
    assert product.flops == 2 * 512 * 2048 * 2048


def test_a_kernel_takes_the_cycles_that_are_planned_or_its_bytes():
    (product,) = (step for step in steps("matmul-gathered") if isinstance(step, Kernel))
    computing = priced("matmul-gathered").time.compute
    assert computing == pytest.approx(product.cycles / 1.5e9)
    slow = priced("matmul-gathered", overrides=["memory_bandwidth=1GB/s"]).time.compute
    assert slow == pytest.approx(product.bytes / 1e9)


def test_times_are_near_those_that_the_guide_measured():
    assert priced("matmul-gathered").step_time == pytest.approx(311e-6, rel=0.03)
    assert priced("matmul-unsharded").step_time == pytest.approx(224e-6, rel=0.03)
    late = priced("matmul-overlapped")  # its first permute hides behind nothing
    assert late.step_time - late.time.exposed_communication == pytest.approx(244e-6, rel=0.08)
    assert late.step_time_low < 244e-6 < late.step_time_high


def test_a_name_that_is_not_kept_is_a_missing_file():
    with pytest.raises(InputError, match="cannot read matmul: no such file; .* matmul-gathered"):
        priced("matmul")


def test_another_chip_would_run_other_kernels():
    assert "compiled for" not in str(priced("matmul-gathered"))
    other = sc.predict_hlo("matmul-gathered", cluster="tpu-v4", mesh="X=2,Y=4")
    assert "compiled for tpu-v5e: " in str(other)


def test_a_collective_that_is_spread_over_kernels_says_how_to_compile_without():
    text = """HloModule step, is_scheduled=true, num_partitions=8

%start (a: f32[8]) -> f32[64] {
  %a = f32[8]{0:T(128)} parameter(0)
  %gather = f32[64]{0:T(128)} all-gather(%a), replica_groups=[1,8]<=[8], dimensions={0}
  ROOT %call = f32[64]{0:T(128)} custom-call(%gather), custom_call_target="AsyncCollectiveStart"
}

ENTRY %main (x: f32[8]) -> f32[64] {
  %x = f32[8]{0:T(128)} parameter(0)
  ROOT %async = f32[64]{0:T(128)} fusion(%x), kind=kCustom, calls=%start
}
"""
    with pytest.raises(InputError, match="xla_tpu_enable_async_collective_fusion=false"):
        sc.predict_hlo(text, cluster="tpu-v5e", mesh="data=8")
