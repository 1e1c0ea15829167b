"""The time of a sharded product: every strategy priced, the fastest one answered.

T_math = max(F / C, M / W)     F FLOPs and M bytes of one device's product
T_comms                        the steps before and behind it, one after another
max(T_math, T_comms) <= time <= T_math + T_comms, with and without overlap
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from scaling.models.accounting.matrices import NUMBER_BYTES
from scaling.program.ops import matmul
from scaling.questions.answer import Answer, Input, Value, by_formula, number
from scaling.questions.notation import format_array, quotient_text
from scaling.questions.product import ArrayProduct, Strategy, cases, matmul_dims, strategies
from scaling.questions.resharding import ReshardingStep, step_answer, total
from scaling.questions.sharding import MeshOnCluster, ShapeContext, check_array, device_bytes
from scaling.simulate.kernels import kernel_time, peak_rate

SECTION = "sharding: computation with sharded arrays"
MOST_SHOWN = 8  # strategies


@dataclass(frozen=True)
class PricedStrategy:
    """A strategy with its times; without a place its FLOPs and bytes."""

    way: Strategy
    flops: Answer  # of one device
    math: Answer
    comms: Answer

    def key(self, ideal: bool) -> tuple[float, float]:
        """Time with and without overlap, by which strategies are ordered."""
        math, comms = (number(each, ideal) for each in (self.math, self.comms))
        return max(math, comms), math + comms


def product_answer(product: ArrayProduct, setting: ShapeContext) -> Answer:
    """Return the time of a product, with overlap, by its fastest strategy; the others are rows.

    Without a place the FLOPs of one device, by the strategy that moves least.
    """
    for array in product.arrays:
        check_array(array, setting)
    priced = ranked(product, setting)
    best = priced[0]
    left, right, result = (format_array(array, setting.mesh) for array in product.arrays)
    text = f"{left} @ {right} -> {result}"
    notes = [f"{axis}: {words}" for axis, words in cases(product).items()]
    if product.derived:
        notes.append(f"without -> C[..] the result is {result}")
    if len(priced) > MOST_SHOWN:
        notes.append(f"{MOST_SHOWN} of {len(priced)} strategies are listed")
    rows = [_row(each, product, setting) for each in priced[:MOST_SHOWN]]
    held = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    more: dict[str, Any] = {
        "section": SECTION,
        "rows": tuple({name: row[name] for name in held} for row in rows) if len(rows) > 1 else (),
        "notes": tuple(notes),
    }
    # Each device along an axis that does not split the product computes all of it:
    alike = [a for a, size in setting.mesh.items() if size > 1 and a not in best.way.splitting]
    copies = setting.axis_inputs(alike, "along it, which does not split the product")
    given, formula = (*setting.size_inputs(product.looped), *copies), ("2", *product.looped, *alike)
    whole = by_formula("FLOPs of all devices", "FLOPs", quotient_text(formula, ()), given)
    if setting.place is None:
        name = f"FLOPs of a device in {text}"
        return replace(best.flops, name=name, parts=(whole, best.comms), **more)
    times = (
        Input("T_math", number(best.math, True), "s", "of one device's product"),
        Input("T_comms", number(best.comms, True), "s", str(best.way)),
    )
    overlapped, one_by_one = best.key(ideal=False)
    apart = by_formula("without overlap", "s", "T_math + T_comms", times, one_by_one)
    slower = max(best.math, best.comms, key=lambda each: number(each, setting.by_rule))
    more["binds"] = f"{slower.name}: {slower.binds}"
    more["parts"] = (whole, best.flops, best.math, best.comms, apart)
    return by_formula(text, "s", "max(T_math, T_comms)", times, overlapped, **more)


def ranked(product: ArrayProduct, setting: ShapeContext) -> list[PricedStrategy]:
    """Return the strategies, the fastest first; without a place that which moves least.

    Where several move the same, only the one that shares the product best is returned.
    """
    ask = cache(lambda step: step_answer(step, setting))
    name = "bytes into a device" if setting.place is None else "communication"
    priced = []
    for way in strategies(product, setting):
        inputs = (*setting.size_inputs(product.looped), *setting.axis_inputs(way.splitting))
        formula = quotient_text(("2", *product.looped), way.splitting)
        flops = by_formula("FLOPs of a device", "FLOPs", formula, inputs)
        comms = total(name, setting.unit, [ask(step) for step in (*way.before, *way.behind)])
        math = _math_time(way, product, setting, setting.place, flops) if setting.place else flops
        priced.append(PricedStrategy(way, flops, math, comms))
    ideal = setting.by_rule
    least = lambda each: each.key(ideal) if setting.place else (number(each.comms, ideal),)
    priced.sort(key=lambda each: (*least(each), number(each.math, ideal)))
    by_moves: dict[tuple[ReshardingStep, ...], PricedStrategy] = {}
    for each in priced:
        by_moves.setdefault(each.way.moves, each)
    return list(by_moves.values())


def _math_time(
    way: Strategy, product: ArrayProduct, setting: ShapeContext, place: MeshOnCluster, flops: Answer
) -> Answer:
    """Seconds of one device's product: its FLOPs, or its bytes where those take longer.

    The format is the wider one of the two operands.
    """
    formats = [array.dtype or setting.dtype for array in (product.left, product.right)]
    chip, dtype = place.cluster.accelerator, max(formats, key=NUMBER_BYTES.__getitem__)
    moved = sum(device_bytes(array, setting) for array in (way.left, way.right, way.made))
    kernel = replace(matmul("product", matmul_dims(product, way, setting), dtype), bytes=moved)
    fitted = kernel_time(kernel, chip, place.fitted)
    inputs = (
        Input("F", float(flops), "FLOPs", "of one device"),
        Input("C", peak_rate(chip, dtype), "FLOP/s", f"{dtype} of {chip.name}"),
        Input("M", moved, "bytes", "read and written"),
        Input("W", chip.required("memory_bandwidth"), "bytes/s", "its memory"),
    )
    priced = kernel_time(kernel, chip, place.ideal) if place.by_rule else fitted
    time, binds = float(fitted.time), str(priced.bound)
    return by_formula("product", "s", "max(F / C, M / W)", inputs, time, binds=binds)


def _row(each: PricedStrategy, product: ArrayProduct, setting: ShapeContext) -> dict[str, Value]:
    """A strategy in the table.

    "Compute bound from" is the size of each dimension from which the textbook's FLOPs take longer
    than its communication. Dimensions of an array that moves have none: with the others FLOPs grow,
    and bytes do not.
    """
    row, ideal = dict[str, Value](strategy=str(each.way)), setting.by_rule
    math, comms = number(each.math, ideal), number(each.comms, ideal)
    if setting.place is None:
        return row | {"FLOPs of a device (FLOPs)": math, "bytes into it (bytes)": comms}
    overlapped, apart = each.key(ideal)
    rate = next(i.value for i in each.math.inputs if i.symbol == "C")
    least = number(each.comms, True) * rate / number(each.flops, True)
    moved = {name for step in each.way.moves for name in step.before.names}
    return row | {
        "product (s)": math,
        "communication (s)": comms,
        "overlapped (s)": overlapped,
        "one after another (s)": apart,
        **{
            f"compute bound from {n}": None if n in moved else setting.size(n) * least
            for n in product.looped
        },
    }
