"""The ladder: six rungs of one question."""

import json

import pytest

import scaling as sc
from scaling.cli.main import main
from scaling.course.ladder.measured import measured_collective, measured_step
from scaling.course.ladder.rungs import RUNGS, Ladder, Rung
from scaling.meshes.errors import InputError


def test_rungs_of_a_collective():
    found = sc.collective_ladder("all-gather", "1GiB", cluster="dgx-h100", guess=2e-3)
    assert found["bound"].value <= found["textbook"].value < found["fitted"].value
    assert found["measured"].value == pytest.approx(2**30 / 378e9, rel=1e-3)
    assert found["measured"].value == pytest.approx(found["fitted"].value, rel=0.1)
    assert found["compiled"].value is None and "no program" in found["compiled"].adds


@pytest.mark.parametrize("sizes", ["4096,4096,4096", ["4096"] * 3])
def test_sizes_of_a_kernel_may_be_texts(sizes):
    numbers = sc.kernel_ladder("matmul", (4096, 4096, 4096), "h100-sxm")
    assert str(sc.kernel_ladder("matmul", sizes, "h100-sxm")) == str(numbers)
    assert str(sc.kernel_ladder("read", 1e9, "h100-sxm")).startswith("read 1,000,000,000, bf16")


def test_rungs_of_a_step_with_a_program_that_comes_with_the_package():
    settings = {"remat": "selective", "batch.global_batch": 512}
    where = {"cluster": "dgx-h100", "mesh": "data=8"}
    found = sc.step_ladder("gpt2-124m", **where, source="stored", set=settings)
    compiled = sc.predict("gpt2-124m", **where, source="stored", set=settings)
    assert found["compiled"].value == compiled.step_time
    assert found["bound"].value == pytest.approx(compiled.step_time * compiled.mfu)
    assert found["bound"].value < found["textbook"].value < found["fitted"].value


def test_a_measured_step_is_found_by_its_tokens_and_devices():
    settings = {"batch.global_batch": 256, "remat": "full", "batch.microbatches": 1}
    where = {"cluster": "dgx-h100", "nodes": 16, "mesh": "fsdp=128", "source": "analytic"}
    found = sc.step_ladder("llama3-70b", **where, set=settings)
    assert found["measured"].value == 15.563
    assert "not fitted on" in found["measured"].adds
    assert found["compiled"].value is None


def test_a_measurement_over_two_nodes_says_that_it_was_fitted_on():
    found = sc.collective_ladder("all-reduce", "1GiB", cluster="dgx-h100", nodes=2)["measured"]
    assert found.value == 4.4849e-3 and "; fitted on" in found.adds
    assert measured_collective("all-reduce", 2**30, "dgx-h100", 16) is None


def test_nothing_measured_says_so():
    assert measured_collective("all-gather", 2**20, "dgx-h100", 8) is None
    assert measured_step("llama3-70b", 8, "dgx-h100", 1) is None
    found = sc.collective_ladder("all-gather", "1MiB", cluster="dgx-h100")
    assert found["measured"].value is None and found["guess"].value is None


def test_a_page_has_a_line_for_each_rung_with_its_step():
    values = (9, 1, 2, None, 3, 4)
    rungs = [Rung(name, value, ".") for name, value in zip(RUNGS, values, strict=True)]
    ladder = Ladder("how long", "s", tuple(rungs))
    lines = str(ladder).splitlines()
    assert len(lines) == 6 and "fitted" not in str(ladder)  # only rungs that exist
    assert [line.split()[-2] for line in lines[3:]] == ["+100%", "+50%", "+33%"]
    assert ladder.steps[1] == (rungs[1], "")


def test_the_command_prints_the_same(capsys):
    line = "collective all-gather --bytes 1GiB --cluster dgx-h100"
    assert main(["learn", "ladder", line, "--guess", "2e-3", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    expected = sc.collective_ladder("all-gather", "1GiB", cluster="dgx-h100", guess=2e-3)
    assert printed == json.loads(json.dumps(expected.to_dict()))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ladder"], "write scaling learn ladder"),
        (["ladder", "chip h100-sxm"], "collective or of a step"),
        (["ladder", "predict tiny"], "with --cluster"),
        (["ladder", ""], "write scaling learn ladder"),
        (["ladder", "collective 'all"], "No closing quotation"),
        (["ladder", "collective all-to-all --cluster p5 --active 2"], "takes no --active"),
        (["ladder", "collective all-gather --cluster p5 --sweep 1:8"], "takes no --sweep"),
        (["ladder", "predict tiny --cluster p5 --device-order data"], "takes no --device-order"),
        (["ladder", "collective all-gather --cluster dgx-h100", "--guess", "x"], "no number"),
        (["quiz", "gpu-q9"], "no quiz is called"),
        (["quiz", "gpu-q2.3", "--guess", "1", "--guess", "2"], "asks for 1 number,"),
        (["quiz", "gpu-q2.3", "--guess", "inf"], "no number"),
    ],
)
def test_bad_input_is_one_message(capsys, words, message):
    assert main(["learn", *words]) == 2
    said = capsys.readouterr().err
    assert message in said and "Traceback" not in said


@pytest.mark.parametrize("guess", [0, -1.0])
def test_a_guess_is_positive(guess):
    with pytest.raises(InputError, match="guess"):
        sc.collective_ladder("all-gather", "1GiB", cluster="dgx-h100", guess=guess)
