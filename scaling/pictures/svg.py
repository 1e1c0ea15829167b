"""A picture as SVG text, which a page, a notebook or a file shows as it is."""

from collections.abc import Sequence
from html import escape

from scaling.pictures.shapes import (
    FONT,
    Area,
    Circle,
    Group,
    Line,
    Picture,
    Point,
    Rect,
    Shape,
    Text,
    titled,
)


def svg_text(picture: Picture) -> str:
    """Return an SVG that fills the width of the page, at most its own, in the page's colour."""
    style = f"width:100%;max-width:{picture.width:g}px"
    size = f'viewBox="0 0 {_number(picture.width)} {_number(picture.height)}"'
    return f'<svg {size} style="{style}" {_FONT}>{"".join(map(_shape, picture.shapes))}</svg>'


def svg_file(picture: Picture) -> str:
    """Return the text of a file: black on white, below its title."""
    picture = titled(picture)
    wide, high = _number(picture.width), _number(picture.height)
    body = "\n".join(map(_shape, picture.shapes)).replace('"Canvas"', '"white"')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" '
        f'height="{high}" role="img" color="black" {_FONT}>\n'
        f"<title>{escape(picture.title)}</title>\n"
        f'<rect width="{wide}" height="{high}" fill="white"/>\n{body}\n</svg>\n'
    )


_FONT = f'font-family="sans-serif" font-size="{FONT:g}"'


def _shape(shape: Shape) -> str:
    match shape:
        case Group(x, y, shapes):
            inner = "".join(map(_shape, shapes))
            return f'<g transform="translate({_number(x)} {_number(y)})">{inner}</g>'
        case Text():
            return _text(shape)
        case Line(points, colour, width, dash, opacity):
            look = f'fill="none"{_stroke(colour, width, dash)}'
            look += f' opacity="{opacity:g}"' if opacity < 1 else ""
            return f'<polyline points="{_points(points)}" {look}/>'
        case Rect(x, y, width, height):
            place = f'x="{_number(x)}" y="{_number(y)}" width="{_number(max(width, 0.5))}"'
            edge = _stroke(shape.stroke, shape.line, shape.dash)
            return _filled("rect", f'{place} height="{_number(height)}"', shape, edge)
        case Circle(x, y, radius):
            place = f'cx="{_number(x)}" cy="{_number(y)}" r="{_number(radius)}"'
            return _filled("circle", place, shape, _stroke(shape.stroke, shape.line))
        case Area(points):
            edge = _stroke(shape.stroke, shape.line)
            return _filled("polygon", f'points="{_points(points)}"', shape, edge)


def _filled(tag: str, place: str, shape: Rect | Circle | Area, edge: str) -> str:
    fill = f'fill="{shape.fill}"'
    fill += f' fill-opacity="{shape.opacity:g}"' if shape.opacity < 1 else ""
    title = f"<title>{escape(shape.words)}</title>" if shape.words else ""
    return f"<{tag} {place} {fill}{edge}" + (f">{title}</{tag}>" if title else "/>")


def _text(text: Text) -> str:
    place = f'x="{_number(text.x)}" y="{_number(text.y)}"'
    look = f' text-anchor="{text.anchor}"' if text.anchor != "start" else ""
    look += f' font-size="{text.size:g}"' if text.size != FONT else ""
    if text.turn:
        look += f' transform="rotate({text.turn:g} {_number(text.x)} {_number(text.y)})"'
    if text.halo:
        look += ' stroke="Canvas" stroke-width="5" paint-order="stroke"'
    return f'<text {place}{look} fill="{text.colour}">{escape(text.words)}</text>'


def _stroke(colour: str, width: float, dash: str = "") -> str:
    if colour == "none" or not width:
        return ""
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f' stroke="{colour}" stroke-width="{width:g}"{dashed}'


def _points(points: Sequence[Point]) -> str:
    return " ".join(f"{_number(x)},{_number(y)}" for x, y in points)


def _number(value: float) -> str:
    """A tenth of a pixel is enough."""
    return f"{round(float(value), 1) + 0.0:g}"
