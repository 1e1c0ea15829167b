"""Pictures as files: SVG as text, PNG and PDF by matplotlib; the same bytes every time.

`--plot FILE` of every command and `.plot(FILE)` of every result end here.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from scaling.meshes.errors import InputError
from scaling.pictures.shapes import (
    INK,
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
from scaling.pictures.svg import svg_file

PICTURES = (".png", ".svg", ".pdf")
INCH = 100  # pixels of a picture
DPI = 200
POINT = 72 / INCH  # points of a pixel
ANCHORS = {"start": "left", "middle": "center", "end": "right"}
STYLE: Any = {"text.parse_math": False, "lines.scale_dashes": False}  # $ is no formula


def check_picture(option: str, path: Path | None) -> None:
    """Raise InputError for a file that is no picture, before there is anything to draw."""
    if path is not None and path.suffix.lower() not in PICTURES:
        raise InputError(f"{option} {path}: end the name with {', '.join(PICTURES)}")


def write_picture(picture: Picture, *paths: Path, option: str = "--plot") -> None:
    """Write a picture to every path.

    Args:
        picture: what is drawn; its title stands above it.
        paths: their suffixes say the formats.
        option: that names them, for messages.

    Raises:
        InputError: a suffix that is not one of PICTURES, or a file that cannot be written.
    """
    for path in paths:
        check_picture(option, path)
    for path in paths:
        try:
            if path.suffix.lower() == ".svg":
                path.write_text(svg_file(picture), encoding="utf-8")
            else:
                _draw(picture, path)
        except OSError as error:
            raise InputError(f"{option} {path}: cannot write the picture: {error}") from None


def _draw(picture: Picture, path: Path) -> None:
    """Draw the shapes on axes of matplotlib that are as large as the file."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    picture = titled(picture)
    with rc_context(STYLE):
        figure = Figure(figsize=(picture.width / INCH, picture.height / INCH))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, picture.width), ylim=(picture.height, 0))
        axes.set_axis_off()
        _add(axes, picture.shapes)
        dated = {"CreationDate": None} if path.suffix.lower() == ".pdf" else None
        figure.savefig(path, dpi=DPI, metadata=dated)


def _flat(shapes: Sequence[Shape], x: float, y: float) -> Iterator[tuple[Shape, float, float]]:
    """Every shape that is no group, and by how much it is moved."""
    for shape in shapes:
        if isinstance(shape, Group):
            yield from _flat(shape.shapes, x + shape.x, y + shape.y)
        else:
            yield shape, x, y


def _add(axes: Any, shapes: Sequence[Shape]) -> None:
    """Add the artist of each shape, in the order in which they are given."""
    from matplotlib import patches
    from matplotlib.colors import to_rgba
    from matplotlib.lines import Line2D
    from matplotlib.patheffects import withStroke

    def rgba(colour: str, opacity: float = 1.0) -> Any:
        *rgb, alpha = to_rgba("black" if colour == INK else colour)
        return (*rgb, alpha * opacity)

    def edge(line: float, dash: str = "") -> dict[str, Any]:
        on_off = tuple(POINT * float(part) for part in dash.split())
        return {"linewidth": POINT * line, "linestyle": (0, on_off) if dash else "-"}

    def fill(shape: Rect | Circle | Area) -> dict[str, Any]:
        return {"facecolor": rgba(shape.fill, shape.opacity), "edgecolor": rgba(shape.stroke)}

    for order, (shape, x, y) in enumerate(_flat(shapes, 0.0, 0.0)):
        artist: Any
        match shape:
            case Text():
                shine = [withStroke(linewidth=5 * POINT, foreground="white")] * shape.halo
                axes.text(x + shape.x, y + shape.y, shape.words, color=rgba(shape.colour),
                          fontsize=POINT * shape.size, ha=ANCHORS[shape.anchor], va="baseline",
                          rotation=-shape.turn, rotation_mode="anchor", zorder=order,
                          path_effects=shine)  # fmt: skip
                continue
            case Line():
                across, down = zip(*shape.points, strict=True)
                artist = Line2D([x + a for a in across], [y + d for d in down])
                artist.set(color=rgba(shape.colour, shape.opacity), **edge(shape.width, shape.dash))
            case Rect():
                artist = patches.Rectangle((x + shape.x, y + shape.y), shape.width, shape.height)
                artist.set(**fill(shape), **edge(shape.line, shape.dash))
            case Circle():
                artist = patches.Circle((x + shape.x, y + shape.y), shape.radius)
                artist.set(**fill(shape), **edge(shape.line))
            case Area():
                artist = patches.Polygon([(x + a, y + d) for a, d in shape.points])
                artist.set(**fill(shape), **edge(shape.line))
        artist.set_zorder(order)
        axes.add_artist(artist)
