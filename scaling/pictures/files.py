"""Pictures as files: SVG as text, PNG and PDF by matplotlib; the same bytes every time.

`--plot FILE` of every command and `.plot(FILE)` of every result end here.
"""

from collections.abc import Sequence
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

    Suffixes say the formats; `option` names the paths in messages.

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
                _draw(titled(picture), path)
        except OSError as error:
            raise InputError(f"{option} {path}: cannot write the picture: {error}") from None


def _draw(picture: Picture, path: Path) -> None:
    """Draw the shapes on axes of matplotlib that are as large as the file."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(picture.width / INCH, picture.height / INCH))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, picture.width), ylim=(picture.height, 0))
        axes.set_axis_off()
        _add(axes, picture.shapes, axes.transData)
        dated = {"CreationDate": None} if path.suffix.lower() == ".pdf" else None
        figure.savefig(path, dpi=DPI, metadata=dated)


def _add(axes: Any, shapes: Sequence[Shape], place: Any) -> None:
    """Add the artist of each shape, in the order in which they are given.

    `place` is the transform from the pixels of the shapes to those of the file.
    """
    from matplotlib import patches
    from matplotlib.colors import to_rgba
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Affine2D

    def rgba(colour: str, opacity: float = 1.0) -> Any:
        *rgb, alpha = to_rgba("black" if colour == INK else colour)
        return (*rgb, alpha * opacity)

    for shape in shapes:
        artist: Any
        match shape:
            case Group(x, y, inner):
                _add(axes, inner, Affine2D().translate(x, y) + place)
                continue
            case Text(x, y, words):
                shine = [withStroke(linewidth=5 * POINT, foreground="white")] * shape.halo
                axes.text(x, y, words, color=rgba(shape.colour), fontsize=POINT * shape.size,
                          ha=ANCHORS[shape.anchor], va="baseline", rotation=-shape.turn,
                          rotation_mode="anchor", path_effects=shine, zorder=1,
                          transform=place)  # fmt: skip
                continue
            case Rect(x, y, width, height):
                artist = patches.Rectangle((x, y), width, height)
            case Circle(x, y, radius):
                artist = patches.Circle((x, y), radius)
            case Line(points) | Area(points):
                artist = patches.Polygon(points, closed=isinstance(shape, Area))
        dash = tuple(POINT * float(pixels) for pixels in shape.dash.split())
        artist.set(facecolor=rgba(shape.fill, shape.opacity), edgecolor=rgba(shape.stroke),
                   linewidth=POINT * shape.thick, linestyle=(0, dash) if dash else "-",
                   transform=place)  # fmt: skip
        axes.add_artist(artist)
