"""Formulas: the numbers in them give the figure that they explain."""

import re
from dataclasses import replace

import pytest

from scaling.meshes import catalog
from scaling.meshes.units import parse_quantity
from scaling.models.pipeline.schedule import FILL
from scaling.profiles.io import profile_of
from scaling.program.ir import Collective, Kernel, Loop, Origin, Program
from scaling.report.formulas import BOOK, formulas
from scaling.simulate.pipeline_bubble import mark_bubbles
from scaling.simulate.step import price
from scaling.simulate.summary import summarize


@pytest.fixture
def lines(hand_priced, toy):
    run = replace(toy(mesh={"fsdp": 4, "tensor": 2}), name="hand")
    return formulas(hand_priced, summarize(hand_priced, run)).split("\n")


def line_of(lines, start):
    return next(line.strip() for line in lines if line.strip().startswith(start))


def test_the_longest_kernel_is_a_roofline_with_its_numbers(lines, hand_priced):
    found = line_of(lines, "3 x matmul dot.1")
    work, bytes_ = 2.0 * 4096**3, 6.0 * 4096**2
    assert "= max(137 GFLOP / " in found and ", 101 MB / " in found
    cost = hand_priced.kernels["dot.1"]
    rate = parse_quantity(found.split("GFLOP / ")[1].split(",")[0].replace("FLOP/s", "B"), "B")
    assert rate == pytest.approx(work / cost.compute, rel=0.01)
    rate = parse_quantity(found.split("MB / ")[1].split(")")[0].replace("/s", ""), "B")
    assert rate == pytest.approx(bytes_ / cost.memory, rel=0.01)


def test_constants_name_their_sources(lines):
    text = "\n".join(lines)
    assert "% of 989 TFLOP/s, the peak of bf16 (NVIDIA H100" in text
    assert "% of 3.35 TB/s of the memory (" in text


def test_memory_and_mfu_are_their_parts(lines):
    sums = "3 GB parameters + 6 GB optimizer state + 2 GB activations + 1 GB temporary"
    assert line_of(lines, "memory") == f"memory 12 GB = {sums}"
    assert " x 8 devices x 66.9 TFLOP/s)" in line_of(lines, "MFU")


def test_every_term_names_its_section_of_the_guide(lines):
    terms = [line for line in lines if line[:2] == "  " != line[2:4]]
    assert len([line for line in lines if BOOK in line]) == len(terms) == 5


def test_rows_that_are_taken_again_are_among_the_bytes():
    """Half of them, of a table twice as large as the cache."""
    h100 = catalog.load("dgx-h100")
    table = 2 * h100.accelerator.required("l2_cache")
    rows = Kernel("rows", bytes=2e9, again=6e9, spread=table, vector_flops=1.0)
    priced = price(Program("p", "compiled", {"d": 8}, (rows,)), h100, profile_of(h100.accelerator))
    assert priced.kernels["rows"].moved == 5e9
    found = formulas(priced, summarize(priced)).split("\n")
    assert ", 5 GB / " in line_of(found, "1 x fusion rows")


def test_a_collective_and_the_bubble_are_explained():
    hop = Collective("hop", kind="permute", axes=("stage",), bytes=2**20, asynchronous=False)
    body = (hop, Kernel("k", bytes=1e9))
    ticks = Loop("fill", Origin(layer=FILL), body=body, trips=3), Loop("t", body=body, trips=8)
    program = mark_bubbles(Program("p", "compiled", {"stage": 4}, ticks))
    h100 = catalog.load("dgx-h100")
    priced = price(program, h100, profile_of(h100.accelerator))
    found = formulas(priced, summarize(priced)).split("\n")
    assert "of latency + " in line_of(found, "11 x permute[stage]")
    constants = line_of(found, "NVLink of a chip: alpha ")
    assert re.search(
        r" us a call; 1 hop x .* \(of the links: .*\) \+ .* beyond; efficiency ", constants
    )
    assert "% of 450 GB/s (of the links: " in constants
    assert re.search(r"\n *(calibrated|datasheet): .*published", "\n".join(found))
    assert line_of(found, "pipeline bubble").endswith(
        "= 3 passes forward and backward in which a stage has no work"
    )


def test_a_host_that_is_late_says_for_how_long_it_issues():
    quick = Loop("layers", body=(Kernel("k", bytes=1e3, issue=1e-3),), trips=10)
    h100 = catalog.load("dgx-h100")
    priced = price(Program("p", "analytic", {}, (quick,)), h100, profile_of(h100.accelerator))
    found = formulas(priced, summarize(priced)).split("\n")
    assert line_of(found, "waiting for the host").startswith(
        "waiting for the host 9.99 ms: it issues for 10 ms"
    )
