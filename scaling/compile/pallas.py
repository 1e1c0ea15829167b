"""The Pallas kernels of a traced step: their shapes, their work, whether they stay on one device.

A compiled program holds a kernel as machine code or as bytes. What it does stands in the traced
step only: its author's `pl.pallas_call(cost_estimate=...)`, else its grid and body, which are
counted (`scaling.compile.kernel_work`).
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from jax.extend.core import Jaxpr
from jax.tree_util import PyTreeDef

from scaling.compile.kernel_work import Equation, Tally, inner_bodies, open_body, tally_of
from scaling.hlo.user_hints import TracedKernel, Work

KERNELS = ("pallas_call", "mpmd_map")  # how jax traces them; the second are of Mosaic GPU
# Primitives, and what they are told of references, by which a kernel reaches other devices or waits
# for them; `inline_mgpu` may hold anything.
REACHING = re.compile(r"semaphore|multimem|remote|inline_mgpu|PeerMemRef|MulticastRef")


def traced_kernels(traced: Any) -> tuple[TracedKernel, ...]:
    """The kernels of a traced step, equal ones once.

    The name is that of the compiled program: the one given, else its function's.
    """
    calls = (e for e in _equations(open_body(traced)) if e.primitive.name in KERNELS)
    return tuple(dict.fromkeys(map(_kernel, calls)))


def _kernel(call: Equation) -> TracedKernel:
    bodies = inner_bodies(call)
    tally = Tally(is_complete=False)
    # an internal form of jax that is not known: the kernel is one of which only bytes are
    with suppress(NotImplementedError, AttributeError, IndexError, KeyError, TypeError, ValueError):
        tally = tally_of(list(zip(_shapes(call), bodies, strict=True)))
    work, estimate = tally.work(), call.params.get("cost_estimate")
    if estimate is not None:  # its FLOPs are those of products if the kernel has any
        work = Work(
            flops=float(estimate.flops),
            bytes=float(estimate.bytes_accessed) or None,
            dtype=work.dtype,
            transcendentals=float(estimate.transcendentals),
        )
    return TracedKernel(
        name=str(call.params.get("name") or bodies[0].debug_info.func_name),
        operands=tuple(tuple(v.aval.shape) for v in call.invars),
        results=tuple(tuple(v.aval.shape) for v in call.outvars),
        work=work,
        is_complete=tally.is_complete or estimate is not None,
        is_local=not any(map(_reaches, (e for body in bodies for e in _equations(body)))),
    )


def _shapes(call: Equation) -> list[Mapping[Any, int]]:
    """Axes of the programs of each body: by name of a kernel over a mesh, else by number."""
    params = call.params
    if "meshes" in params:
        return [mesh.shape for mesh in params["meshes"]]
    mesh = params.get("mesh")
    return [dict(enumerate(params["grid_mapping"].grid)) if mesh is None else mesh.shape]


def _reaches(equation: Equation) -> bool:
    trees = (str(v) for v in equation.params.values() if isinstance(v, PyTreeDef))
    return any(map(REACHING.search, (equation.primitive.name, *trees)))


def _equations(body: Jaxpr) -> Iterator[Equation]:
    """Every operation of a traced function, those inside of others too; each inner one once."""
    seen: set[int] = set()
    waiting = [body]
    while waiting:
        inner = waiting.pop()
        if id(inner) not in seen:
            seen.add(id(inner))
            for equation in inner.eqns:
                yield equation
                waiting += inner_bodies(equation)
