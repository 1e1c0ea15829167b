"""Each fault that `experiments.quality` looks for is found in a program that has it."""

from dataclasses import replace

import pytest

from experiments.quality import (
    float32_arrays,
    head_products,
    layer_loops,
    quality_of,
)
from scaling.hlo.parse import parse_module
from scaling.meshes.shape import MeshShape
from scaling.models.accounting import train_flops
from scaling.models.config import ModelConfig
from scaling.program.ir import Collective, Kernel, Loop, Origin, Program, Wait
from scaling.run import Batch, Run
from scaling.simulate.step import price
from tests.harness import H100, ideal

LAYERS, MIB = 4, 2**20
MODEL = ModelConfig(vocab_size=4096, d_model=256, n_layers=LAYERS, n_heads=4, d_ff=512)
RUN = Run(name="step", model=MODEL, batch=Batch(8, 512), remat="selective")  # a stream of 1 MiB
MESH = MeshShape(fsdp=2)

TEXT = """HloModule step, is_scheduled=true

%body (p: (f32[4,512,256], bf16[512,256])) -> (f32[4,512,256], bf16[512,256]) {
  %p = (f32[4,512,256]{2,1,0}, bf16[512,256]{1,0}) parameter(0)
  %stack = f32[4,512,256]{2,1,0} get-tuple-element(%p), index=0
  %x = bf16[512,256]{1,0} get-tuple-element(%p), index=1
  %wide = f32[512,256]{1,0} convert(%x)
  %partial = f32[512,256]{1,0} convert(%x)
  %narrow = f32[512]{0} constant({...})
  %fusion-start.1 = f32[4,512,256]{2,1,0} fusion-start(%stack), kind=kLoop, calls=%fused_dynamic_slice
  %dynamic_update.1 = f32[4,512,256]{2,1,0} copy(%stack)
  ROOT %out = (f32[4,512,256]{2,1,0}, bf16[512,256]{1,0}) tuple(%dynamic_update.1, %x)
}

%condition (p: (f32[4,512,256], bf16[512,256])) -> pred[] {
  %p = (f32[4,512,256]{2,1,0}, bf16[512,256]{1,0}) parameter(0)
  ROOT %more = pred[] constant(true)
}

ENTRY %main (a: (f32[4,512,256], bf16[512,256])) -> (f32[4,512,256], bf16[512,256]) {
  %a = (f32[4,512,256]{2,1,0}, bf16[512,256]{1,0}) parameter(0)
  ROOT %layers = (f32[4,512,256]{2,1,0}, bf16[512,256]{1,0}) while(%a), condition=%condition, body=%body
}
"""  # noqa: E501


def program(*layer, head=()) -> Program:
    loop = Loop("layers", body=(PRODUCT, *layer), trips=LAYERS)
    return Program("step", "compiled", {"fsdp": 2}, (loop, *head))


def quality(*layer, head=()):
    return quality_of(price(program(*layer, head=head), H100, ideal()), TEXT, RUN, MESH)


def matmul(name: str, flops: float, layer: str = "layers/mlp") -> Kernel:
    at = Origin("forward", layer)
    return Kernel(name, at, kind="matmul", flops=flops, dtype="bf16", dims=(1, 8, 8, 8))


PRODUCT = matmul("product", 1.0)  # what makes a loop one of layers


def test_loops_over_layers_are_found_inside_others_by_their_products():
    inner = Loop("inner", body=(PRODUCT, Loop("deeper", body=(PRODUCT,))))
    outer = Loop("microbatches", body=(inner,), trips=16)
    head = Loop("chunks", body=(matmul("logits", 1.0, "head"),))
    moves = Loop("moves", body=(Kernel("copy", Origin("forward", "layers"), kind="copy"),))
    assert [loop.name for loop in layer_loops((outer, head, moves))] == ["inner"]


def test_a_copy_of_the_stream_is_found_and_a_stack_or_a_small_one_is_not():
    size = 2 * MIB / 4  # a quarter of the stream, read and written
    copy = Kernel("loop_transpose_fusion", kind="copy", bytes=size * 1.01)
    assert quality(copy).copies == ("loop_transpose_fusion",)
    assert quality(replace(copy, bytes=size)).copies == ()
    assert quality(replace(copy, kind="fusion")).copies == ()
    for stack in ("dynamic_update.1", "fusion-start.1"):
        assert quality(replace(copy, name=stack)).copies == ()


def test_a_float32_array_of_the_layers_is_found_but_no_accumulator_and_no_stack():
    stacks = Kernel("dynamic_update.1"), Kernel("fusion-start.1")
    kernels = (Kernel("wide"), matmul("partial", 8.0), Kernel("narrow"), *stacks)
    loops = [Loop("layers", body=kernels, trips=LAYERS)]
    found = lambda least: list(float32_arrays(parse_module(TEXT), loops, least))
    assert found(1000) == ["wide", "narrow"]
    assert found(4 * 512) == ["wide"]
    assert found(4 * 512 * 256) == []


def test_a_collective_that_the_compute_stream_waits_for_is_not_overlapped():
    gather = Collective("gather", kind="all-gather", axes=("fsdp",), bytes=64 * MIB, dtype="bf16")
    work = Kernel("work", bytes=64 * 64 * MIB)
    hidden, exposed = (gather, work, Wait("gather")), (gather, Wait("gather"), work)
    assert (quality(*hidden).overlapped, quality(*hidden).collectives) == (1, 1)
    assert (quality(*exposed).overlapped, quality(*exposed).collectives) == (0, 1)
    small = replace(gather, bytes=1024)
    assert quality(small, Wait("gather"), work).collectives == 0


@pytest.mark.parametrize("more", [1.0, 4.0])
def test_products_of_every_token_with_every_expert_are_more_than_are_needed(more):
    needed = train_flops(MODEL, 8, 512, "selective").total / MESH.devices
    assert quality(matmul("m", more * needed / LAYERS)).products == pytest.approx(more)


@pytest.mark.parametrize("times", [3, 4])
def test_a_fourth_product_of_the_head_is_counted(times):
    one = 2.0 * 4 * 512 * 256 * 4096
    products = [matmul(f"head {i}", one, "head/logits") for i in range(times)]
    priced = price(program(head=products), H100, ideal())
    assert head_products(priced, RUN, MESH) == pytest.approx(times)
