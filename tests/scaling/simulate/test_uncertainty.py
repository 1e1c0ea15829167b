"""Grade and range: of the evidence that really prices the step, and of nothing else."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes import catalog
from scaling.profiles.grades import FACTOR, FEWEST, GRADES, UNMEASURED, grade_of, half_range
from scaling.profiles.io import profile_of
from scaling.profiles.profile import (
    AttentionFit,
    CollectiveFit,
    DispatchFit,
    Evidence,
    InterferenceFit,
    LinkFit,
    MatmulFit,
    MemoryFit,
    Profile,
    StepFit,
    VectorFit,
    evidences,
)
from scaling.profiles.samples import (
    AttentionSample,
    CollectiveSample,
    MatmulSample,
    MemorySample,
    Samples,
)
from scaling.profiles.shipped import shipped_names
from scaling.program.ir import Branch, Collective, Kernel, Origin, Program, Wait
from scaling.simulate.kernels import HOST_LINK
from scaling.simulate.step import price
from scaling.simulate.summary import summarize
from scaling.simulate.uncertainty import grade, priced_shares, step_range

H100 = catalog.load("dgx-h100")
MESH = {"data": 1, "fsdp": 8}


def evidence(name, grade="calibrated", error=0.1):
    return Evidence(name, "2026-11", grade, samples=9, mean_error=error, held_out_error=error)


MATMUL, MEMORY, VECTOR = evidence("matmul"), evidence("memory", error=0.2), evidence("vector")
ATTENTION, LINK = evidence("attention"), evidence("link", "datasheet")
SAMPLES = Samples(
    matmul=(MatmulSample("bf16", 4, 4096, 4096, 4096, (1e-3,)),),
    memory=(MemorySample("copy", 1e9, (1e-3,)),),
    attention=(AttentionSample("bf16", 1, 8, 4096, 4096, 128, "forward", (1e-3,)),),
    collective=(CollectiveSample("all-gather", 8, 1, 2**28, (1e-3,)),),
)
PROFILE = Profile(
    name="p",
    machine="m",
    date="",
    matmul=(MatmulFit("bf16", 0.45, MATMUL),),
    memory=MemoryFit(0.45, MEMORY),
    vector=VectorFit(3e13, 3e12, VECTOR),
    attention=(AttentionFit("forward", 0.7, ATTENTION),),
    links=(LinkFit("any", "nvlink", 0.8, LINK),),
)


def matmul(name="m", size=4096, batch=1, **changes):
    flops = 2.0 * batch * size**3
    dims = (batch, size, size, size)
    return Kernel(name, kind="matmul", flops=flops, dtype="bf16", dims=dims, **changes)


def gather(name="g", size=2**20, kind="all-gather"):
    return Collective(name, kind=kind, axes=("fsdp",), bytes=size, asynchronous=False)


def move(name="k", size=1e8):
    return Kernel(name, bytes=size)


def uncertainty(step):
    """Half the range above the step time, relative."""
    return step_range(step)[1] / step.timeline.total - 1


def priced(*schedule, profile=PROFILE):
    return price(Program("p", "compiled", MESH, schedule), H100, profile)


def test_a_figure_that_prices_nothing_does_not_count():
    """The links are only known from a datasheet, but nothing is sent."""
    assert grade(priced(matmul())) == "calibrated"
    assert PROFILE.grade == "datasheet"


def test_the_weakest_of_what_prices_a_twentieth_counts():
    long, short = matmul("m", 16384), gather("g", 2**16)
    seconds = priced(long, short).timeline
    assert seconds.exposed_communication < 0.05 * seconds.total
    assert grade(priced(long, short)) == "calibrated"
    assert grade(priced(matmul("m", 1024), gather("g", 2**28))) == "datasheet"


def test_communication_that_nothing_waits_for_prices_nothing():
    hidden = replace(gather("g", 2**26), asynchronous=True)
    step = priced(hidden, matmul("m", 16384), Wait("g"))
    assert step.timeline.exposed_communication == 0 and step.timeline.hidden_communication > 0
    assert grade(step) == "calibrated"
    assert [share.operation.name for share in priced_shares(step) if share.seconds] == ["m"]


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        (matmul("m", 4096, batch=64), matmul("m", 8192)),
        (move("k", 1e9), move("k", 2e9)),
        (gather("g", 2**28), gather("g", 2**29)),
    ],
)
def test_what_is_larger_than_all_that_was_measured_is_extrapolated(inside, outside):
    link = replace(LINK, grade="calibrated")
    profile = replace(PROFILE, samples=SAMPLES, links=(LinkFit("any", "nvlink", 0.8, link),))
    assert grade(priced(inside, profile=profile)) == "calibrated"
    assert grade(priced(outside, profile=profile)) == "extrapolated"
    assert grade(priced(outside, profile=replace(profile, samples=Samples()))) == "calibrated"
    sheet = replace(PROFILE, samples=SAMPLES)  # its links stay a datasheet's, however large a call
    assert grade(priced(gather("g", 2**40), profile=sheet)) == "datasheet"


LINE = CollectiveFit("all-gather", 8, 1, 1e-5, 1e11, replace(LINK, grade="measured"))


@pytest.mark.parametrize(
    ("ranks", "groups", "expected"),
    [(8, 1, "measured"), (4, 1, "extrapolated"), (8, 2, "extrapolated")],
)
def test_a_line_measured_among_other_devices_is_extrapolated(ranks, groups, expected):
    fits = (replace(LINE, ranks=ranks, groups=groups),)
    step = priced(gather("g", 2**28), profile=replace(PROFILE, collectives=fits))
    assert step.collectives["g"].algorithm == "measured"
    assert grade(step) == expected
    half = UNMEASURED if expected == "extrapolated" else FACTOR * 0.1
    assert uncertainty(step) == pytest.approx(half)


def test_the_host_is_as_uncertain_as_the_rest():
    program = Program("p", "compiled", MESH, (matmul("m"), move("k", 1e9)))
    half = replace(PROFILE, dispatch=DispatchFit(0.5, 0.0, 1e12, 0.0, MEMORY))
    alone, waiting = (price(program, H100, profile) for profile in (PROFILE, half))
    assert waiting.timeline.total == pytest.approx(alone.timeline.total + 0.5)
    assert uncertainty(waiting) == pytest.approx(uncertainty(alone))


@pytest.mark.parametrize(
    ("dims", "expected"),
    [
        ((1, 8, 4096, 4096, 128), "calibrated"),
        ((64, 8, 4096, 4096, 128), "calibrated"),
        ((1, 8, 8192, 8192, 128), "extrapolated"),
        ((1, 8, 4096, 4096, 256), "extrapolated"),
    ],
)
def test_attention_is_extrapolated_in_keys_and_head_dim(dims, expected):
    flops = 4.0 * np.prod(np.array(dims, float))
    kernel = Kernel("a", Origin("forward"), kind="attention", flops=flops, dtype="bf16", dims=dims)
    assert grade(priced(kernel, profile=replace(PROFILE, samples=SAMPLES))) == expected


def test_of_nothing_the_grade_is_the_profiles():
    assert grade(priced()) == "datasheet"
    assert step_range(priced()) == (0.0, 0.0)


def test_half_a_range_is_twice_the_mean_error_where_there_is_one():
    assert half_range(MATMUL, "calibrated") == pytest.approx(FACTOR * 0.1)
    fitted = replace(MATMUL, held_out_error=None, mean_error=0.07)
    assert half_range(fitted, "calibrated") == pytest.approx(FACTOR * 0.07)
    assert half_range(replace(fitted, error_p90=0.5), "calibrated") == 0.5
    assert half_range(LINK, "datasheet") == UNMEASURED
    assert half_range(replace(MATMUL, held_out_error=0.01), "extrapolated") == UNMEASURED
    assert half_range(replace(MATMUL, held_out_error=0.5), "extrapolated") == FACTOR * 0.5


ERRORS = st.none() | st.floats(0, 3)


@given(ERRORS, ERRORS, ERRORS, st.integers(0, 9))
def test_what_lies_further_from_the_data_never_has_the_narrower_range(p90, held_out, mean, samples):
    known = Evidence("x", "", "calibrated", samples, None, mean, None, held_out, p90)
    measured, *further = (half_range(known, name) for name in GRADES[:-1] if name != "calibrated")
    assert half_range(known, "calibrated") == measured
    assert all(measured <= half and half >= UNMEASURED for half in further)


def test_a_line_through_two_points_says_nothing_about_its_error():
    two = Evidence("two", "", "calibrated", samples=2, mean_error=0.0)
    assert half_range(two, "calibrated") == UNMEASURED
    assert half_range(Evidence("best", "", "calibrated", samples=1), "calibrated") == UNMEASURED


def test_the_range_weighs_each_error_by_its_time():
    first, second = matmul("m", 4096), move("k", 1e9)
    step = priced(first, second)
    times = step.timeline.by_name
    expected = (FACTOR * 0.1 * times["m"] + FACTOR * 0.2 * times["k"]) / step.timeline.total
    assert uncertainty(step) == pytest.approx(expected)
    found = summarize(step)
    low = times["m"] / (1 + FACTOR * 0.1) + times["k"] / (1 + FACTOR * 0.2)
    assert found.step_time_low == pytest.approx(low)
    assert found.step_time_high == pytest.approx(found.step_time * (1 + expected))


def test_communication_that_is_only_just_hidden_widens_the_range():
    """Its links may be slower, and then the step waits for it."""
    loose = replace(LINK, error_p90=0.9, grade="calibrated")
    profile = replace(PROFILE, links=(LinkFit("any", "nvlink", 0.8, loose),))
    sent = replace(gather("g", 2**28), asynchronous=True)
    seconds = priced(gather("g", 2**28), profile=profile).collectives["g"].time
    one = priced(matmul("m"), profile=profile).timeline.total
    products = [matmul(f"m{i}") for i in range(int(seconds / one) + 1)]
    step = priced(sent, *products, Wait("g"), profile=profile)
    assert step.timeline.exposed_communication == 0
    assert uncertainty(step) > 1.5 * uncertainty(priced(*products, profile=profile))


def test_kernels_and_collectives_side_by_side_may_be_as_slow_as_one_after_the_other():
    """What each takes of the other is known of kernels, in the mean and at most; so the range."""
    sent, product = replace(gather("g", 2**28), asynchronous=True), matmul("m", batch=8)
    known = replace(LINK, error_p90=1e-9, grade="calibrated", samples=9)
    sure = replace(MATMUL, error_p90=1e-9, grade="calibrated", samples=9)
    exact = replace(
        PROFILE,
        links=(LinkFit("any", "nvlink", 0.8, known),),
        matmul=(MatmulFit("bf16", 0.8, sure),),
        interference=InterferenceFit(0.1, 0.4, sure),
    )
    side_by_side = priced(sent, product, Wait("g"), profile=exact)
    low, high = step_range(side_by_side)
    both = side_by_side.kernels["m"].time, side_by_side.collectives["g"].time
    assert (low, high) == (pytest.approx(max(both)), pytest.approx(sum(both)))
    assert low < side_by_side.timeline.total < high


@pytest.mark.parametrize("error", [0.01, 0.4])
def test_a_range_is_never_narrower_than_the_errors_of_whole_steps(error):
    kernels = priced(matmul("m"), move("k", 1e9))
    whole = replace(PROFILE, step=StepFit(1.0, evidence("steps", error=error)))
    low, high = step_range(priced(matmul("m"), move("k", 1e9), profile=whole))
    least = 1 + FACTOR * error
    assert high == pytest.approx(max(step_range(kernels)[1], least * kernels.timeline.total))
    assert low == pytest.approx(min(step_range(kernels)[0], kernels.timeline.total / least))


def test_a_range_reaches_as_far_to_either_side_as_whole_steps_did():
    fit = StepFit(1.0, evidence("steps"), (0.5, 3.0))
    step = priced(matmul("m"), profile=replace(PROFILE, step=fit))
    assert step_range(step) == pytest.approx((0.5 * step.timeline.total, 3 * step.timeline.total))


def test_shares_cover_the_whole_step():
    schedule = (
        matmul("a"),
        gather("g"),
        move("k"),
        Branch("b", branches=((move("x", 1),), (move("y"),))),
    )
    step = priced(*schedule)
    assert sum(share.seconds for share in priced_shares(step)) == pytest.approx(step.timeline.total)
    assert "x" not in {share.operation.name for share in priced_shares(step)}


def test_ranges_of_many_configurations():
    sizes = np.array([1e6, 1e9])
    step = priced(move("k", sizes), matmul("m", 1024))
    each = [uncertainty(priced(move("k", size), matmul("m", 1024))) for size in sizes]
    assert uncertainty(step) == pytest.approx(each)


def test_waiting_for_the_host_is_as_uncertain_as_its_link():
    copy = Kernel("c", kind="copy", bytes=3e9, host_bytes=3e9, asynchronous=True)
    step = priced(copy, Wait("c"), move("k", 1e7))
    waited = {share.operation.name: share for share in priced_shares(step)}["c"]
    assert waited.seconds == step.timeline.host > 0.9 * step.timeline.total
    assert waited.evidence == HOST_LINK and grade(step) == "datasheet"
    low, high = step_range(step)
    assert high > 1.25 * step.timeline.total and low < step.timeline.total / 1.25


@pytest.mark.parametrize("name", [*shipped_names(), "mi300x", "tpu-v5p", "rtx4090"])
def test_no_shipped_figure_is_called_known_by_fewer_measurements_than_a_line_needs(name):
    profile = profile_of(catalog.accelerator(name))
    for known in evidences(replace(profile, interference=None)):
        for found in {known.grade, grade_of(known)}:
            assert known.samples >= FEWEST or half_range(known, found) >= UNMEASURED, known
        assert known.samples >= FEWEST or grade_of(known) != "calibrated", known


def test_a_kernel_priced_by_two_measurements_is_extrapolated_and_wide():
    """Two streams and a 90 % quantile of 0.05: nobody knows their spread."""
    profile = profile_of(H100.accelerator)
    two = replace(profile.memory.evidence, samples=2, error_p90=0.05)
    profile = replace(profile, memory=replace(profile.memory, evidence=two))
    step = priced(move("k", 1e10), profile=profile)
    assert grade(step) == "extrapolated"
    assert uncertainty(step) == pytest.approx(UNMEASURED, rel=1e-3)


def test_no_kernel_of_a_range_beats_the_peak_or_the_best_of_its_evidence():
    profile, chip = profile_of(H100.accelerator), H100.accelerator
    product, stream = matmul("m", 16384), move("k", 1e11)
    rate = product.flops / step_range(priced(product, profile=profile))[0]
    assert rate <= profile.matmul[0].best * chip.peak("bf16") * (1 + 1e-9)
    assert 1e11 / step_range(priced(stream, profile=profile))[0] <= chip.memory_bandwidth * (
        1 + 1e-9
    )
