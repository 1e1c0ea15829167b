"""What `scaling plan` returns: plans and predictions, as a page, a document and a picture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from scaling.api.public_api import Drawn
from scaling.api.result import PredictionResult
from scaling.api.whole_run import Operation, whole_run
from scaling.meshes.errors import InputError
from scaling.meshes.units import format_dollars, format_time, three_digits
from scaling.planning.front import FrontPoint
from scaling.planning.objectives import HOUR, Goal, Tariff
from scaling.planning.reasons import reason
from scaling.planning.result import Plan, Plans
from scaling.planning.search import SearchHit
from scaling.planning.variants import settings_besides
from scaling.run import Run, run_dict

if TYPE_CHECKING:
    from scaling.pictures.shapes import Picture

MARGINS = ((0.3, 1.01), (0.1, 0.3), (0.0, 0.1))  # shares of a device's memory that are free


@dataclass(frozen=True, repr=False)
class PlanResult(Drawn, Plans):
    """Plans that print as the page of `scaling plan`; see `Plans` for the figures."""

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `scaling plan --json` prints."""
        stated = lambda table: {k: v for k, v in vars(table).items() if v is not None}
        document = stated(self)
        for name in ("plans", "clusters", "beyond"):
            document[name] = []
            for plan in getattr(self, name):
                row = stated(plan) | {"cluster": plan.cluster.name, "run": run_dict(plan.run)}
                row |= {"price_range": vars(plan.price_range)} if plan.price_range else {}
                document[name].append(row | {"prediction": plan.prediction.to_dict()})
        document["pareto"] = [point.row() for point in self.pareto]
        document["rules"] = [vars(rule) for rule in self.rules]
        document["certificate"] = vars(self.certificate)
        document["losers"] = [vars(loser) for loser in self.losers]
        return document

    def picture(self) -> "Picture":
        """Return the plans' step times, by term; the Pareto front where it was asked for."""
        if not self.plans:
            raise InputError(f"plot: there is no plan to draw: {self.error}")
        if self.pareto:
            return _front_picture(self.pareto)
        from scaling.pictures.bars import step_bars

        first = self.plans[0]
        title = f"{first.run.name} on {first.cluster.nodes} x {first.cluster.name}: best plans"
        bars = {f"{plan.rank}. {plan.run.mesh}": plan.prediction for plan in self.plans}
        return step_bars(bars, title)

    def __str__(self) -> str:
        from scaling.report.plan import plan_page

        return plan_page(self)

    def line(self) -> str:
        best = f"{self.best.mesh} {self.best.step_time:.4g} s" if self.best else "nothing fits"
        return f"{len(self.plans)} plans of {self.space} configurations: {best}"


def plan_of(
    rank: int,
    hit: SearchHit,
    prediction: PredictionResult,
    best: Mapping[str, PredictionResult],
    goal: Goal,
    tariff: Tariff,
    operation: Operation,
    asked: Run,
) -> Plan:
    """A hit as a plan.

    `best`: the first plan as each front end predicts it; `asked`: the run as it was given.
    """
    assert prediction.pricing.run is not None
    run, price = prediction.pricing.run, tariff.price
    besides = [f"{key}={value}" for key, value in settings_besides(run, asked).items()]
    first, growth = best[prediction.source], goal.growth(run.batch.tokens)
    why = prediction.bottleneck if rank == 1 else reason(prediction, first)
    assert first.pricing.run is not None
    if (least := first.pricing.run.batch.tokens) != run.batch.tokens:
        each = float(prediction.step_time) / run.batch.tokens * growth
        more = each / (float(first.step_time) / least * goal.growth(least)) - 1
        why = f"{more:+.1%} time to the same loss: {run.batch.tokens:,} tokens a step"
    elif rank > 1 and (draw := hit.target.draw):
        watts = [float(draw(p.power.total)) for p in (prediction, first) if p.power]
        times = [float(p.step_time) * p.devices for p in (prediction, first)]
        more = watts[0] * times[0] / (watts[1] * times[1]) - 1
        why = f"{more:+.1%} energy: {watts[0]:,.0f} W a device; time {why}"
    plan = Plan(rank, run, hit.cluster, prediction, why, price=tariff.dollars, price_range=price)
    plan = replace(plan, besides=", ".join(besides), growth=growth)
    if goal.tokens is None or not prediction.tokens_per_second:
        return plan
    tokens = goal.tokens * growth
    return replace(plan, **whole_run(prediction, hit.cluster, tokens, price, operation))


def by_money(plans: tuple[Plan, ...]) -> tuple[Plan, ...]:
    """The plans; those of another cluster than the first one's say what they cost more."""
    least = plans[0].dollars_per_million_tokens if plans else None

    def said(plan: Plan) -> Plan:
        dollars = plan.dollars_per_million_tokens
        if not least or not dollars or plan.cluster.name == plans[0].cluster.name:
            return plan
        return replace(plan, why=f"{dollars / least - 1:+.1%} money; time {plan.why}")

    return tuple(map(said, plans))


def _front_picture(points: Sequence[FrontPoint]) -> "Picture":
    """Money over the time for a billion tokens, with free memory in colours.

    In device-hours where nobody states a price.
    """
    from scaling.pictures.axes import Frame, log_scale
    from scaling.pictures.chart import Series, chart
    from scaling.pictures.legend import LOOKS

    priced, billion = all(point.price is not None for point in points), 1e9
    what, show = ("dollars", format_dollars) if priced else ("device-hours", three_digits)
    times = [billion / point.tokens_per_second for point in points]
    costs = [
        seconds / HOUR * point.devices * (point.price or 0.0 if priced else 1.0)
        for point, seconds in zip(points, times, strict=True)
    ]
    series = {}
    for (low, high), look in zip(MARGINS, LOOKS, strict=False):
        own = [i for i, point in enumerate(points) if low <= point.share < high]
        words = [
            f"{points[i].run.mesh} on {points[i].devices} devices of {points[i].cluster.name}, "
            f"{points[i].share:.1%} free: {format_time(times[i])}, {show(costs[i])}"
            for i in own
        ]
        if own:
            name = f"{low:.0%} to {min(high, 1.0):.0%} of memory is free ({len(own)})"
            series[name] = Series(look, [(times[i], costs[i]) for i in own], words=words)
    x = log_scale(times, "time for a billion tokens", format_time)
    y = log_scale(costs, f"{what} for a billion tokens", show)
    return chart(f"{points[0].run.name}: time, money and memory margin", Frame(x, y), series)
