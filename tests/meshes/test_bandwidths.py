import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.meshes.bandwidths import MeasuredCall, measured_calls
from scaling.meshes.errors import InputError

HEADER = """# nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592 step: 2(factor) iters: 20
#
# Using devices
{ranks}
#
#                                                            out-of-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)
"""
ROW = "  {bytes}  {count}  float  sum  -1  {us}  1.00  2.00  0  7.77  1.00  2.00  0\n"


def output(program: str, nodes: int, per_node: int, rows: str) -> str:
    """What nccl-tests prints, with the command before it."""
    number = range(nodes * per_node)
    line = (
        "#  Rank {0:2} Group  0 Pid {1} on node-{2} device  {3} [0000:04:00] NVIDIA H100 80GB HBM3"
    )
    ranks = [line.format(r, 6000 + r, r // per_node, r % per_node) for r in number]
    return f"> ./{program}_perf -b 8 -e 8G\n" + HEADER.format(ranks="\n".join(ranks)) + rows


def written(tmp_path, text: str, name: str = "out.txt"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_rows_of_nccl_tests_with_their_ranks(tmp_path):
    row = ROW.format(bytes=2**30, count=2**28, us=5219.7)
    text = output("all_reduce", 2, 8, row) + output("sendrecv", 2, 1, row.replace("sum", "none"))
    calls = measured_calls(written(tmp_path, text + "# Avg bus bandwidth    : 138.3\n"))
    assert calls == (
        MeasuredCall("all-reduce", 16, 2.0**30, nodes=2, seconds=5219.7 * 1e-6),
        MeasuredCall("permute", 2, 2.0**30, nodes=2, seconds=5219.7 * 1e-6),
    )


def test_older_rows_without_a_root_and_a_file_named_by_its_collective(tmp_path):
    text = HEADER.format(ranks="#  Rank  0 Pid 7 on a device  0 [0x00] V100\n" * 1)
    text += "#  Rank  1 Pid 8 on b device  0 [0x00] V100\n"
    text += "  1048576  262144  float  2.059  0.51  0.51  N/A  3.314  0.32  0.32  N/A\n"
    (call,) = measured_calls(written(tmp_path, text, "all_gather.txt"))
    assert (call.collective, call.ranks, call.nodes) == ("all-gather", 2, 2)
    assert call.seconds == pytest.approx(2.059e-6)


@settings(max_examples=25)
@given(
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv"]),
    st.integers(1, 4),
    st.integers(2, 8),
    st.lists(st.tuples(st.integers(1, 2**33), st.floats(0.01, 1e7)), min_size=1, max_size=5),
)
def test_every_row_is_read(tmp_path_factory, program, nodes, per_node, rows):
    text = "".join(ROW.format(bytes=size, count=1, us=f"{us:.4f}") for size, us in rows)
    path = tmp_path_factory.mktemp("nccl") / "out.txt"
    path.write_text(output(program, nodes, per_node, text))
    calls = measured_calls(path)
    assert [call.bytes for call in calls] == [size for size, _ in rows]
    assert [call.seconds for call in calls] == pytest.approx(
        [us * 1e-6 for _, us in rows], abs=1e-9
    )
    assert {(call.ranks, call.nodes) for call in calls} == {(nodes * per_node, nodes)}


def test_json_states_seconds_or_bus_bandwidth(tmp_path):
    rows = [
        {"collective": "all-reduce", "ranks": 16, "nodes": 2, "bytes": 1e9, "seconds": 0.1},
        {"collective": "all-gather", "ranks": 16, "ranks_per_node": 8, "bytes": 1e9}
        | {"bus_bandwidth": 9e9},
    ]
    calls = measured_calls(written(tmp_path, json.dumps(rows), "bandwidth.json"))
    assert calls == measured_calls(rows) and [call.per_node(8) for call in calls] == [8, 8]


CALL = {"collective": "all-reduce", "ranks": 16, "bytes": 1e9, "seconds": 0.1}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no measurement"),
        ("[]", "has no measurement"),
        ("# Avg bus bandwidth : 3\n", "has no measurement"),
        (json.dumps([CALL | {"seconds": 0}]), "seconds=0 must be above 0"),
        (json.dumps([CALL | {"bytes": -1}]), "bytes=-1 must be above 0"),
        (json.dumps([CALL | {"bus_bandwidth": 1e9}]), "one of them"),
        (json.dumps([CALL | {"ranks": 1}]), "a group of at least 2"),
        (json.dumps([CALL | {"nodes": 3}]), "do not lie evenly"),
        (json.dumps([CALL | {"nodes": 2, "ranks_per_node": 4}]), "2 nodes of 4 ranks"),
        (json.dumps([CALL | {"second": 1}]), "did you mean 'seconds'"),
        (ROW.format(bytes=8, count=2, us=1), "which collective"),
        ("all_reduce_perf\n" + ROW.format(bytes=8, count=2, us=1), "Rank 0"),
        (output("all_reduce", 1, 2, ROW.format(bytes=8, count=2, us="0.0")), "line 11"),
        (output("all_reduce", 1, 2, "8 2 float sum -1 3.0\n"), "expected 8 columns"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(tmp_path, text, says):
    with pytest.raises(InputError, match=says) as error:
        measured_calls(written(tmp_path, text))
    assert "\n" not in str(error.value)
