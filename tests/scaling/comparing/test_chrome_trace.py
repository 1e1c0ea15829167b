"""Traces in JSON: read as the xplane beside them, and refused where they are none."""

import gzip
import json

import pytest

from scaling.comparing import chrome_trace
from scaling.comparing.chrome_trace import read_trace
from scaling.comparing.recorded import recorded_events
from scaling.meshes.errors import InputError

HEADS = [
    {"ph": "M", "pid": 3, "name": "process_name", "args": {"name": "/device:GPU:2"}},
    {"ph": "M", "pid": 3, "tid": 1, "name": "thread_name", "args": {"name": "Stream #13(Compute)"}},
    {"ph": "M", "pid": 3, "tid": 2, "name": "thread_name", "args": {"name": "XLA Ops"}},
    {"ph": "M", "pid": 9, "name": "process_name", "args": {"name": "/host:CPU"}},
]
KERNEL = {
    "ph": "X", "pid": 3, "tid": 1, "ts": 10.5, "dur": 2.0, "name": "loop_add_fusion_1",
    "args": {"hlo_op": "outer::loop_add_fusion.1", "hlo_module": "jit_step"},
}  # fmt: skip


def write(path, *events, text=None):
    content = json.dumps({"traceEvents": [*HEADS, *events, {}]}) if text is None else text
    path.write_bytes(gzip.compress(content.encode()) if path.suffix == ".gz" else content.encode())
    return path


@pytest.mark.parametrize("name", ["host.trace.json.gz", "perfetto_trace.json.gz", "any.json"])
def test_a_kernel_has_device_stream_instruction_and_its_own_name(tmp_path, name):
    copy = KERNEL | {"name": "MemcpyH2D", "args": {}}
    derived, host = KERNEL | {"tid": 2}, KERNEL | {"pid": 9}
    place = write(tmp_path / name, KERNEL, copy, derived, host)
    (event,) = recorded_events(place)
    assert (event.device, event.stream, event.module) == (2, "Stream #13(Compute)", "jit_step")
    assert (event.name, event.kernel) == ("loop_add_fusion.1", "loop_add_fusion_1")
    assert (event.start, event.duration, event.run) == (
        pytest.approx(10.5e-6),
        pytest.approx(2e-6),
        None,
    )


def test_a_command_buffer_is_no_instruction(tmp_path):
    args = {"hlo_op": "command_buffer.3", "hlo_module": "jit_step"}
    (event,) = recorded_events(write(tmp_path / "a.json", KERNEL | {"args": args}))
    assert (event.name, event.kernel, event.module) == ("", "loop_add_fusion_1", "jit_step")


def test_a_folder_with_traces_only_is_read(tmp_path):
    place = tmp_path / "plugins" / "profile" / "2026_01_01"
    place.mkdir(parents=True)
    write(place / "a.trace.json.gz", KERNEL)
    write(place / "b.trace.json.gz", KERNEL)
    assert [event.device for event in recorded_events(tmp_path)] == [2, 5]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "", "is not JSON, or cut off"),
        ("a.json", '{"traceEvents": [{"ph": ', "is not JSON, or cut off"),
        ("a.json", "[" * 100_000, "is not JSON, or cut off"),
        ("a.json", '{"step_time": 1}', 'no trace: it has no "traceEvents"'),
        ("a.json", "3", "is no trace"),
        ("a.json", '{"traceEvents": 3}', "is no trace"),
        ("a.json", "[3]", "is no trace: an event in it"),
        ("a.json", '[{"ph": "X", "name": "k"}]', "an event in it has KeyError"),
        ("a.json", '[{"ph": "X", "pid": 1, "ts": "x"}]', "an event in it has ValueError"),
        ("a.json", '[{"ph": "X", "pid": [], "ts": 1}]', "an event in it has TypeError"),
        ("a.json", '[{"ph": "X", "pid": 1, "ts": NaN}]', "not finite"),
        ("a.json", '[{"ph": "X", "pid": 1, "ts": 1e300}]', "not finite, or beyond"),
        ("a.json", '[{"ph": "X", "pid": 1, "ts": 1' + "0" * 400 + "}]", "has OverflowError"),
        ("a.json", '[{"ph": "M", "pid": 1, "name": "process_name"}]', "an event in it has"),
        ("a.json", "[]", "holds no instruction of a compiled program"),
        ("a.txt", "hello", "is no profile that jax.profiler writes"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path, name, text, message):
    with pytest.raises(InputError, match=message):
        recorded_events(write(tmp_path / name, text=text))


def test_files_that_are_damaged_are_refused(tmp_path):
    whole = write(tmp_path / "a.json.gz", *[KERNEL | {"ts": float(n)} for n in range(99)])
    data = whole.read_bytes()
    for content, message in (
        (data[:-20], "is cut off: its compressed data ends too early"),
        (b"hello", "is not JSON, or cut off"),
        (data[:20] + b"xx" + data[22:], "damaged|not JSON"),
    ):
        whole.write_bytes(content)
        with pytest.raises(InputError, match=message):
            read_trace(whole)
    for name, message in (
        ("nowhere", "no profile in .*nowhere, which does not exist"),
        ("a" * 300, "cannot read .*: File name too long"),
    ):
        with pytest.raises(InputError, match=message):
            recorded_events(tmp_path / name)


def test_a_file_is_unpacked_by_its_content_and_not_by_its_name(tmp_path):
    packed = write(tmp_path / "a.json.gz", KERNEL).rename(tmp_path / "b.json")
    plain = write(tmp_path / "a.json", KERNEL).rename(tmp_path / "b.json.gz")
    assert recorded_events(packed) == recorded_events(plain) != []


def test_events_that_all_last_no_time_are_refused(tmp_path):
    nothing = {key: value for key, value in KERNEL.items() if key != "dur"}
    for name, event in (("a.json", nothing), ("b.json", KERNEL | {"dur": -1.0})):
        with pytest.raises(InputError, match=f"{name} lasts any time"):
            recorded_events(write(tmp_path / name, event))


def test_what_unpacks_to_gigabytes_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(chrome_trace, "MOST", 1000)
    bomb = tmp_path / "a.json.gz"
    bomb.write_bytes(gzip.compress(b" " * 2000))
    with pytest.raises(InputError, match=r"more than 1,000 bytes; give the \.xplane\.pb"):
        read_trace(bomb)
