"""Traces: Chrome's event format, as Perfetto reads it, with the times of the timeline."""

import json
from dataclasses import replace

import pytest
from jax.profiler import ProfileData

from scaling.comparing.recorded import RecordedEvent
from scaling.meshes import catalog
from scaling.program.ir import Collective, Kernel, Origin
from scaling.report.trace import label, measured_events, trace_events, write_trace
from scaling.report.xplane import xspace

H100 = catalog.load("dgx-h100")


def shown(events):
    return [event for event in events if event["ph"] == "X"]


def test_every_event_has_what_the_format_asks_for(hand_priced):
    events = trace_events(hand_priced)
    assert {event["ph"] for event in events} == {"M", "X", "C"}
    for event in events:
        assert {"ph", "name", "pid", "tid", "args"} <= set(event)
    for event in shown(events):
        assert event["ts"] >= 0 and event["dur"] >= 0
        assert event["args"]["source"].startswith("profile h100-sxm, ")
        assert event["args"]["formula"] and event["args"]["bytes"] is not None


def test_the_memory_is_a_counter_that_reaches_the_peak(hand_priced):
    counters = [event for event in trace_events(hand_priced) if event["ph"] == "C"]
    assert max(sum(event["args"].values()) for event in counters) == hand_priced.memory.peak == 12e9
    times = [event["ts"] for event in counters]
    assert times == sorted(times) and times[0] == 0


def test_each_stream_is_a_track_with_a_name(hand_priced):
    events = trace_events(hand_priced, title="this")
    names = {(e["name"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M"}
    assert names == {
        ("process_name", 0): "this",
        ("thread_name", 1): "compute",
        ("thread_name", 2): "communication",
    }
    assert {event["pid"] for event in events} == {1}
    assert {e["tid"] for e in shown(events) if "all-" in e["name"]} == {2}


def test_names_say_what_along_which_axis_where_and_how_much():
    origin = Origin("forward", "layers/mlp")
    sent = Collective("a", origin, kind="all-gather", axes=("fsdp",), bytes=117e6)
    assert label(sent) == "all-gather[fsdp] layers/mlp 117 MB"
    both = replace(sent, axes=("data", "fsdp"), origin=Origin("backward"))
    assert label(both) == "all-gather[data+fsdp] backward 117 MB"
    assert label(Kernel("dot.1", origin, kind="matmul")) == "matmul layers/mlp dot.1"
    assert label(Kernel("copy.1", kind="copy")) == "copy copy.1"


def recorded(name, start, device=0, stream="Stream #1"):
    return RecordedEvent(device, stream, name, "jit_step", start, 0.5)


def test_measured_events_are_those_of_the_first_device_from_zero(hand_step):
    found = [
        recorded("dot.1", 10.0),
        recorded("gather.1", 10.2, stream="Stream #2"),
        recorded("dot.1", 9.0, device=1),
        recorded("while.1", 10.0),
        recorded("unknown.3", 10.7),
        replace(recorded("somebody_elses", 8.0), module="jit_other"),
    ]
    events = measured_events(found, hand_step)
    names = [event["name"] for event in shown(events)]
    assert names == ["matmul layers/mlp dot.1", "all-gather[fsdp] layers/mlp 64 MiB", "unknown.3"]
    assert [event["ts"] for event in shown(events)] == pytest.approx([0.0, 0.2e6, 0.7e6])
    assert [event["dur"] for event in shown(events)] == [0.5e6, 0.5e6, 0.5e6]
    assert [event["tid"] for event in shown(events)] == [1, 2, 1]
    assert {event["pid"] for event in events} == {2}


def test_both_processes_make_one_valid_file(hand_priced, hand_step, tmp_path):
    both = trace_events(hand_priced) + measured_events([recorded("dot.1", 1.0)], hand_step)
    write_trace(both, tmp_path / "both.json")

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    document = json.loads((tmp_path / "both.json").read_text(), parse_constant=refuse)
    assert document["displayTimeUnit"] == "ms"
    assert {event["pid"] for event in document["traceEvents"]} == {1, 2}
    titles = {e["args"]["name"] for e in document["traceEvents"] if e["name"] == "process_name"}
    assert titles == {"predicted", "measured"}


def test_a_folder_for_xprof_holds_the_same_events_in_picoseconds(hand_priced, hand_step, tmp_path):
    both = trace_events(hand_priced) + measured_events([recorded("dot.1", 1.0)], hand_step)
    write_trace(both, tmp_path / "both.xprof")
    (file,) = (tmp_path / "both.xprof" / "plugins" / "profile").glob("*/both.xplane.pb")
    predicted, measured, host = ProfileData.from_file(str(file)).planes
    assert (predicted.name, measured.name) == ("/device:GPU:0", "/device:GPU:1")
    lines = {line.name: list(line.events) for line in predicted.lines}
    assert set(lines) == {"Steps", "Stream #1(compute)", "Stream #2(communication)"}
    made = sorted(
        (e.name.removeprefix("nccl ").removesuffix(" half"), e.start_ns, e.duration_ns)
        for n in lines
        if n != "Steps"
        for e in lines[n]
    )
    given = sorted((e["name"], e["ts"], e["dur"]) for e in shown(both) if e["pid"] == 1)
    assert [name for name, *_ in made] == [name for name, *_ in given]
    for column in (1, 2):
        assert [e[column] for e in made] == pytest.approx([1e3 * e[column] for e in given], abs=1)
    (step,) = lines["Steps"]
    assert step.duration_ns == pytest.approx(max(start + long for _, start, long in made), abs=1)
    stats = dict(next(e for e in lines["Stream #1(compute)"] if "dot.1" in e.name).stats)
    assert stats["tf_op"].endswith("dot.1:matmul") and stats["flops"] > 0
    ((marker,),) = (line.events for line in host.lines)
    longest = max(e["ts"] + e["dur"] for e in shown(both))
    assert (host.name, marker.name) == ("/host:CPU", "train")
    assert marker.duration_ns == pytest.approx(1e3 * longest, abs=1)


def fields(message):
    """The fields of a serialized message of protobuf: number -> values, bytes or whole numbers."""
    found, at = {}, 0

    def varint():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = message[at]
            at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while at < len(message):
        number, kind = divmod(varint(), 8)
        assert kind in (0, 2)  # a number, or bytes
        value = varint()
        if kind == 2:
            value, at = message[at : at + value], at + value
        found.setdefault(number, []).append(value)
    return found


def test_events_for_xprof_have_what_its_pages_of_the_step_time_count(hand_priced):
    space = fields(xspace(trace_events(hand_priced)))  # numbers of fields: tsl's xplane.proto
    plane, host = map(fields, space[1])
    assert (plane[2], host[2]) == ([b"/device:GPU:0"], [b"/host:CPU"])
    assert 5 not in host  # no group_id: XProf would leave out what it makes of the others
    named = {entry[1][0]: fields(entry[2][0])[2][0] for entry in map(fields, plane[5])}
    numbers = {key: number for number, key in named.items()}
    events_named = {entry[1][0]: fields(entry[2][0])[2][0] for entry in map(fields, plane[4])}
    steps, *streams = [fields(line) for line in plane[3]]
    assert (steps[1], steps[2]) == ([0xDEADBEEF], [b"Steps"]) and streams
    for event in (fields(event) for line in streams for event in line[4]):
        stats = {stat[1][0]: stat for stat in map(fields, event[4])}
        group, launch = (stats[numbers[key]] for key in (b"group_id", b"correlation_id"))
        assert (group[4], launch[4]) == ([1], [0])  # int64_value, not uint64_value
        name = events_named[event[1][0]]
        assert not name.startswith(b"matmul") or name.endswith(b" half")  # of bf16
    collectives = {name for name in events_named.values() if b"all-" in name}
    assert collectives and all(name.startswith(b"nccl all-") for name in collectives)


def test_texts_of_a_trace_for_xprof_may_hold_anything():
    words = {"ph": "X", "ts": 0.0, "dur": 1.0, "pid": 1, "tid": 1, "args": {"bound": 'a"b\\\né'}}
    head = {"ph": "M", "pid": 1, "tid": 1, "args": {"name": "one"}}
    names = [head | {"name": "process_name"}, head | {"name": "thread_name"}]
    space = xspace([*names, words | {"name": 'x "y" \\ ü'}])
    plane, _ = ProfileData.from_serialized_xspace(space).planes
    (event,) = list(plane.lines)[1].events
    assert event.name == 'x "y" \\ ü' and dict(event.stats)["bound"] == 'a"b\\\né'


def test_no_folder_is_made_for_a_folder_of_xprof(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_trace([], tmp_path / "none" / "a.xprof")
    assert not [*tmp_path.iterdir()]
