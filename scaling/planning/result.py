"""What a search over configurations has found, as plain data."""

from dataclasses import dataclass

from scaling.meshes.cluster import Cluster
from scaling.run import Run
from scaling.simulate.prediction import Prediction


@dataclass(frozen=True)
class Plan:
    """One configuration: the best setting of its mesh."""

    rank: int
    run: Run
    cluster: Cluster
    prediction: Prediction
    why: str  # what binds the first one; what the others lose to it
    total_time: float | None = None  # s, for the tokens that were asked for
    device_hours: float | None = None  # likewise
    energy: float | None = None  # J, likewise, at the chips' power limit


@dataclass(frozen=True)
class Loser:
    """Configurations that are not the best, and why."""

    what: str
    why: str
    configurations: int | None = None  # None: one, the best of its kind


@dataclass(frozen=True)
class Plans:
    """The best configurations of a space, one for each mesh, the best first.

    space = priced + pruned + infeasible
    """

    plans: tuple[Plan, ...]
    space: int
    priced: int
    pruned: int
    infeasible: int
    optimal: bool  # nothing better by the closed form is left out
    seconds: float
    objective: str
    losers: tuple[Loser, ...]  # why other meshes and settings lose
    verified: int  # plans that were priced from their compiled programs
    error: str | None = None  # where nothing fits
    warnings: tuple[str, ...] = ()  # about the cluster, the mesh and the run
    next: str | None = None  # the command, or the call, that prices the best plan alone
