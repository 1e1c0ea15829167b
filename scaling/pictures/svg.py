"""A picture as SVG text, which a page, a notebook or a file shows as it is."""

from collections.abc import Mapping
from html import escape

from scaling.pictures.shapes import (
    FONT,
    Area,
    Circle,
    Group,
    Line,
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
    attributes: dict[str, float | str]
    match shape:
        case Group(x, y, shapes):
            move = {"transform": f"translate({_number(x)} {_number(y)})"}
            return _tag("g", move, "".join(map(_shape, shapes)))
        case Text(x, y, words, anchor, colour, size, turn, halo):
            attributes = {"x": x, "y": y} | ({"text-anchor": anchor} if anchor != "start" else {})
            attributes |= {"font-size": f"{size:g}"} if size != FONT else {}
            if turn:
                attributes["transform"] = f"rotate({turn:g} {_number(x)} {_number(y)})"
            if halo:
                attributes |= {"stroke": "Canvas", "stroke-width": "5", "paint-order": "stroke"}
            return _tag("text", attributes | {"fill": colour}, escape(words))
        case Rect(x, y, width, height):
            tag, attributes = "rect", {"x": x, "y": y, "width": max(width, 0.5), "height": height}
        case Circle(x, y, radius):
            tag, attributes = "circle", {"cx": x, "cy": y, "r": radius}
        case Line(points) | Area(points):
            tag = "polyline" if isinstance(shape, Line) else "polygon"
            attributes = {"points": " ".join(f"{_number(x)},{_number(y)}" for x, y in points)}
    attributes["fill"] = shape.fill
    if shape.opacity < 1:
        attributes["fill-opacity"] = f"{shape.opacity:g}"
    if shape.stroke != "none" and shape.thick:
        attributes |= {"stroke": shape.stroke, "stroke-width": f"{shape.thick:g}"}
        attributes |= {"stroke-dasharray": shape.dash} if shape.dash else {}
    return _tag(tag, attributes, f"<title>{escape(shape.words)}</title>" if shape.words else "")


def _tag(name: str, attributes: Mapping[str, float | str], inside: str = "") -> str:
    written = "".join(
        f' {key}="{value if isinstance(value, str) else _number(value)}"'
        for key, value in attributes.items()
    )
    return f"<{name}{written}>{inside}</{name}>" if inside else f"<{name}{written}/>"


def _number(value: float) -> str:
    """A tenth of a pixel is enough."""
    return f"{round(float(value), 1) + 0.0:g}"
