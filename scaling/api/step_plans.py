"""What `plan_step` returns: meshes of a step with their predictions, and why they lose."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scaling.api.public_api import Drawn
from scaling.api.result import PredictionResult
from scaling.planning.steps import StepPlans

if TYPE_CHECKING:
    from scaling.pictures.shapes import Picture


@dataclass(frozen=True, repr=False, eq=False)
class StepPlansResult(Drawn, StepPlans):
    """Compiled plans that print as the page of `scaling plan-step`; see `StepPlans`."""

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `scaling plan-step --json` prints."""
        of = lambda p: p.to_dict() if isinstance(p, PredictionResult) else None
        documents = [of(plan.prediction) for plan in self.plans]
        rows = zip(self.rows(), documents, strict=True)
        return {
            "name": self.name,
            "cluster": self.cluster.name,
            "nodes": self.cluster.nodes,
            "plans": [row | {"prediction": document} for row, document in rows],
            "left_out": dict(self.left_out),
            "ranked_by": self.ranked_by,
            "seconds": self.seconds,
        }

    def picture(self) -> "Picture":
        """Return the plans' step times, by term."""
        from scaling.pictures.bars import step_bars

        label = lambda plan: " ".join(filter(None, (f"{plan.rank}. {plan.mesh}", plan.variant)))
        bars = {label(p): p.prediction for p in self.plans if p.prediction is not None}
        return step_bars(bars, f"{self.name} on {self.cluster.nodes} x {self.cluster.name}")

    def __str__(self) -> str:
        from scaling.report.steps import steps_page

        return steps_page(self)

    def line(self) -> str:
        from scaling.report.prediction import step_words

        best = self.best
        words = "nothing fits"
        if best is not None and best.prediction is not None:
            words = f"{best.mesh} {step_words(best.prediction)}"
        return f"{len(self.plans)} compiled plans of {self.name}: {words}"
