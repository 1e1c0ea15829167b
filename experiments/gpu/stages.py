"""The stages of the measurement, in order of worth, and what a results document says of them.

    machine        chip, driver, versions; the best rates of this device
    kernel NAME    a kernel of ours against a float32 reference, and its rate
    calibration    the efficiencies of this device
    case NAME      training steps: time, memory, profile, predictions
    absent NAME    the same step compiled for a chip that is not there
    pytorch NAME   our step and PyTorch's, turn about

Each is one process: a kernel that breaks the device breaks nothing else, and a peak of memory is
that of one case. A case that does not fit into memory is followed by its half.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from experiments.baselines.alternate import CASES, TINY
from experiments.gpu.cases import cases, halved, label, tiny_cases
from experiments.gpu.kernel_cases import KERNELS, TINY_KERNELS
from scaling.run import Run

# Seconds of one process, assumed before any has run: a stage begins if so much time is left.
SECONDS = {
    **{"machine": 45, "kernel": 30, "calibration": 240},
    **{"case": 80, "absent": 30, "pytorch": 180},
}
MOST = 3.0  # times that, and the process is ended
TELLING = 7  # cases that come before PyTorch; the others after it
OUT_OF_MEMORY = "out of memory"
FINAL = ("ok", "failed", "crashed", "timed out", "not possible", OUT_OF_MEMORY)  # not "interrupted"


@dataclass(frozen=True)
class Stage:
    """One process of the measurement."""

    kind: str
    argument: str = ""

    @property
    def name(self) -> str:
        return f"{self.kind} {self.argument}".strip()

    @property
    def seconds(self) -> float:
        """How long it takes, as assumed."""
        return SECONDS[self.kind]


def stages(document: Mapping[str, Any]) -> list[Stage]:
    """All stages for what the results know by now of the devices, and of cases too large."""
    telling: list[Stage] = []
    others: list[Stage] = []
    for number, run in enumerate(runs(document)):
        pair = [Stage("case", label(run)), Stage("absent", label(run))]
        (telling if number < TELLING else others).extend(pair)
    return [
        Stage("machine"),
        *(Stage("kernel", name) for name in (TINY_KERNELS if document["tiny"] else KERNELS)),
        Stage("calibration"),
        *telling,
        *(Stage("pytorch", case.name) for case in (TINY if document["tiny"] else CASES)),
        *others,
    ]


def runs(document: Mapping[str, Any]) -> Iterator[Run]:
    """The cases; after each that had no room, its half."""
    count = (result_of(document, "machine") or {}).get("device", {}).get("count", 1)
    seen = set()
    for case in tiny_cases(count) if document["tiny"] else cases(count):
        run: Run | None = case
        while run is not None and run not in seen:
            seen.add(run)
            yield run
            status = document["stages"].get(f"case {label(run)}", {}).get("status")
            run = halved(run) if status == OUT_OF_MEMORY else None


def result_of(document: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """What a stage has measured; None: nothing."""
    return document["stages"].get(name, {}).get("result")


def is_done(document: Mapping[str, Any], stage: Stage) -> bool:
    """True if the stage need not run again: it has a result, or a reason why there is none."""
    return document["stages"].get(stage.name, {}).get("status") in FINAL


def next_stage(
    document: Mapping[str, Any], only: str, tried: Mapping[str, Any], left: float, again: bool
) -> Stage | None:
    """The first stage that is to run now; None: there is none, or none that the time is enough for.

    Args:
        only: part of the names of those that are wanted.
        tried: names of those that ran in this call.
        left: seconds.
        again: also those that are done.
    """
    for stage in stages(document):
        wanted = only in stage.name and stage.name not in tried
        if wanted and stage.seconds <= left and (again or not is_done(document, stage)):
            return stage
    return None
