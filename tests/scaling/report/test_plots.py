"""Pictures are written where they can be, and refused by name where not."""

from pathlib import Path

import pytest

from scaling.meshes.errors import InputError
from scaling.report.plots import check_picture, plot_memory


def test_the_memory_of_a_step_is_drawn(hand_priced, tmp_path):
    plot_memory(hand_priced, 78e9, "hand", tmp_path / "memory.svg")
    assert "<svg" in (tmp_path / "memory.svg").read_text()
    with pytest.raises(InputError, match="--plot-memory .*memory.xyz: end the name with .png"):
        plot_memory(hand_priced, None, "hand", tmp_path / "memory.xyz")


def test_a_picture_is_known_by_its_name():
    check_picture("--plot-memory", None)
    check_picture("--plot-memory", Path("memory.PNG"))
    with pytest.raises(InputError, match="--plot-memory memory.txt: end the name with .png"):
        check_picture("--plot-memory", Path("memory.txt"))
