"""Screenshots: six pages, each there and small; the browser itself is tried by `make browser`."""

import io

import numpy as np
import pytest
from PIL import Image

from experiments.screenshots import IMAGES, MOST, NAMES, main, smaller


def test_the_pictures_of_six_pages_are_there_and_small():
    kept = {path.stem: path.stat().st_size for path in IMAGES.glob("page_*.png")}
    assert set(kept) == {f"page_{name}" for name in NAMES} and len(kept) == 6
    assert max(kept.values()) <= MOST


def test_a_picture_loses_colours_until_it_is_small():
    across = np.linspace(0, 255, 400)
    mixed = np.stack([np.add.outer(across, k * across) % 256 for k in (1, 2, 3)], axis=-1)
    out = io.BytesIO()
    Image.fromarray(mixed.astype(np.uint8)).save(out, "PNG")
    small = smaller(out.getvalue())
    with Image.open(io.BytesIO(small)) as picture:
        assert picture.size == (400, 400) and len(small) <= MOST


def test_an_unknown_page_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["lesson_99"])
    assert "no page 'lesson_99'; there are explorer" in capsys.readouterr().err
