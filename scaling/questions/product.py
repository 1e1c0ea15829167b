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
from dataclasses import dataclass, replace

from scaling.meshes.errors import InputError
from scaling.questions.notation import ArraySpec, Dim, Expression, format_array, laid
from scaling.questions.resharding import ReshardingStep, steps
from scaling.questions.sharding import ShapeContext, device_shape

MOST_STRATEGIES = 1024  # so many are priced in a second or two
IDLE, TERMS = "", "+"  # an axis that splits nothing, or along which an operand holds terms of a sum


@dataclass(frozen=True)
class ArrayProduct:
    """A product of two arrays whose dimensions have names."""

    left: ArraySpec
    right: ArraySpec
    result: ArraySpec
    derived: bool = False  # whether the result is what comes out without communication behind it

    @property
    def arrays(self) -> tuple[ArraySpec, ArraySpec, ArraySpec]:
        return self.left, self.right, self.result

    @property
    def summed(self) -> tuple[str, ...]:
        """Dimensions that are summed over."""
        return tuple(name for name in self.left.names if name not in self.result.names)

    @property
    def looped(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.left.names, *self.right.names)))


@dataclass(frozen=True)
class Strategy:
    """One way to compute a product: steps before, the local product, steps behind."""

    left: ArraySpec  # as multiplied
    right: ArraySpec
    made: ArraySpec  # as it comes out
    before: tuple[ReshardingStep, ...]
    behind: tuple[ReshardingStep, ...]
    works: tuple[tuple[str, str], ...]  # axis -> dimension that it splits

    @property
    def moves(self) -> tuple[ReshardingStep, ...]:
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


def product_of(expression: Expression) -> ArrayProduct:
    """Return the product that an expression asks for, with all arrays named.

    Raises:
        InputError: no dimension in common, a result with other dimensions, unlike formats.
    """
    left, right = (
        replace(array, name=array.name or name)
        for array, name in zip(expression.operands, "AB", strict=True)
    )
    shared = [name for name in left.names if name in right.names]
    sizes = [name for name in (*left.names, *right.names) if name.isdigit()]
    text = f"{format_array(left)} @ {format_array(right)}"
    if sizes and (len(set(sizes)) < len(sizes) - 1 or len(shared) > 1):
        raise InputError(
            f"{text}: sizes do not say what is summed over, where some are equal; write "
            f"A[I_X,J] @ B[J,K] with --shape I={sizes[0]},J=..,K=.."
        )
    if not shared:
        raise InputError(
            f"{text}: the factors share no dimension; write the one that is summed over in both: "
            "A[I,J] @ B[J,K] -> C[I,K]"
        )
    if expression.result is None:
        return ArrayProduct(left, right, _natural(left, right, shared), derived=True)
    result = replace(expression.result, name=expression.result.name or "C")
    every, text = {*left.names, *right.names}, f"{text} -> {format_array(result)}"
    if missing := sorted(every - set(shared) - set(result.names)):
        raise InputError(f"{text}: {missing[0]} is in one factor only, and the result lacks it")
    if strange := [name for name in result.names if name not in every]:
        raise InputError(f"{text}: no factor has the result's dimension {strange[0]}")
    return ArrayProduct(left, right, result)


def completed(expression: Expression) -> Expression:
    """Return the expression with the result that a product has where none is given."""
    if len(expression.operands) == 1 or expression.result is not None:
        return expression
    return replace(expression, result=product_of(expression).result)


def cases(product: ArrayProduct) -> dict[str, str]:
    """Return for each axis that splits an operand the guide's case, in words."""
    words = {}
    left, right = product.left.dim_of_axis, product.right.dim_of_axis
    for axis in dict.fromkeys((*left, *right)):
        dims = [side[axis] for side in (left, right) if axis in side]
        sums = [dim for dim in dims if dim in product.summed]
        if len(dims) == 2 and dims[0] == dims[1]:
            words[axis] = (
                f"case 3, both factors split over {axis} where they are summed: partial sums"
                if sums
                else f"case 1, {axis} splits the batch dimension {dims[0]} of both: free"
            )
        elif sums:
            words[axis] = f"case 2, {axis} splits {sums[0]}, which is summed, of one factor only"
            if len(dims) == 2:
                words[axis] += ", and another dimension of the other"
        elif len(dims) == 2:
            words[axis] = f"case 4, {axis} splits a dimension of both that is kept: gather one"
        else:
            words[axis] = f"case 1, {axis} does not split what is summed over"
    return words


def strategies(product: ArrayProduct, setting: ShapeContext) -> list[Strategy]:
    """Return the ways to compute the product in which axes split what they split somewhere."""
    named = {axis for array in product.arrays for axis in (*array.axes, *array.unreduced)}
    axes = [axis for axis in setting.mesh if axis in named]
    options = [_options(axis, product) for axis in axes]
    if math.prod(map(len, options)) > MOST_STRATEGIES:
        raise InputError(
            f"{len(axes)} axes that lie differently in the three arrays give more than "
            f"{MOST_STRATEGIES:,} ways to compute the product; ask with fewer axes"
        )
    ways = (dict(zip(axes, choice, strict=True)) for choice in itertools.product(*options))
    able = [
        _strategy(works, product, setting)
        for works in ways
        if all(
            setting.size(dim) % setting.ways(a for a in works if works[a] == dim) == 0
            for dim in product.looped
        )
    ]
    if not able:
        raise InputError(
            f"{format_array(product.result)}: no split of the product over the mesh ends like "
            "that; leave -> C[..] out to see what comes out by itself"
        )
    return able


def matmul_dims(product: ArrayProduct, way: Strategy, setting: ShapeContext) -> tuple[int, ...]:
    """Batch, rows, columns and summed length of the matrix product that one device computes."""
    sizes: dict[str, int] = {}
    for array in (way.left, way.right):
        sizes |= dict(zip(array.names, device_shape(array, setting), strict=True))
    kinds = {
        (True, True, True): 0,  # in both factors and the result
        (True, False, True): 1,
        (False, True, True): 2,
        (True, True, False): 3,
    }
    dims = [1, 1, 1, 1]
    for name in product.looped:
        left, right, kept = (name in array.names for array in product.arrays)
        dims[kinds[left, right, kept]] *= sizes[name]
    return tuple(dims)


def _natural(left: ArraySpec, right: ArraySpec, shared: list[str]) -> ArraySpec:
    """The result as it comes out: kept axes stay, those that both sum over leave partial sums."""
    dims: list[Dim] = []
    for dim in (*left.dims, *right.dims):
        if dim.name not in shared:
            used = [axis for other in dims for axis in other.axes]
            dims.append(Dim(dim.name, tuple(axis for axis in dim.axes if axis not in used)))
    theirs = right.dim_of_axis
    sums = [a for a, dim in left.dim_of_axis.items() if dim in shared and theirs.get(a) == dim]
    used = [axis for dim in dims for axis in dim.axes]
    return ArraySpec("C", tuple(dims), tuple(axis for axis in sums if axis not in used))


def _options(axis: str, product: ArrayProduct) -> list[str]:
    """Dimensions that an axis may split in the local product; IDLE; TERMS of one operand."""
    places = [array.dim_of_axis.get(axis) for array in product.arrays]
    dims = [dim for dim in dict.fromkeys(places) if dim is not None]
    terms = sum(axis in array.unreduced for array in (product.left, product.right))
    if axis in product.result.unreduced:
        return [*product.summed, *([TERMS] if terms == 1 and not dims else [])]
    if terms == 1 and not dims:
        return [TERMS, IDLE]
    if terms or len(dims) != 1 or dims[0] in product.summed:
        return [*dims, IDLE]
    arrays = zip(product.arrays, places, strict=True)
    is_alike = all(place == dims[0] for array, place in arrays if dims[0] in array.names)
    return dims if is_alike else [*dims, IDLE]


def _strategy(works: dict[str, str], product: ArrayProduct, setting: ShapeContext) -> Strategy:
    """The strategy; axes of a dimension are in the order in which an array already has them."""
    places = {}
    for name in product.looped:
        dims = (dim for array in product.arrays for dim in array.dims if dim.name == name)
        ordered = dict.fromkeys((*(axis for dim in dims for axis in dim.axes), *works))
        places[name] = tuple(axis for axis in ordered if works.get(axis) == name)
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
