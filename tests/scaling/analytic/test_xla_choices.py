"""What the closed form takes XLA to do, counted again in programs of the jax that is installed."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import scaling as sc
from scaling.analytic.software import XLA
from scaling.simulate.step import running_kernels
from tests.harness import Case, on_h100, wide

MIB = 2**20
CALLS = 4
SENT = {  # kind: call, how its operand and its result are sharded, elements of a result of n
    "all-gather": (partial(jax.lax.all_gather, tiled=True), P("fsdp"), P(), 1),
    "reduce-scatter": (partial(jax.lax.psum_scatter, tiled=True), P(), P("fsdp"), 8),
    "all-reduce": (jax.lax.psum, P("fsdp"), P(), 8),
}


def check(what, found, stated):
    """Fail with what to do, and with both versions."""
    assert found == pytest.approx(stated, rel=0.01), (
        f"{what}: XLA of jax {jax.__version__} has {found}, scaling/analytic/software.py states "
        f"{stated}, counted with jax {XLA.jax} on {XLA.date}: count its figures again, and put the "
        "version and the date beside them"
    )


def calls_of(kind, size):
    """How many calls XLA makes of four whose results have `size` bytes each."""
    call, ahead, behind, shards = SENT[kind]
    mesh = sc.device_mesh("fsdp=8", cluster="dgx-h100")

    @jax.jit
    @partial(jax.shard_map, mesh=mesh, in_specs=ahead, out_specs=behind, check_vma=False)
    def step(*xs):
        return tuple(call(2 * x, "fsdp") for x in xs)

    shape, sharding = (size // 2 * shards,), NamedSharding(mesh, ahead)
    xs = [jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding)] * CALLS
    found = sc.predict_step(step, *xs, cluster="dgx-h100").collectives
    assert {line.kind for line in found} == {kind}
    return sum(line.count for line in found)


@pytest.mark.deviceless
@pytest.mark.parametrize("kind", SENT)
def test_xla_joins_calls_whose_results_take_together_at_most_what_is_stated(kind):
    for size, calls in ((XLA.combined // 2 - MIB, CALLS / 2), (XLA.combined // 2 + MIB, CALLS)):
        check(f"calls for four {kind} of {size / MIB:g} MiB", calls_of(kind, size), calls)


@pytest.mark.deviceless
def test_the_gradient_of_the_token_table_moves_what_is_stated():
    """Two lengths tell passes over the stream from bytes of the table."""
    base = wide(Case("fsdp=8", remat="selective"))
    sizes = []
    for seq_len in (256, 512):
        run = replace(base, batch=replace(base.batch, seq_len=seq_len))
        moved = sum(
            float(np.max(kernel.bytes * calls))
            for kernel, calls in running_kernels(on_h100(run))
            if (kernel.origin.phase, kernel.origin.layer) == ("backward", "embed")
        )
        sizes.append((run.batch.tokens / 8 * run.model.d_model * 2, moved))  # stream in bf16
    (short, less), (long, more) = sizes
    stream = (more - less) / (long - short)
    check("passes over the stream", stream, XLA.embed_stream)
    table = base.model.vocab_size * base.model.d_model
    check("bytes of an element of the table", (less - stream * short) / table, XLA.embed_table)


def test_the_counts_say_where_they_come_from():
    assert XLA.jax.count(".") == 2 and XLA.date.startswith("20") and XLA.chip and XLA.programs
