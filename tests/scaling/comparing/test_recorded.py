"""Profiles read: a GPU's as its text, a CPU's recorded here."""

import json
import os

import jax
import jax.numpy as jnp
import pytest
from jax.profiler import ProfileData
from jax.sharding import PartitionSpec as P

from scaling.comparing import recorded as recorded_profile
from scaling.comparing.recorded import events_of, profile_files, recorded_events
from scaling.hlo.parse import parse_module
from scaling.meshes.errors import InputError

STATS = ("hlo_op", "hlo_module", "device_ordinal", "run_id", "_p", "_c")


class Raw(str):
    """A value as text proto has it."""


def written(value):
    if isinstance(value, Raw):
        return value
    return f'str_value: "{value}"' if isinstance(value, str) else f"int64_value: {value}"


def line_text(name, events):
    """A line of `(name, start ns, duration ns, stats)`; returns its text and the names used."""
    body = ""
    for number, (_, start, duration, stats) in enumerate(events, 1):
        values = "".join(
            f"stats {{ metadata_id: {STATS.index(key) + 1} " + written(value) + " }"
            for key, value in stats.items()
        )
        body += (
            f"events {{ metadata_id: {number} offset_ps: {start * 1000} "
            f"duration_ps: {duration * 1000} {values} }}\n"
        )
    return f'lines {{ id: {abs(hash(name)) % 999} name: "{name}" {body} }}\n'


def plane_text(plane, lines):
    """A plane as text proto. All lines share one table of event names, so those must agree."""
    longest = max(lines.values(), key=len)
    text = f'planes {{ name: "{plane}"\n'
    text += "".join(line_text(name, events) for name, events in lines.items())
    for number, (name, *_) in enumerate(longest, 1):
        text += f'event_metadata {{ key: {number} value {{ id: {number} name: "{name}" }} }}\n'
    for number, key in enumerate(STATS, 1):
        text += f'stat_metadata {{ key: {number} value {{ id: {number} name: "{key}" }} }}\n'
    return text + "}\n"


def read(*planes):
    return events_of(ProfileData.from_text_proto("".join(planes)))


def op(name, **more):
    return {"hlo_op": name, "hlo_module": "jit_step", **more}


def test_kernels_of_a_gpu_carry_device_stream_and_instruction():
    dot = op("dot.3", run_id=7)
    kernels = [("gemm_kernel", 1000, 500, dot), ("nccl", 1200, 700, op("all-reduce.1"))]
    first, second = read(plane_text("/device:GPU:2", {"Stream #14(Compute)": kernels}))
    assert (first.device, first.stream, first.module) == (2, "Stream #14(Compute)", "jit_step")
    assert (first.name, second.name) == ("dot.3", "all-reduce.1")
    assert (first.start, first.duration) == pytest.approx((1e-6, 0.5e-6))
    assert second.end == pytest.approx(1.9e-6)
    assert first.run is None


def test_what_is_no_instruction_or_no_stream_is_left_out():
    copy = [("MemcpyH2D", 0, 9, {})]
    derived = [("fusion.1", 0, 9, op("fusion.1"))]
    assert not read(plane_text("/device:GPU:0", {"Stream #2": copy, "XLA Ops": derived}))
    assert not read(plane_text("/host:metadata", {"Stream #2": derived}))


def test_an_operation_of_the_cpu_is_over_at_its_end_record_on_whatever_thread():
    start = [("all-gather.2", 100, 10, op("all-gather.2", device_ordinal=3, run_id=-7, _p=55))]
    end = [("all-gather.2", 0, 0, {}), ("end: all-gather.2", 900, 1, {"_c": 55})]
    (event,) = read(plane_text("/host:CPU", {"one": start, "other": end}))
    assert (event.device, event.run, event.stream) == (3, -7, "one")
    assert event.duration == pytest.approx(800e-9)


def test_a_recording_too_large_to_be_read_is_refused(monkeypatch):
    monkeypatch.setattr(recorded_profile, "MOST_EVENTS", 3)
    kernels = [("k", n, 1, op("dot.3")) for n in range(4)]
    with pytest.raises(InputError, match="more than 3 kernels: record fewer steps"):
        read(plane_text("/device:GPU:0", {"Stream #1": kernels}))


def test_kernels_without_an_instruction_keep_their_own_name():
    """Of a command buffer (a CUDA graph), or of no program; copies are neither."""
    found = read(
        plane_text(
            "/device:GPU:0",
            {
                "Stream #1": [
                    ("loop_add_fusion_1", 0, 1, op("command_buffer.2")),
                    ("ncclDevKernel", 1, 1, {}),
                    ("MemcpyD2D", 2, 1, {}),
                ]
            },
        )
    )
    assert [(e.name, e.kernel, e.module) for e in found] == [
        ("", "loop_add_fusion_1", "jit_step"),
        ("", "ncclDevKernel", ""),
    ]


def write(folder, time, host, planes, modified):
    target = folder / "plugins" / "profile" / time
    target.mkdir(parents=True, exist_ok=True)
    file = target / f"{host}.xplane.pb"
    file.write_bytes(ProfileData.text_proto_to_serialized_xspace(planes))
    os.utime(file, (modified, modified))
    return file


def gpus(count, name):
    event = [("kernel", 10, 5, op(name))]
    return "".join(plane_text(f"/device:GPU:{n}", {"Stream #1": event}) for n in range(count))


def test_the_newest_recording_is_read_and_devices_of_its_processes_are_counted_on(tmp_path):
    write(tmp_path, "2026_01_01", "a", gpus(1, "old"), 1000)
    write(tmp_path, "2026_01_02", "a", gpus(2, "new"), 2000)
    write(tmp_path, "2026_01_02", "b", gpus(2, "new"), 2001)
    events = recorded_events(tmp_path)
    assert [e.device for e in events] == [0, 1, 2, 3]
    assert {e.name for e in events} == {"new"}


def test_a_folder_without_a_profile_says_how_to_record_one(tmp_path):
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(InputError, match="no profile in .*--record-profile"):
            profile_files(folder)


def test_a_profile_of_no_program_says_so(tmp_path):
    write(tmp_path, "2026", "a", plane_text("/device:GPU:0", {"Stream #1": [("k", 0, 1, {})]}), 1)
    with pytest.raises(InputError, match="holds no instruction"):
        recorded_events(tmp_path)


def test_a_file_that_is_no_profile_is_named(tmp_path):
    (tmp_path / "broken.xplane.pb").write_bytes(b"\xff\xffnot a profile")
    with pytest.raises(InputError, match=r"broken\.xplane\.pb is not a profile"):
        recorded_events(tmp_path)


def test_a_recording_of_the_cpu_holds_every_call_of_every_device(tmp_path):
    """A loop of five iterations with a collective inside, run twice on two devices."""
    mesh = jax.make_mesh((2,), ("data",), devices=jax.devices()[:2])

    def body(_, x):
        return jax.lax.psum(jnp.tanh(x @ x), "data") * 1e-3

    loop = jax.shard_map(
        lambda x: jax.lax.fori_loop(0, 5, body, x),
        mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False,
    )  # fmt: skip
    x = jax.device_put(jnp.ones((64, 64)), jax.NamedSharding(mesh, P()))
    compiled = jax.jit(loop).lower(x).compile()
    jax.block_until_ready(compiled(x))
    jax.profiler.start_trace(tmp_path)
    for _ in range(2):
        jax.block_until_ready(compiled(x))
    jax.profiler.stop_trace()

    module = parse_module(compiled.as_text())
    events = [e for e in recorded_events(tmp_path) if e.module == module.name]
    opcode = {i.name: i.opcode for c in module.computations.values() for i in c}
    assert all(event.name in opcode and event.duration >= 0 for event in events)
    assert {event.device for event in events} == {0, 1}
    assert len({event.run for event in events}) == 2
    for kind, calls in {"all-reduce": 2 * 2 * 5, "while": 2 * 2}.items():
        assert sum(opcode[event.name] == kind for event in events) == calls
    (loop_start, loop_end), *_ = [(e.start, e.end) for e in events if opcode[e.name] == "while"]
    assert any(loop_start < e.start and e.end < loop_end for e in events)


NO_TEXT = Raw(r'str_value: "\377\376"')


@pytest.mark.parametrize("key", ["device_ordinal", "run_id"])
@pytest.mark.parametrize(
    "value",
    [
        "abc",
        *map(Raw, ("double_value: nan", "double_value: inf", "double_value: 0.5")),
        *map(Raw, (r'bytes_value: "\377\376"', "ref_value: 999")),
    ],
)
def test_a_device_or_an_execution_without_a_number_is_refused(key, value):
    stats = op("add.1", **({"device_ordinal": 0} | {key: value}))
    with pytest.raises(InputError, match=f"damaged: {key} is .*not a whole number|is no text"):
        read(plane_text("/host:CPU", {"tf_XLAEigen/1": [("add.1", 0, 5, stats)]}))


@pytest.mark.parametrize("number", [-1, Raw("uint64_value: 18446744073709551615"), 2**31])
def test_a_device_beyond_those_that_there_can_be_is_refused(number):
    stats = op("add.1", device_ordinal=number)
    with pytest.raises(InputError, match="device_ordinal is -?[0-9]+, not a whole number from 0"):
        read(plane_text("/host:CPU", {"tf_XLAEigen/1": [("add.1", 0, 5, stats)]}))


@pytest.mark.parametrize("number", ["9" * 5000, "٣" * 30, 2**64 - 1])
def test_a_gpu_beyond_those_that_there_can_be_is_refused(number, tmp_path):
    name = f"/device:GPU:{number}"
    with pytest.raises(InputError, match="the number of a device is .{1,60}, not a whole number"):
        read(plane_text(name, {"Stream #1": [("kernel", 0, 5, op("add.1"))]}))
    events = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": name}},
        {"ph": "M", "pid": 1, "tid": 2, "name": "thread_name", "args": {"name": "Stream #1"}},
        {"ph": "X", "pid": 1, "tid": 2, "ts": 1, "dur": 1, "args": op("add.1")},
    ]
    (tmp_path / "host.trace.json").write_text(json.dumps(events))
    with pytest.raises(InputError, match="the number of a device is .{1,60}, not a whole number"):
        recorded_events(tmp_path / "host.trace.json")


@pytest.mark.parametrize("key", ["hlo_op", "hlo_module"])
@pytest.mark.parametrize("plane", ["/host:CPU", "/device:GPU:0"])
def test_a_name_that_is_no_text_is_refused(key, plane):
    stats = op("add.1", device_ordinal=0) | {key: NO_TEXT}
    with pytest.raises(InputError, match="damaged, a name in it is no text"):
        read(plane_text(plane, {"Stream #1": [("add.1", 0, 5, stats)]}))
