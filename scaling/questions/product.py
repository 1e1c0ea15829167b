"""Sharded products: where each mesh axis works, and what has to move for it.

In the product that a device computes, an axis splits one of the dimensions that are looped over, or
none: for A[I,J] @ B[J,K] -> C[I,K] one of I, J, K. That choice fixes how both operands and the
result lie; what lies otherwise is brought there (`questions.resharding`), before and after.

    the guide's cases, by axis                                    strategies
    1  not on what is summed over                                 nothing moves
    2  on the summed dimension of one operand                     gather it, or cut the other: sum
    3  on the summed dimension of both                            multiply, sum the results
    4  on a dimension of each that is kept                        gather one of the two
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from scaling.meshes.errors import InputError
from scaling.questions.notation import ArraySpec, Dim, Expression, format_array, laid
from scaling.questions.resharding import Step, steps
from scaling.questions.sharding import ShapeContext, device_shape

MOST_STRATEGIES = 1024  # so many are priced in a second or two
IDLE, TERMS = "", "+"  # an axis that splits nothing, or along which an operand holds terms of a sum


@dataclass(frozen=True)
class Product:
    """A product of two arrays whose dimensions have names."""

    left: ArraySpec
    right: ArraySpec
    result: ArraySpec
    derived: bool = False  # whether the result is what comes out without communication behind it

    @property
    def arrays(self) -> tuple[ArraySpec, ArraySpec, ArraySpec]:
        """Both factors and the result."""
        return self.left, self.right, self.result

    @property
    def summed(self) -> tuple[str, ...]:
        """Dimensions that are summed over."""
        kept = names(self.result)
        return tuple(name for name in names(self.left) if name not in kept)

    @property
    def looped(self) -> tuple[str, ...]:
        """All dimensions."""
        return tuple(dict.fromkeys((*names(self.left), *names(self.right))))


@dataclass(frozen=True)
class Strategy:
    """One way to compute a product: steps before, the local product, steps behind."""

    left: ArraySpec  # as multiplied
    right: ArraySpec
    made: ArraySpec  # as it comes out
    before: tuple[Step, ...]
    behind: tuple[Step, ...]
    works: tuple[tuple[str, str], ...]  # axis -> dimension that it splits

    @property
    def moves(self) -> tuple[Step, ...]:
        """The steps that communicate."""
        return tuple(s for s in (*self.before, *self.behind) if s.kind != "slice")

    @property
    def splitting(self) -> tuple[str, ...]:
        """The axes that share the FLOPs."""
        return tuple(axis for axis, dim in self.works if dim not in (IDLE, TERMS))

    def __str__(self) -> str:
        """Return the moves in a few words: `all-gather B over X, all-reduce C over Y`."""
        words = (f"{s.kind} {s.before.name} over {'+'.join(s.axes)}" for s in self.moves)
        return ", ".join(words) or "nothing moves"


def product_of(expression: Expression) -> Product:
    """Return the product that an expression asks for, with all arrays named.

    Raises:
        InputError: no dimension in common, a result with other dimensions, unlike formats.
    """
    left, right = (
        replace(array, name=array.name or name)
        for array, name in zip(expression.operands, "AB", strict=True)
    )
    _check_names(left, right)
    shared = [name for name in names(left) if name in names(right)]
    if expression.result is None:
        return Product(left, right, _natural(left, right, shared), derived=True)
    result = replace(expression.result, name=expression.result.name or "C")
    free = {*names(left), *names(right)} - set(shared)
    text = f"{format_array(left)} @ {format_array(right)} -> {format_array(result)}"
    if missing := sorted(free - set(names(result))):
        raise InputError(f"{text}: {missing[0]} is in one factor only, and the result lacks it")
    if strange := [name for name in names(result) if name not in free | set(shared)]:
        raise InputError(f"{text}: no factor has the result's dimension {strange[0]}")
    if not shared:
        raise InputError(
            f"{text}: the factors share no dimension; write the one that is summed over in both: "
            "A[I,J] @ B[J,K] -> C[I,K]"
        )
    return Product(left, right, result)


def completed(expression: Expression) -> Expression:
    """Return the expression with the result that a product has where none is given."""
    if len(expression.operands) == 1 or expression.result is not None:
        return expression
    return replace(expression, result=product_of(expression).result)


def cases(product: Product) -> dict[str, str]:
    """Return for each axis that splits an operand the guide's case, in words."""
    found = {}
    left, right = _places(product.left), _places(product.right)
    for axis in dict.fromkeys((*left, *right)):
        sides = [
            (side[axis], side[axis] in product.summed) for side in (left, right) if axis in side
        ]
        sums = [summed for _, summed in sides]
        if len(sides) == 2 and sides[0][0] == sides[1][0]:
            found[axis] = (
                f"case 3, both factors split over {axis} where they are summed: partial sums"
                if sums[0]
                else f"case 1, {axis} splits the batch dimension {sides[0][0]} of both: free"
            )
        elif any(sums):
            where = next(dim for dim, summed in sides if summed)
            found[axis] = f"case 2, {axis} splits {where}, which is summed, of one factor only"
            if len(sides) == 2:
                found[axis] += ", and another dimension of the other"
        elif len(sides) == 2:
            found[axis] = f"case 4, {axis} splits a dimension of both that is kept: gather one"
        else:
            found[axis] = f"case 1, {axis} does not split what is summed over"
    return found


def strategies(product: Product, setting: ShapeContext) -> list[Strategy]:
    """Return every way to compute the product in which each axis splits what it splits somewhere.

    Raises:
        InputError: so many axes that there are more than MOST_STRATEGIES ways.
    """
    named = {axis for array in product.arrays for axis in (*array.axes, *array.unreduced)}
    axes = [axis for axis in setting.mesh if axis in named]
    options = [_options(axis, product) for axis in axes]
    if math.prod(map(len, options)) > MOST_STRATEGIES:
        raise InputError(
            f"{len(axes)} axes that lie differently in the three arrays give more than "
            f"{MOST_STRATEGIES:,} ways to compute the product; ask with fewer axes"
        )
    found = []
    for choice in itertools.product(*options):
        works = dict(zip(axes, choice, strict=True))
        if _divides(works, product, setting):
            found.append(_strategy(works, product, setting))
    if not found:
        raise InputError(
            f"{format_array(product.result)}: no split of the product over the mesh ends like "
            "that; leave -> C[..] out to see what comes out by itself"
        )
    return found


def local_sizes(strategy: Strategy, setting: ShapeContext) -> dict[str, int]:
    """Sizes of the dimensions in the product that one device computes."""
    sizes: dict[str, int] = {}
    for array in (strategy.left, strategy.right):
        sizes |= dict(zip(names(array), device_shape(array, setting), strict=True))
    return sizes


def matmul_dims(product: Product, sizes: dict[str, int]) -> tuple[int, int, int, int]:
    """Batch, rows, columns and summed length of the product as a matrix product."""
    left, right, kept = names(product.left), names(product.right), names(product.result)
    ways = {
        (True, True, True): 0,  # in both factors and the result
        (True, False, True): 1,
        (False, True, True): 2,
        (True, True, False): 3,
    }
    dims = [1, 1, 1, 1]
    for name in product.looped:
        dims[ways[name in left, name in right, name in kept]] *= sizes[name]
    return dims[0], dims[1], dims[2], dims[3]


def names(array: ArraySpec) -> tuple[str, ...]:
    """Names of the dimensions."""
    return tuple(dim.name for dim in array.dims)


def _check_names(left: ArraySpec, right: ArraySpec) -> None:
    sizes = [name for array in (left, right) for name in names(array) if name.isdigit()]
    shared = set(names(left)) & set(names(right))
    if sizes and (len(set(sizes)) < len(sizes) - 1 or len(shared) > 1):
        raise InputError(
            f"{format_array(left)} @ {format_array(right)}: sizes do not say what is summed over, "
            f"where some are equal; write A[I_X,J] @ B[J,K] with --shape I={sizes[0]},J=..,K=.."
        )
    if not shared:
        raise InputError(
            f"{format_array(left)} @ {format_array(right)}: the factors share no dimension; write "
            "the one that is summed over in both: A[I,J] @ B[J,K] -> C[I,K]"
        )


def _natural(left: ArraySpec, right: ArraySpec, shared: list[str]) -> ArraySpec:
    """The result as it comes out: kept axes stay, those that both sum over leave partial sums."""
    dims: list[Dim] = []
    for dim in (*left.dims, *right.dims):
        if dim.name not in shared:
            used = [axis for other in dims for axis in other.axes]
            dims.append(Dim(dim.name, tuple(axis for axis in dim.axes if axis not in used)))
    ours, theirs = _places(left), _places(right)
    sums = [a for a, dim in ours.items() if dim in shared and theirs.get(a) == dim]
    used = [axis for dim in dims for axis in dim.axes]
    return ArraySpec("C", tuple(dims), tuple(axis for axis in sums if axis not in used))


def _places(array: ArraySpec) -> dict[str, str]:
    """Axis -> the dimension that it splits."""
    return {axis: dim.name for dim in array.dims for axis in dim.axes}


def _options(axis: str, product: Product) -> list[str]:
    """Dimensions that an axis may split in the local product; IDLE; TERMS of one operand."""
    places = [_places(array).get(axis) for array in product.arrays]
    dims = [dim for dim in dict.fromkeys(places) if dim is not None]
    terms = [axis in array.unreduced for array in (product.left, product.right)]
    if axis in product.result.unreduced:
        return [*product.summed, *([TERMS] if sum(terms) == 1 and not dims else [])]
    if sum(terms) == 1 and not dims:
        return [TERMS, IDLE]
    alike = len(dims) == 1 and all(
        place == dims[0]
        for array, place in zip(product.arrays, places, strict=True)
        if dims[0] in names(array)
    )
    free = alike and not any(terms) and dims[0] not in product.summed
    return dims if free else [*dims, IDLE]


def _divides(works: dict[str, str], product: Product, setting: ShapeContext) -> bool:
    """Whether the axes that split a dimension divide its size."""
    return all(
        setting.size(name) % setting.ways(tuple(a for a, dim in works.items() if dim == name)) == 0
        for name in product.looped
    )


def _strategy(works: dict[str, str], product: Product, setting: ShapeContext) -> Strategy:
    places = {name: tuple(_in_order(name, works, product)) for name in product.looped}
    terms = tuple(axis for axis, dim in works.items() if dim == TERMS)
    left, right = (
        replace(laid(a, places), unreduced=tuple(x for x in a.unreduced if x in terms))
        for a in (product.left, product.right)
    )
    sums = tuple(axis for axis, dim in works.items() if dim in product.summed)
    made = replace(laid(product.result, places), unreduced=(*sums, *terms))
    before = (*steps(product.left, left, setting), *steps(product.right, right, setting))
    behind = steps(made, product.result, setting)
    return Strategy(left, right, made, before, behind, tuple(works.items()))


def _in_order(name: str, works: dict[str, str], product: Product) -> Iterator[str]:
    """The axes of a dimension in the order in which an array already has them."""
    known = [
        axis for a in product.arrays for dim in a.dims if dim.name == name for axis in dim.axes
    ]
    return (axis for axis in dict.fromkeys((*known, *works)) if works.get(axis) == name)
