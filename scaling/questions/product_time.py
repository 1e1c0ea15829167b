"""The time of a sharded product: every strategy priced, the fastest one answered.

T_math = max(F / C, M / W)     F FLOPs and M bytes of one device's product
T_comms                        the steps before and behind it, one after another
max(T_math, T_comms) <= time <= T_math + T_comms, with and without overlap
"""

from dataclasses import dataclass, replace

from scaling.models.accounting.matrices import NUMBER_BYTES
from scaling.program.ops import matmul
from scaling.questions.answer import Answer, Input, Value, by_formula, number
from scaling.questions.communication import MeshOnCluster, asked, by_rule, total
from scaling.questions.notation import format_array, product_text
from scaling.questions.product import (
    Product,
    Strategy,
    cases,
    local_sizes,
    matmul_dims,
    names,
    strategies,
)
from scaling.questions.resharding import Step
from scaling.questions.sharding import ShapeContext, check_array, device_bytes
from scaling.simulate.kernels import kernel_time, peak_rate

SECTION = "sharding: computation with sharded arrays"
MOST_SHOWN = 8  # strategies


@dataclass(frozen=True)
class Priced:
    """A strategy with its times; without a place its FLOPs and bytes."""

    way: Strategy
    flops: Answer  # of one device
    math: Answer
    comms: Answer

    def key(self, ideal: bool) -> tuple[float, float]:
        """Time with and without overlap, by which strategies are ordered."""
        math, comms = (number(each, ideal) for each in (self.math, self.comms))
        return max(math, comms), math + comms


def product_answer(
    product: Product, setting: ShapeContext, place: MeshOnCluster | None = None
) -> Answer:
    """Return the time of a product, with overlap, by its fastest strategy; the others are rows.

    Without a place the FLOPs of one device, by the strategy that moves least.
    """
    for array in product.arrays:
        check_array(array, setting)
    priced = ranked(product, setting, place)
    best = priced[0]
    left, right, result = (format_array(array, setting.mesh) for array in product.arrays)
    text = f"{left} @ {right} -> {result}"
    rows = _table([_row(each, product, setting, place) for each in priced[:MOST_SHOWN]])
    notes = [f"{axis}: {words}" for axis, words in cases(product).items()]
    if product.derived:
        notes.append(f"without -> C[..] the result is {format_array(product.result, setting.mesh)}")
    if len(priced) > MOST_SHOWN:
        notes.append(f"{MOST_SHOWN} of {len(priced)} strategies are listed")
    whole = _flops_of_all(product, best.way, setting)
    shown = replace(
        best.flops,
        name=f"FLOPs of a device in {text}",
        section=SECTION,
        rows=rows if len(rows) > 1 else (),
        notes=tuple(notes),
    )
    if place is None:
        return replace(shown, parts=(whole, best.comms))
    times = (
        Input("T_math", number(best.math, True), "s", "of one device's product"),
        Input("T_comms", number(best.comms, True), "s", str(best.way)),
    )
    overlapped, one_by_one = best.key(ideal=False)
    apart = by_formula("without overlap", "s", "T_math + T_comms", times, one_by_one)
    slower = max(best.math, best.comms, key=lambda each: number(each, by_rule(place)))
    return by_formula(
        text,
        "s",
        "max(T_math, T_comms)",
        times,
        overlapped,
        binds=f"{slower.name}: {slower.binds}",
        section=shown.section,
        parts=(whole, best.flops, best.math, best.comms, apart),
        rows=shown.rows,
        notes=shown.notes,
    )


def ranked(product: Product, setting: ShapeContext, place: MeshOnCluster | None) -> list[Priced]:
    """Return the strategies, the fastest first; without a place that which moves least.

    Where several move the same, only the one that shares the product best is returned.
    """
    ask, priced = asked(setting, place), list[Priced]()
    unit, name = ("s", "communication") if place else ("bytes", "bytes into a device")
    for way in strategies(product, setting):
        flops = _flops_of_one(product, way, setting)
        comms = total(name, unit, [ask(step) for step in (*way.before, *way.behind)])
        math = flops if place is None else _math_time(way, product, setting, place, flops)
        priced.append(Priced(way, flops, math, comms))
    ideal = by_rule(place)
    least = lambda each: each.key(ideal) if place else (number(each.comms, ideal),)
    priced.sort(key=lambda each: (*least(each), number(each.math, ideal)))
    by_moves: dict[tuple[Step, ...], Priced] = {}
    for each in priced:
        by_moves.setdefault(each.way.moves, each)
    return list(by_moves.values())


def _flops_of_one(product: Product, way: Strategy, setting: ShapeContext) -> Answer:
    """2 x every size that is looped over, shared by the devices along the axes that split it."""
    sizes = _sizes(product, setting)
    ways = (Input(axis, setting.mesh[axis], "devices", "along it") for axis in way.splitting)
    formula = " * ".join(("2", *product.looped))
    formula += f" / {product_text(way.splitting)}" if way.splitting else ""
    return by_formula("FLOPs of a device", "FLOPs", formula, (*sizes, *ways))


def _flops_of_all(product: Product, way: Strategy, setting: ShapeContext) -> Answer:
    """The FLOPs of the product, once by each device along the axes that do not split it."""
    alike = [a for a, size in setting.mesh.items() if size > 1 and a not in way.splitting]
    copies = (
        Input(a, setting.mesh[a], "devices", "along it, which does not split the product")
        for a in alike
    )
    formula = " * ".join(("2", *product.looped, *alike))
    given = (*_sizes(product, setting), *copies)
    return by_formula("FLOPs of all devices", "FLOPs", formula, given)


def _sizes(product: Product, setting: ShapeContext) -> tuple[Input, ...]:
    return tuple(Input(n, setting.size(n), "", "size") for n in product.looped if not n.isdigit())


def _math_time(
    way: Strategy, product: Product, setting: ShapeContext, place: MeshOnCluster, flops: Answer
) -> Answer:
    """Seconds of one device's product: its FLOPs, or its bytes where those take longer."""
    chip, dtype = place.cluster.accelerator, operand_dtype(product, setting)
    dims = matmul_dims(product, local_sizes(way, setting))
    moved = sum(device_bytes(array, setting) for array in (way.left, way.right, way.made))
    kernel = replace(matmul("product", dims, dtype), bytes=moved)
    fitted = kernel_time(kernel, chip, place.fitted)
    F, M = (
        Input("F", float(flops), "FLOPs", "of one device"),
        Input("M", moved, "bytes", "read and written"),
    )
    C, W = (
        Input("C", peak_rate(chip, dtype), "FLOP/s", f"{dtype} of {chip.name}"),
        Input("W", chip.required("memory_bandwidth"), "bytes/s", "its memory"),
    )
    priced = kernel_time(kernel, chip, place.ideal) if place.by_rule else fitted
    binds = str(priced.bound)
    formula, inputs = "max(F / C, M / W)", (F, C, M, W)
    return by_formula("product", "s", formula, inputs, float(fitted.time), binds=binds)


def operand_dtype(product: Product, setting: ShapeContext) -> str:
    """The format of the products: the wider one of the two operands."""
    formats = [array.dtype or setting.dtype for array in (product.left, product.right)]
    return max(formats, key=NUMBER_BYTES.__getitem__)


def _row(
    each: Priced, product: Product, setting: ShapeContext, place: MeshOnCluster | None
) -> dict[str, Value]:
    row, ideal = dict[str, Value](strategy=str(each.way)), by_rule(place)
    if place is None:
        flops, moved = (number(part, ideal) for part in (each.flops, each.comms))
        return row | {"FLOPs of a device (FLOPs)": flops, "bytes into it (bytes)": moved}
    overlapped, apart = each.key(ideal)
    return row | {
        "product (s)": number(each.math, ideal),
        "communication (s)": number(each.comms, ideal),
        "overlapped (s)": overlapped,
        "one after another (s)": apart,
        **_critical(each, product, setting),
    }


def _table(rows: list[dict[str, Value]]) -> tuple[dict[str, Value], ...]:
    """Return the rows without the columns that none of them has a value in."""
    held = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    return tuple({name: row[name] for name in held} for row in rows)


def _critical(each: Priced, product: Product, setting: ShapeContext) -> dict[str, Value]:
    """Size of each dimension from which the textbook's FLOPs take longer than its communication.

    Dimensions of an array that moves have none: with the others FLOPs grow, and bytes do not.
    """
    comms = number(each.comms, True)
    rate = next(i.value for i in each.math.inputs if i.symbol == "C")
    moved = {name for step in each.way.moves for name in names(step.before)}
    least = comms * rate / number(each.flops, True)
    return {
        f"compute bound from {n}": None if n in moved else setting.size(n) * least
        for n in product.looped
    }
