"""The small steps of lab 1: what was stored is what this compiler makes of their code."""

import pytest

from experiments.culprits import STEPS, compiled, document, lines_of
from scaling.course.lessons import lab1_programs

TEXT = """
FileLocations
7 {file_name_id=1 function_name_id=7 line=3 end_line=3 column=0 end_column=0}

StackFrames
4 {file_location_id=7 parent_frame_id=3}

  %all-gather-start.1 = bf16[8]{0} all-gather-start(%x), metadata={op_name="f" stack_frame_id=4}
"""


def third_line_is_the_second_of_this():
    """Return nothing."""


def test_lines_are_counted_from_the_function_on():
    first = third_line_is_the_second_of_this.__code__.co_firstlineno
    moved = TEXT.replace("line=3 ", f"line={first + 1} ")
    assert lines_of(moved, third_line_is_the_second_of_this) == {"all-gather-start.1": 2}


def test_the_steps_are_those_that_the_lab_has():
    assert [step.name for step in STEPS] == [case.name for case in lab1_programs.cases()]
    assert [step.why for step in STEPS] == [case.why for case in lab1_programs.cases()]


@pytest.mark.deviceless
def test_a_step_compiles_to_what_is_stored():
    step, case = STEPS[0], lab1_programs.cases()[0]
    sizes = lambda text: [row["array"] for row in lab1_programs.moved(case, text)]
    assert sizes(compiled(step.written, step.arguments)) == sizes(case.written)
    assert document(step)["line"] == case.line
