"""Two predictions side by side, and a prediction held against a saved one: `diff`, `guard`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaling.api.hlo import predict_hlo
from scaling.api.inputs import ClusterLike, MeshLike
from scaling.api.public_api import entrance, python_words
from scaling.api.result import PredictionResult
from scaling.comparing.difference import Difference, difference, prediction_document
from scaling.comparing.folder import PREDICTED
from scaling.comparing.limits import Limit, read_limits
from scaling.meshes.errors import InputError
from scaling.meshes.reading import read_text
from scaling.meshes.result import Result

FAIL_IF = "time>5%,peak>2%,flops>1%"
EXCEEDED = 3  # exit code of a price that grew by more than a limit allows
PLACE = ("cluster", "nodes", "mesh")  # without which no growth means anything


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DifferenceResult(Result, Difference):
    """The difference of two predictions; prints as the table of `scaling diff A B`."""

    to_dict = Difference.to_dict

    def __str__(self) -> str:
        from scaling.report.difference import difference_table

        return difference_table(self)

    def line(self) -> str:
        return str(self).partition("\n")[0]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GuardResult(Result):
    """A prediction beside a saved one, and the limits of its growth; prints as Markdown."""

    difference: Difference
    limits: tuple[Limit, ...]
    notes: tuple[str, ...]  # what else differs, and what to do about it

    @property
    def exceeded(self) -> tuple[Limit, ...]:
        """The limits that the growth is above."""
        return tuple(limit for limit in self.limits if limit.is_exceeded(self.difference))

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `scaling price --against --json` prints under "against"."""
        return {
            "exceeded": [str(limit) for limit in self.exceeded],
            "limits": [str(limit) for limit in self.limits],
            "notes": list(self.notes),
            "difference": self.difference.to_dict(),
        }

    def __str__(self) -> str:
        from scaling.report.difference import guard_page

        return guard_page(self.difference, self.limits, self.notes)

    def line(self) -> str:
        return f"guard: {len(self.exceeded)} of {len(self.limits)} limits exceeded"


@entrance
def diff(
    first: str | Path | PredictionResult,
    second: str | Path | PredictionResult,
    cluster: ClusterLike | None = None,
    nodes: int | None = None,
    mesh: MeshLike | None = None,
) -> DifferenceResult:
    """Return what changed from one prediction to another: times, memory, collectives; of compiled
    programs by class of operation, line of code and buffer too.

    >>> import scaling as sc
    >>> p = sc.predict("tiny", cluster="dgx-h100", mesh="fsdp=8", source="analytic")
    >>> found = sc.diff(p, p.what_if("nvlink x2"))
    >>> found.step_time.difference <= 0, found.work["flops"].ratio
    (True, 1.0)

    Args:
        first, second: what `prediction.save` wrote, a file of `scaling predict --json`, a run
            folder, or XLA's dump, or a PredictionResult.
        cluster, nodes, mesh: of dumps, as for `scaling price --hlo`.

    Raises:
        InputError: no prediction, or a dump without a cluster.
    """
    pair = [_document(each, cluster, nodes, mesh) for each in (first, second)]
    return DifferenceResult(**vars(difference(*pair)))


def guard(
    prediction: PredictionResult, base: str | Path, fail_if: str | None = None
) -> GuardResult:
    """Hold a prediction against a saved one.

    Args:
        base: what `prediction.save` wrote.
        fail_if: limits such as `time>5%,peak>2%` (`scaling.comparing.limits`); None: FAIL_IF.

    Raises:
        InputError: a limit that cannot be read; no such base, one of another cluster or mesh, or
            without a figure that is limited.
    """
    limits, before = read_base(base, fail_if)
    now = prediction.saved()
    differs = [f"{name} {before.get(name)}" for name in PLACE if before.get(name) != now[name]]
    with python_words():
        if differs:
            here = ", ".join(f"{name} {now[name]}" for name in PLACE)
            raise InputError(
                f"{base} is of {', '.join(differs)}, the price of {here}: price the same, or write "
                f"the base again with --save {base}"
            )
        found = difference(before, now)
        for limit in limits:
            limit.check(found, base)
        return GuardResult(difference=found, limits=limits, notes=tuple(_notes(before, now, base)))


def read_base(base: str | Path, fail_if: str | None) -> tuple[tuple[Limit, ...], dict[str, Any]]:
    """Return the limits and the document of a base, before anything is compiled; as `guard`."""
    with python_words():
        limits = read_limits(FAIL_IF if fail_if is None else fail_if)
        if not Path(base).exists():
            raise InputError(f"there is no base {base}: write it with --save {base}")
        return limits, prediction_document(Path(base))


def _notes(before: Mapping[str, Any], now: Mapping[str, Any], base: str | Path) -> Iterator[str]:
    """Yield what the base was made with, where this prediction was not: versions, figures."""
    then = before.get("made_with") or {}
    differs = [
        f"{name} {then.get(name, '-')} -> {now['made_with'].get(name, '-')}"
        for name in dict.fromkeys((*then, *now["made_with"]))
        if then.get(name) != now["made_with"].get(name)
    ]
    if differs:
        yield (
            f"{base} was made with other versions or figures: {', '.join(differs)}. Some of the "
            f"changes may come from these: write the base again, from its own code, --save {base}"
        )
    if names := [part["name"] for part in (*(before.get("unknown") or ()), *now["unknown"])]:
        yield f"times are at least: not known is {', '.join(dict.fromkeys(names))}"


def _document(
    prediction: str | Path | PredictionResult,
    cluster: ClusterLike | None,
    nodes: int | None,
    mesh: MeshLike | None,
) -> dict[str, Any]:
    if not isinstance(prediction, PredictionResult):
        path = Path(prediction)
        is_folder = path.is_dir()
        if is_folder and (path / PREDICTED).exists():
            return prediction_document(path)
        if not is_folder and not read_text(path).startswith("HloModule"):
            return prediction_document(path)
        if cluster is None:
            what = f"has no {PREDICTED}; as XLA's dump" if is_folder else "is XLA's dump"
            raise InputError(
                f"{path} {what}: for which cluster? add --cluster, such as --cluster dgx-h100"
            )
        prediction = predict_hlo(path, cluster, nodes, mesh)
    return prediction.saved()
