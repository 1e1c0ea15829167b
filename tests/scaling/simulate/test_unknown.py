"""A step with a part that nobody can price: no upper bound, and it says so first."""

import json
import math

import pytest

import scaling as sc
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.meshes.units import format_time, three_digits
from scaling.profiles.io import profile_of
from scaling.program.ir import Branch, Kernel, Loop, Program
from scaling.report.notebook import html
from scaling.report.prediction import page
from scaling.simulate.prediction import Prediction, prediction_dict
from scaling.simulate.step import price
from scaling.simulate.summary import summarize
from tests.scaling.hlo.texts import text

KNOWN = Kernel("known", bytes=1e9)
CALL = Kernel("call", kind="custom", bytes=1e3, unknown="mha_forward")
PRODUCT = Kernel("dot", flops=1e12, dtype="bf16", bytes=1e9)


def predicted(*schedule) -> Prediction:
    cluster = catalog.load("dgx-h100")
    program = Program("step", "compiled", {"data": 8}, schedule)
    return summarize(price(program, cluster, profile_of(cluster.accelerator)))


def test_a_call_of_an_unknown_function_leaves_the_step_without_an_upper_bound() -> None:
    found, without = predicted(KNOWN, CALL), predicted(KNOWN)
    assert (found.grade, without.grade) == ("unknown", "calibrated")
    assert found.step_time_high == math.inf and math.isfinite(without.step_time_high)
    assert without.step_time < found.step_time and found.step_time_low < found.step_time
    document = json.loads(json.dumps(prediction_dict(found), allow_nan=False))
    assert document["step_time_high"] is None
    (part,) = document["unknown"]
    assert (part["kind"], part["name"]) == ("kernel", "mha_forward")
    assert part["time"] == pytest.approx(found.step_time - without.step_time)


def test_all_unknown_functions_are_named_the_longest_first() -> None:
    other = Kernel("other", kind="custom", bytes=1e6, unknown="sparse")
    found = predicted(KNOWN, Loop("loop", body=(CALL,), trips=3), other, CALL)
    assert [(part.name, part.calls) for part in found.unknown] == [
        ("mha_forward", 4),
        ("sparse", 1),
    ]


def test_a_loop_of_unknown_length_names_its_line() -> None:
    body = (KNOWN, Branch("b", branches=((CALL,), (KNOWN,))))
    found = predicted(Loop("loop", body=body, unknown="step.py:6"))
    loop = next(part for part in found.unknown if part.kind == "loop")
    assert (loop.name, loop.calls, found.grade) == ("step.py:6", 1, "unknown")
    assert loop.time == pytest.approx(found.step_time)
    assert [part.name for part in found.unknown] == ["step.py:6", "mha_forward"]


def test_loops_of_one_line_inside_of_each_other_count_what_they_run_once() -> None:
    inner = Loop("inner", body=(KNOWN,), unknown="gamma.py:3")
    found = predicted(Loop("outer", body=(inner, CALL), unknown="gamma.py:3"))
    (loop,) = [part for part in found.unknown if part.kind == "loop"]
    assert (loop.calls, loop.time) == (2, pytest.approx(found.step_time))


def test_the_first_lines_of_the_page_say_what_is_not_known() -> None:
    lines = page(
        predicted(KNOWN, Loop("l", body=(CALL,), unknown="step.py:6")), "here"
    ).splitlines()
    assert "unknown figures" in lines[0] and "at least" in lines[1]
    assert any("1 call of mha_forward, at least" in line for line in lines[2:4])
    assert any(
        "the loop at step.py:6" in line and "--trips step.py:6=N" in line for line in lines[2:4]
    )


def test_an_open_step_has_no_point_figure_and_no_rate_that_it_may_not_reach() -> None:
    made = Program("step", "compiled", {"data": 8}, (KNOWN, PRODUCT, CALL))
    cluster = catalog.load("dgx-h100")
    priced = price(made, cluster, profile_of(cluster.accelerator))
    found = summarize(priced, given=(1e6, 1e12))
    low, point = format_time(found.step_time_low), format_time(found.step_time)
    lines = page(found, "here").splitlines()
    assert lines[1].startswith(f"step at least {low}, at most ") and point not in lines[1]
    assert "MFU at most" in lines[1] and "HFU" not in lines[1]
    assert f"at most {three_digits(1e6 / found.step_time_low)} tokens/s" in lines[1]
    assert lines[2].startswith("not priced: 1 call of mha_forward")
    assert f">at least {low}<" in html(found, "here") and f">{point}" not in html(found, "here")
    document = prediction_dict(found)
    assert document["step_time"] == found.step_time and document["step_time_high"] is None


def test_a_result_with_an_open_step_says_at_least() -> None:
    call = 'x = f32[8] parameter(0); y = f32[8] custom-call(%x), custom_call_target="mha"'
    found = sc.predict_hlo(text(call), "dgx-h100", kernels={"mha": "local"})
    assert repr(found).endswith(f": at least {found.step_time_low:.4g} s>")
    assert str(found).splitlines()[1].startswith("step at least ")


def product(dtype: str) -> Kernel:
    side = 8192
    dims = (1, side, side, side)
    moved = 3.0 * side**2
    flops = 2.0 * side**3
    return Kernel("dot", kind="matmul", flops=flops, bytes=moved, dtype=dtype, dims=dims)


def test_products_of_integers_and_doubles_have_their_own_rates() -> None:
    bf16, int8, int32, fp64 = (
        predicted(product(d)).step_time for d in ("bf16", "int8", "int32", "fp64")
    )
    assert 0.4 < int8 / bf16 < 0.7  # twice the rate
    assert 10 < fp64 / bf16 < 20 and 20 < int32 / bf16 < 40  # 66.9 and 33.5 of 989 TFLOP/s


def test_a_product_without_a_rate_does_not_refuse_the_step() -> None:
    found = predicted(KNOWN, product("s64"))
    (part,) = found.unknown
    assert (part.kind, part.name, found.grade) == ("format", "s64", "unknown")
    assert "1 product in s64" in page(found, "here").splitlines()[2]
    cluster = catalog.load("dgx-h100")
    program = Program("step", "analytic", {"data": 8}, (product("s64"),))
    with pytest.raises(InputError, match="no peak rate for 's64'"):
        price(program, cluster, profile_of(cluster.accelerator))
