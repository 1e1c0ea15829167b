"""Errors of what is no kernel alone: layers of experts, work side by side, collectives over PCIe.

    kernels_experts.csv.gz  whole layers, their kernels one after another (`experts_layers`); each
                            chip is left out of the store in turn
    overlap.csv.gz          pairs and mixtures of a product, an all-gather and host copies; each
                            machine is left out of the fit in turn (`fit_overlap`)
    intranode_pcie.csv      cards that reach each other; the box is left out of the fit (`left_out`)

`roofline` of a mixture is its longest part; of a collective, the bytes of a device over its link.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from experiments.published import experts_layers, fit_overlap
from experiments.published.collectives import system_cases
from experiments.published.fit_overlap import Mixtures, predicted
from experiments.published.kernel_scores import Score, without
from experiments.published.kernel_tables import Row
from experiments.published.left_out import known_figures
from experiments.published.ranges import left_out_points, link_document
from experiments.published.score_systems import scored
from experiments.published.series import series_of
from scaling.meshes import catalog
from scaling.meshes.accelerator import Accelerator
from scaling.profiles.io import INTERFERENCE, link_file, profile_of
from scaling.profiles.profile import Profile
from scaling.simulate.kernels import kernel_time
from scaling.simulate.uncertainty import kernel_range


def overlap_scores() -> list[Score]:
    """The scores of each machine, of pairs with an all-gather and of mixtures with copies."""
    found = fit_overlap.mixtures()
    pairs = fit_overlap.pairs_of(found)
    scores = []
    for machine in dict.fromkeys(found.machine):
        others = pairs[pairs.machine != machine]
        borrowed = replace(INTERFERENCE, cores=fit_overlap.fitted(others).cores)
        own = found[found.machine == machine]
        for kind, mixed in _kinds(own):
            scores.append(_overlap(kind, str(machine), mixed, borrowed))
    return scores


def _kinds(own: Mixtures) -> Iterator[tuple[str, Mixtures]]:
    """Mixtures of a machine by what is in them."""
    product, gather, *copies = own.alone > 0
    with_copies = np.logical_or(*copies)
    where = "between nodes" if own.crosses[0] else "inside a node"
    for kind, which in (
        (f"product beside an all-gather, {where}", product & gather & ~with_copies),
        (f"mixtures with host copies, {where}", with_copies),
    ):
        if np.any(which):
            yield kind, own[which]


def _overlap(
    kind: str, machine: str, own: Mixtures, borrowed: fit_overlap.InterferenceFit
) -> Score:
    chip, _, groups = machine.partition(", ")
    worst = replace(INTERFERENCE, cores=INTERFERENCE.most)
    low, high = predicted(own, None), predicted(own, worst, worst.held_up)
    inside = (low <= own.seconds) & (own.seconds <= high)
    errors = (predicted(own, fit) / own.seconds - 1 for fit in (INTERFERENCE, borrowed))
    now, left = errors
    longest = own.alone.max(axis=0) / own.seconds - 1
    none = np.zeros(len(now))
    return Score(kind, chip, groups, own.seconds, now, inside, left, inside, longest, *[none] * 4)


BOX = "aiconfigurator rtx_pro_6000"  # whose rows are those of intranode_pcie.csv
LEAST = 64 * 1024  # bytes from which on a collective is scored, as in `score_systems`


def pcie_scores() -> list[Score]:
    """The scores of collectives between cards that reach each other over PCIe."""
    now = left = link_file()
    if (without := known_figures()["without"].get(BOX)) is not None:
        left = link_document(without, [one for one in left_out_points() if one.system != BOX])
    scores = []
    for series in series_of([case for case in system_cases() if case.machine == BOX]):
        large = series.bytes >= LEAST
        own, borrowed = (scored(series, file) for file in (now, left))
        bandwidth = max(link.total_bandwidth or 0.0 for link in series.cluster.links)
        wires = series.bytes / bandwidth / series.time - 1
        shown = own.error, own.inside, borrowed.error, borrowed.inside, wires
        where = "collective over PCIe", series.cluster.accelerator.name
        name = f"NCCL {series.kind} x{series.ranks}"
        none = np.zeros(len(wires))
        arrays = (each[large] for each in (series.time, *shown, *[none] * 4))
        scores.append(Score(*where, name, *arrays))
    return scores


def layer_scores() -> list[Score]:
    """The scores of whole layers of experts."""
    scores = []
    for (name, software, dtype, load), rows in experts_layers.groups():
        chip = catalog.accelerator(name)
        measured = np.array([float(row["time_us"]) for row in rows]) * 1e-6
        arrays: list[np.ndarray] = [measured]
        for profile in (profile_of(chip), without(chip)):
            time, low, high = _layers(rows, chip, profile)
            arrays += [time / measured - 1, (low <= measured) & (measured <= high)]
        arrays += [experts_layers.roofline(rows, chip) / measured - 1, *[np.zeros(len(rows))] * 4]
        kind = f"expert layer {dtype.removesuffix('_block')}, {load}"
        scores.append(Score(kind, name, software, *arrays))
    return scores


def _layers(rows: list[Row], chip: Accelerator, profile: Profile) -> np.ndarray:
    """Seconds of layers, and both ends of their range, as sums over kernels: [3, rows]."""
    total = np.zeros((3, len(rows)))
    for kernel in experts_layers.layer_kernels(rows):
        cost = kernel_time(kernel, chip, profile)
        for i, part in enumerate((cost.time, *kernel_range(kernel, cost, chip, profile))):
            total[i] += part
    return total
