"""Copies of what a layer keeps in the host's memory, beside its kernels.

forward    out after the part that makes it          over at the end of the layer
backward   back from the beginning of the layer on   over before the part that takes it
"""

from collections.abc import Mapping

import numpy as np

from scaling.analytic.saved import offloaded_bytes
from scaling.analytic.step import StepSizes
from scaling.analytic.weights import ATTENTION, MLP
from scaling.models.accounting.remat import HIDDEN, QKV, keeps
from scaling.program.ir import Kernel, Number, Operation, Origin, Phase, Wait

# Tensors that remat can keep (`models.accounting.remat`), by the part of the block that makes them
# or takes them first.
TENSORS = {
    ATTENTION: (*QKV, "attention"),
    MLP: ("attention_out", "expert_input", *HIDDEN),
}
REMAT = "remat"  # what is needed to compute the rest again
Copies = dict[str, Kernel]  # by part, or REMAT


def leaving(step: StepSizes, moe: bool, place: str, times: Number) -> Copies:
    """What a layer's forward pass copies to the host, `times` 0 or 1."""
    return _copies(step, moe, f"{place} offload", "forward", TENSORS, times)


def returning(step: StepSizes, moe: bool) -> Copies:
    """What its backward pass copies back, in the order in which it is needed."""
    first: tuple[str, ...] = ("attention_out",)
    if not keeps(step.run.remat, "attention"):
        first = (*first, *TENSORS[ATTENTION])
    later = {p: tuple(t for t in TENSORS[p] if t not in first) for p in (MLP, ATTENTION)}
    return _copies(step, moe, "fetch", "backward", {REMAT: first, **later}, 1)


def waits(copies: Mapping[str, Kernel], part: str = "") -> list[Operation]:
    """The waits for copies: of one part, or of all."""
    return [Wait(copy.name, copy.origin) for of, copy in copies.items() if part in ("", of)]


def _copies(
    step: StepSizes,
    moe: bool,
    words: str,
    phase: Phase,
    tensors: Mapping[str, tuple[str, ...]],
    times: Number,
) -> Copies:
    sizes = {part: offloaded_bytes(step, moe, names) * times for part, names in tensors.items()}
    origin, after = Origin(phase, "layers"), " of experts" * moe
    return {
        part: Kernel(
            f"{words} {part}{after}",
            origin,
            kind="copy",
            bytes=size,
            host_bytes=size,
            asynchronous=True,
        )
        for part, size in sizes.items()
        if np.any(size)
    }
