"""The table of programs under several versions of jax."""

from dataclasses import replace
from pathlib import Path

from experiments.foreign.result import Priced
from experiments.jax_versions import NEWEST, table

ROW = Priced("a", "A", 2, 1.0, time=0.01, flops=1e12, peak=1e9, compiler_peak=1e9)


def test_the_worst_program_of_a_version_is_shown_and_why_one_cannot() -> None:
    other = replace(ROW, name="b", peak=1.067e9)
    refused = replace(ROW, error="InputError: jax 0.8.0 cannot compile here")
    found = {"0.8.0": [refused, refused], "0.11.2": [replace(ROW, time=0.011), other]}
    lines = table({**found, NEWEST: [ROW, replace(ROW, name="b")]}).splitlines()
    assert lines[1].split(maxsplit=4)[1:4] == ["0", "of", "2"] and "0.8.0 cannot" in lines[1]
    assert "1.000 to 1.067" in lines[2] and "1.000 to 1.100" in lines[2]
    assert lines[3].split() == [NEWEST, "2", "of", "2", "1.000", "1.000", "1.000"]


def test_the_guide_has_the_table_of_the_last_result() -> None:
    root = Path(__file__).resolve().parents[2]
    last = max((root / "experiments" / "results").glob("*-jax-versions")) / "README.md"
    made = last.read_text().split("```text\n")[1].split("```")[0]
    assert f"```text\n{made}```" in (root / "docs" / "price.md").read_text()
