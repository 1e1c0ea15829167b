"""The page of a prediction: what it says adds up, and what is not there is not shown."""

from dataclasses import replace

import pytest

from scaling.report.prediction import MOST_LINES, page
from scaling.simulate.prediction import HiddenCalls, prediction_dict
from scaling.simulate.summary import summarize


@pytest.fixture
def prediction(hand_priced, toy):
    run = replace(toy(mesh={"fsdp": 4, "tensor": 2}), name="hand")
    return summarize(hand_priced, run)


def lines_of(text, title):
    """The indented lines below a title."""
    lines = text.split("\n")
    start = next(i for i, line in enumerate(lines) if line.startswith(title))
    found = []
    for line in lines[start + 1 :]:
        if not line.startswith("  "):
            break
        found.append(line.strip())
    return found


def test_the_page_of_a_step(prediction):
    found = page(prediction, "fsdp=4,tensor=2 of dgx-h100, 8 devices")
    first, second, *_ = found.split("\n")
    assert first == (
        "hand on fsdp=4,tensor=2 of dgx-h100, 8 devices, compiled program, "
        f"{prediction.grade} figures"
    )
    assert second.startswith("step ") and " to " in second and "tokens/s, MFU " in second
    assert found.endswith(f"bottleneck: {prediction.bottleneck}")
    doubtful = page(replace(prediction, warnings=("first", "second")), "")
    assert doubtful.endswith(f"{prediction.bottleneck}\nwarning: first\nwarning: second")


def test_shares_of_the_time_sum_to_one(prediction):
    rows = [row for row in lines_of(page(prediction, ""), "time") if not row.startswith("(")]
    assert [row.split("  ")[0] for row in rows] == [
        "compute",
        "optimizer",
        "waiting for communication",
    ]
    assert sum(float(row.split()[-1].rstrip("%")) for row in rows) == pytest.approx(100, abs=0.2)


def test_hidden_communication_is_only_mentioned_where_there_is_some(prediction):
    assert "is hidden beside compute" in page(prediction, "")
    none = replace(prediction, time=replace(prediction.time, hidden_communication=0.0))
    assert "hidden" not in page(none, "")


def test_owners_of_nothing_are_left_out(prediction):
    rows = lines_of(page(prediction, ""), "memory 12 GB of 78.1 GB: fits")
    assert [row.split("  ")[0] for row in rows] == [
        "parameters", "optimizer state", "activations", "temporary",
        "(capacity: 0.92 of the 84.9 GB that the driver reports, the share of XLA's pool)",
        "(the driver shows 81.5 GB in use)",
    ]  # fmt: skip


def test_a_step_whose_collectives_are_not_hidden_for_want_of_memory_is_said(prediction):
    full = replace(prediction.memory, peak=0.95 * prediction.memory.capacity)
    crowded = replace(prediction, memory=full, hidden_calls=HiddenCalls(2, 17))
    assert "(XLA hides 2 of 17 collectives: " in page(crowded, "")
    assert prediction_dict(crowded)["hidden_calls"] == {"hidden": 2, "every": 17}
    for calm in (
        replace(crowded, memory=prediction.memory),
        replace(crowded, hidden_calls=HiddenCalls(9, 17)),
        replace(crowded, hidden_calls=None),
    ):
        assert not calm.is_crowded and "collectives: " not in page(calm, "")


def test_memory_that_does_not_fit_or_is_not_known_is_said(prediction):
    tight = replace(prediction.memory, fits=False)
    found = page(replace(prediction, memory=tight), "here").split("\n")
    assert found[0].startswith("hand on here: DOES NOT FIT, 12 GB of 78.1 GB; compiled program")
    assert "memory 12 GB of 78.1 GB: DOES NOT FIT" in found
    unknown = replace(prediction.memory, capacity=None, fits=None)
    assert "on each device, capacity not known" in page(replace(prediction, memory=unknown), "")


def test_collectives_have_a_row_each(prediction):
    head, *rows = lines_of(page(prediction, ""), "collectives")
    assert head.split() == ["collective", "a", "call", "calls", "time", "exposed", "level"]
    assert rows[0].startswith("all-gather[fsdp] bf16") and "64 MiB" in rows[0]
    assert rows[1].startswith("all-reduce[fsdp+tensor] fp32")
    assert all(row.endswith("node") for row in rows)
    hidden = replace(prediction.collectives[0], exposed=0.0)
    _, row = lines_of(page(replace(prediction, collectives=(hidden,)), ""), "collectives")
    assert row.split()[-2] == "-"


def test_many_collectives_are_summed_up(prediction):
    line = replace(prediction.collectives[0], time=1e-3, exposed=5e-4)
    found = page(replace(prediction, collectives=(line,) * (MOST_LINES + 3)), "")
    assert "  and 3 more, 3 ms together, 1.5 ms of it exposed" in found


def test_a_step_that_is_not_ours_has_no_rate(hand_priced):
    found = page(summarize(hand_priced), "")
    assert "tokens/s" not in found and "MFU" not in found
    assert "HFU" in found


def test_mfu_stands_with_its_convention_and_never_above_hfu_without_a_word(prediction):
    high = page(replace(prediction, mfu=0.927, hfu=0.81), "")
    assert "MFU 92.7% (full attention; --causal-flops halves its part), HFU 81.0%" in high
    assert "MFU is above HFU: " in high
    causal = page(replace(prediction, mfu=0.547, hfu=0.81, causal_flops=True), "")
    assert "MFU 54.7% (causal attention), HFU 81.0%" in causal and "above HFU" not in causal


def test_a_step_in_which_nothing_happens_has_a_page(prediction):
    idle = replace(
        prediction, step_time=0.0, mfu=None, hfu=None, tokens_per_second=None, collectives=(),
        time=replace(prediction.time, compute=0.0, optimizer=0.0, exposed_communication=0.0),
    )  # fmt: skip
    assert "step 0 us" in page(idle, "")
