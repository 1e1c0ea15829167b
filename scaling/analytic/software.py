"""How a software runs a step: what it communicates beside compute, and what its host costs.

six constants, to be fitted on measured runs of that software      data/software.toml
  launch           s that the host takes to issue one operation: a kernel, a collective
  traffic          bytes moved by unmatched operations over those of fused ones
  products         rate of matrix products over that of the chip's best kernel, and
  attention        of fused attention
  hidden_tensor    share of the traffic over tensor that runs beside compute, and
  hidden_weights   of the gathers of weights and sums of gradients
"""

from dataclasses import dataclass
from functools import cache

from scaling.meshes.errors import InputError, nearest
from scaling.meshes.reading import package_toml, read


@dataclass(frozen=True)
class SoftwareTraits:
    """How one software runs a step; see the module."""

    name: str
    title: str
    source: str  # of what it does
    evidence: str  # what the six constants were fitted on
    launch: float
    traffic: float
    products: float
    attention: float
    hidden_tensor: float
    hidden_weights: float
    range: tuple[float, float]  # measured over predicted, central 90 % of sources left out
    hides_pipeline: bool  # sends between stages beside compute, with several virtual stages
    flash_2: bool  # FlashAttention-2, which does not use what Hopper brought


@cache
def software_traits() -> dict[str, SoftwareTraits]:
    """Return the traits of every software by its name in run.json."""
    tables = package_toml("analytic/data/software.toml")
    return {
        name: read(SoftwareTraits, {"name": name, **table}, name) for name, table in tables.items()
    }


def traits_of(software: str) -> SoftwareTraits:
    """Return the traits of a software.

    Raises:
        InputError: a software that is not described; the nearest one is named.
    """
    known = software_traits()
    if software not in known:
        raise InputError(
            f"software {software!r} is not described in scaling/analytic/data/software.toml; "
            + nearest(software, known)
        )
    return known[software]
