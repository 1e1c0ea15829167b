"""Colors of the pages by WCAG 2.2: text has 4.5 : 1 against its ground, what is pressed 3 : 1."""

import re

import pytest

from scaling.course.web.server import PAGES

TEXT, CONTROL = 4.5, 3.0  # success criteria 1.4.3 and 1.4.11, level AA
STYLE = (PAGES / "style.css").read_text()
COLORS = re.findall(r"--([\w-]+): (#[0-9a-f]{6});", STYLE)
LIGHT = dict(COLORS[: len(COLORS) // 2])
DARK = dict(COLORS[len(COLORS) // 2 :])
PAIRS = [  # text, ground
    *((ink, ground) for ink in ("ink", "soft", "accent") for ground in ("ground", "card", "code")),
    *((ink, ground) for ink in ("right", "wrong") for ground in ("card", f"{ink}-ground")),
    *(("accent-ink", "accent"), ("wrong", "ground"), ("wrong", "code"), ("right", "code")),
]


def luminance(color: str) -> float:
    """Relative luminance of "#rrggbb", 0 to 1."""
    shares = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_the_measure_is_that_of_the_standard():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)


def test_both_schemes_have_the_same_names():
    assert LIGHT.keys() == DARK.keys() and len(LIGHT) == len(COLORS) // 2


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize(("ink", "ground"), PAIRS)
def test_text_can_be_read(scheme, ink, ground):
    assert contrast(scheme[ink], scheme[ground]) >= TEXT


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["ground", "card"])
def test_the_edge_of_what_is_pressed_can_be_seen(scheme, ground):
    assert contrast(scheme["edge"], scheme[ground]) >= CONTROL


def test_no_style_has_a_text_color_of_its_own():
    """So that the pairs above are all; currentColor and inherit are those of the place."""
    for file in PAGES.glob("*.css"):
        for color in re.findall(r"(?<![-\w])color: ([^;}]+)", file.read_text()):
            assert color.startswith(("var(--", "inherit")), f"{file.name}: {color}"


def test_what_a_lesson_lacks_can_be_read():
    """The line of open.js on marimo's page, which has no style of ours."""
    ground, ink = re.search(
        r"background:(#\w{6});color:(#\w{6})", (PAGES / "open.js").read_text()
    ).groups()
    assert contrast(ink, ground) >= TEXT
