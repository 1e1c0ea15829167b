"""The guide's notation for sharded arrays: read, checked against a mesh, and written again.

A[I_X, J_Y]          dimension I is split over mesh axis X, J over Y
A[I_XY, J]           I over X, and each part over Y; also I_{XY}, I_{data,tensor}
A[I, J] {U_X}        unreduced: what devices along X hold are terms of a sum
bf16[1024_X, 4096]   a number format, and sizes in place of names; int8 A[I, J]

A[..]    A[..] -> A[..]    A[..] @ B[..]    A[..] @ B[..] -> C[..]
"""

import keyword
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from scaling.meshes.errors import InputError, is_count, nearest
from scaling.meshes.formula import FUNCTIONS
from scaling.models.accounting.matrices import NUMBER_BYTES

MOST_CHARACTERS = 1000  # of an expression: a mistake, not a question
MOST_DIMS = 12  # of one array; chosen by this project, more than any layer has
FORM = 'write for example "A[I_X,J] -> A[I,J]" or "A[I_X,J_Y] @ B[J_Y,K] -> C[I_X,K]"'
_NAME = r"[A-Za-z][A-Za-z0-9]*"
_ARRAY = re.compile(
    rf"\s*(?:(?P<dtype>{_NAME})\s+(?={_NAME}))?(?P<name>{_NAME})?\s*\[(?P<dims>[^\[\]]*)\]"
    r"\s*(?:\{\s*U_(?P<unreduced>\{[^{}]*\}|[^{}]*?)\s*\})?\s*"
)
_DIM = re.compile(rf"(?P<name>{_NAME}|[0-9]+)(?:_(?P<axes>\{{[^{{}}]*\}}|\w+))?")
_COMMA = re.compile(r",(?![^{}]*\})")  # between dimensions; in braces it is between axes
_TIMES = re.compile(rf"\s*[@*·](?:_{_NAME})?\s*(?=[A-Za-z\[])")


@dataclass(frozen=True)
class Dim:
    """One dimension of an array: its name, and the mesh axes that it is split over."""

    name: str  # of a dimension that is given by its size alone: the size, "1024"
    axes: tuple[str, ...] = ()  # outermost first


@dataclass(frozen=True)
class ArraySpec:
    """An array and how it lies on a mesh."""

    name: str  # "" where none is given
    dims: tuple[Dim, ...]
    unreduced: tuple[str, ...] = ()  # axes along which the devices hold terms of a sum
    dtype: str = ""  # "": that of the question

    @property
    def axes(self) -> tuple[str, ...]:
        """Mesh axes that split a dimension, dimension by dimension."""
        return tuple(axis for dim in self.dims for axis in dim.axes)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dim.name for dim in self.dims)

    @property
    def dim_of_axis(self) -> dict[str, str]:
        """Axis -> the dimension that it splits."""
        return {axis: dim.name for dim in self.dims for axis in dim.axes}


@dataclass(frozen=True)
class Expression:
    """What is asked: one array, a resharding, or a product."""

    operands: tuple[ArraySpec, ...]
    result: ArraySpec | None = None

    @property
    def arrays(self) -> tuple[ArraySpec, ...]:
        return self.operands if self.result is None else (*self.operands, self.result)


def parse_expression(text: str, axes: Sequence[str]) -> Expression:
    """Return the arrays of an expression over a mesh with those axes.

    Raises:
        InputError: what is not the notation, an unknown axis, an axis that one array names twice,
            more than two factors.
    """
    if len(text) > MOST_CHARACTERS:
        raise InputError(f"an expression of {len(text):,} characters, at most {MOST_CHARACTERS:,}")
    left, arrow, right = text.replace("→", "->").partition("->")
    if arrow and (not right.strip() or "->" in right):
        raise InputError(f"{text!r}: one -> with the result behind it; {FORM}")
    operands = tuple(parse_array(part, axes) for part in _TIMES.split(left))
    if len(operands) > 2:
        raise InputError(f"{text!r} has {len(operands)} factors; ask for two at a time")
    return Expression(operands, parse_array(right, axes) if arrow else None)


def parse_array(text: str, axes: Sequence[str]) -> ArraySpec:
    """Return one array, such as `bf16 A[I_X, J] {U_Y}`; InputError as of `parse_expression`."""
    match = _ARRAY.fullmatch(text)
    if match is None:
        raise InputError(f"{text.strip()!r} is no sharded array; {FORM}")
    dtype, name = match["dtype"] or "", match["name"] or ""
    if not dtype and name in NUMBER_BYTES:
        dtype, name = name, ""
    if dtype:
        check_dtype(dtype)
    where, written = text.strip(), match["dims"].strip()
    parts = [part.strip() for part in _COMMA.split(written)] if written else []
    dims = tuple(_dim(part, where, axes) for part in parts)
    if match["unreduced"] == "":
        raise InputError(f"{where!r}: no axis behind U_; write A[I,J] {{U_X}}")
    array = ArraySpec(name, dims, _axes(match["unreduced"] or "", where, axes), dtype)
    _check(array, where)
    return array


def check_dtype(dtype: str) -> None:
    """Raise InputError for a number format that is not known."""
    if dtype not in NUMBER_BYTES:
        raise InputError(f"no number format is called {dtype!r}; {nearest(dtype, NUMBER_BYTES)}")


def check_symbol(name: str, where: str) -> None:
    """Raise InputError for a name that a formula cannot have as a symbol."""
    if name in FUNCTIONS or keyword.iskeyword(name):
        raise InputError(f"{where!r}: {name} is a word of formulas; take another name")


def free_symbol(symbol: str, taken: Iterable[str]) -> str:
    """Return the symbol, with as many underscores behind it as make it one of its own."""
    while symbol in taken:
        symbol += "_"
    return symbol


def quotient_text(factors: Sequence[str], divisors: Sequence[str]) -> str:
    """Return a product of symbols over another: `I * J`, `I / X`, `I * J / (X * Y)`."""
    above, below = " * ".join(factors), " * ".join(divisors)
    if not divisors:
        return above
    return f"{above} / ({below})" if len(divisors) > 1 else f"{above} / {below}"


def format_array(array: ArraySpec, axes: Iterable[str] = ()) -> str:
    """Return the array as `parse_array` reads it; `axes` are all names of the mesh."""
    known = (*axes, *array.axes, *array.unreduced)
    dims = ",".join(
        dim.name + (f"_{_joined(dim.axes, known)}" if dim.axes else "") for dim in array.dims
    )
    unreduced = f" {{U_{_joined(array.unreduced, known)}}}" if array.unreduced else ""
    return f"{array.dtype} {array.name}[{dims}]{unreduced}".strip().replace(" [", "[")


def laid(array: ArraySpec, places: dict[str, tuple[str, ...]]) -> ArraySpec:
    """Return the array with each dimension split over the axes that `places` has for its name."""
    dims = tuple(replace(dim, axes=places.get(dim.name, ())) for dim in array.dims)
    return replace(array, dims=dims)


def _dim(text: str, where: str, axes: Sequence[str]) -> Dim:
    match = _DIM.fullmatch(text)
    if match is None:
        raise InputError(f"{where!r}: {text!r} is no dimension; write I, I_X or 1024_X")
    name = match["name"]
    if name[0].isdigit() and (not is_count(name) or int(name) < 1):
        raise InputError(f"{where!r}: {name[:30]} is no size of a dimension")
    check_symbol(name, where)
    return Dim(name, _axes(match["axes"] or "", where, axes))


def _axes(text: str, where: str, axes: Sequence[str]) -> tuple[str, ...]:
    """Return the axes of `XY`, `{XY}`, `{data,tensor}` or `data`."""
    parts = [part.strip() for part in text.strip("{} ").split(",")] if text else []
    if not all(parts):
        raise InputError(f"{where!r}: no axis in {text!r}; write I_X or I_{{X,Y}}")
    return tuple(axis for part in parts for axis in _split(part, where, axes))


def _split(text: str, where: str, axes: Sequence[str]) -> tuple[str, ...]:
    """Return the axes whose names, one behind another, are the text."""
    ways: dict[int, tuple[str, ...]] = {0: ()}  # characters -> the names they are
    if text in axes:
        return (text,)
    for end in range(1, len(text) + 1):
        for axis in axes:
            start = end - len(axis)
            if start in ways and text[start:end] == axis:
                ways[end] = (*ways[start], axis)
    if len(text) not in ways:
        raise InputError(
            f"{where!r}: {text!r} is no axis of the mesh (--mesh gives each axis its size: "
            f"--mesh X=4,Y=8); {nearest(text, axes)}"
        )
    return ways[len(text)]


def _check(array: ArraySpec, where: str) -> None:
    if len(array.dims) > MOST_DIMS:
        raise InputError(f"{where!r} has {len(array.dims)} dimensions, at most {MOST_DIMS}")
    for axis, times in Counter((*array.axes, *array.unreduced)).items():
        if times > 1:
            raise InputError(
                f"{where!r} uses axis {axis} {times} times: an axis splits one dimension of an "
                "array, or holds its partial sums"
            )
    for name, times in Counter(array.names).items():
        if times > 1 and not name.isdigit():
            raise InputError(f"{where!r} names dimension {name} twice; use two names")


def _joined(axes: tuple[str, ...], known: Iterable[str]) -> str:
    text = "".join(axes)
    if len(axes) == 1 or (all(len(axis) == 1 for axis in axes) and text not in known):
        return text
    return "{" + ",".join(axes) + "}"
