"""A picture as SVG text, which a page, a notebook or a file shows as it is."""

from collections.abc import Mapping
from html import escape

from scaling.pictures.shapes import (
    FONT,
    Area,
    Circle,
    Group,
    Line,
    Painted,
    Picture,
    Rect,
    Shape,
    Text,
    titled,
)

FAMILY = f'font-family="sans-serif" font-size="{FONT:g}"'


def svg_text(picture: Picture) -> str:
    """Return an SVG that fills the width of the page, at most its own, in the page's colour."""
    style = f"width:100%;max-width:{picture.width:g}px"
    size = f'viewBox="0 0 {_number(picture.width)} {_number(picture.height)}"'
    return f'<svg {size} style="{style}" {FAMILY}>{"".join(map(_shape, picture.shapes))}</svg>'


def svg_file(picture: Picture) -> str:
    """Return the text of a file: black on white, below its title."""
    picture = titled(picture)
    wide, high = _number(picture.width), _number(picture.height)
    body = "\n".join(map(_shape, picture.shapes)).replace('"Canvas"', '"white"')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" '
        f'height="{high}" role="img" color="black" {FAMILY}>\n'
        f"<title>{escape(picture.title)}</title>\n"
        f'<rect width="{wide}" height="{high}" fill="white"/>\n{body}\n</svg>\n'
    )


def _shape(shape: Shape) -> str:
    match shape:
        case Group(x, y, shapes):
            move = {"transform": f"translate({_number(x)} {_number(y)})"}
            return _tag("g", move, "".join(map(_shape, shapes)))
        case Text(x, y, words):
            return _tag("text", {"x": x, "y": y, **_letters(shape)}, escape(words))
        case Rect(x, y, width, height):
            place = {"x": x, "y": y, "width": max(width, 0.5), "height": height}
            return _painted("rect", place, shape)
        case Circle(x, y, radius):
            return _painted("circle", {"cx": x, "cy": y, "r": radius}, shape)
        case Line(points) | Area(points):
            tag = "polyline" if isinstance(shape, Line) else "polygon"
            path = " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
            return _painted(tag, {"points": path}, shape)


def _painted(tag: str, place: Mapping[str, float | str], shape: Painted) -> str:
    look = {"fill": shape.fill}
    if shape.opacity < 1:
        look["fill-opacity"] = f"{shape.opacity:g}"
    if shape.stroke != "none" and shape.thick:
        look |= {"stroke": shape.stroke, "stroke-width": f"{shape.thick:g}"}
        look |= {"stroke-dasharray": shape.dash} if shape.dash else {}
    title = f"<title>{escape(shape.words)}</title>" if shape.words else ""
    return _tag(tag, {**place, **look}, title)


def _letters(text: Text) -> dict[str, str]:
    look = {"text-anchor": text.anchor} if text.anchor != "start" else {}
    look |= {"font-size": f"{text.size:g}"} if text.size != FONT else {}
    if text.turn:
        look["transform"] = f"rotate({text.turn:g} {_number(text.x)} {_number(text.y)})"
    if text.halo:
        look |= {"stroke": "Canvas", "stroke-width": "5", "paint-order": "stroke"}
    return look | {"fill": text.colour}


def _tag(name: str, attributes: Mapping[str, float | str], inside: str = "") -> str:
    written = "".join(
        f' {key}="{value if isinstance(value, str) else _number(value)}"'
        for key, value in attributes.items()
    )
    return f"<{name}{written}>{inside}</{name}>" if inside else f"<{name}{written}/>"


def _number(value: float) -> str:
    """A tenth of a pixel is enough."""
    return f"{round(float(value), 1) + 0.0:g}"
