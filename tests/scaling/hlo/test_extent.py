"""Texts that stand for more work than they look like: read in proportion to their size, or refused.

Work is counted in calls of functions, not in seconds.
"""

import json
from functools import partial

import pytest

import scaling as sc
from scaling.hlo import extent, fusions, parse
from scaling.hlo.extent import check_extent
from scaling.hlo.parse import parse_module
from scaling.hlo.reader import read_program
from scaling.meshes.errors import InputError
from scaling.simulate import timeline
from tests.calls import calls
from tests.scaling.hlo.work import at_most

HEAD = "HloModule step, is_scheduled=true, num_partitions=8\n"
ARRAY = "f32[8]{0}"
TRIPS = 'backend_config={"known_trip_count":{"n":"%s"}}'
COLLECTIVE = "channel_id=1, replica_groups=[1,8]<=[8], use_global_device_ids=true, to_apply=%add"
CONDITION = (f"%p = {ARRAY} parameter(0)", "ROOT %q = pred[] constant(true)")
ADD = ("%a = f32[] parameter(0)", "%b = f32[] parameter(1)", "ROOT %c = f32[] add(%a, %b)")
LEAF = (f"%p = {ARRAY} parameter(0)", f"ROOT %y = {ARRAY} add(%p, %p)")
ONCE = {  # how a computation runs another
    "call": f"{ARRAY} call(%s), to_apply=%s",
    "while": f"{ARRAY} while(%s), condition=%%c, body=%s, " + TRIPS % 2,
    "fusion": f"{ARRAY} fusion(%s), kind=kLoop, calls=%s",
}


def computation(name, *lines, result="f32[8]", parameters="p: f32[8]"):
    return f"%{name} ({parameters}) -> {result} {{\n" + "".join(f"  {x}\n" for x in lines) + "}\n"


def module(*lines, others=""):
    """The text of a module whose entry has these lines after its argument %x."""
    return HEAD + others + entry(*lines)


def entry(*lines):
    body = "".join(f"  {line}\n" for line in (f"%x = {ARRAY} parameter(0)", *lines))
    return f"ENTRY %main (x: f32[8]) -> f32[8] {{\n{body}}}"


def twice(how, depth):
    """Computations each of which runs the one below twice."""
    once, texts = (
        ONCE[how],
        [computation("c", *CONDITION, result="pred[]"), computation("b0", *LEAF)],
    )
    for i in range(1, depth):
        lines = (
            f"%p = {ARRAY} parameter(0)",
            f"%u{i} = " + once % ("%p", f"%b{i - 1}"),
            f"ROOT %v{i} = " + once % (f"%u{i}", f"%b{i - 1}"),
        )
        texts.append(computation(f"b{i}", *lines))
    return module("ROOT %r = " + once % ("%x", f"%b{depth - 1}"), others="".join(texts))


def nested(depth, trips):
    """Loops around loops."""
    texts = [computation("c", *CONDITION, result="pred[]"), computation("b0", *LEAF)]
    loop = f"ROOT %%w%d = {ARRAY} while(%%%s), condition=%%c, body=%%b%d, " + TRIPS % trips
    for i in range(1, depth):
        texts.append(computation(f"b{i}", f"%p = {ARRAY} parameter(0)", loop % (i, "p", i - 1)))
    return module(loop % (depth, "x", depth - 1), others="".join(texts))


def chain(length):
    """Instructions each of which takes the one before, without a name of where they come from."""
    lines = [f"%a{i} = {ARRAY} add(%a{i - 1}, %x)" for i in range(1, length)]
    return module(f"%a0 = {ARRAY} add(%x, %x)", *lines, f"ROOT %r = {ARRAY} add(%x, %x)")


def carried(length):
    """A tuple of many arrays, all of which are taken out of it."""
    arrays = [f"%a{i} = {ARRAY} add(%x, %x)" for i in range(length)]
    names = ", ".join(f"%a{i}" for i in range(length))
    taken = [f"%g{i} = {ARRAY} get-tuple-element(%t), index={i}" for i in range(length)]
    shapes = ", ".join([ARRAY] * length)
    return module(
        *arrays, f"%t = ({shapes}) tuple({names})", *taken, f"ROOT %r = {ARRAY} add(%g0, %g0)"
    )


def price(text):
    return sc.predict_hlo(text, "dgx-h100")


@pytest.fixture(scope="module", autouse=True)
def loaded():
    """What a first price imports and reads is not counted."""
    price(module(f"ROOT %y = {ARRAY} add(%x, %x)"))


@pytest.mark.parametrize("how", ["call", "fusion"])
def test_what_is_called_twice_counts_twice(how):
    """Two instructions, then three and twice as many, then three and twice these; two around."""
    assert check_extent(parse_module(twice(how, 3))) == 2 + (3 + 2 * (3 + 2 * 2))


@pytest.mark.parametrize("how", ONCE)
def test_a_few_lines_that_stand_for_billions_of_instructions_are_refused(how):
    with at_most(100_000), pytest.raises(InputError, match="as often as it is called"):
        price(twice(how, 41))
    ring = computation("a", LEAF[0], "ROOT %y = " + ONCE[how] % ("%p", "%a"))
    ring += computation("c", *CONDITION, result="pred[]")
    with at_most(100_000), pytest.raises(InputError, match="more than 60 deep"):
        price(module("ROOT %r = " + ONCE[how] % ("%x", "%a"), others=ring))


def test_what_is_called_often_is_priced_as_often():
    below = price(module("%a = " + ARRAY + " add(%x, %x)", f"ROOT %r = {ARRAY} add(%a, %a)"))
    assert price(twice("call", 5)).step_time == pytest.approx(8 * below.step_time)


def test_a_fusion_that_stands_in_many_is_read_once(monkeypatch):
    read, needed = [], fusions._needed
    monkeypatch.setattr(fusions, "_needed", lambda b, done: read.append(b.name) or needed(b, done))
    price(twice("fusion", 9))
    assert sorted(read) == [f"b{i}" for i in range(9)]


@pytest.mark.parametrize("text", [chain, carried], ids=["chain", "tuple"])
def test_work_grows_as_the_text_does(text):
    small, large, larger = (calls(partial(price, text(length))) for length in (50, 100, 200))
    assert larger - large < 2.3 * (large - small)


def test_work_grows_as_the_operands_of_one_line_do():
    operands = lambda n: module(f"ROOT %r = {ARRAY} add(%x" + ", %x" * n + ")")
    small, large, larger = (calls(partial(price, operands(n))) for n in (200, 400, 800))
    assert larger - large < 2.3 * (large - small)


@pytest.mark.parametrize("trips", ["inf", "1e5", "-5", "NaN", "1" + "0" * 30, "9" * 5000])
def test_a_number_of_iterations_that_is_none_is_refused(trips):
    with pytest.raises(InputError, match="a loop that runs '.{2,400}' times"):
        price(nested(2, trips))


@pytest.mark.parametrize(
    ("how", "config"),
    [
        ("fusion", {"reification_cost": [7]}),
        ("while", {"known_trip_count": 3}),
        ("while", {"known_trip_count": []}),
    ],
)
def test_a_configuration_of_another_form_is_refused(how, config):
    others = computation("c", *CONDITION, result="pred[]") + computation("b", *LEAF)
    line = "ROOT %y = " + (ONCE[how] % ("%x", "%b")).partition(", backend_config=")[0]
    with pytest.raises(InputError, match=r"its lines contradict each other \(AttributeError"):
        price(module(f"{line}, backend_config={json.dumps(config)}", others=others))


def test_loops_around_loops_run_as_often_as_a_number_can_say():
    assert price(nested(5, 1000)).step_time == pytest.approx(
        1000**5 * price(nested(2, 1)).step_time
    )
    with pytest.raises(InputError, match="more than 1e.18 times"):
        price(nested(7, 1000))


def test_a_loop_whose_collectives_fall_behind_is_counted():
    """Nothing waits for them: each iteration takes as long as the one before."""
    start = f"%s = {ARRAY} all-reduce-start(%p), {COLLECTIVE}"
    parameters = "a: f32[], b: f32[]"
    others = (
        computation("add", *ADD, result="f32[]", parameters=parameters)
        + computation("c", *CONDITION, result="pred[]")
        + computation("body", LEAF[0], start, LEAF[1])
    )
    loop = f"ROOT %%w = {ARRAY} while(%%x), condition=%%c, body=%%body, " + TRIPS
    few, many = (price(module(loop % trips, others=others)) for trips in (100, 10**12))
    assert many.step_time == pytest.approx(10**10 * few.step_time)


def test_a_step_of_too_many_operations_is_refused(monkeypatch):
    monkeypatch.setattr(timeline, "MOST_RUN", 1)
    with pytest.raises(InputError, match="would be run one by one"):
        price(nested(2, 1000))


def test_a_line_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(parse, "LONGEST", 1000)
    name = 'metadata={op_name="' + "a" * 1000 + '"}'
    with pytest.raises(InputError, match=r"a line of 1,\d+ characters, where up to 1,000 are read"):
        price(module(f"ROOT %r = {ARRAY} add(%x, %x), {name}"))


def test_a_program_of_too_many_instructions_is_refused(monkeypatch):
    monkeypatch.setattr(extent, "MOST_INSTRUCTIONS", 100)
    read_program(chain(90), {"data": 8}, "chain")
    with pytest.raises(InputError, match="main runs 102 instructions, .*up to 100 are read"):
        read_program(chain(100), {"data": 8}, "chain")
