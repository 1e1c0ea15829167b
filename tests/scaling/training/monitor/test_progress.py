"""The progress line goes to stderr, often on a terminal and seldom elsewhere."""

import io

import pytest

from scaling.training.monitor.progress import Predicted, ProgressLine, progress_line


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


def show(stream, total=200, first=0):
    with ProgressLine(total, first, stream) as progress:
        for step in range(first + 1, total + 1):
            progress.update(step, 2.5, 12345.6, 0.083)
            if step == first + 5:
                progress.note("held-out loss 2.4 [fixed]")
    return stream.getvalue()


def test_a_line_says_steps_loss_rate_step_time_and_time_left():
    line = progress_line(120, 1300, 2.34561, 12345.6, 0.083)
    assert line == "step 120/1,300 | loss 2.3456 | 12,346 tokens/s | 83 ms/step | 0:01:38 left"
    assert "| 12.50 s/step | 1 day, 0:00:00 left" in progress_line(0, 6912, 1.0, 1.0, 12.5)


def test_the_share_of_the_time_that_checkpoints_took_is_said_where_there_was_one():
    line = progress_line(120, 1300, 2.34561, 12345.6, 0.083, checkpoints=0.0123)
    assert line.endswith("| 83 ms/step | checkpoints 1.2% | 0:01:38 left")
    narrow = progress_line(120, 1300, 2.34561, 12345.6, 0.083, None, 60, checkpoints=0.0123)
    assert narrow == "step 120/1,300 | loss 2.3456 | 83 ms/step | 0:01:38 left"


def test_mfu_and_hfu_are_those_of_the_measured_time_where_the_peak_is_known():
    line = progress_line(1, 2, 2.3, 1.0, 0.1, Predicted(0.08, mfu=0.5, hfu=0.55))
    assert "| MFU 40.0% | HFU 44.0% | 100 ms/step (predicted 80 ms) |" in line
    assert Predicted(0.08, None, None).at(0.1) == {"mfu": None, "hfu": None}
    assert "FU" not in progress_line(1, 2, 2.3, 1.0, 0.1, Predicted(0.08, None, None))


def test_the_time_left_stays_on_a_narrow_terminal(monkeypatch):
    predicted = Predicted(0.09, 0.4, None)
    shown = lambda width: progress_line(300, 1300, 2.3, 12345.6, 0.083, predicted, width)
    assert len(shown(None)) > 80 and shown(None).endswith(" left")
    assert "tokens/s" in shown(95) and "MFU" not in shown(95)
    narrow = shown(74)
    assert "tokens/s" not in narrow and "predicted 90 ms" in narrow and narrow.endswith(" left")
    assert "predicted" not in shown(60)
    monkeypatch.setenv("COLUMNS", "80")
    assert " left" in show(Terminal())


@pytest.mark.parametrize(("seconds", "times"), [(0.02, 1), (0.1, 0)])
def test_mfu_above_the_peak_is_explained_once(seconds, times):
    stream = io.StringIO()
    with ProgressLine(200, stream=stream, predicted=Predicted(0.08, mfu=0.5, hfu=0.5)) as line:
        for step in range(1, 201):
            line.update(step, 2.3, 1.0, seconds)
    assert stream.getvalue().count("MFU is above 100%") == times


def test_without_a_terminal_the_first_step_and_every_tenth_part_get_a_line():
    lines = show(io.StringIO()).splitlines()
    assert lines.pop(1) == "held-out loss 2.4 [fixed]"
    steps = [line.split()[1] for line in lines]
    assert steps == ["1/200", *(f"{step}/200" for step in range(20, 201, 20))]


def test_a_short_or_resumed_run_gets_its_lines_too_on_stderr(capsys):
    with ProgressLine(2) as progress:
        progress.update(1, 2.5, 100.0, 0.1)
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("step 1/2")
    assert len(show(io.StringIO(), total=3).splitlines()) == 3
    resumed = [line for line in show(io.StringIO(), 110, first=10).splitlines() if "step" in line]
    assert [line.split()[1] for line in resumed[:3]] == ["11/110", "20/110", "30/110"]
    assert resumed[-1].startswith("step 110/110")


def test_on_a_terminal_the_last_state_stays_on_the_screen():
    screen = show(Terminal())
    assert "step 200/200 | loss 2.5000" in screen
    assert "held-out loss 2.4 [fixed]" in screen
    assert "\x1b[?25h" in screen  # the cursor is shown again
