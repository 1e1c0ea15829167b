"""What the author of a Pallas kernel says that it does: `pl.pallas_call(cost_estimate=...)`.

A compiled program holds the kernel, and not the estimate: that stands in the traced step only.
"""

from collections.abc import Iterator
from typing import Any, cast

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from scaling.hlo.user_hints import Work

NARROW = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp64"}


def estimated_work(traced: Any) -> dict[str, Work]:
    """Name of a kernel -> its work, of those with an estimate; none where calls differ in it.

    The name is that of the compiled program: the one given, else its function's.
    """
    works: dict[str, set[Work]] = {}
    for call in _equations(traced):
        estimate = call.params.get("cost_estimate")
        if call.primitive.name == "pallas_call" and estimate is not None:
            name = call.params.get("name") or call.params["jaxpr"].debug_info.func_name
            works.setdefault(str(name), set()).add(_work(call, estimate))
    return {name: found.pop() for name, found in works.items() if len(found) == 1}


def _work(call: JaxprEqn, estimate: Any) -> Work:
    """The estimate; its FLOPs are those of products in the format of what the kernel multiplies."""
    inner = call.params["jaxpr"]
    products = [e for e in _equations(inner) if e.primitive.name == "dot_general"]
    name = np.dtype(cast(Any, products[0].invars[0].aval).dtype).name if products else ""
    return Work(
        flops=float(estimate.flops),
        bytes=float(estimate.bytes_accessed) or None,
        dtype=NARROW.get(name, ""),
        transcendentals=float(estimate.transcendentals),
    )


def _equations(jaxpr: Any) -> Iterator[JaxprEqn]:
    """Every operation of a traced function, those inside of others too; each inner one once."""
    seen: set[int] = set()
    waiting = [jaxpr]
    while waiting:
        inner = waiting.pop()
        inner = inner.jaxpr if isinstance(inner, ClosedJaxpr) else inner
        if id(inner) in seen:
            continue
        seen.add(id(inner))
        for equation in inner.eqns:
            yield equation
            waiting += [
                value
                for value in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr)
                if _is_jaxpr(value)
            ]


def _is_jaxpr(value: Any) -> bool:
    return isinstance(value, Jaxpr | ClosedJaxpr)
