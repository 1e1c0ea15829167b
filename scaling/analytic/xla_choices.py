"""What XLA does where a run does not say: sizes up to which it joins calls, what its fusions move.

Counted, not derived: in programs that one version compiled for one chip. Another version may choose
otherwise; tests/scaling/analytic/test_xla_choices.py counts again with the jax that is installed.
The compiled front end needs none of them.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class XlaChoices:
    """Counts in the programs of one version for one chip."""

    jax: str  # version
    chip: str  # that the programs were compiled for
    date: str  # of the counts
    programs: str  # that were counted in
    # Bytes of results up to which a layer's gathers are joined, and its scatters, whose results are
    # shards; and its all-reduces.
    combined: int
    joined: int
    # Tensors that the backward pass of one layer has at a time: of hidden units, of the stream as
    # products take it, and matrices of a device's experts (three gradients, two gathered).
    working_hidden: int
    working_stream: int
    expert_matrices: int
    prefetched: int  # layers whose weights are gathered at a time: one in use, one ahead
    # Stacks of the stream of all ticks: inputs and gradients; outputs too, if ticks are made again.
    streams: int
    outputs: int
    # Passes over the stream: of a norm forward, and backward with the gradient of its scale.
    norm: int
    norm_backward: int
    remat_activation: int  # passes over hidden units that remat makes again, beyond the backward's
    # Passes over the stream, and bytes of an element, of the gradient of the token table: it is
    # filled with zeros, scattered into, and rounded.
    embed_stream: int
    embed_table: int
    softmax: tuple[int, int]  # passes over stored scores forward and backward, masked apart


XLA = XlaChoices(
    jax="0.10.2",
    chip="h100-sxm",
    date="2026-11-22",
    programs="steps of Llama 3 1B, 8B, 70B and 405B and of toys (experiments/front_ends.py)",
    combined=30 * 2**20,
    joined=256 * 2**20,
    working_hidden=6,
    working_stream=8,
    expert_matrices=5,
    prefetched=2,
    streams=2,
    outputs=1,
    norm=2,
    norm_backward=10,
    remat_activation=5,
    embed_stream=5,
    embed_table=10,
    softmax=(4, 6),
)
