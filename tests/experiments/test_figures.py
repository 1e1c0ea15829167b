"""The pictures of the docs are those that the program draws."""

import re
from pathlib import Path

import pytest

from experiments.figures.__main__ import IMAGES, main
from experiments.figures.table import COMPILED, FIGURES

PAGES = [Path(__file__).parents[2] / "README.md", *sorted(IMAGES.parent.glob("*.md"))]
SHOWN = re.compile(r"images/(\w+)\.svg")


def test_every_picture_is_there_and_every_page_shows_pictures_that_are():
    drawn = {path.stem for path in IMAGES.glob("*.svg")}
    assert drawn == set(FIGURES)
    for page in PAGES:
        assert set(SHOWN.findall(page.read_text(encoding="utf-8"))) <= drawn, page.name


def test_an_unknown_picture_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["mash"])
    assert "no picture 'mash'; there are" in capsys.readouterr().err


marks = lambda name: [pytest.mark.slow, *([pytest.mark.deviceless] * (name in COMPILED))]


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in FIGURES])
def test_a_picture_is_current(name, tmp_path):
    kept = (IMAGES / f"{name}.svg").read_text(encoding="utf-8")
    main([name, "--out", str(tmp_path)])
    assert (tmp_path / f"{name}.svg").read_text(encoding="utf-8") == kept, (
        f"python -m experiments.figures {name} draws it anew"
    )
