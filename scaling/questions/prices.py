"""Prices of accelerators by the hour: a dated table, or what the reader states."""

from dataclasses import dataclass
from functools import cache

from scaling.meshes.accelerator import Accelerator
from scaling.meshes.errors import check_range
from scaling.meshes.reading import package_toml, read
from scaling.questions.answer import Answer, Input, by_formula

PRICES = 1e-6, 1e6  # dollars that can be stated


@dataclass(frozen=True)
class PriceSource:
    """A page of prices."""

    title: str
    url: str
    date: str


@dataclass(frozen=True)
class Price:
    """Dollars for one hour of one accelerator."""

    accelerator: str
    dollars: float
    source: str


@dataclass(frozen=True)
class PriceFile:
    """The table and its sources by their short names."""

    sources: dict[str, PriceSource]
    prices: tuple[Price, ...]


@cache
def price_file() -> PriceFile:
    """Return the shipped table."""
    return read(PriceFile, package_toml("questions/data/prices.toml"), "prices.toml")


def price_of(chip: Accelerator, stated: float | None = None) -> tuple[Input, str] | None:
    """Return the price as the symbol `p`, and its source; None: nobody stated one."""
    if stated is not None:
        check_range("--price", stated, *PRICES)
        return Input("p", stated, "dollars", "for an hour of a device"), "the price is given"
    table = price_file()
    rows = [row for row in table.prices if row.accelerator == chip.name]
    if not rows:
        return None
    texts = []
    for row in rows:
        source = table.sources[row.source]
        texts.append(f"{row.dollars:g} by {source.title} ({source.date})")
    meaning = f"for an hour of a {chip.name}"
    return Input("p", rows[0].dollars, "dollars", meaning), "prices: " + "; ".join(texts)


def flops_per_dollar(chip: Accelerator, dtype: str, price: tuple[Input, str]) -> Answer:
    """Return the FLOPs at the peak that a dollar buys."""
    C = Input("C", chip.peak(dtype), "FLOP/s", f"{dtype} peak")
    formula = "C * 3600 / p"
    return by_formula("FLOPs for a dollar", "FLOPs", formula, (C, price[0]), notes=(price[1],))
