"""What `scaling testbed` says of a testbed whose `up` is at work or was killed."""

import pytest

from scaling.cli import testbed as commands
from scaling.meshes.errors import InputError
from scaling.testbed.build import up
from scaling.testbed.state import complete_state, write_state


@pytest.fixture
def cut_short(system, testbed, monkeypatch):
    """A testbed with all its namespaces, as one killed before it made the links."""
    monkeypatch.setenv("SCALING_CACHE", str(system.folder / "cache"))
    monkeypatch.setattr(commands, "present_machine", lambda: system.machine)
    monkeypatch.setattr(commands, "Machine", lambda run: system.machine)
    monkeypatch.setattr(commands, "run_job", lambda *_: 7)
    up(testbed, system.machine, system.states)
    (system.states / "lab.json").unlink()
    write_state(testbed, system.states)
    return testbed


def test_no_job_runs_on_it(cut_short, system):
    job = commands.TestbedCommand("run", ("true",), name="lab")
    with pytest.raises(InputError, match="testbed lab is not complete.*scaling testbed down"):
        job.execute()
    complete_state(cut_short, system.states)
    assert job.execute() == 7


def test_status_says_so(cut_short, system, capsys):
    commands.TestbedCommand("status").execute()
    assert capsys.readouterr().out.splitlines()[0].endswith("links: not complete")
    complete_state(cut_short, system.states)
    commands.TestbedCommand("status").execute()
    assert capsys.readouterr().out.splitlines()[0].endswith("links: up")


def test_down_removes_it(cut_short, system, capsys):
    assert commands.TestbedCommand("down", name="lab").execute() == 0
    assert "testbed lab is gone" in capsys.readouterr().out
    assert system.files() == {"cache": None, "netns": None}
