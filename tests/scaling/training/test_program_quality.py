"""What an expert looks for in the text of the step that XLA compiled for H100s.

Every tensor that remat keeps is stacked once, and no gather or scatter of the residual stream comes
with a copy of it. `models.accounting` says what is kept. The other counts are those of
`experiments.quality`; what is not yet as it should be may only become less.
"""

import re
from math import prod

import jax
import pytest

from experiments.program_quality import DENSE, LAYERS, SEQ, STEPS, compiled, quality, step_of
from scaling.models.accounting import activation_bytes
from scaling.program.ir import kernels
from scaling.training.program import program_of_run
from tests.harness import H100

pytestmark = pytest.mark.deviceless

COPY = re.compile("transpose|copy")  # XLA's names of kernels that only move
ITEMSIZE = {"bf16": 2, "f32": 4}  # bytes, by XLA's names
# Of each step: copies and float32 arrays at most, overlapped collectives at least, of how many.
#   copies    values out of the product of q, k and v; of experts each matrix turned for a product
#             (nine); of latent attention keys put together, and their gradients; in all but that
#             of experts one or two that came with the sums that run beside the next layer
#   float32   gradients of norms, between their two kernels
# XLA of jax 0.12 updates the stack of the block's input beside other work, from a copy of it: one
# copy more. It hides one call less where there is `tensor`, and one less where there are experts.
IN_0_10 = {
    "fsdp": (3, 2, 3, 4),
    "fsdp and tensor": (2, 2, 5, 14),
    "experts": (10, 2, 8, 14),
    "latent attention": (4, 3, 2, 4),
}
IN_0_12 = {
    "fsdp": (4, 2, 3, 4),
    "fsdp and tensor": (2, 2, 4, 14),
    "experts": (11, 2, 7, 14),
    "latent attention": (5, 3, 2, 4),
}
IS_0_12 = jax.__version_info__ >= (0, 12)
KNOWN = IN_0_12 if IS_0_12 else IN_0_10
HEAD = 3  # logits, and the gradients of the stream and of the matrix
DENSER = 1.1  # products over those that are needed


@pytest.mark.parametrize("name", STEPS)
def test_what_selective_remat_keeps_is_stacked_once(name):
    """The rows of experts have buffers of their own size (`models.accounting.expert_buffers`)."""
    run, _, text = compiled(name)
    loops = [line.split(" while(")[0] for line in text.splitlines() if " while(" in line]
    forward = next(line for line in loops if f"[{LAYERS}," in line)
    stacks = re.findall(rf"(bf16|f32)\[{LAYERS},([\d,]+)\]", forward)
    saved = [(kind, dims) for kind, dims in stacks if str(SEQ) in dims.split(",")]
    sequences = STEPS[name][2]
    every = activation_bytes(run.model, sequences, SEQ, "selective")
    kept = {key: size for key, size in every.items() if not key.startswith("expert_")}
    assert len(saved) == len(kept), saved
    size = lambda kind, dims: ITEMSIZE[kind] * prod(map(int, dims.split(",")))
    of_layer = sum(size(*stack) for stack in saved)
    assert of_layer == sum(kept.values()) / run.mesh.tensor


@pytest.mark.parametrize("name", STEPS)
def test_a_step_has_no_more_copies_and_float32_than_are_known(name):
    copies, float32, *_ = KNOWN[name]
    found = quality(name)
    assert len(found.copies) <= copies, found.copies
    assert len(found.float32) <= float32, found.float32


@pytest.mark.parametrize("name", STEPS)
def test_as_many_collectives_of_the_layers_are_overlapped_as_before(name):
    *_, overlapped, collectives = KNOWN[name]
    found = quality(name)
    assert found.overlapped >= overlapped and found.collectives <= collectives, found


@pytest.mark.parametrize("name", STEPS)
def test_a_step_multiplies_what_it_needs_and_the_head_three_times(name):
    found = quality(name)
    assert found.head == pytest.approx(HEAD, rel=1e-6)
    assert found.products <= DENSER, found


@pytest.mark.parametrize(
    ("sequences", "copies"),
    [(4, IS_0_12), (2, not IS_0_12)],
    ids=["cut by batch", "cut by sequence"],
)
def test_the_stream_is_not_copied_around_what_tensor_exchanges(sequences, copies):
    """Where `tensor` does not divide the batch it is: so the test can fail.

    XLA of jax 0.12 copies the stream for its stack, where the batch is cut and there alone.
    """
    run = step_of(DENSE, {"fsdp": 2, "tensor": 4}, sequences)
    program, _ = program_of_run(run, run.mesh, H100)
    stream = sequences * SEQ * run.model.d_model * 2  # bytes
    in_layers = [k for k, calls in kernels(program) if calls == LAYERS]
    large = [k.name for k in in_layers if COPY.search(k.name) and k.bytes > stream / 4]
    assert bool(large) == bool(copies), large
