"""Phase and layer from an `op_name`, the name stack that JAX traces along with an operation.

    jit(step)/transpose(jvp(layers))/while/body/closed_call/checkpoint/rematted_computation/mlp/mul
              ---------     ------                                     -------------------- ---
              backward      scope            computed again: remat                          scope

is (remat, "layers/mlp"). `jax.named_scope` makes the layer; transformations make the phase:

    optimizer   inside `named_scope("optimizer")`
    remat       inside `rematted_computation`
    backward    inside `transpose(...)`
    forward     inside `jvp(...)`
    ""          none of these. Evaluation, an optimiser without a scope and sums of gradients all
                look alike then, so nothing is guessed; the layer is kept.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise

from scaling.program.ir import Origin, Phase

Votes = dict[Origin, float]  # bytes that speak for an origin
OPTIMIZER = "optimizer"  # the scope of the training step around its optimiser
# Parts of a name stack that are no scopes: control flow and primitives that call functions
# (jax/_src/interpreters/mlir.py and the `Primitive(...)` definitions of jax 0.10, 0.12).
STRUCTURE = frozenset(
    "while body body_pred cond scan closed_call core_call call checkpoint remat remat2 "
    "rematted_computation shard_map custom_jvp_call custom_vjp_call custom_vjp_call_jaxpr "
    "custom_lin custom_vmap_call custom_partitioning custom_linear_solve linear_call pallas_call "
    "core_map jaxpr_call eval_jaxpr call_exported call_hi_primitive xla_metadata_call pjit".split()
)
NO_SCOPE = re.compile(
    r"branch_\d+_fun"  # of `jax.lax.cond` and `switch`
    r"|.*(,|->).*"  # `jnp.einsum` names its call after its equation
    r"|(jit|pjit|pmap)\(.*\)"  # a function's name
)
TRANSFORM = re.compile(r"(jvp|transpose|vmap)\((.*)\)")  # around the scope that follows
TRACED = re.compile(r"(jit|pjit|pmap)\(")  # how a name stack begins; an argument's name does not
BRACKET = re.compile(r"[(\[{)\]}]")
SEVERAL = re.compile(r"(?:(.*?)/)?\((.*:.*)\)")  # `prefix/(a:b)`: XLA merged a and b

PHASES: tuple[Phase, ...] = ("", "forward", "remat", "backward", "optimizer")  # as results flow


def read_name(op_name: str) -> Origin | None:
    """The origin that a single `op_name` tells.

    None: it is no name stack (an argument's name, a fragment), or it tells only the place in the
    control flow. `Origin()`: an operation outside of derivatives and scopes.
    """
    if not TRACED.match(op_name):
        return None
    segments = _split(op_name, "/")
    operation = segments.pop() if _is_scope(segments[-1]) else ""
    transforms: set[str] = set()
    scopes = [scope for segment in segments for scope in _scopes(segment, transforms)]
    layer = _without_repeats([scope for scope in scopes if scope != OPTIMIZER])
    phase: Phase = ""
    if OPTIMIZER in scopes:
        phase = "optimizer"
    elif "rematted_computation" in segments:
        phase = "remat"
    elif transforms & {"transpose", "jvp"}:
        phase = "backward" if "transpose" in transforms else "forward"
    return Origin(phase, "/".join(layer)) if operation or phase or layer else None


def majority(votes: Mapping[Origin, float]) -> Origin | None:
    """The phase with the most bytes; of its layers the deepest scope that has more than half.

    Attention and MLP in equal parts are "layers". The last of several phases with the same bytes
    wins, because it has to wait for the others; None: no votes.
    """
    phases: dict[Phase, float] = {}
    for origin, weight in votes.items():
        phases[origin.phase] = phases.get(origin.phase, 0.0) + weight
    if not phases:
        return None
    phase = max(phases, key=lambda p: (phases[p], PHASES.index(p)))
    return Origin(phase, _deepest({o.layer: w for o, w in votes.items() if o.phase == phase}))


def single_names(op_name: str) -> Iterator[str]:
    """The single names in `prefix/(a:b)` and in `a;b`."""
    for name in _split(op_name, ";"):
        several = SEVERAL.fullmatch(name)
        if several is None:
            yield name
        else:
            prefix = f"{several[1]}/" if several[1] else ""
            yield from (prefix + part for part in _split(several[2], ":"))


def _scopes(segment: str, transforms: set[str]) -> Iterator[str]:
    """Named scopes in one part of a name stack; what is around them is added to `transforms`."""
    if inside := TRANSFORM.fullmatch(segment):
        transforms.add(inside[1])
        for part in _split(inside[2], "/"):
            yield from _scopes(part, transforms)
    elif segment and _is_scope(segment):
        yield segment


def _is_scope(segment: str) -> bool:
    """Return True for a scope of the user's; at the end of a name, an operation."""
    known = segment in STRUCTURE or NO_SCOPE.fullmatch(segment) or TRANSFORM.fullmatch(segment)
    return not known


def _without_repeats(path: list[str]) -> list[str]:
    """a/b/a/b/c -> a/b/c: transposing a checkpoint names the scopes around it a second time."""
    for n in range(len(path) // 2, 0, -1):
        for i in range(len(path) - 2 * n + 1):
            if path[i : i + n] == path[i + n : i + 2 * n]:
                return _without_repeats(path[: i + n] + path[i + 2 * n :])
    return path


def _deepest(layers: Mapping[str, float]) -> str:
    """The longest path under which more than half of the bytes lie."""
    under: dict[str, float] = {}
    for layer, weight in layers.items():
        parts = layer.split("/") if layer else []
        for n in range(len(parts)):
            path = "/".join(parts[: n + 1])
            under[path] = under.get(path, 0.0) + weight
    half = sum(layers.values()) / 2
    return max((path for path in under if under[path] > half), key=len, default="")


def _split(text: str, separator: str) -> list[str]:
    """`text` cut at the separators that stand outside of brackets."""
    if separator not in text or not BRACKET.search(text):
        return text.split(separator)
    depth, cuts = 0, [-1]
    for at, mark in enumerate(text):
        depth += (mark in "([{") - (mark in ")]}")
        if mark == separator and depth == 0:
            cuts.append(at)
    return [text[a + 1 : b] for a, b in pairwise([*cuts, len(text)])]
