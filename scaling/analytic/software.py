"""How a software runs a step: what it communicates beside compute, and what its host costs.

constants, at most six to be fitted on measured runs of that software      data/software.toml
  launch           s that the host takes to issue one operation: a kernel, a collective
  collective       s that it takes for a collective beyond that
  crossing         s more for each rank of one over tensor, where a pipeline spans several nodes
  traffic          bytes moved by unmatched operations over those of fused ones
  products         rate of matrix products over that of the chip's best kernel, and
  attention        of fused attention
  hidden_tensor    share of the traffic over tensor that runs beside compute, and
  hidden_weights   of the gathers of weights and sums of gradients

And what XLA does where a run does not say: counted, not derived, in programs that one version
compiled for one chip. Another version may choose otherwise; test_xla_choices.py counts again with
the jax that is installed. The compiled front end needs none of them.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from scaling.analytic.stages import Dealt, Recomputes
from scaling.meshes.errors import InputError, nearest
from scaling.meshes.reading import package_toml, read
from scaling.run import Overlap


@dataclass(frozen=True)
class SoftwareTraits:
    """How one software runs a step; see the module."""

    name: str
    title: str
    source: str  # of what it does
    evidence: str  # what the constants were fitted on
    launch: float
    collective: float
    crossing: float
    traffic: float
    products: float
    attention: float
    hidden_tensor: float
    hidden_weights: float
    range: tuple[float, float]  # measured over predicted, central 90 % of sources left out
    hides_pipeline: bool  # sends between stages beside compute, with several virtual stages
    reduce: Literal["bf16", "fp32"]  # format of sums of gradients over devices in its recipes
    gather: Literal["bf16", "fp8"]  # format of gathers of weights for products in fp8 there
    flash_2: bool  # FlashAttention-2, which does not use what Hopper brought
    stages: Dealt = "layers"  # how layers are dealt out over the stages of a pipeline
    recomputes: Recomputes = "all"  # layers of a stage, by remat "full"
    # What autograd keeps of an activation and of the loss: fused ones their inputs, else each
    # operation its own (`scaling.analytic.memory`).
    kept: Literal["fused", "each"] = "fused"
    # Sums of gradients by ZeRO-1; all-reduced ones, and the gathers of weights after them, run
    # beside nothing.
    zero_1: Literal["scatter", "all-reduce"] = "scatter"


@cache
def software_traits() -> dict[str, SoftwareTraits]:
    """Return the traits of every software by its name in run.json."""
    tables = package_toml("analytic/data/software.toml")
    return {
        name: read(SoftwareTraits, {"name": name, **table}, name) for name, table in tables.items()
    }


def traits_of(software: str) -> SoftwareTraits:
    """Return the traits of a software.

    Raises:
        InputError: a software that is not described; the nearest one is named.
    """
    known = software_traits()
    if software not in known:
        raise InputError(
            f"software {software!r} is not described in scaling/analytic/data/software.toml; "
            + nearest(software, known)
        )
    return known[software]


def with_overlap(traits: SoftwareTraits, overlap: Overlap) -> SoftwareTraits:
    """The traits with what a run says of its overlap; what it switches on is as the software does
    it, or complete where the software leaves it off."""
    share = lambda own, on: own if on is None else (own or 1.0) * on
    return replace(
        traits,
        hidden_tensor=share(traits.hidden_tensor, overlap.tensor),
        hidden_weights=share(traits.hidden_weights, overlap.weights),
        hides_pipeline=traits.hides_pipeline if overlap.pipeline is None else overlap.pipeline,
    )


@dataclass(frozen=True)
class XlaChoices:
    """Sizes up to which XLA joins calls, what its fusions move: of one version, for one chip."""

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
