"""Patches that print a prediction from trainers of others, each with the text of a pull request."""

import subprocess
from pathlib import Path


def test_every_patch_has_its_text_and_applies_as_a_patch() -> None:
    folder = Path(__file__).resolve().parents[2] / "experiments" / "foreign" / "patches"
    patches = sorted(folder.glob("*.patch"))
    assert [file.stem for file in patches] == [
        f"{n}_predict" for n in ("levanter", "maxtext", "tunix")
    ]
    for file in patches:
        asked = ["git", "apply", "--numstat", file.name]
        counts = subprocess.run(
            asked, cwd=folder, capture_output=True, text=True, check=True
        ).stdout
        assert sum(int(line.split()[0]) for line in counts.splitlines()) < 100
        words, text = file.read_text(), file.with_suffix(".md").read_text()
        assert "import scaling" in words and "scaling.predict_step(" in words
        assert "predict_cluster" in words and "predict_cluster" in text and "Tested with" in text
