"""The explanation: every operation beside XLA's own figure, and what each figure rests on."""

from dataclasses import replace

import pytest

from scaling.comparing.discrepancy import Discrepancy
from scaling.meshes import catalog
from scaling.meshes.units import format_time
from scaling.profiles.io import profile_of
from scaling.program.ir import Collective, Kernel
from scaling.report.explain import MOST_LINES, explanation
from scaling.simulate.step import price

H100 = catalog.load("dgx-h100")
PROFILE = profile_of(H100.accelerator)


def rows(text):
    """Words of each line of the table, the head left out."""
    table = text.split("\n\n")[0]
    return [line.split() for line in table.split("\n")[1:]]


def test_the_dearest_operation_is_first(hand_priced):
    names = [row[1] for row in rows(explanation(hand_priced))]
    by_name = hand_priced.timeline.by_name
    assert names == sorted(by_name, key=lambda name: -by_name[name])


def test_ours_stands_beside_the_compilers_estimate(hand_priced):
    text = explanation(hand_priced)
    dot = next(row for row in rows(text) if row[1] == "dot.1")
    assert dot[:5] == ["matmul", "dot.1", "forward", "layers/mlp", "3"]
    assert dot[-2:] == ["200", "us"]
    assert next(row for row in rows(text) if row[1] == "norm.1")[-1] == "-"


def test_sums_are_of_what_both_have_an_estimate_for(hand_priced):
    text = explanation(hand_priced)
    ours = format_time(3 * hand_priced.kernels["dot.1"].time)
    assert f"1 kernel with an estimate of XLA's own: ours {ours}, XLA's 600 us" in text
    sent = format_time(hand_priced.collectives["sum.1"].time)
    assert f"1 collective with an estimate of XLA's own: ours {sent}, XLA's 50 us" in text


def test_the_share_of_bytes_without_origin_is_printed(hand_priced, hand_step):
    """norm.1 (3 x 300 MB) has no origin, dot.1 (3 x 101 MB) and adam.1 (1 GB) have."""
    share = 900 / (900 + 3 * 6 * 4096**2 / 1e6 + 1000)
    assert f"{share:.1%} of the bytes that kernels move belong to no known part" in explanation(
        hand_priced
    )
    known = replace(hand_step, schedule=hand_step.schedule[-1:])
    assert "0.0% of the bytes" in explanation(price(known, H100, PROFILE))


def test_the_memory_at_the_peak_is_listed_by_what_fills_it(hand_priced):
    part = next(p for p in explanation(hand_priced).split("\n\n") if p.startswith("memory"))
    title, _, *lines = part.split("\n")
    assert title == "memory at its peak of 12 GB, in norm.1"
    assert [line.split() for line in lines] == [
        ["optimizer", "state", "kept", "1", "6", "GB"],
        ["parameters", "kept", "1", "3", "GB"],
        ["activations", "forward", "layers/mlp", "1", "2", "GB"],
        ["temporary", "-", "1", "1", "GB"],
    ]


def test_the_evidence_of_every_second_is_listed_with_its_share(hand_priced):
    part = explanation(hand_priced).split("\n\n")[-1]
    head, *lines = part.split("\n")
    assert head == "figures of profile h100-sxm, by share of the step"
    shares = [float(line.split("%")[0]) for line in lines if "under" not in line]
    assert sum(shares) == pytest.approx(100, abs=0.3)
    assert shares == sorted(shares, reverse=True)
    assert any("150 casts to fp8" in line for line in lines)


def test_the_kind_of_a_collective_is_said_once(hand_step):
    name = "forward mlp weights all-gather[fsdp] matrices"
    call = Collective(name, kind="all-gather", axes=("fsdp",), bytes=2**20, asynchronous=False)
    priced = price(replace(hand_step, schedule=(call,)), H100, PROFILE)
    assert "\nall-gather[fsdp] forward mlp weights matrices  " in explanation(priced)


def test_long_programs_are_summed_up(hand_step):
    many = tuple(Kernel(f"k{i}", bytes=1e9) for i in range(MOST_LINES + 5))
    priced = price(replace(hand_step, schedule=many), H100, PROFILE)
    rest = format_time(5 * priced.kernels["k0"].time)
    assert f"and 5 more, {rest} together" in explanation(priced)


def test_every_discrepancy_is_listed_however_small(hand_priced):
    small = Discrepancy("fsdp", "all-gather", 1e6, 2e6, 3, (), "not explained", 1e-9)
    text = explanation(hand_priced, [small])
    assert text.split("\n")[-2:] == ["unlike the expected program", f"  {small}"]
