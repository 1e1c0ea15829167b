"""Prices of accelerators by the hour: a table of dated ranges, or what the reader states.

A bought device is paid over the hours of its years, of which all are used; hosts, network and power
are not in its price.

default = median of the newest year's rows of the kind, each in the middle of its range and as heavy
as the providers behind it; low and high = the ends of these rows
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

from scaling.meshes.accelerator import Accelerator
from scaling.meshes.errors import InputError, check_keys, check_range
from scaling.meshes.formula import Input
from scaling.meshes.reading import package_toml, read

PRICES = 1e-6, 1e6  # dollars that can be stated
LIFE = 5 * 8766.0  # hours of the years over which a bought device is paid: aiinframap.com, 2026
PriceKind = Literal["on-demand", "contract", "spot", "purchase"]
KINDS = get_args(PriceKind)


@dataclass(frozen=True)
class PriceRow:
    """What one source says of one chip."""

    accelerator: str
    kind: str  # of KINDS
    dollars: tuple[float, ...]  # of an hour, or of a purchase; one, or both ends of a range
    date: str  # YYYY, YYYY-MM, or years
    source: str  # short name
    of: int = 1  # providers that it is the median of

    @property
    def year(self) -> int:
        """The newest year that it may be of."""
        return max(map(int, re.findall(r"\d{4}", self.date)))

    @property
    def hourly(self) -> tuple[float, ...]:
        """Dollars of an hour: one, or both ends."""
        return tuple(d / LIFE if self.kind == "purchase" else d for d in self.dollars)

    @property
    def middle(self) -> float:
        """Dollars of an hour in the middle of its range."""
        return (min(self.hourly) + max(self.hourly)) / 2


@dataclass(frozen=True)
class PriceFile:
    """The table, and the titles of its sources by their short names."""

    sources: dict[str, str]
    prices: tuple[PriceRow, ...]


@dataclass(frozen=True)
class Price:
    """Dollars for an hour of one accelerator."""

    low: float
    default: float
    high: float
    kind: str  # of KINDS, or "stated"
    date: str
    source: str  # a sentence

    def input(self, chip: Accelerator) -> Input:
        """It as the symbol `p`."""
        return Input("p", self.default, "dollars", f"for an hour of one {chip.name}")

    @property
    def words(self) -> str:
        """`$2.95 ($1.99 to $10.8) for an hour of a device, on demand, 2026`."""
        if self.kind == "stated":
            return f"${self.default:g} for an hour of a device, as stated"
        spread = f" (${self.low:.3g} to ${self.high:.3g})" if self.low < self.high else ""
        how = f"{self.kind.replace('-', ' ')}, {self.date}"
        over = f" over {LIFE / 8766:g} years" * (self.kind == "purchase")
        return f"${self.default:.4g}{spread} for an hour of a device, {how}{over}"


@cache
def price_file() -> PriceFile:
    """Return the shipped table."""
    return read(PriceFile, package_toml("profiles/data/prices.toml"), "prices.toml")


def dollars_per_hour(
    chip: Accelerator, kind: str | None = None, stated: float | None = None
) -> Price | None:
    """Return the price of an hour; None: nobody states one of this chip.

    Args:
        kind: of KINDS; None: the first of them that the table has of the chip.

    Raises:
        InputError: an unknown kind, one of which the table has no row, a price out of all bounds.
    """
    if kind is not None:
        check_keys([kind], KINDS, "--price-kind", "kind of price")
    if stated is not None:
        check_range("--price", stated, *PRICES)
        return Price(stated, stated, stated, "stated", "", "the price is given")
    table = price_file()
    rows = [row for row in table.prices if row.accelerator == chip.name]
    known = [one for one in KINDS if any(row.kind == one for row in rows)]
    if not known:
        return None
    if kind is not None and kind not in known:
        raise InputError(
            f"--price-kind {kind}: nobody states such a price of {chip.name}; the table has "
            f"{', '.join(known)}; or state it by --price"
        )
    kind = kind or known[0]
    rows = [row for row in rows if row.kind == kind]
    newest = max(row.year for row in rows)
    rows = [row for row in rows if row.year == newest]
    texts = (
        f"{' to '.join(f'{d:g}' for d in row.dollars)} {table.sources[row.source]}, {row.date}"
        for row in rows
    )
    ends = [dollars for row in rows for dollars in row.hourly]
    source = f"median of {kind.replace('-', ' ')} prices of {newest}: {'; '.join(texts)}"
    return Price(min(ends), _median(rows), max(ends), kind, str(newest), source)


def _median(rows: Sequence[PriceRow]) -> float:
    each = sorted(row.middle for row in rows for _ in range(row.of))
    return (each[(len(each) - 1) // 2] + each[len(each) // 2]) / 2
