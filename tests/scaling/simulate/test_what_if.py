"""What if a figure were another: only that figure changes, and in the direction that it says."""

import re
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.collectives.algorithms import algorithms_of
from scaling.collectives.cost import collective_time
from scaling.meshes import catalog
from scaling.meshes.cluster import LinkSpec
from scaling.meshes.errors import InputError
from scaling.meshes.levels import levels
from scaling.profiles.io import profile_of
from scaling.profiles.profile import (
    AttentionFit,
    CollectiveFit,
    Evidence,
    MatmulFit,
    MemoryFit,
    Profile,
    VectorFit,
)
from scaling.program.ir import (
    COLLECTIVE_KINDS,
    Branch,
    Collective,
    Kernel,
    Loop,
    Program,
    operations,
)
from scaling.simulate.step import price
from scaling.simulate.what_if import (
    COSTS,
    FIGURES,
    carrier,
    changed,
    changed_program,
    check_changes,
)

H100 = catalog.load("dgx-h100", nodes=2)
PROFILE = profile_of(H100.accelerator)
HERE = Evidence("here", "", "measured")
MEASURED = Profile(
    name="measured",
    machine="m",
    date="",
    matmul=(MatmulFit("bf16", 1.0, HERE, overhead=1e-6, peak=1e12),),
    memory=MemoryFit(1.0, HERE, overhead=2e-6, bandwidth=1e10, cache=1e6, cache_bandwidth=1e11),
    vector=VectorFit(1e9, 1e9, HERE),
    attention=(AttentionFit("forward", 1.0, HERE, overhead=3e-6, peak=2e12),),
    collectives=(CollectiveFit("all-gather", 8, 1, 1e-5, 1e9, HERE),),
)


def gather(axes):
    return Collective("g", kind="all-gather", axes=axes, bytes=2**28, asynchronous=False)


def seconds(step, *changes):
    cluster, profile = changed(H100, PROFILE, changes)
    program = Program("p", "compiled", {"data": 2, "tensor": 8}, (step,))
    return price(program, cluster, profile).timeline.total


INSIDE, ACROSS = gather(("tensor",)), gather(("data",))
MATMUL = Kernel("m", kind="matmul", flops=2.0 * 8192**3, dtype="bf16", dims=(1, 8192, 8192, 8192))
MOVE, TINY = Kernel("k", bytes=1e10), Kernel("t", bytes=1.0)


@pytest.mark.parametrize(
    ("change", "step", "factor"),
    [
        ("nvlink x2", INSIDE, 0.5),
        ("network x0.25", ACROSS, 4.0),
        ("peak x0.5", MATMUL, 2.0),
        ("memory_bandwidth x2", MOVE, 0.5),
        ("launch x3", TINY, 3.0),
    ],
)
def test_time_follows_the_figure_that_binds(change, step, factor):
    still = ("latency x0", "launch x0") if "launch" not in change else ("latency x0",)
    before, after = seconds(step, *still), seconds(step, change, *still)
    assert after / before == pytest.approx(factor, rel=0.01)


@pytest.mark.parametrize(
    ("change", "step"),
    [("network x4", INSIDE), ("peak x2", MOVE), ("nvlink x2", MATMUL), ("memory x2", MATMUL)],
)
def test_what_does_not_bind_changes_nothing(change, step):
    assert seconds(step, change) == seconds(step)


def test_without_latency_only_the_bytes_are_left():
    small = Collective("g", kind="all-gather", axes=("tensor",), bytes=1.0, asynchronous=False)
    assert seconds(small, "latency x0") < 1e-9 < seconds(small)


@pytest.mark.parametrize(("factor", "slower"), [(2, 2.0), (4, 4.0), (0.5, 1.0), (0, 1.0)])
def test_oversubscription_slows_the_uplinks_of_leaf_switches(factor, slower):
    """64 nodes are two leaf groups; below their NICs' rate nothing is gained by wider uplinks."""
    place = catalog.load("dgx-h100", nodes=64)
    cluster, profile = changed(place, PROFILE, [f"oversubscription x{factor}"])
    assert profile == PROFILE
    before, after = ({level.name: level.bandwidth for level in levels(c)} for c in (place, cluster))
    uplinks = "uplinks of a leaf group"
    assert before.pop(uplinks) / after.pop(uplinks) == pytest.approx(slower)
    assert after == before


def test_a_cluster_without_uplinks_has_no_oversubscription():
    with pytest.raises(InputError, match="oversubscription: rtx3090-10 has no such links"):
        changed(catalog.load("rtx3090-10"), PROFILE, ["oversubscription x2"])


@pytest.mark.parametrize("name", [name for name in catalog.names() if name != "host"])
def test_without_latency_no_algorithm_of_any_cluster_waits(name):
    """Whole nodes and groups across them: a call of no bytes takes no time, whoever runs it."""
    cluster = catalog.load(name, 1 if catalog.one_host(name).virtual_devices else 2)
    plain, n = profile_of(cluster.accelerator), cluster.devices_per_node
    still, profile = changed(cluster, plain, ["latency x0"])
    priced = 0
    for groups in ([range(n)], [range(2 * n)], [(d, d + n) for d in range(n)], [(0, n)]):
        for kind in COLLECTIVE_KINDS:
            for algorithm in algorithms_of(kind):
                with suppress(InputError):  # that cannot run there
                    found = collective_time(kind, 8.0, np.array(groups), still, profile, algorithm)
                    for each in found.candidates:
                        waits = each.latency, each.torus_latency, float(each.seconds(0.0))
                        assert waits == (0.0, 0.0, 0.0), (kind, each.algorithm)
                        priced += 1
    assert priced >= 6


def test_latency_changes_on_a_torus_too():
    v4 = catalog.load("tpu-v4", 16)
    cluster, _ = changed(v4, profile_of(v4.accelerator), ["latency x3"])
    assert cluster.torus.hop_latency.value == 3 * v4.torus.hop_latency.value
    assert cluster.torus.bandwidth == v4.torus.bandwidth


def test_memory_grows_with_what_is_usable_of_it():
    cluster, _ = changed(H100, PROFILE, ["memory x2"])
    chip, before = cluster.accelerator, H100.accelerator
    assert chip.memory == 2 * before.memory
    assert chip.usable_memory == 2 * before.usable_memory
    assert chip.figures["memory"].source == "override"


def test_rates_that_were_measured_change_like_those_of_a_datasheet():
    _, profile = changed(
        H100, MEASURED, ["peak x2", "memory_bandwidth x3", "latency x4", "launch x5"]
    )
    assert profile.matmul[0].peak == 2e12
    assert profile.attention[0].peak == 4e12
    assert (profile.memory.bandwidth, profile.memory.cache_bandwidth) == (3e10, pytest.approx(3e11))
    assert profile.collectives[0].alpha == pytest.approx(4e-5)
    assert profile.matmul[0].overhead == pytest.approx(5e-6)
    assert profile.memory.overhead == pytest.approx(1e-5)
    assert profile.attention[0].overhead == pytest.approx(1.5e-5)


NODE = catalog.load("dgx-h100")
CALIBRATED = replace(
    PROFILE,
    collectives=(CollectiveFit("all-gather", 8, 1, 0.0, 1e9, HERE, 1e6, 1e10),),
)


@pytest.mark.parametrize(
    ("change", "factor"), [("nvlink x4", 4), ("nvlink x0.1", 0.1), ("pcie x4", 1)]
)
def test_collectives_that_were_measured_follow_the_links_between_the_chips(change, factor):
    def time(*changes):
        cluster, profile = changed(NODE, CALIBRATED, changes)
        program = Program("p", "compiled", {"tensor": 8}, (INSIDE,))
        return price(program, cluster, profile).timeline.total

    assert time(change) == pytest.approx(time() / factor)


def bridged(*pairs):
    """Eight chips behind PCIe, some of them with a bridge."""
    bridges = LinkSpec(("chip", "chip"), "nvlink", "pairs", None, None, pairs=pairs)
    return replace(NODE, links=(bridges, *(link for link in NODE.links if link.kind != "nvlink")))


def test_more_chips_than_bridges_join_talk_over_pcie():
    assert [carrier(NODE, ranks) for ranks in (2, 8)] == ["nvlink", "nvlink"]
    pairs = bridged((0, 1), (2, 3), (4, 5), (6, 7))
    assert [carrier(pairs, ranks) for ranks in (2, 3, 8)] == ["nvlink", "pcie", "pcie"]
    ring = bridged(*((i, (i + 1) % 8) for i in range(8)))
    assert carrier(ring, 8) == "nvlink"
    assert carrier(catalog.load("rtx3090-10"), 2) == "pcie"


@given(st.sampled_from(sorted({*FIGURES} - {"power"})), st.floats(0.01, 100))  # no power law
def test_changes_are_undone_by_their_inverse(name, factor):
    here = ["nvlink"] if name in ("pcie", "xgmi", "ici") else [name]
    changes = [f"{here[0]} x{factor!r}", f"{here[0]} x{1 / factor!r}"]
    assert seconds(ACROSS, *changes) == pytest.approx(seconds(ACROSS))
    assert seconds(MATMUL, *changes) == pytest.approx(seconds(MATMUL))


@pytest.mark.parametrize("text", ["network", "network 2", "x2", "network x", "network xtwo",
                                  "network x-1", "network x-inf", "network xnan", ""])  # fmt: skip
def test_what_is_no_figure_and_factor_is_refused(text):
    with pytest.raises(
        InputError, match=re.escape(f"--what-if {text!r}: write a figure and a factor")
    ):
        check_changes([text])


def test_an_unknown_figure_names_the_nearest():
    with pytest.raises(InputError, match="unknown figure 'nvlnk'; did you mean 'nvlink'"):
        check_changes(["nvlnk x2"])


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_a_figure_has_one_end_that_costs_nothing_and_no_other(name):
    best, worst = ("0", "inf") if name in COSTS else ("inf", "0")
    check_changes([f"{name} x{best}", f"{name} x1e-12", f"{name} x1e12"])
    for factor in (worst, "1e-13", "1e13", "1e300"):
        words = f"--what-if '{name} x{factor}': use a factor from 1e-12 to 1e+12, or {best}: the"
        with pytest.raises(InputError, match=re.escape(words)):
            check_changes([f"{name} x{factor}"])


@pytest.mark.parametrize(
    ("change", "step"),
    [
        ("nvlink xinf", INSIDE),
        ("network xinf", replace(ACROSS, bytes=2**40)),
        ("peak xinf", MATMUL),
        ("memory_bandwidth xinf", MOVE),
    ],
)
def test_an_infinite_rate_leaves_what_binds_next(change, step):
    rest = ("latency x0", "launch x0")
    found = [seconds(step, change.replace("inf", factor), *rest) for factor in ("1e12", "inf")]
    assert found[1] == pytest.approx(found[0], abs=1e-6)
    assert found[1] < 0.9 * seconds(step, *rest)


def test_launch_is_also_what_the_host_of_other_software_takes():
    late = Loop("l", body=(replace(TINY, issue=1e-3), replace(INSIDE, issue=2e-3)), trips=4)
    program = Program("p", "analytic", {}, (late, Branch("b", branches=((late,),))))
    found = changed_program(program, ["launch x3", "peak x2", "launch x0.5"])
    issued = lambda p: [(op.name, op.issue) for op, _ in operations(p.schedule)]
    assert issued(found) == [(name, 1.5 * seconds) for name, seconds in issued(program)]
    assert changed_program(program, ["peak x2"]) is program


def test_a_link_that_the_cluster_lacks_is_refused():
    with pytest.raises(InputError, match="--what-if nvlink: host has no such links"):
        changed(catalog.load("host"), MEASURED, ["nvlink x2"])


def test_links_of_amd_and_of_a_torus_can_be_asked_for():
    v5p, mi300x = catalog.load("tpu-v5p"), catalog.load("mi300x-8")
    faster, _ = changed(v5p, profile_of(v5p.accelerator), ["ici x2"])
    assert faster.torus.bandwidth.value == 2 * v5p.torus.bandwidth.value
    assert faster.torus.hop_latency == v5p.torus.hop_latency
    assert carrier(v5p, 4) == "ici" and carrier(mi300x, 8) == "xgmi"
    rates = lambda cluster, kind: [c.bandwidth.value for c in cluster.links if c.kind == kind]
    faster, _ = changed(mi300x, profile_of(mi300x.accelerator), ["xgmi x2"])
    assert rates(faster, "xgmi") == [2 * rate for rate in rates(mi300x, "xgmi")]
    assert rates(faster, "pcie") == rates(mi300x, "pcie")


@pytest.mark.parametrize(
    ("value", "factor"),
    [
        ("network=100Gb/s", "network x0.25"),
        ("nvlink = 225GB/s", "nvlink x0.5"),
        ("memory_bandwidth=6.7TB/s", "memory_bandwidth x2"),
    ],
)
def test_a_value_is_the_factor_that_makes_it(value, factor):
    for step in (INSIDE, ACROSS, MOVE):
        assert seconds(step, value) == pytest.approx(seconds(step, factor))


def test_a_value_of_the_memory_moves_what_is_usable_with_it():
    cluster, _ = changed(H100, PROFILE, ["memory=160GB"])
    share = H100.accelerator.usable_memory / H100.accelerator.memory
    assert cluster.accelerator.memory == pytest.approx(160e9)
    assert cluster.accelerator.usable_memory == pytest.approx(160e9 * share)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("network=fast", "'fast' is not a rate"),
        ("latency=1us", "write a figure and a factor, such as 'latency x2'"),
        ("peak=1e15", "write a figure and a factor, such as 'peak x2'"),
        ("xgmi x2", "dgx-h100 has no such links; kinds that it has: nvlink, pcie, network"),
        ("ici=1GB/s", "dgx-h100 has no such links"),
    ],
)
def test_what_cannot_be_asked_says_why(text, said):
    with pytest.raises(InputError, match=re.escape(said)):
        changed(H100, PROFILE, [text])


def test_a_lower_power_limit_slows_long_products_less_than_in_proportion():
    cluster, profile = changed(H100, PROFILE, ["power=350W"])
    assert cluster.accelerator.power == pytest.approx(350)
    slower = profile.matmul[0].sustained / PROFILE.matmul[0].sustained
    assert slower == pytest.approx(0.588, abs=0.01)  # ((0.5 - 0.25) / 0.75) ** (1 / 2.05)
    _, more = changed(H100, PROFILE, ["power x2"])
    assert more.matmul[0].sustained > PROFILE.matmul[0].sustained  # up to a burst's, when priced


@pytest.mark.parametrize("name", ["h100-sxm", "h200-sxm"])
def test_a_board_of_another_power_is_priced_as_one_whose_limit_is_changed(name):
    chip = catalog.accelerator(name)
    _, changed_later = changed(replace(H100, accelerator=chip), profile_of(chip), ["power=350W"])
    stated = profile_of(replace(chip, power=350.0))
    known = [fit.sustained for fit in changed_later.matmul]
    assert [fit.sustained for fit in stated.matmul] == pytest.approx(known)


def test_a_clock_that_power_would_not_let_run_anyway_costs_long_products_nothing():
    cluster, profile = changed(H100, PROFILE, ["clock x0.95"])
    chip, peak = cluster.accelerator, H100.accelerator.peak("bf16")
    assert chip.peak("bf16") == pytest.approx(0.95 * peak)
    assert chip.clock == pytest.approx(0.95 * H100.accelerator.clock)
    rate = profile.matmul[0].sustained * chip.peak("bf16")
    assert rate == pytest.approx(PROFILE.matmul[0].sustained * peak)
    assert profile.vector.flops == pytest.approx(0.95 * PROFILE.vector.flops)


def test_links_of_several_rates_take_a_factor_only():
    v5p = catalog.load("tpu-v5p")
    with pytest.raises(InputError, match="have 16 GB/s and 31.5 GB/s: write a factor, 'pcie x2'"):
        changed(v5p, profile_of(v5p.accelerator), ["pcie=10GB/s"])
