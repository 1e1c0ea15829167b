"""Steps on random machines: random schedules, other people's programs, and closed forms.

What holds of every step: its parts sum to it, its range holds it, no kernel is above a peak, no
collective below its bound, and better figures never make it slower. 12 cases of each kind, always
the same; 1,000 new ones in the long tier.
"""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import scaling as sc
from scaling.api.pricing import price_program
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.meshes.shape import AXES
from scaling.profiles.io import profile_of
from scaling.program.ir import (
    COLLECTIVE_KINDS,
    Branch,
    Collective,
    Kernel,
    Loop,
    Origin,
    Program,
    Wait,
)
from scaling.simulate.kernels import peak_rate
from scaling.simulate.prediction import TERMS
from scaling.simulate.step import Priced, price
from scaling.simulate.summary import summarize
from scaling.simulate.what_if import COSTS, FIGURES, changed
from tests.scaling.collectives.machines import random_case

EACH = settings(max_examples=12 if settings().derandomize else 1000)
SEEDS = st.integers(0, 2**63 - 1)
GOLDEN = sorted((Path(__file__).parents[1] / "hlo/golden").glob("*.hlo"))
CLUSTERS = [
    n for n in catalog.names() if n != "host" and "bf16" in catalog.load(n).accelerator.peaks
]
RUNS = ("tiny", "gpt2-124m", "tiny-moe")
CLOSE = 1 - 1e-9


@st.composite
def changes(draw):
    """A change of a figure, and whether it is for the better."""
    name = draw(st.sampled_from(sorted(FIGURES)))
    best = "0" if name in COSTS else "inf"
    factor = draw(st.sampled_from([best, "1e-12", "1e-3", "0.5", "1.1", "10", "1e12"]))
    return f"{name} x{factor}", (float(factor) > 1) != (name in COSTS)


def random_program(rng, mesh):
    """Kernels and collectives of any sizes, in loops and branches, some beside others."""

    def block(depth):
        steps, flying = [], []
        for _ in range(rng.integers(1, 6)):
            number[0] += 1
            name, draw = f"op{number[0]}", rng.random()
            if depth and draw < 0.15:
                steps.append(Loop(name, body=block(depth - 1), trips=int(10 ** rng.uniform(0, 4))))
            elif depth and draw < 0.2:
                steps.append(Branch(name, branches=(block(depth - 1), block(depth - 1))))
            elif draw < 0.5:
                axes = tuple(axis for axis in mesh.sizes if rng.random() < 0.5)
                kind, late = str(rng.choice(COLLECTIVE_KINDS)), bool(rng.random() < 0.6)
                size = 10 ** rng.uniform(0, 10)
                steps.append(Collective(name, kind=kind, axes=axes, bytes=size, asynchronous=late))
                flying += [Wait(name)] * late
            else:
                steps.append(kernel(name))
            if flying and rng.random() < 0.3:
                steps.append(flying.pop(rng.integers(len(flying))))
        return (*steps, *flying)

    def kernel(name):
        m, n, k = (int(10 ** rng.uniform(0, 4)) for _ in range(3))
        origin = Origin(str(rng.choice(["forward", "backward", "optimizer"])))
        moved = 10 ** rng.uniform(0, 10)
        kind = str(rng.choice(["matmul", "attention", "fusion", "copy"]))
        if kind in ("fusion", "copy"):
            return Kernel(name, origin, kind=kind, vector_flops=moved, bytes=moved)
        dims = (1, m, n, k) if kind == "matmul" else (1, m, n, n, 128)
        flops = 2.0 * m * n * (k if kind == "matmul" else 256 * m)
        dtype = str(rng.choice(["bf16", "int8", "fp64"]))
        seen = float(rng.uniform(0.05, 1))
        return Kernel(
            *(name, origin),
            kind=kind,
            flops=flops,
            bytes=moved,
            dtype=dtype,
            dims=dims,
            visible=seen,
        )

    number = [0]
    return Program("random", "compiled", mesh.sizes, block(2))


def check(priced: Priced) -> float:
    """Seconds of a step that is physically possible."""
    found, chip = summarize(priced), priced.cluster.accelerator
    step = found.step_time
    assert math.isfinite(found.step_time_high) or found.unknown
    assert found.step_time_low <= step <= found.step_time_high
    parts = [getattr(found.time, term) for term in TERMS]
    assert sum(parts[:-1]) == pytest.approx(step, rel=1e-9)
    assert min(parts) >= -1e-9 * step
    # HFU counts masked scores, which attention skips
    seen = [np.min(op.visible) for op in kernels_of(priced.program) if op.kind == "attention"]
    assert found.hfu is None or 0 <= found.hfu <= 1 / min(seen, default=1.0)
    # one that queues behind another has its wait too: only together they wait at most as they run
    exposed, run = (sum(getattr(c, n) for c in found.collectives) for n in ("exposed", "time"))
    assert exposed <= run + 1e-8 * step  # rounding of clocks over 1e8 iterations
    for cost in priced.collectives.values():
        assert cost.time >= cost.lower_bound * CLOSE
    for op, cost in ((op, priced.kernels[op.name]) for op in kernels_of(priced.program)):
        share = min(1.0, op.visible) if op.kind == "attention" else 1.0
        if op.flops and not cost.unpriced:
            assert cost.time >= share * op.flops / peak_rate(chip, op.dtype) * CLOSE
        memory, rate = priced.profile.memory, chip.required("memory_bandwidth")
        if op.kind == "fusion" and memory.l2 and chip.cores and chip.clock:  # may be cached
            rate = max(rate, memory.l2 * chip.cores * chip.clock)
        if not memory.cache_bandwidth:
            assert cost.time >= op.bytes / rate * CLOSE
    return step


def kernels_of(program):
    from scaling.program.ir import kernels

    return [kernel for kernel, _ in kernels(program)]


def is_no_slower(first, second):
    return first <= second / (1 - 1e-9)


@example(seed=312, change=("peak xinf", True))  # takes no time at all
@EACH
@given(SEEDS, changes())
def test_any_schedule_is_possible_and_faster_with_better_figures(seed, change):
    case = random_case(seed)
    chip = catalog.load(CLUSTERS[seed % len(CLUSTERS)]).accelerator
    cluster, profile = replace(case.cluster, accelerator=chip), profile_of(chip)
    program = random_program(np.random.default_rng(seed), case.mesh)
    try:
        before = check(price(program, cluster, profile))
        text, is_better = change
        after = check(price(program, *changed(cluster, profile, [text])))
    except InputError:  # groups, links or formats of which nothing is known
        return
    assert is_no_slower(*((after, before) if is_better else (before, after)))


@EACH
@given(st.sampled_from(GOLDEN), st.sampled_from(CLUSTERS), st.sampled_from([1, 2, 8]), changes())
def test_programs_of_others_are_priced_within_the_same_bounds(path, name, per_node, change):
    nodes = max(1, 8 // min(per_node, catalog.load(name).devices_per_node))
    overrides = {"gpus_per_node": 8 // nodes}
    try:
        before = sc.predict_hlo(path, name, nodes, overrides=overrides)
        after = before.what_if(change[0])
    except InputError:
        return
    times = [check(price_program(found.pricing)) for found in (before, after)]
    assert is_no_slower(*(times[::-1] if change[1] else times))


@EACH
@given(st.sampled_from(RUNS), st.sampled_from(CLUSTERS), SEEDS, changes())
def test_closed_forms_on_any_mesh_are_priced_within_the_same_bounds(run, name, seed, change):
    rng = np.random.default_rng(seed)
    sizes = {axis: int(rng.choice([1, 1, 2, 4])) for axis in AXES}
    sizes["stage"] = min(sizes["stage"], 2)
    devices, here = math.prod(sizes.values()), catalog.load(name).devices_per_node
    try:
        settings = {"batch.global_batch": 64, "batch.microbatches": 2 * sizes["stage"]}
        before = sc.predict(run, name, -(-devices // here), sizes, "analytic", settings)
        after = before.what_if(change[0])
    except InputError:
        return
    times = [check(price_program(found.pricing)) for found in (before, after)]
    assert before.mfu is None or 0 <= before.mfu <= 1
    assert is_no_slower(*(times[::-1] if change[1] else times))
