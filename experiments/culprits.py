"""Small steps for lab 1, the detective: each compiled as it is written, and as it was meant.

    python -m experiments.culprits    writes scaling/course/lessons/data/lab1_programs.json.gz

Some have a line that makes XLA move more than the mathematics needs; the others only look like it.
All are compiled for 8 H100 that need not be here, over data=4,tensor=2.
"""

import gzip
import inspect
import json
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.lax import with_sharding_constraint as place
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import scaling as sc
from scaling.program.versions import compiler_versions

OUT = Path("scaling/course/lessons/data/lab1_programs.json.gz")
CLUSTER, MESH = "dgx-h100", "data=4,tensor=2"
B, S, D, F, V, H, K = 32, 2048, 4096, 16_384, 32_768, 32, 128  # sequences, tokens, widths, heads
TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")  # of an HLO text
Specs = Mapping[str, tuple[tuple[int, ...], P, str]]  # argument -> sizes, placement, format


def mlp(x: Array, up: Array, down: Array) -> Array:
    hidden = jax.nn.silu(x @ up)
    return place(hidden @ down, P("data", None, None))


def shuffled(x: Array, weights: Array, order: Array) -> Array:
    x = x[order]
    y = x @ weights
    return y.astype(jnp.float32).mean()


def not_shuffled(x: Array, weights: Array, order: Array) -> Array:
    y = x @ weights
    return y.astype(jnp.float32).mean()


def rotary(queries: Array, angles: Array) -> Array:
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    first, second = jnp.split(queries, 2, axis=-1)
    turned = jnp.concatenate([-second, first], axis=-1)
    return queries * cos + turned * sin


def momentum(weights: Array, gradient: Array, velocity: Array) -> tuple[Array, Array]:
    velocity = 0.9 * velocity + gradient
    velocity = place(velocity, P(None, None))
    return place(weights - 0.1 * velocity, P("data", "tensor")), velocity


def momentum_in_shards(weights: Array, gradient: Array, velocity: Array) -> tuple[Array, Array]:
    velocity = 0.9 * velocity + gradient
    velocity = place(velocity, P("data", "tensor"))
    return place(weights - 0.1 * velocity, P("data", "tensor")), velocity


def loss(x: Array, head: Array, targets: Array) -> Array:
    logits = (x @ head).astype(jnp.float32)
    log_p = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(log_p, targets[..., None], axis=-1).mean()


def normed(x: Array, scale: Array, up: Array) -> Array:
    y = x.astype(jnp.float32)
    y = y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True))
    return place((y.astype(x.dtype) * scale) @ up, P("data", None, "tensor"))


def changes(x: Array) -> Array:
    following = jnp.roll(x, -1, axis=1)
    return following - x


@dataclass(frozen=True)
class Step:
    """A step with its arguments; without `meant` it is innocent."""

    name: str
    cause: str
    written: Callable
    arguments: Specs
    culprit: str = ""  # in the line that causes it
    why: str = ""
    meant: tuple[Callable, Specs] | None = None


X = ((B, S, D), P("data", None, None), "bfloat16")
UP = ((D, F), P(None, "tensor"), "bfloat16")
MOMENT = ((D, F), P("data", "tensor"), "float32")
ORDER = ((B,), P(), "int32")
SQUARE = ((D, D), P(None, None), "bfloat16")
ANGLES = ((S, 1, K), P(), "bfloat16")
HEADS, HEAD_DIMS = P("data", None, "tensor", None), P("data", None, None, "tensor")
SPLIT_WRONG = "a matrix is split along the other dim"
INDEXED = "an index crosses devices"
HALVES = "halves of a split dim are exchanged"
WHOLE = "a result is asked for whole"
INNOCENT = "nothing is wrong"
STEPS = (
    Step(
        "an MLP",
        SPLIT_WRONG,
        mlp,
        {"x": X, "up": UP, "down": ((F, D), P(None, "tensor"), "bfloat16")},
        "hidden @ down",
        "hidden is split over F, down over D: to multiply, every device needs all of F. Split down "
        "over F, and each device has a part of the sum: one all-reduce of x's size.",
        (mlp, {"x": X, "up": UP, "down": ((F, D), P("tensor", None), "bfloat16")}),
    ),
    Step(
        "a loss",
        INNOCENT,
        loss,
        {"x": X, "head": ((D, V), P(None, "tensor"), "bfloat16"), "targets":
         ((B, S), P("data", None), "int32")},
        why="The vocabulary is split, and yet no logits travel: each device takes the maximum, the "
        "sum and the target of its part, and three numbers a token are reduced.",
    ),
    Step(
        "rotary positions",
        HALVES,
        rotary,
        {"queries": ((B, S, H, K), HEAD_DIMS, "bfloat16"), "angles": ANGLES},
        "jnp.split",
        "The head dim is split, and each half of it lies on one device: to turn them against each "
        "other they change places and back. Split the heads, of which none needs another.",
        (rotary, {"queries": ((B, S, H, K), HEADS, "bfloat16"), "angles": ANGLES}),
    ),
    Step(
        "differences along the sequence",
        INNOCENT,
        changes,
        {"x": ((B, S, D), P("data", "tensor", None), "bfloat16")},
        why="Only the first row of each part is needed next door: a permute of one row a sequence.",
    ),
    Step(
        "batches in random order",
        INDEXED,
        shuffled,
        {"x": X, "weights": SQUARE, "order": ORDER},
        "x[order]",
        "Which sequences a device needs is known only when it runs, so that each offers what it "
        "has and all are summed over data: the whole batch, on every device. Shuffle on the host.",
        (not_shuffled, {"x": X, "weights": SQUARE, "order": ORDER}),
    ),
    Step(
        "a norm before a product",
        INNOCENT,
        normed,
        {"x": ((B, S, D), P("data", "tensor", None), "bfloat16"),
         "scale": ((D,), P(), "bfloat16"), "up": UP},
        why="Sequence parallelism as it should be: tokens are split until the product, whose "
        "matrix is split too. They are gathered in bf16, after the norm in fp32.",
    ),
    Step(
        "momentum",
        WHOLE,
        momentum,
        {"weights": MOMENT, "gradient": MOMENT, "velocity": MOMENT},
        "P(None, None)",
        "Weights and gradient lie in shards, the new velocity shall lie whole on every device: it "
        "is gathered over both axes, once a step, in fp32.",
        (momentum_in_shards, {"weights": MOMENT, "gradient": MOMENT, "velocity": MOMENT}),
    ),
)  # fmt: skip


def compiled(function: Callable, arguments: Specs) -> str:
    """Return the scheduled HLO text of a step."""
    mesh = sc.device_mesh(MESH, CLUSTER)
    arrays = [
        jax.ShapeDtypeStruct(sizes, dtype, sharding=NamedSharding(mesh, spec))
        for sizes, spec, dtype in arguments.values()
    ]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "hlo.txt"
        sc.predict_step(jax.jit(function), *arrays, cluster=CLUSTER, mesh=mesh, dump_hlo=file)
        return file.read_text(encoding="utf-8")


def lines_of(text: str, function: Callable) -> dict[str, int]:
    """Return the line of `function`, from 1, of each collective that XLA attributes to one."""
    places = dict(
        re.findall(r"^(\d+) \{file_name_id=\d+ function_name_id=\d+ line=(\d+)", text, re.M)
    )
    frames = dict(re.findall(r"^(\d+) \{file_location_id=(\d+)", text, re.M))
    first = inspect.getsourcelines(function)[1]
    named = re.findall(
        r"%([\w.-]+) = .*(?:all|permute|scatter)\S*-start\S*\(.*stack_frame_id=(\d+)", text
    )
    found = {name: int(places[frames[frame]]) - first + 1 for name, frame in named}
    return {name: line for name, line in found.items() if line > 0}


def without_tables(text: str) -> str:
    """Return the text without the tables of files, which name folders of this machine."""
    parts = text.split("\n\n")
    return "\n\n".join(part for part in parts if not part.strip().startswith(TABLES))


def document(step: Step) -> dict[str, Any]:
    """Return a step as the lab reads it."""
    text, source = compiled(step.written, step.arguments), inspect.getsource(step.written)
    culprits = [i for i, line in enumerate(source.splitlines(), 1) if step.culprit in line]
    meant = compiled(*step.meant) if step.meant else ""
    return {
        **{"name": step.name, "cause": step.cause, "why": step.why, "code": source},
        "arguments": {name: _notation(*what) for name, what in step.arguments.items()},
        "line": culprits[0] if step.culprit else None,
        "lines": lines_of(text, step.written),
        **{"written": without_tables(text), "meant": without_tables(meant)},
    }


def _notation(sizes: tuple[int, ...], spec: P, dtype: str) -> str:
    """Return an array as the guide writes it: `bfloat16[32_data, 2048, 4096]`."""
    axes = [*spec, *[None] * (len(sizes) - len(spec))]
    cut = (f"{n}_{axis}" if axis else str(n) for n, axis in zip(sizes, axes, strict=True))
    return f"{dtype}[{', '.join(cut)}]"


def main() -> None:
    """Compile all and write them."""
    jax.config.update("jax_platforms", "cpu")  # the devices compiled for are not here
    cases = [document(step) for step in STEPS]
    for case in cases:
        print(case["name"], case["line"], case["lines"])
    found: dict[str, Any] = {"date": date.today().isoformat(), "versions": compiler_versions()}
    found |= {"cluster": CLUSTER, "mesh": MESH, "cases": cases}
    OUT.write_bytes(gzip.compress(json.dumps(found).encode(), mtime=0))
    print(f"{OUT}: {OUT.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
