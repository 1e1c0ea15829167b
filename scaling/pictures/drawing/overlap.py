"""Layers whose weights are gathered while the layer before multiplies: what hides, what waits."""

from collections.abc import Iterator

from scaling.pictures.drawing.svg import RIGHT, WIDTH, box, svg, text
from scaling.pictures.palette import COLOURS

NAME, ROW, BAR = 80, 40, 26  # pixels: names of the rows, a row, a bar
GATHER, WAIT, MATH = COLOURS[1], COLOURS[3], COLOURS[0]


def overlap(gather: float, products: float, layers: int = 5) -> str:
    """Return two rows, links and products, of `layers` equal layers over time.

    The gather of a layer begins when the products of the layer before do: one is held ahead.

    Args:
        gather: s in which the weights of a layer arrive.
        products: s in which a layer multiplies.
    """
    times = list(schedule(gather, products, layers))
    scale = (WIDTH - NAME - RIGHT) / (times[-1][1] + products)
    shapes = [text(0, BAR - 8, "links"), text(0, ROW + BAR - 8, "products")]
    free = 0.0  # when the products of the layer before end
    for number, (sent, begin) in enumerate(times, 1):
        x = NAME + sent * scale
        shapes.append(box(x, 0, gather * scale, BAR, GATHER, f"gather of layer {number}"))
        if begin > free:
            wide = (begin - free) * scale
            shapes.append(box(NAME + free * scale, ROW, wide, BAR, WAIT, "waits for weights"))
        x = NAME + begin * scale
        shapes.append(box(x, ROW, products * scale, BAR, MATH, f"products of layer {number}"))
        free = begin + products
    for place, (colour, name) in enumerate(
        ((GATHER, "all-gather of weights"), (MATH, "products"), (WAIT, "waits for weights"))
    ):
        x, y = NAME + place * 190, 2 * ROW + 4
        shapes += [box(x, y, 12, 12, colour), text(x + 18, y + 11, name)]
    return svg(shapes, 2 * ROW + BAR)


def schedule(gather: float, products: float, layers: int) -> Iterator[tuple[float, float]]:
    """Return when the gather of each layer begins, and when its products do, in s."""
    sent, begin = 0.0, gather
    for _ in range(layers):
        yield sent, begin
        sent = max(sent + gather, begin)
        begin = max(sent + gather, begin + products)
