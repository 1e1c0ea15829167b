"""Drawing of one step of a collective: a row per member, a square per piece that it holds."""

from scaling.pictures.drawing.frames import Frame
from scaling.pictures.drawing.svg import LINE, svg, text
from scaling.pictures.palette import COLOURS

ROW, LEFT, TOP = 42, 90, 45  # pixels: a member's row, left and upper edge of the squares
WIDE = 42  # pixels of a square
FONT = 15  # pixels: read on a phone, where the drawing is half as wide
PALE = 0.45  # opacity of a sum that lacks terms


def ring(frame: Frame) -> str:
    """Return the drawing; a square is filled by the share of its sum's terms that are there.

    Squares with a thick edge were received in this step.
    """
    members = len(frame.terms)
    received = {(target, piece) for _, target, piece in frame.sends}
    shapes = [text(LEFT + p * WIDE + WIDE / 2, TOP - 10, str(p), "middle") for p in range(members)]
    shapes.append(text(LEFT - 12, TOP - 10, "piece", "end"))
    for member, held in enumerate(frame.terms):
        y = TOP + member * ROW
        shapes.append(text(LEFT - 12, y + ROW / 2 + 2, f"GPU {member}", "end"))
        for piece, terms in enumerate(held):
            new = (member, piece) in received
            shapes += _square(LEFT + piece * WIDE, y, piece, terms / frame.full, new)
        shapes += [
            text(LEFT + members * WIDE + 20, y + ROW / 2 + 2, f"sent {piece} to GPU {target}")
            for source, target, piece in frame.sends
            if source == member
        ]
    height = TOP + members * ROW + 10
    return svg([f'<g font-size="{FONT}">', *shapes, "</g>"], height)


def _square(x: float, y: float, piece: int, share: float, new: bool) -> list[str]:
    """An empty frame, and what is there from the bottom up."""
    side = WIDE - 8
    filled = side * share
    colour = COLOURS[piece % len(COLOURS)]
    shapes = []
    if share:
        shapes.append(
            f'<rect x="{x + 4}" y="{y + 4 + side - filled:.1f}" width="{side}" '
            f'height="{filled:.1f}" fill="{colour}" fill-opacity="{1 if share == 1 else PALE}"/>'
        )
    shapes.append(
        f'<rect x="{x + 4}" y="{y + 4}" width="{side}" height="{side}" fill="none" '
        f'stroke="{LINE}" stroke-width="{4 if new else 0.5}"/>'
    )
    return shapes
