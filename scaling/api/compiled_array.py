"""What XLA makes of an expression over sharded arrays: its collectives beside ours.

For an NVIDIA cluster the expression is compiled for those GPUs, which need not be here; else for
fake devices of this machine's CPU.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from scaling.api.inputs import keep_devices_free
from scaling.compile.quiet import quiet
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.program.ir import Program, collectives
from scaling.questions.answer import Answer, Value
from scaling.questions.notation import ArraySpec, Expression, format_array
from scaling.questions.resharding import ReshardingStep
from scaling.questions.sharding import ShapeContext, number_bytes, shape

JAX_NAMES = {  # number format -> jax's name, where it is another
    **{"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "tf32": "float32"},
    **{"fp8": "float8_e4m3fn", "fp4": "float4_e2m1fn"},
}
LETTERS = "abcdefghijklmnopqrstuvwxyz"
MOST_COMPILED = 1024  # devices: as many fake ones as one process has (scaling.meshes.devices)
MOST_BYTES = 2**40  # of an array that is compiled: XLA adds sizes up in int64
CPU = "devices of this machine's CPU, whose compiler makes no reduce-scatters; all arrays in fp32"

Call = tuple[str, tuple[str, ...], float]  # kind, axes, bytes


def compiled_answer(
    expression: Expression,
    setting: ShapeContext,
    cluster: Cluster | None,
    ways: Sequence[Sequence[ReshardingStep]],
) -> Answer:
    """Return which collectives XLA puts in, beside those of `ways`, the first of which is ours.

    Raises:
        InputError: partial sums at an end, which no jitted function takes, too large an array, or
            devices for which nothing can be compiled.
    """
    _check(expression, setting)
    gpus = cluster if cluster is not None and cluster.accelerator.vendor == "NVIDIA" else None
    if gpus is None:  # a CPU moves narrow formats in fp32: all of them, for sizes that compare
        expression, setting, ways = _in_fp32(expression, setting, ways)
    program = _compiled(expression, setting, gpus)
    theirs: Counter[Call] = Counter()
    for call, times in collectives(program):
        axes = call.axes or (f"groups of {len(call.groups[0])}" if call.groups else "",)
        theirs[call.kind, tuple(axes), float(call.bytes)] += int(times)
    every: list[Counter[Call]] = [
        Counter((step.kind, step.axes, float(step.bytes)) for step in way if step.kind != "slice")
        for way in ways
    ]
    same = next((number for number, calls in enumerate(every) if calls == theirs), None)
    said = "the same collectives" if same == 0 else "other collectives"
    notes = ["compiled for " + (gpus.accelerator.title if gpus else CPU)]
    if same:
        words = ", ".join(str(step) for step in ways[same] if step.kind != "slice")
        notes.append(f"XLA's are those of another way: {words or 'nothing moves'}")
    ours, rows = every[0], []
    for key in dict.fromkeys((*ours, *theirs)):
        row: dict[str, Value] = {"collective": key[0], "axes": "+".join(key[1])}
        verdict = "same" if ours[key] == theirs[key] else "differs"
        row |= {"size (bytes)": key[2], "ours": ours[key], "XLA": theirs[key], "calls": verdict}
        rows.append(row)
    return Answer("XLA puts in", said, rows=tuple(rows), notes=tuple(notes))


def _check(expression: Expression, setting: ShapeContext) -> None:
    if setting.devices > MOST_COMPILED:
        raise InputError(
            f"--compile: {setting.devices:,} devices, at most {MOST_COMPILED:,}; ask with a "
            "smaller --mesh, or without --compile"
        )
    for array in expression.arrays:
        if array.unreduced:
            raise InputError(
                f"--compile: {format_array(array)} is unreduced, and no jitted function takes or "
                "gives terms of a sum; write the product that makes them: A[I,J_X] @ B[J_X,K]"
            )
        size = math.prod(shape(array, setting)) * number_bytes(array, setting)
        if size > MOST_BYTES:
            raise InputError(
                f"--compile: {format_array(array)} has {size:.3g} bytes, at most {MOST_BYTES:.3g}; "
                "ask with a smaller --shape, or without --compile"
            )


def _in_fp32(
    expression: Expression, setting: ShapeContext, ways: Sequence[Sequence[ReshardingStep]]
) -> tuple[Expression, ShapeContext, list[list[ReshardingStep]]]:
    """Return the question with all arrays in fp32, and its steps with their bytes."""
    plain = lambda array: replace(array, dtype="")
    operands = tuple(map(plain, expression.operands))
    result = expression.result and plain(expression.result)
    wide = replace(setting, dtype="fp32")
    bytes_of = lambda array: number_bytes(plain(array), wide) / number_bytes(array, setting)
    grown = [
        [replace(step, bytes=step.bytes * bytes_of(step.before)) for step in way] for way in ways
    ]
    return Expression(operands, result), wide, grown


def _compiled(expression: Expression, setting: ShapeContext, gpus: Cluster | None) -> Program:
    keep_devices_free()
    with quiet():
        import jax
        import jax.numpy as jnp
        from jax.sharding import NamedSharding, PartitionSpec

        from scaling.compile import jitted
        from scaling.meshes.devices import host_mesh, named_mesh
        from scaling.meshes.shape import MeshShape

        if gpus is not None:
            mesh = jitted.mesh(setting.mesh, gpus)
        else:
            devices = host_mesh(MeshShape(data=setting.devices)).devices.ravel()
            mesh = named_mesh(setting.mesh, devices.tolist())

        def laid(array: ArraySpec) -> NamedSharding:
            return NamedSharding(mesh, PartitionSpec(*(dim.axes or None for dim in array.dims)))

        given = [
            jax.ShapeDtypeStruct(shape(a, setting), _dtype(a, setting), sharding=laid(a))
            for a in expression.operands
        ]
        result = expression.result
        out = None if result is None else laid(result)
        made = jnp.dtype(_dtype(result or expression.operands[0], setting))
        letters = _letters(expression)

        def step(*arrays: Any) -> Any:
            if len(arrays) == 1:
                return arrays[0]
            return jnp.einsum(letters, *arrays).astype(made)

        step.__name__ = "array"
        return jitted.program_and_text(jax.jit(step, out_shardings=out), tuple(given), gpus)[0]


def _letters(expression: Expression) -> str:
    """Return the subscripts of the product, as einsum takes them; "" of a resharding."""
    if len(expression.operands) == 1 or expression.result is None:
        return ""
    names = list(dict.fromkeys(name for array in expression.arrays for name in array.names))
    letters = ["".join(LETTERS[names.index(n)] for n in a.names) for a in expression.arrays]
    return f"{letters[0]},{letters[1]}->{letters[2]}"


def _dtype(array: ArraySpec, setting: ShapeContext) -> str:
    dtype = array.dtype or setting.dtype
    return JAX_NAMES.get(dtype, dtype)
