"""Sequences on `context`: which are refused, with fixes that hold, and what is said of others."""

import re
from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape
from scaling.models.config import ModelConfig
from scaling.run import Batch, Context, Precision, Run, Sharding
from scaling.run.parallelism.rules import rules_for
from scaling.run.parallelism.sequence import sequence_cut

MODEL = ModelConfig(64, d_model=64, n_layers=2, n_heads=16, n_kv_heads=8, head_dim=4, d_ff=64)
RUN = Run("long", MODEL, Batch(8, 96, 2), precision=Precision("fp32"))
SIZES = st.sampled_from([1, 2, 4, 8])


def refused(run: Run, mesh: MeshShape) -> str | None:
    try:
        rules_for(run, mesh)
    except InputError as error:
        return str(error)
    return None


@given(st.integers(1, 200), st.integers(2, 16), SIZES, st.booleans())
def test_what_is_refused_is_accepted_with_each_fix_it_names(length, context, tensor, parallel):
    run = replace(RUN, batch=Batch(8, length), sharding=Sharding(sequence_parallel=parallel))
    said = refused(run, MeshShape(context=context, tensor=tensor))
    assume(said is not None)
    longer = int(re.search(r"batch.seq_len of (\d+)", said)[1])
    assert length < longer < length + 2 * context * tensor
    longer_run = replace(run, batch=Batch(8, longer))
    assert refused(longer_run, MeshShape(context=context, tensor=tensor)) is None
    other = re.search(r"context of ([\d, ]+)", said)
    for size in map(int, other[1].split(", ")) if other else ():
        assert refused(run, MeshShape(context=size, tensor=tensor)) is None


def test_an_odd_number_of_tokens_per_device_is_refused_with_the_reason():
    run = replace(RUN, batch=Batch(8, 36))
    said = refused(run, MeshShape(context=4))
    assert said is not None
    assert "batch.seq_len=36 is not divisible by 8" in said and "two chunks" in said
    assert "context of 2, 3, 6, 9, 18" in said


def test_sequence_parallelism_asks_for_more_and_can_be_switched_off():
    mesh = MeshShape(context=4, tensor=16)
    run = replace(RUN, model=replace(MODEL, n_kv_heads=16))
    said = refused(run, mesh)
    assert said is not None and "context=4 x tensor=16" in said and "sequence_parallel off" in said
    assert refused(replace(run, sharding=Sharding(sequence_parallel=False)), mesh) is None


def test_ring_by_hand():
    # 96 tokens on 4 devices: chunks of 12; 8 sequences over data=2 and 2 microbatches: 2 of them.
    # Keys and values: 2 sequences x 24 tokens x 2 x 8/2 heads x 4, float32.
    cut = sequence_cut(RUN, MeshShape(data=2, context=4, tensor=2))
    assert cut is not None
    assert (cut.chunk, cut.others, cut.exchanged_bytes) == (12, 3, 2 * 24 * 2 * 4 * 4 * 4)
    assert str(cut) == (
        "context=4: of 8 chunks of 12 tokens device i holds i and 7-i; "
        "ring: 3 permutes of 6 KiB of keys and values forward in each layer"
    )


def test_a_window_sends_its_last_rows_to_its_neighbours_only():
    run = replace(RUN, model=replace(MODEL, sliding_window=5), context=Context("all-gather"))
    cut = sequence_cut(run, MeshShape(context=4))
    assert cut is not None
    assert (cut.others, cut.exchanged_bytes) == (2, 4 * 2 * 4 * 2 * 8 * 4 * 4)
    assert "all-gather: an all-gather of 32 KiB" in str(cut)
