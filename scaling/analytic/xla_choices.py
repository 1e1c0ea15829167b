"""What XLA does where a run does not say: sizes up to which it joins calls, what its fusions move.

Counted, not derived: in programs that one version compiled for one chip. Another version may choose
otherwise; tests/scaling/analytic/test_xla_choices.py counts again with the jax that is installed.
The compiled front end needs none of them.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class XlaChoices:
    """Counts in the programs of one version for one chip."""

    jax: str = "0.10.2"
    chip: str = "h100-sxm"  # that the programs were compiled for
    date: str = "2026-11-22"  # of the counts
    # that were counted in:
    programs: str = "steps of Llama 3 1B, 8B, 70B and 405B and of toys (experiments/front_ends.py)"
    # Bytes of results up to which a layer's gathers are joined, and its scatters, whose results are
    # shards; and its all-reduces.
    combined: int = 30 * 2**20
    joined: int = 256 * 2**20
    # Tensors that the backward pass of one layer has at a time: of hidden units, of the stream as
    # products take it, and matrices of a device's experts (three gradients, two gathered).
    working_hidden: int = 6
    working_stream: int = 8
    expert_matrices: int = 5
    prefetched: int = 2  # layers whose weights are gathered at a time: one in use, one ahead
    # Stacks of the stream of all ticks: inputs and gradients; outputs too, if ticks are made again.
    streams: int = 2
    outputs: int = 1
    # Passes over the stream: of a norm forward, and backward with the gradient of its scale.
    norm: int = 2
    norm_backward: int = 10
    # Passes over hidden units that remat makes again, beyond the backward's.
    remat_activation: int = 5
    # Passes over the stream, and bytes of an element, of the gradient of the token table: it is
    # filled with zeros, scattered into, and rounded.
    embed_stream: int = 5
    embed_table: int = 10
    softmax: tuple[int, int] = (
        4,
        6,
    )  # passes over stored scores forward and backward, masked apart


XLA = XlaChoices()
