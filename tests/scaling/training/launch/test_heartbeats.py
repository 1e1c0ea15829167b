"""Who stands still, from the heartbeats alone."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.training.launch.heartbeats import (
    FLOOR,
    LEARN,
    LONG,
    NAMED,
    PLACES,
    TIMES,
    Beat,
    read_beat,
    step_limit,
    stuck,
    unanswered,
    verdict,
)

SECONDS = st.floats(0, 10_000)
BEAT = st.builds(
    Beat,
    count=st.integers(0, 5),
    step=st.integers(0, 100),
    place=st.sampled_from(list(PLACES)),
    waited=SECONDS,
    limit=SECONDS,
    host=st.text(max_size=5),
    silent=st.sampled_from([0.0, 21.0]),
)
JOB = st.lists(BEAT, min_size=1, max_size=6).map(lambda beats: dict(enumerate(beats)))
STEP = Beat(20, 10, "step", 400.0, 300.0, "node")


@given(BEAT)
def test_a_beat_can_be_read_back(beat):
    assert read_beat(beat.text()) == beat


@given(JOB)
def test_only_who_is_behind_or_silent_is_named(beats):
    found, least = stuck(beats), min(beat.count for beat in beats.values())
    for i in found or []:
        assert beats[i].count == least or beats[i].silent
    if any(b.count == least and b.waited <= b.limit for b in beats.values()):
        assert found is None  # it may go on: however long the others wait


@given(JOB, st.permutations(range(6)), SECONDS)
def test_numbers_do_not_matter_and_time_only_confirms(beats, order, later):
    renamed = {order[i]: beat for i, beat in beats.items()}
    found = stuck(beats)
    again = stuck(renamed)
    assert (again is None) == (found is None)
    assert found is None or sorted(again) == sorted(order[i] for i in found)
    if found is not None:
        waiting = {i: replace(b, waited=b.waited + later) for i, b in beats.items()}
        assert stuck(waiting) == found


@given(st.lists(st.integers(1, 3), min_size=1, max_size=6), st.integers(0, 6), st.text(max_size=9))
def test_one_that_stands_still_is_named_with_host_step_and_stack(ahead, at, host):
    """The others wait in the next steps, each for a collective in which it does not take part."""
    others = [replace(STEP, count=STEP.count + n, waited=390.0) for n in ahead]
    place = min(at, len(ahead))
    job = [*others[:place], replace(STEP, place="data", host=host), *others[place:]]
    assert stuck(dict(enumerate(job))) == [place]
    said = verdict(dict(enumerate(job)), [place], {place: "loader.py:5 in read"}, {})
    assert said.startswith(
        f"stuck: process {place} ({host}) stands still for 400 s waiting for the batch of step 10; "
        "its limit is 300 s"
    )
    assert "  loader.py:5 in read" in said


def test_who_waits_for_a_checkpoint_has_patience():
    saves = replace(STEP, count=19, place="checkpoints", limit=LONG)
    assert stuck({0: saves, 1: STEP}) is None
    assert stuck({0: replace(saves, waited=LONG + 1), 1: STEP}) == [0]


def test_a_silent_one_is_named_though_it_is_not_behind():
    silent = replace(STEP, silent=390.0)
    assert stuck({0: STEP, 1: silent, 2: STEP}) == [1]
    assert "does not answer for 390 s" in verdict({1: silent}, [1], {}, {})


def test_where_nobody_is_behind_rare_stacks_and_links_are_shown():
    job = {i: STEP for i in range(4)}
    assert stuck(job) == []
    stacks = {0: "a.py:1 in f", 1: "b.py:1 in g", 2: "a.py:1 in f", 3: "a.py:1 in f"}
    links = {0: [("10.0.0.1", "10.0.0.2")], 1: [("10.0.0.2", "10.0.0.3")], 2: []}
    first, *shown, last = verdict(job, [], stacks, links).splitlines()
    assert "all processes wait for 400 s in step 10, none is behind" in first
    assert "link of 10.0.0.2 (process 1):" in last
    assert shown == ["  process 1: b.py:1 in g", "  3 processes, 0 first: a.py:1 in f"]


def test_a_message_names_a_few_of_many():
    job = {i: replace(STEP, count=STEP.count + i // 20) for i in range(1000)}
    said = verdict(job, stuck(job), {}, {}).splitlines()
    assert len(said) == NAMED + 2 and said[-2].startswith("and 12 more: [8, 9")
    assert said[-1] == "980 processes, 20 first: in step 10"


def test_limits_follow_the_steps():
    assert step_limit(None, "step", LEARN, []) == LONG  # connections are made
    assert step_limit(None, "checkpoints", 99, [1.0]) == LONG
    assert step_limit(None, "step", 99, [1.0, 2.0]) == FLOOR
    assert step_limit(None, "data", 99, [FLOOR] * 3) == TIMES * FLOOR
    assert step_limit(2, "step", 99, [FLOOR] * 3) == 120
    assert step_limit(2, "evaluation", 99, [1.0]) == LONG
    assert step_limit(60, "evaluation", 99, [1.0]) == 3600


HEAD = "  sl  local_address rem_address st tx_queue:rx_queue tr:when retrnsmt uid timeout inode\n"
TABLE = """   0: 01004D0A:1F90 02004D0A:A001 01 4A0:0 01:32 00000007 0 0 77 2
   1: 01004D0A:1F91 03004D0A:A001 01 0:0 00:0 00000000 0 0 78 2
   2: 01004D0A:1F92 03004D0A:A001 01 1:0 01:32 00000001 0 0 79 2
"""
TABLE6 = """\
   0: 0000000000000000FFFF000001004D0A:1F90 0000000000000000FFFF000002004D0A:A001 01 1:0 1:1 2 0 0 9
   1: B80D0120000000000000000001000000:1F90 B80D0120000000000000000002000000:A001 01 1:0 1:1 2 0 0 9
"""


@pytest.mark.parametrize(
    ("table", "links"),
    [
        (HEAD + TABLE, [("10.77.0.1", "10.77.0.2")]),
        (HEAD + TABLE6, [("10.77.0.1", "10.77.0.2"), ("2001:db8::1", "2001:db8::2")]),
        ("", []),
    ],
)
def test_connections_that_get_no_answer_are_read(table, links):
    assert unanswered(table, {"socket:[77]", "socket:[78]", "socket:[9]"}) == links
