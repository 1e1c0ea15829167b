"""Predictions: sums that must hold, identical calls merged, MFU by its definition."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes import catalog
from scaling.meshes.shape import MeshShape
from scaling.models.accounting import model_flops
from scaling.profiles.io import profile_of
from scaling.program.ir import (
    COLLECTIVE_KINDS,
    Branch,
    Buffer,
    Collective,
    Kernel,
    Loop,
    Origin,
    Program,
    Wait,
)
from scaling.simulate.prediction import prediction_dict
from scaling.simulate.step import price
from scaling.simulate.summary import collective_lines, matrix_flops, summarize

H100 = catalog.load("dgx-h100")
PROFILE = profile_of(H100.accelerator)
MESH = {"data": 2, "fsdp": 2, "tensor": 2}
AXES = [("data",), ("fsdp",), ("tensor",), ("data", "fsdp"), ("data", "fsdp", "tensor")]


def priced(*schedule, mesh=MESH, buffers=(), cluster=H100, **options):
    return price(Program("p", "compiled", mesh, schedule, buffers), cluster, PROFILE, **options)


def gather(name, size=2**26, axes=("fsdp",), **changes):
    return Collective(
        name, kind="all-gather", axes=axes, bytes=size, dtype="bf16", asynchronous=False, **changes
    )


def matmul(name, size=1024, **changes):
    dims = (1, size, size, size)
    return Kernel(
        name, kind="matmul", flops=2.0 * size**3, bytes=6.0 * size**2, dtype="bf16", dims=dims,
        **changes,
    )  # fmt: skip


@st.composite
def schedules(draw, depth=1, prefix="s"):
    """Kernels, collectives that are waited for at once or at the end, and loops of them."""
    steps, waits = [], []
    for i in range(draw(st.integers(0, 5))):
        name = f"{prefix}.{i}"
        what = draw(st.sampled_from(["kernel", "matmul", "collective", "loop"]))
        if what == "loop" and depth:
            body = draw(schedules(depth - 1, name))
            steps.append(Loop(name, body=body, trips=draw(st.integers(0, 4))))
        elif what == "collective":
            kind, axes = draw(st.sampled_from(COLLECTIVE_KINDS)), draw(st.sampled_from(AXES))
            later = draw(st.booleans())
            size = draw(st.sampled_from([64, 2**20, 2**28]))
            call = Collective(name, kind=kind, axes=axes, bytes=size, asynchronous=later)
            steps.append(call)
            waits += [Wait(name)] * later
        elif what == "matmul":
            steps.append(matmul(name, draw(st.sampled_from([16, 512, 4096]))))
        else:
            phase = draw(st.sampled_from(["forward", "optimizer", ""]))
            steps.append(Kernel(name, Origin(phase), bytes=draw(st.floats(0, 1e10))))
    return (*steps, *waits)


@given(schedules())
def test_parts_sum_and_the_document_is_json(schedule):
    found = summarize(priced(*schedule))
    parts = found.time
    five = parts.compute + parts.optimizer + parts.exposed_communication + parts.bubble + parts.host
    assert five == pytest.approx(found.step_time)
    assert found.step_time_low <= found.step_time <= found.step_time_high
    exposed = sum(line.exposed for line in found.collectives)
    assert exposed == pytest.approx(parts.exposed_communication)
    permutes = sum(line.time for line in found.collectives if line.kind == "permute")
    others = sum(line.time for line in found.collectives if line.kind != "permute")
    union = parts.exposed_communication + parts.hidden_communication
    assert max(permutes, others) * (1 - 1e-9) <= union <= (permutes + others) * (1 + 1e-9)
    if not permutes or not others:  # they have two streams
        assert union == pytest.approx(permutes + others)
    json.dumps(prediction_dict(found), allow_nan=False)


@given(st.lists(st.tuples(st.sampled_from(["parameters", "gradients", "activations", "temporary",
                                           "communication", "pinned_host"]),
                          st.integers(0, 2**40)), max_size=6))  # fmt: skip
def test_memory_parts_sum_to_the_peak_without_pinned_memory(owned):
    buffers = tuple(Buffer(f"b{i}", size, owner) for i, (owner, size) in enumerate(owned))
    every = tuple(range(len(buffers)))
    memory = summarize(priced(Kernel("k", writes=every, reads=every), buffers=buffers)).memory
    names = ("parameters", "gradients", "optimizer_state", "activations", "temporary")
    parts = sum(getattr(memory, name) for name in names) + memory.communication
    assert parts == memory.peak == sum(size for owner, size in owned if owner != "pinned_host")
    assert memory.pinned_host == sum(size for owner, size in owned if owner == "pinned_host")
    assert memory.fits == (memory.peak <= 0.92 * H100.accelerator.usable_memory)


def test_identical_calls_are_one_line():
    step = priced(Loop("l", body=(gather("a"), gather("b")), trips=4), gather("c", 2**20))
    first, second = collective_lines(step)
    assert (first.count, first.bytes, second.count, second.bytes) == (8, 2**26, 1, 2**20)
    assert first.time == pytest.approx(8 * step.collectives["a"].time)
    assert first.exposed == pytest.approx(first.time)
    assert (first.kind, first.axis, first.dtype, first.level) == (
        "all-gather",
        "fsdp",
        "bf16",
        "node",
    )


def test_calls_that_differ_in_anything_are_lines_of_their_own():
    calls = [
        gather("a"),
        gather("b", axes=("data",)),
        replace(gather("c"), dtype="fp32"),
        replace(gather("d"), kind="all-reduce"),
        gather("e", axes=("data", "fsdp")),
    ]
    lines = collective_lines(priced(*calls))
    assert len(lines) == 5
    assert "data+fsdp" in {line.axis for line in lines}
    assert list(lines) == sorted(lines, key=lambda line: -line.time)


def test_a_branch_that_is_not_taken_is_not_shown():
    branch = Branch("if", branches=((gather("long"), matmul("m")), (gather("short", 64),)))
    step = priced(branch)
    (line,) = collective_lines(step)
    assert line.bytes == 2**26
    assert matrix_flops(step) == 2 * 1024**3


def test_mfu_is_model_flops_over_what_the_peaks_could_do(toy, hand_step):
    run = replace(
        toy(mesh={"fsdp": 4, "tensor": 2}), precision=replace(toy().precision, compute="bf16")
    )
    step = price(hand_step, H100, PROFILE)
    found = summarize(step, run)
    seconds, batch = found.step_time, run.batch
    credited = model_flops(run.model, batch.global_batch, batch.seq_len)
    assert found.model_flops == credited
    assert found.mfu == pytest.approx(credited / (seconds * 8 * 989.4e12))
    assert found.hfu == pytest.approx(8 * 3 * 2 * 4096**3 / (seconds * 8 * 989.4e12))
    assert found.tokens_per_second == pytest.approx(batch.tokens / seconds)
    assert found.tokens_per_second_per_device == pytest.approx(batch.tokens / seconds / 8)


def test_a_step_that_is_not_ours_has_no_tokens_but_an_hfu(hand_step):
    found = summarize(price(hand_step, H100, PROFILE))
    assert found.tokens_per_second is found.model_flops is found.mfu is None
    assert 0 < found.hfu < 1


def test_an_empty_program_takes_no_time_and_divides_by_nothing(toy):
    found = summarize(priced(), toy())
    assert found.step_time == 0
    assert found.tokens_per_second is found.mfu is found.hfu is None


def test_bytes_between_host_and_device_are_warned_about(toy):
    copy = Kernel("c", kind="copy", bytes=3e9, host_bytes=3e9)
    body = (copy, matmul("m"))
    program = Program("p", "compiled", MESH, (Loop("l", body=body, trips=4),))
    (found,) = summarize(price(program, H100, PROFILE)).warnings
    said = (
        "12 GB move between host and device per step, priced at 50.3 GB/s, which was not measured"
    )
    assert found == said
    assert not summarize(
        price(Program("p", "compiled", MESH, (matmul("m"),)), H100, PROFILE)
    ).warnings
    here = replace(price(program, H100, PROFILE), cluster=replace(H100, virtual_devices=True))
    assert said not in summarize(here).warnings  # the memory of a CPU is the host's


def test_a_step_that_does_not_fit_is_predicted_and_warned_about():
    too_much = Buffer("b", 100e9, "activations")
    found = summarize(
        priced(Kernel("k", writes=(0,), bytes=1e6), buffers=(too_much,)), warnings=["doubt"]
    )
    assert found.memory.fits is False
    assert found.warnings[0] == "doubt"
    assert "does not fit: 100 GB needed at the peak, 78.1 GB there" in found.warnings[-1]
    assert found.step_time > 0


def test_a_chip_without_units_for_the_format_is_said(toy, hand_step):
    chip = replace(H100.accelerator, peaks={"fp32": 15.7e12, "fp16": 125e12})
    step = price(hand_step, replace(H100, accelerator=chip), PROFILE)
    run = replace(toy(), precision=replace(toy().precision, compute="tf32"))
    assert any("has no units for tf32" in text for text in summarize(step, run).warnings)


def test_many_configurations_at_once_are_those_one_by_one():
    sizes = np.array([2.0**20, 2.0**26, 2.0**28])
    moved = np.array([1e6, 1e8, 1e9])

    def step(size, bytes_):
        return (
            gather("a", size),
            Kernel("k", bytes=bytes_),
            Kernel("o", Origin("optimizer"), bytes=bytes_),
        )

    many = summarize(priced(*step(sizes, moved)))
    for i in range(3):
        one = summarize(priced(*step(sizes[i], moved[i])))
        assert many.step_time[i] == pytest.approx(one.step_time)
        assert many.time.optimizer[i] == pytest.approx(one.time.optimizer)
        assert many.collectives[0].exposed[i] == pytest.approx(one.collectives[0].exposed)
    json.dumps(prediction_dict(many), allow_nan=False)


def test_devices_are_those_of_the_mesh(hand_step):
    assert summarize(price(hand_step, H100, PROFILE)).devices == 8
    assert MeshShape(fsdp=4, tensor=2).devices == 8
