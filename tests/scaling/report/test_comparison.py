"""A comparison as text and as one self-contained page."""

import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from scaling.comparing.comparison import (
    SHARED_CORES,
    CollectivePair,
    Comparison,
    KernelPair,
    Pair,
    StepPair,
)
from scaling.report.comparison import MOST_LINES, html_of, table, write_page

FOUND = Comparison(
    name="toy",
    setting="2 layers; mesh fsdp=8; 16 x 64 tokens a step",
    machine="8 x cpu",
    versions={"jax": "0.10.2"},
    step_time=StepPair(Pair(0.081, 0.086), 0.021, 47),
    step_range=(0.07, 0.09),
    time={"compute": Pair(0.06, 0.05), "bubble": Pair(0.0, 0.0), "host": Pair(0.0, 0.01)},
    sums={"kernels": Pair(0.48, 0.4), "kernels and collectives": Pair(0.6, 0.64)},
    collectives=(
        CollectivePair("all-gather", "fsdp", 2**16, Pair(0.001, 0.002), Pair(2**18, 2**18)),
    ),
    kernels=(KernelPair("dot.1", "forward layers/mlp", 2, Pair(0.01, 0.02)),),
    memory=Pair(1e9, 1.25e9),
    compiled_memory=1.1e9,
    grade="calibrated",
)


def test_the_page_says_both_figures_and_the_error():
    first, second, third, fourth, *_ = table(FOUND).split("\n")
    assert first == "toy on 8 x cpu, calibrated figures"
    assert second == "2 layers; mesh fsdp=8; 16 x 64 tokens a step"
    assert third == (
        "step time: 81 ms predicted, 86 ms measured, error -5.8%, spread 2.1% over 47 steps; "
        "range 70 ms to 90 ms"
    )
    assert fourth == "memory of a device: 1 GB predicted, 1.25 GB measured, error -20.0%"


def test_where_devices_share_cores_the_reason_is_said_and_sums_and_bytes_are_compared():
    assert "note:" not in table(FOUND) and "dot.1" in table(FOUND)
    time = {"compute": Pair(0.06, 0.05, comparable=False)}
    text = table(replace(FOUND, warnings=(SHARED_CORES,), time=time))
    assert f"note: {SHARED_CORES}" in text and "dot.1" not in text
    assert re.search(r"compute +60 ms +50 ms +-\n", text)
    assert re.search(r"kernels and collectives +600 ms +640 ms +-6.2%", text)
    assert re.search(r"all-gather\[fsdp\] 64 KiB +256 KiB +256 KiB +\+0.0%", text)


def test_terms_of_nothing_are_left_out():
    text = table(FOUND)
    assert "compute" in text and "host" in text and "bubble" not in text
    assert re.search(r"compute +60 ms +50 ms +\+20.0%", text)
    assert re.search(r"host +0 us +10 ms +-100.0%", text)


def test_what_was_not_measured_is_said():
    bare = replace(
        FOUND,
        step_time=StepPair(Pair(0.081, None), None, 0),
        time={"compute": Pair(0.06, None)},
        memory=Pair(1e9, None),
        sums={},
        collectives=(),
        kernels=(),
    )
    text = table(bare)
    assert "step time: 81 ms predicted, not measured over 0 steps" in text
    assert "1 GB predicted, not measured, 1.1 GB planned by the compiler" in text
    assert re.search(r"compute +60 ms +- +-$", text)
    assert "kernels" not in text


def test_a_step_that_nobody_can_price_has_no_point_figure_and_no_error():
    third = table(replace(FOUND, step_range=(0.07, math.inf))).split("\n")[2]
    assert third.startswith("step time: at least 70 ms predicted, 86 ms measured, spread")


def test_long_tables_end():
    many = replace(FOUND, kernels=FOUND.kernels * 50, collectives=FOUND.collectives * 50)
    assert table(many).count("dot.1") == table(many).count("all-gather") / 2 == MOST_LINES


class Page(HTMLParser):
    """Checks that elements are closed, and collects texts and addresses."""

    VOID = ("meta", "!doctype")

    def __init__(self):
        super().__init__()
        self.open, self.text, self.addresses = [], [], []

    def handle_starttag(self, tag, attributes):
        if tag not in self.VOID:
            self.open.append(tag)
        self.addresses += [v for k, v in attributes if k in ("src", "href", "xlink:href", "data")]

    def handle_startendtag(self, tag, attributes):
        self.addresses += [v for k, v in attributes if k in ("src", "href", "xlink:href", "data")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def read(path):
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    assert page.open == []
    return page


@pytest.fixture
def written(tmp_path):
    return write_page(FOUND, tmp_path / "comparison")


def test_the_page_is_well_formed_and_stands_alone(written):
    page = read(written)
    assert all(address.startswith("#") for address in page.addresses)
    text = written.read_text()
    assert "@import" not in text and "url(http" not in text and "<script" not in text
    assert not re.search(r"https?://(?!www\.w3\.org)", text)  # names of XML are no addresses


def test_the_page_fits_a_phone_and_both_themes(written):
    text = written.read_text()
    assert '<meta name="viewport" content="width=device-width">' in text
    assert "color-scheme: light dark" in text and "prefers-color-scheme: dark" in text
    assert "overflow-wrap: anywhere" in text  # meshes and paths are long words
    assert 'class="bar measured" style="width:100.0%"' in text  # the longest: the step, 86 ms
    assert "2 layers; mesh fsdp=8" in text and "range 70 ms to 90 ms" in text


def test_the_plot_lies_beside_it(written):
    assert written.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in written.with_suffix(".svg").read_text()


def test_names_cannot_break_the_page():
    odd = replace(
        FOUND,
        name="<script>alert('x')</script> & co",
        machine='"><b>',
        kernels=(replace(FOUND.kernels[0], name="<i>"),),
        versions={"<u>": "&"},
    )
    text = html_of(odd)
    assert "<script>" not in text and "<b>" not in text and "<i>" not in text and "<u>" not in text
    assert "&lt;script&gt;" in text and "&amp; co" in text
