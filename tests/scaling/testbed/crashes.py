"""Kills `up` or `down` with SIGKILL at its first touch of a file, its second, and so on.

    python crashes.py up|down FOLDER

After each, a `down` (if there is a record) must leave nothing but a draft of a record, and another
testbed of that name must come and go without a trace. Namespaces are files. Prints how many touches
there are; ends with an error at the first that leaves something behind.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from scaling.meshes.errors import InputError
from scaling.testbed.build import down, missing, up
from scaling.testbed.machine import Machine
from scaling.testbed.plan import TestbedConfig, new_testbed
from scaling.testbed.state import all_states, read_state

TOUCHES = {"open", "os.mkdir", "os.rmdir", "os.remove", "os.rename", "os.link"}  # audit events


def main(act: str, folder: Path) -> None:
    namespaces, states = folder / "netns", folder / "states"
    machine = Machine(partial(run, namespaces), namespaces=namespaces, settings=folder / "etc")
    for path in (namespaces, states):
        path.mkdir()
    before = sorted(folder.rglob("*"))
    for number in count():
        testbed = new_testbed("lab", 2, 1, "1Gbit")
        if act == "down":
            up(testbed, machine, states)
        acted = {"up": up, "down": down}[act]
        killed = killed_at(number, folder, partial(acted, testbed, machine, states))
        for record in all_states(states):
            assert act == "down" or not record.complete or not missing(testbed, machine), number
        if killed:
            tidy_up(machine, states)
        elif act == "up":
            down(testbed, machine, states)
        assert sorted(folder.rglob("*")) == before, (number, sorted(folder.rglob("*")))
        if not killed:
            print(number)
            return


def run(namespaces: Path, words: Sequence[str]) -> str:
    """What `ip` does."""
    if words[:3] == ("ip", "netns", "add"):
        (namespaces / words[3]).touch(exist_ok=False)
    elif words[:3] == ("ip", "netns", "del"):
        (namespaces / words[3]).unlink()
    return ""


def killed_at(number: int, folder: Path, act: Callable[[], object]) -> bool:
    """Lets a copy of this process act; whether it came to that touch of a file, and was killed."""
    child = os.fork()
    if not child:
        left = iter(range(number))

        def audit(event: str, given: tuple[Any, ...]) -> None:
            if event in TOUCHES and str(folder) in str(given[0]) and next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(audit)
        act()
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL), code
    return code != 0


def tidy_up(machine: Machine, states: Path) -> None:
    """As a user would: down, and go on with another testbed."""
    try:
        down(read_state("lab", states).testbed, machine, states)
    except InputError as error:
        assert "there is no testbed 'lab'" in str(error)
    assert set(states.iterdir()) <= {states / ".lab.json.draft"}
    other: TestbedConfig = new_testbed("lab", 3, 1, "1Gbit")
    up(other, machine, states)
    down(other, machine, states)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
