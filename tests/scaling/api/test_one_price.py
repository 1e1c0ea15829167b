"""A kernel costs the same in every command: `kernel`, `predict`, `plan` and `serve`.

Each command is watched: all kernels that it prices are caught, and `sc.kernel` is asked for those
of each class, in the same sizes and with the same bytes. Arrays, in which `plan` prices, are taken
apart: one kernel of one configuration is asked for.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

import scaling as sc
from scaling.profiles.io import IDEAL_NAME
from scaling.program.ir import CAUSAL, Kernel
from scaling.questions.serving import step as serving
from scaling.simulate import batch, step
from scaling.simulate.kernels import kernel_time

CHIP, CLUSTER, MODEL = "h100-sxm", "dgx-h100", "mixtral-8x7b"
COMMANDS: Mapping[str, Callable[[], Any]] = {
    "predict": lambda: sc.predict(MODEL, CLUSTER, 4, "fsdp=32", source="analytic"),
    "plan": lambda: sc.plan(MODEL, CLUSTER, 4, top=1),
    "serve": lambda: sc.serve(
        MODEL, CLUSTER, mesh="tensor=4", batch=16, context=4096, prompt=2048, generate=100
    ),
}
TRAINED = ("matmul", "grouped", "attention forward", "attention backward", "memory")
SERVED = ("matmul", "grouped", "attention forward", "attention decode", "memory")
CASES = [(name, kind) for name in ("predict", "plan") for kind in TRAINED]
CASES += [("serve", kind) for kind in SERVED]
MOST = 3  # kernels of a class that are asked for


@dataclass(frozen=True)
class Caught:
    """One kernel, as a command priced it."""

    kind: str  # matmul, grouped, attention and its direction, memory
    dims: tuple[float, ...]
    dtype: str
    bytes: float
    visible: float
    seconds: float
    library: str = ""


def parts(kernel: Kernel, time: Any) -> Iterator[Caught]:
    """Each kernel of an array [operations, configurations], of its first configuration."""
    kind = kernel.kind if np.any(kernel.flops) else "memory"
    if kind == "attention":
        kind = "attention backward" if kernel.origin.phase == "backward" else "attention forward"
        kind = "attention decode" if np.all(np.asarray(kernel.dims[2]) == 1) else kind
    figures = *kernel.dims, kernel.bytes, kernel.visible, time
    if kernel.kind == "fusion" and (np.any(kernel.transcendentals) or np.any(kernel.vector_flops)):
        return  # which no `sc.kernel` is asked for
    rows = np.broadcast_arrays(*(np.atleast_2d(figure) for figure in figures))
    for *dims, moved, visible, seconds in zip(*(row[:, 0].tolist() for row in rows), strict=True):
        if all(size == int(size) for size in dims) and seconds and moved == int(moved):
            yield Caught(kind, tuple(dims), kernel.dtype, moved, visible, seconds, kernel.library)


@cache
def caught(command: str) -> Mapping[str, list[Caught]]:
    """All kernels that a command prices, by class."""
    found: dict[str, list[Caught]] = defaultdict(list)

    def watched(kernel: Kernel, chip: Any, profile: Any, *more: Any) -> Any:
        cost = kernel_time(kernel, chip, profile, *more)
        for one in parts(kernel, cost.time) if profile.name != IDEAL_NAME else ():
            found[one.kind].append(one)
        return cost

    with pytest.MonkeyPatch.context() as patch:
        for module in (step, batch, serving):
            patch.setattr(module, "kernel_time", watched)
        COMMANDS[command]()
    return found


def asked(kernel: Caught, kv_heads: int = 8) -> sc.Answer:
    """The answer to the same kernel."""
    if kernel.kind == "memory":
        return sc.kernel("read", kernel.bytes, accelerator=CHIP)
    kind, _, direction = kernel.kind.partition(" ")
    sizes, options = kernel.dims, {}
    if kind == "attention":
        heads = kernel.dims[1] * kv_heads / 32  # of the model, as many on a device
        sizes = *kernel.dims, heads
        options = {"causal": kernel.visible == CAUSAL, "backward": direction == "backward"}
        options |= {"library": kernel.library} if kernel.library else {}
    return sc.kernel(kind, sizes, dtype=kernel.dtype, accelerator=CHIP, **options)


@pytest.mark.parametrize(("command", "kind"), CASES)
def test_a_kernel_costs_the_same_in_every_command(command, kind):
    compared = 0
    for one in caught(command)[kind]:
        answer = asked(one)
        if kind == "memory" or float(answer["bytes"]) == pytest.approx(one.bytes, rel=1e-9):
            assert float(answer) == pytest.approx(one.seconds, rel=1e-9)
            compared += 1
        if compared == MOST:
            return
    assert compared, f"{command} prices no {kind} whose bytes are those of `scaling kernel`"


def test_the_best_plan_takes_as_long_as_its_run():
    (best,) = COMMANDS["plan"]().plans
    again = sc.predict(best.run, CLUSTER, 4, source="analytic")
    assert best.prediction.step_time == pytest.approx(again.step_time, rel=1e-9)
