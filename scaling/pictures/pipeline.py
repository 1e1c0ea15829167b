"""A pipeline's step, and layers whose weights are gathered one ahead: boxes over time."""

from collections.abc import Iterator, Sequence

from scaling.meshes.units import format_time
from scaling.pictures.axes import Scale
from scaling.pictures.palette import BLUE, ORANGE, SKY, VERMILION
from scaling.pictures.rows import Bar, Row, boxes
from scaling.pictures.shapes import Picture
from scaling.pictures.timetable import Pass

ROW = 28.0, 6.0  # pixels of a stage, and from it to the next
GATHER, PRODUCTS, WAIT = "all-gather of weights", "products", "waits for weights"


def pipeline(passes: Sequence[Pass], title: str = "") -> Picture:
    """Return a row for each stage, a box for each pass; where it is empty, the stage has no work.

    The box of a pass has the number of its microbatch.
    """
    parts = 1 + max(one.part for one in passes)
    of_part = lambda part: "" if parts == 1 else f", part {part + 1}"
    colours = {f"forward{of_part(part)}": (SKY, BLUE)[part % 2] for part in range(parts)}
    colours |= {f"backward{of_part(part)}": (ORANGE, VERMILION)[part % 2] for part in range(parts)}
    bars: dict[str, list[Bar]] = {f"stage {i}": [] for i in range(1 + max(p.stage for p in passes))}
    for one in passes:
        way, number = "forward" if one.forward else "backward", str(one.microbatch + 1)
        words = f"microbatch {number} {way} on stage {one.stage}, part {one.part + 1}"
        bars[f"stage {one.stage}"].append(
            Bar(float(one.begin), float(one.end), f"{way}{of_part(one.part)}", words, number)
        )
    rows = {name: Row(own, *ROW) for name, own in bars.items()}
    end = float(max(one.end for one in passes))
    return boxes(rows, colours, Scale(0.0, end, "time \u2192", ticks=()), title)


def overlap(gather: float, products: float, layers: int = 5) -> Picture:
    """Return two rows, links and products, of `layers` equal layers over time.

    The gather of a layer begins when the products of the layer before do: one is held ahead.

    Args:
        gather: s in which the weights of a layer arrive.
        products: s in which a layer multiplies.
    """
    links: list[Bar] = []
    math: list[Bar] = []
    free = 0.0  # when the products of the layer before end
    for number, (sent, begin) in enumerate(schedule(gather, products, layers), 1):
        links.append(Bar(sent, sent + gather, GATHER, f"gather of layer {number}"))
        if begin > free:
            math.append(Bar(free, begin, WAIT, "waits for weights"))
        free = begin + products
        math.append(Bar(begin, free, PRODUCTS, f"products of layer {number}"))
    rows = {"links": Row(links, *ROW), "products": Row(math, *ROW)}
    colours = {GATHER: SKY, PRODUCTS: BLUE, WAIT: ORANGE}
    scale = Scale(0.0, free, show=format_time)
    return boxes(rows, colours, scale, "gathers beside products")


def schedule(gather: float, products: float, layers: int) -> Iterator[tuple[float, float]]:
    """Return when the gather of each layer begins, and when its products do, in s."""
    sent, begin = 0.0, gather
    for _ in range(layers):
        yield sent, begin
        sent = max(sent + gather, begin)
        begin = max(sent + gather, begin + products)
