"""The work of a Pallas kernel, counted from its grid and its body.

    programs   grid x cluster x threads: each runs the body once
    integers   those that the place in the grid decides are known, as arrays over its axes: bounds
               of loops, numbers of branches
    loops      `scan`, and `while` of the form that `fori_loop` makes of bounds that are known; the
               numbers of their iterations are one axis more
    branches   each in the programs that take it; where nobody knows which, the least of them

A product is counted in each program that comes to it, whether what it reads is masked or not. Where
a loop or a branch is decided by values in memory the count is a lower bound, and says so.

    an array over the axes (batch 2, heads 32, blocks 32)     arange(32)[None, None, :] stands as
    arange(32): later axes are in front of it, and an axis of length 1 means all alike
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from scaling.hlo.custom_calls import INTEGERS, type_name
from scaling.hlo.user_hints import Work
from scaling.meshes.catalog.figures import FORMATS

VECTOR, TRANSCENDENTAL = "", "exp"  # beside the number formats of products, in counts
# Of jax.lax, by their primitives' names: those that XLA counts in `scaling.hlo.elementwise`.
EXPONENTIALS = frozenset(
    {"exp", "exp2", "expm1", "log", "log1p", "logistic", "pow", "sqrt", "rsqrt", "cbrt", "tanh"}
    | {"sin", "cos", "tan", "atan2", "erf", "erf_inv", "erfc", "reciprocal"}
)
ARITHMETIC = frozenset(
    {"add", "sub", "mul", "div", "rem", "neg", "abs", "sign", "max", "min", "clamp", "select_n"}
    | {"eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "not", "floor", "ceil", "round"}
    | {"integer_pow", "square", "convert_element_type", "shift_left", "shift_right_logical"}
)
REDUCTIONS = ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "argmax", "argmin", "cumsum")
MOST = 2**22  # places for which an integer is worked out; beyond it is not known
# Products of references to memory: wgmma of Hopper, tcgen05 of Blackwell
MMA = ("wgmma_ref", "wgmma", "tcgen05_mma")

Equation = Any  # jax.extend.core.JaxprEqn, whose arrays have no types
Integer = np.ndarray[Any, Any]
Values = dict[Any, Integer]  # variable of a jaxpr -> what is known of it
SAME: Callable[[Integer], Integer] = lambda value: value
OPERATIONS: Mapping[str, Callable[..., Any]] = {
    **{"add": np.add, "sub": np.subtract, "mul": np.multiply, "rem": np.fmod, "neg": np.negative},
    **{"max": np.maximum, "min": np.minimum, "sign": np.sign, "abs": np.abs},
    **{"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal},
    **{"eq": np.equal, "ne": np.not_equal, "and": np.bitwise_and, "or": np.bitwise_or},
    **{"xor": np.bitwise_xor, "not": np.invert},
    "div": lambda a, b: np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b)),  # towards zero
    "clamp": lambda low, value, high: np.minimum(np.maximum(low, value), high),
    "select_n": lambda which, *cases: np.select(
        [which == i for i in range(len(cases))], cases, default=cases[-1]
    ),
    **dict.fromkeys(("broadcast_in_dim", "convert_element_type", "multiple_of"), SAME),
    **dict.fromkeys(("copy", "reshape", "squeeze"), SAME),
}


@dataclass
class Tally:
    """What was counted: FLOPs by number format, and whether that is all."""

    counts: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    is_complete: bool = True

    def work(self) -> Work:
        """The counts as `Work`: products in the format that most of them have, else arithmetic."""
        formats = [name for name in self.counts if name not in (VECTOR, TRANSCENDENTAL)]
        products = sum(self.counts[name] for name in formats)
        return Work(
            flops=products or self.counts[VECTOR],
            dtype=max(formats, key=self.counts.__getitem__, default=""),
            transcendentals=self.counts[TRANSCENDENTAL],
        )


def tally_of(bodies: Sequence[tuple[Mapping[Any, int], Any]]) -> Tally:
    """What the programs of a kernel do, of bodies with the sizes of their axes by name or number.

    Raises:
        NotImplementedError, and what jax's own internals raise, for a form that is not known.
    """
    tally = Tally()
    for shape, body in bodies:
        axes = {name: i for i, name in enumerate(shape)}
        _Walk(tuple(map(int, shape.values())), axes, tally).walk(open_body(body), {}, np.ones(()))
    return tally


@dataclass(frozen=True)
class _Walk:
    """A walk over a body in all programs of the axes; `sizes` are those of the first axis first."""

    sizes: tuple[int, ...]
    axes: Mapping[Any, int]  # name, or number of a dimension of the grid -> axis
    tally: Tally

    def walk(self, body: Jaxpr, known: Values, runs: Integer) -> None:
        """Count a body that runs so often, and add to `known` what it works out."""
        for equation in body.eqns:
            name, inner = equation.primitive.name, inner_bodies(equation)
            given = [_value(v, known) for v in equation.invars]
            if name in ("scan", "while"):
                self._loop(equation, given, runs)
            elif name == "cond":
                self._branch(inner, given, runs)
            elif name == "core_map":
                within = self._within(equation.params["mesh"].shape)
                within.walk(inner[0], _bound(inner[0], given), runs)
            elif len(inner) == 1:  # a call: of jit, custom_vjp, run_scoped, run_state
                values = _bound(inner[0], given)
                self.walk(inner[0], values, runs)
                results = [_value(v, values) for v in inner[0].outvars]
                if len(results) == len(equation.outvars):
                    known |= _pairs(equation.outvars, results)
            elif inner:
                raise NotImplementedError(f"{name} has several bodies")
            else:
                for what, amount in _done(equation):
                    self._add(what, amount, runs)
                if equation.outvars:
                    known |= _pairs(equation.outvars[:1], [self._worked_out(equation, given)])

    def _within(self, shape: Mapping[Any, int], tally: Tally | None = None) -> "_Walk":
        """The walk with further axes."""
        axes = {name: len(self.sizes) + i for i, name in enumerate(shape)}
        sizes = (*self.sizes, *map(int, shape.values()))
        return _Walk(sizes, {**self.axes, **axes}, tally or self.tally)

    def _add(self, what: str, amount: float, runs: Integer) -> None:
        """Count an amount in each program and iteration that comes to it."""
        shape = (1,) * (len(self.sizes) - runs.ndim) + runs.shape
        alike = [n for n, have in zip(reversed(self.sizes), shape, strict=True) if have == 1]
        total = amount * float(runs.sum()) * math.prod(alike)
        if total:
            self.tally.counts[what] += total

    def _worked_out(self, equation: Equation, given: Sequence[Integer | None]) -> Integer | None:
        """The single integer that an operation makes; None where an operand is not known."""
        name, params, result = equation.primitive.name, equation.params, equation.outvars[0].aval
        if name in ("program_id", "axis_index", "num_programs"):
            axis = self.axes.get(params.get("axis_name", params.get("axis")))
            if axis is None:
                return None
            size = self.sizes[axis]
            return np.asarray(size) if name == "num_programs" else _along(axis, size)
        operation = OPERATIONS.get(name)
        values = [value for value in given if value is not None]
        if operation is None or len(values) < len(given) or not _is_integer(result):
            return None
        if _places(*values) > MOST:
            return None
        with np.errstate(divide="ignore", invalid="ignore"):
            made = np.asarray(operation(*values))
        return made.astype(bool if np.dtype(result.dtype).kind == "b" else np.int64)

    def _loop(self, loop: Equation, given: Sequence[Integer | None], runs: Integer) -> None:
        """Count the body of a loop as often as it runs; of one that nobody knows, nothing."""
        params = loop.params
        body = open_body(params["jaxpr" if loop.primitive.name == "scan" else "body_jaxpr"])
        trips: Integer | None
        if loop.primitive.name == "scan":
            if "ft_in" in params:  # from jax 0.11 on
                fixed, carried = (len(list(part)) for part in params["ft_in"].unpack()[:2])
            else:
                fixed, carried = params["num_consts"], params["num_carry"]
            values, trips = list(given[: fixed + carried]), np.asarray(params["length"])
        else:
            asked, fixed = params["cond_nconsts"], params["body_nconsts"]
            carried = len(given) - asked - fixed
            values = list(given[asked:])
            of_condition = [*given[:asked], *given[asked + fixed :]]
            trips = _trips(open_body(params["cond_jaxpr"]), body, fixed, of_condition)
        most = 0 if trips is None else int(np.max(trips, initial=0))
        count = _along(len(self.sizes), most)
        is_even = trips is not None and trips.size == 1
        if trips is None or (not is_even and _places(runs, trips, count) > MOST):
            trips, count = None, np.zeros((), np.int64)
        for i in range(carried):
            start, step = values[fixed + i], _step(body, fixed, i)
            is_known = start is not None and step is not None and (trips is not None or step == 0)
            values[fixed + i] = start + step * count if is_known else None
        values += [None] * (len(body.invars) - len(values))  # slices of a scan
        name = ("loop", len(self.sizes))
        if trips is not None:
            often = runs if is_even else runs * (count < trips)
            if most:
                self._within({name: most}).walk(body, _pairs(body.invars, values), often)
            return
        once = Tally()
        self._within({name: 1}, once).walk(body, _pairs(body.invars, values), runs)
        if once.counts or not once.is_complete:
            self.tally.is_complete = False

    def _branch(
        self, branches: Sequence[Jaxpr], given: Sequence[Integer | None], runs: Integer
    ) -> None:
        which, *operands = given
        if which is not None and _places(runs, which) <= MOST:
            taken = np.clip(which.astype(np.int64), 0, len(branches) - 1)
            for i, branch in enumerate(branches):
                if (taken == i).any():
                    self.walk(branch, _bound(branch, operands), runs * (taken == i))
            return
        found = [Tally() for _ in branches]
        for tally, branch in zip(found, branches, strict=True):
            replace(self, tally=tally).walk(branch, _bound(branch, operands), runs)
        for what in found[0].counts:
            self.tally.counts[what] += min(tally.counts.get(what, 0.0) for tally in found)
        if any(tally != found[0] or not tally.is_complete for tally in found):
            self.tally.is_complete = False


def inner_bodies(equation: Equation) -> list[Jaxpr]:
    """The bodies that an operation has, in the order of its parameters' names."""
    values = jax.tree.leaves(
        [value for _, value in sorted(equation.params.items())], is_leaf=_is_body
    )
    return [open_body(value) for value in values if _is_body(value)]


def _is_body(value: Any) -> bool:
    return isinstance(value, Jaxpr | ClosedJaxpr)


def open_body(body: Any) -> Jaxpr:
    """A traced function without its constants."""
    return body.jaxpr if isinstance(body, ClosedJaxpr) else body


def _value(variable: Any, known: Values) -> Integer | None:
    if not isinstance(variable, Literal):
        return known.get(variable)
    return np.asarray(variable.val) if _is_integer(variable.aval) else None


def _is_integer(aval: Any) -> bool:
    """Whether it is one integer or truth value."""
    dtype = getattr(aval, "dtype", None)
    if dtype is None or not isinstance(aval, jax.core.ShapedArray) or math.prod(aval.shape) != 1:
        return False
    return np.issubdtype(dtype, np.integer) or np.issubdtype(dtype, np.bool_)


def _bound(body: Jaxpr, given: Sequence[Integer | None]) -> Values:
    """What is known inside of a body that takes these operands, as arguments or as constants."""
    return _pairs([*body.constvars, *body.invars], given)


def _pairs(variables: Sequence[Any], values: Sequence[Integer | None]) -> Values:
    return {v: value for v, value in zip(variables, values, strict=False) if value is not None}


def _along(axis: int, size: int) -> Integer:
    """0, 1, 2 ... along an axis."""
    return np.arange(size).reshape(size, *[1] * axis)


def _places(*values: Integer) -> int:
    return math.prod(np.broadcast_shapes(*(value.shape for value in values)))


def _step(body: Jaxpr, fixed: int, i: int) -> int | None:
    """What a loop's body adds to its i-th value that is carried; None: something else."""
    before, after = body.invars[fixed + i], body.outvars[i]
    if after is before:
        return 0
    for equation in body.eqns:
        if after in equation.outvars and equation.primitive.name == "add":
            left, right = equation.invars
            if left is before and isinstance(right, Literal) and _is_integer(right.aval):
                return int(right.val)
    return None


def _trips(
    condition: Jaxpr, body: Jaxpr, fixed: int, given: Sequence[Integer | None]
) -> Integer | None:
    """How often a `while` runs that asks whether a counter is below a bound; None: not known.

    `given` are the operands of its condition: constants, then what is carried.
    """
    if len(condition.eqns) != 1 or condition.eqns[0].primitive.name != "lt":
        return None
    known, carries = _bound(condition, given), len(given) - len(body.outvars)
    counter, bound = condition.eqns[0].invars
    low, high = _value(counter, known), _value(bound, known)
    if low is None or high is None:
        return None
    steps = [
        0
        if isinstance(v, Literal) or (at := condition.invars.index(v) - carries) < 0
        else _step(body, fixed, at)
        for v in (counter, bound)
    ]
    if steps[1] != 0 or not steps[0] or steps[0] < 0:
        return None
    return np.maximum(0, -((low - high) // steps[0]))


def _done(equation: Equation) -> list[tuple[str, float]]:
    """What one operation without bodies does: (number format, FLOPs) of a product, or vectors."""
    name = equation.primitive.name
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        left, result = equation.invars[0].aval, equation.outvars[0].aval
        depth = math.prod(left.shape[i] for i in contracted)
        flops = 2.0 * math.prod(result.shape) * depth
        return [(_format(left.dtype, equation.params["precision"]), flops)]
    if name in MMA:
        return [_tensor_core(equation)]
    if name in REDUCTIONS:
        return [(VECTOR, _elements(equation.invars[0]))]
    if name in EXPONENTIALS:
        return [(TRANSCENDENTAL, _elements(equation.outvars[0]))]
    return [(VECTOR, _elements(equation.outvars[0]))] if name in ARITHMETIC else []


def _elements(variable: Any) -> float:
    """Elements of an array; those of single numbers, which say where things lie, do not count."""
    size = math.prod(getattr(variable.aval, "shape", ()))
    return float(size) if size > 1 else 0.0


def _tensor_core(equation: Equation) -> tuple[str, float]:
    """Format and FLOPs of acc[m, n] += a[m, k] @ b[k, n], of references that are sliced and tiled.

    With a `collective_axis` one of two blocks asks for the product of both.
    """
    params, names = equation.params, ("acc", "a", "b")
    trees = [params[f"{name}_transforms_tree"] for name in names]
    first = 3
    if equation.primitive.name == "tcgen05_mma":
        first += 1 + params["arrive"] + 2 * params["scaled"] + params["sparse"]
    leaves = [getattr(v, "val", v.aval) for v in equation.invars[first:]]
    shapes = []
    for variable, tree in zip(equation.invars[:3], trees, strict=True):
        array, count = variable.aval, tree.num_leaves if tree else 0
        for transform in tree.unflatten(leaves[:count]) if tree else ():
            array = transform.transform_type(array)
        leaves = leaves[count:]
        shapes.append(array.shape)
    (m, n), (_, k), _ = shapes
    both = 2 if params.get("collective_axis") else 1
    return _format(equation.invars[1].aval.dtype, None), 2.0 * both * m * n * k


def _format(dtype: Any, precision: Any) -> str:
    """The number format in which a product of such operands is multiplied.

    float32 is rounded to TF32 unless the highest precision is asked for (jax's lowering to Triton).

    Raises:
        NotImplementedError: for one that no chip has a rate of.
    """
    name = np.dtype(dtype).name
    if name == "float32" and "HIGHEST" not in str(precision) and "F32_F32_F32" != str(precision):
        return "tf32"
    for word, short in (("float", "f"), ("uint", "u"), ("int", "s"), ("_", "")):  # as XLA writes it
        name = name.replace(word, short)
    if (found := INTEGERS.get(name) or type_name(name)) not in FORMATS:
        raise NotImplementedError(f"products of {dtype}")
    return found
