"""What a search over configurations has found, as plain data."""

from dataclasses import dataclass
from typing import Any

from scaling.meshes.cluster import Cluster
from scaling.meshes.shape import MeshShape
from scaling.planning.certificate import Certificate
from scaling.planning.front import FrontPoint
from scaling.profiles.prices import Price
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
    # For the tokens that were asked for, with failures, saves and restarts; ranges are both ends.
    total_time: float | None = None  # s
    device_hours: float | None = None
    energy: float | None = None  # J, of boards, hosts, network and building
    money: float | None = None  # dollars of the devices by the hour
    electricity: float | None = None  # dollars of the energy
    emissions: float | None = None  # kg of CO2 equivalent
    goodput: float | None = None  # share of the time that trains
    checkpoint_interval: float | None = None  # s between saves, by Daly
    total_time_range: tuple[float, float] | None = None
    energy_range: tuple[float, float] | None = None
    money_range: tuple[float, float] | None = None
    price: float | None = None  # dollars for an hour of a device, of
    price_range: Price | None = None
    growth: float = 1.0  # tokens to the same loss over those with the smallest batch of a band
    besides: str = ""  # what it sets besides its mesh, microbatches, remat and ZeRO stage

    @property
    def mesh(self) -> MeshShape | None:
        """Its mesh, as `sc.predict(mesh=...)` takes it."""
        return self.run.mesh

    @property
    def step_time(self) -> float:
        """Seconds of a step."""
        return float(self.prediction.step_time)

    @property
    def mfu(self) -> float | None:
        """Share of the chips' peak that the model's FLOPs are; None: not known."""
        return None if self.prediction.mfu is None else float(self.prediction.mfu)

    @property
    def dollars_per_million_tokens(self) -> float | None:
        """Dollars for a million tokens; None: nobody states a price, or the tokens of a step."""
        rate = self.prediction.tokens_per_second
        if self.price is None or not rate:
            return None
        return self.price / 3600 * self.prediction.devices * 1e6 / float(rate) * self.growth

    def row(self) -> dict[str, Any]:
        """Return its main figures, in SI units, by name."""
        p, batch = self.prediction, self.run.batch
        tokens = p.tokens_per_second
        totals = "total_time device_hours energy money electricity emissions goodput".split()
        totals.append("dollars_per_million_tokens")
        return {
            "rank": self.rank,
            "mesh": str(self.mesh),
            "cluster": self.cluster.name,
            "nodes": self.cluster.nodes,
            "devices": p.devices,
            "global_batch": batch.global_batch,
            "seq_len": batch.seq_len,
            "microbatches": batch.microbatches,
            "remat": str(self.run.remat),
            "zero_stage": self.run.sharding.zero_stage,
            "step_time": self.step_time,
            "step_time_low": float(p.step_time_low),
            "step_time_high": float(p.step_time_high),
            "tokens_per_second": None if tokens is None else float(tokens),
            "mfu": self.mfu,
            "memory": float(p.memory.peak),
            "capacity": p.memory.capacity,
            "fit_probability": p.memory.fit_probability,
            "besides": self.besides,
            "why": self.why,
            **{name: value for name in totals if (value := getattr(self, name)) is not None},
        }


@dataclass(frozen=True)
class Loser:
    """Configurations that are not the best, and why."""

    what: str
    why: str
    configurations: int | None = None  # None: one, the best of its kind


@dataclass(frozen=True)
class RuleOfThumb:
    """What the first plan has to do with a rule of thumb."""

    rule: str
    source: str
    follows: bool
    cost: float | None = None  # of following it: the objective over the first plan's, less one
    plan: str | None = None  # the best that follows it, where the first does not
    at_most: bool = False  # the search for it was stopped: another may cost less


@dataclass(frozen=True)
class Plans:
    """The best configurations of a space, one for each mesh, the best first.

    space = priced + pruned + infeasible, and what is left of a search that was stopped
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
    network: str | None = None  # what the bandwidths that were measured change in the choice
    error: str | None = None  # where nothing fits
    warnings: tuple[str, ...] = ()  # about the cluster, the mesh and the run
    constraints: tuple[str, ...] = ()  # as typed
    critical_batch: float | None = None  # tokens, by which a band of batches is compared
    limits: str = ""  # of the whole training: ` within 30 days and $2,000,000`
    rules: tuple[RuleOfThumb, ...] = ()
    clusters: tuple[Plan, ...] = ()  # the best plan on each, where several were asked about
    beyond: tuple[Plan, ...] = ()  # faster, at a higher risk of running out of memory
    certificate: Certificate | None = None
    pareto: tuple[FrontPoint, ...] = ()  # where it was asked for, the fastest first
    next: str | None = None  # the command, or the call, that prices the best plan alone

    @property
    def best(self) -> Plan | None:
        """The first plan; None where nothing fits."""
        return self.plans[0] if self.plans else None

    @property
    def mesh(self) -> MeshShape | None:
        """Mesh of the best plan; None where nothing fits."""
        return self.best.mesh if self.best else None

    @property
    def step_time(self) -> float | None:
        """Seconds of a step of the best plan; None where nothing fits."""
        return self.best.step_time if self.best else None

    @property
    def mfu(self) -> float | None:
        """MFU of the best plan; None where nothing fits, or it is not known."""
        return self.best.mfu if self.best else None

    def rows(self) -> list[dict[str, Any]]:
        """Return a table of the plans, best first: `pandas.DataFrame(plans.rows())`."""
        return [plan.row() for plan in self.plans]
