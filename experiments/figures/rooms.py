"""The drawing of the house: every room of tests/test_arrows.py above the rooms that it imports.

An arrow that follows from others (a -> b -> c, so a -> c) is left out. A room stands on the floor
above the highest room that it imports; on a floor the order is that which keeps arrows short.
"""

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "tests" / "test_arrows.py"
WIDTH, FLOOR, BOX, HIGH = 860, 74, 104, 32  # pixels: picture, floor to floor, a room's two sides
TOP = 54  # above the highest floor: the legend
FREE, NEEDS, INK = "#dbeaf7", "#fbe3c8", "#222222"  # JAX-free, with JAX, lines and text

Rooms = Mapping[str, frozenset[str]]


def table() -> tuple[Rooms, frozenset[str]]:
    """The rooms that each room imports, and those that import without JAX."""
    names: dict[str, Any] = {}
    wanted = ("PRICING", "ROOMS", "JAX_FREE_ROOMS")
    for node in ast.parse(TABLE.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id in wanted:
                exec(compile(ast.Module([node], []), TABLE.name, "exec"), names)
    shown = {name for name in names["ROOMS"] if not name.startswith("__")}
    rooms = {name: frozenset(names["ROOMS"][name]) & shown - {name} for name in shown}
    return dict(sorted(rooms.items())), frozenset(names["JAX_FREE_ROOMS"])


def arrows(rooms: Rooms) -> Rooms:
    """The arrows that do not follow from others."""

    @cache
    def reached(name: str) -> frozenset[str]:
        return rooms[name].union(*(reached(below) for below in rooms[name]))

    follows = {name: frozenset().union(*map(reached, below)) for name, below in rooms.items()}
    return {name: below - follows[name] for name, below in rooms.items()}


def floors(rooms: Rooms) -> list[list[str]]:
    """The rooms of each floor from the lowest, in order from left to right."""

    @cache
    def floor(name: str) -> int:
        return 1 + max(map(floor, rooms[name])) if rooms[name] else 0

    found: list[list[str]] = [[] for _ in range(1 + max(map(floor, rooms)))]
    for name in rooms:
        found[floor(name)].append(name)
    drawn, places = arrows(rooms), dict[str, float]()

    def mean_below(name: str) -> float:
        return sum(places[below] for below in drawn[name]) / max(1, len(drawn[name]))

    for row in found:
        row.sort(key=mean_below)
        places |= {name: x for name, x in zip(row, _across(len(row)), strict=True)}
    return found


def drawing() -> str:
    """The picture as SVG."""
    rooms, free = table()
    rows = floors(rooms)
    height = TOP + FLOOR * len(rows)
    at = {
        name: (x, height - FLOOR * (number + 0.5))
        for number, row in enumerate(rows)
        for name, x in zip(row, _across(len(row)), strict=True)
    }
    lines = [
        _arrow(at[name], at[below]) for name, to in arrows(rooms).items() for below in sorted(to)
    ]
    boxes = [_box(*at[name], name, FREE if name in free else NEEDS) for name in rooms]
    legend = [
        _box(150, 28, "imports without JAX", FREE, 180),
        _box(350, 28, "JAX, at least in part", NEEDS, 180),
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="sans-serif" font-size="14">\n<title>The rooms of the code, each above the '
        f'rooms that it imports</title>\n<rect width="{WIDTH}" height="{height}" fill="white"/>\n'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="{INK}"/></marker></defs>\n'
    )
    return head + "\n".join([*lines, *legend, *boxes]) + "\n</svg>\n"


def _across(count: int) -> list[float]:
    """The middles of so many rooms on a floor."""
    return [WIDTH * (i + 0.5) / count for i in range(count)]


def _arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    """A curve from the bottom of a room to the top of a lower one."""
    (x, y), (u, v) = start, end
    y, v = y + HIGH / 2, v - HIGH / 2
    bend = (v - y) / 2
    path = f"M{x:.0f} {y:.0f}C{x:.0f} {y + bend:.0f} {u:.0f} {v - bend:.0f} {u:.0f} {v:.0f}"
    return f'<path d="{path}" fill="none" stroke="{INK}" opacity="0.6" marker-end="url(#tip)"/>'


def _box(x: float, y: float, words: str, fill: str, wide: float = BOX) -> str:
    corner = f'x="{x - wide / 2:.0f}" y="{y - HIGH / 2:.0f}"'
    box = f'<rect {corner} width="{wide:.0f}" height="{HIGH}" rx="5" fill="{fill}" stroke="{INK}"/>'
    text = f'<text x="{x:.0f}" y="{y + 5:.0f}" text-anchor="middle" fill="{INK}">{words}</text>'
    return box + text
