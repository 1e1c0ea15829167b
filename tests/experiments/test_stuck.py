"""Hosts of a testbed, or a link, that stand still: noticed, named, ended, and trained again."""

import pytest

from experiments.stuck.bench import CASES, DEADLINE, MINUTES, tried
from scaling.meshes.errors import InputError
from scaling.testbed.build import down, up
from scaling.testbed.machine import present_machine
from scaling.testbed.plan import new_testbed
from scaling.training.launch.heartbeats import BEAT


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_who_stands_still_is_named_and_the_job_goes_on(name, tmp_path):
    """`tried` fails where it is not; here is what was saved, and that the limit was waited for."""
    machine = present_machine_with_testbeds(tmp_path)
    outcome = tried(CASES[name], machine, tmp_path)
    assert outcome.saved > 0 and outcome.saved % 10 == 0
    assert outcome.noticed < outcome.ended < outcome.resumed < DEADLINE
    if "link" not in name and "stopped" not in name:
        # Who keeps Python's lock is silent since a heartbeat that it sent before.
        assert outcome.noticed >= 60 * MINUTES - 2 * BEAT * ("lock" in name)
        assert outcome.stack


def present_machine_with_testbeds(folder):
    try:
        machine, testbed = present_machine(), new_testbed("probe", 1, 1, "1Gbit")
        up(testbed, machine, folder)
        down(testbed, machine, folder)
    except InputError as error:
        pytest.skip(f"no testbed here: {error}")
    return machine
