"""`scaling testbed`: words in, exit codes and messages out; no namespace is made here."""

import pytest

from scaling.cli import testbed as commands
from scaling.testbed.build import Interrupted
from scaling.testbed.machine import CommandFailed, Machine
from tests.scaling.cli.running import check_refused, run


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys):
    """Runs `scaling testbed WORDS` on a system that keeps books: (code, out, err)."""
    netns = tmp_path / "netns"
    netns.mkdir()

    def run_command(words):
        if words[:3] == ("ip", "netns", "add"):
            (netns / words[3]).touch()
        if words[:3] == ("ip", "netns", "del"):
            (netns / words[3]).unlink()
        if words[0] == cli.refused:
            raise CommandFailed("Error: Specified qdisc kind is unknown.")
        return ""

    machine = Machine(run_command, namespaces=netns, settings=tmp_path / "etc")
    jobs = []
    monkeypatch.setenv("SCALING_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(commands, "present_machine", lambda: machine)
    monkeypatch.setattr(commands, "Machine", lambda run: machine)
    monkeypatch.setattr(
        commands, "run_job", lambda testbed, m, command, env: jobs.append(command) or 7
    )

    def cli(*words):
        return run(capsys, "testbed", *words)

    cli.refused, cli.jobs, cli.netns = None, jobs, netns
    return cli


def test_up_status_run_down(cli):
    code, out, _ = cli("up", "--hosts", "3", "--devices", "1", "--bandwidth", "200Mbit")
    assert code == 0 and "3 hosts x 1 devices, 200 Mbit/s links" in out
    assert "next: scaling testbed run -- scaling train tiny --mesh data=3,fsdp=1" in out
    assert len(list(cli.netns.iterdir())) == 4
    assert cli("status")[1].splitlines()[0].endswith("links: up")
    assert (
        cli("run", "--", "scaling", "train", "tiny", "--mesh", "data=3", "--devices", "1")[0] == 7
    )
    assert cli.jobs == [("scaling", "train", "tiny", "--mesh", "data=3", "--devices", "1")]
    code, out, _ = cli("down")
    assert code == 0 and out.count("removed namespace") == 4 and "default is gone" in out
    assert list(cli.netns.iterdir()) == []
    assert "no testbed" in cli("status")[1]


def test_two_testbeds_by_name(cli):
    assert cli("up", "--name", "a")[0] == 0
    code, out, _ = cli("up", "--name", "b", "--latency", "2ms")
    assert code == 0 and "2 ms from host to host" in out and "run --name b -- " in out
    assert cli("status")[1].count(": up") == 2
    assert cli("down", "--name", "a")[0] == 0
    assert "testbed b" in cli("status")[1] and "testbed a" not in cli("status")[1]


def test_a_testbed_whose_up_was_killed_runs_no_job_and_is_removed(cli, tmp_path):
    cli("up")
    record = tmp_path / "cache" / "testbeds" / "default.json"
    record.write_text(record.read_text().replace("true", "false"))
    check_refused(cli("run", "--", "ls"), "testbed default is not complete", "scaling testbed down")
    assert cli("status")[1].splitlines()[0].endswith("links: not complete")
    assert cli("down")[0] == 0 and list(cli.netns.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["up", "--bandwidth", "1GB"], ["'1GB'", "50GB/s or 400Gb/s"]),
        (["up", "--hosts", "0"], ["--hosts=0"]),
        (["up", "--devices", "0"], ["--devices=0"]),
        (["up", "--latency", "soon"], ["'soon'", "5us"]),
        (["up", "--name", "a/b"], ["--name 'a/b'"]),
        (["up", "--", "ls"], ["takes no command", "ls"]),
        (["run"], ["needs a command", "-- COMMAND"]),
        (["run", "--hosts", "3", "--", "ls"], ["--hosts belongs to scaling testbed up"]),
        (["down", "--bandwidth", "1Gbit"], ["--bandwidth belongs to"]),
        (["run", "--", "ls"], ["no testbed 'default'", "scaling testbed up"]),
        (["down"], ["no testbed 'default'"]),
        (["down", "--name", "../x"], ["--name '../x'"]),
    ],
)
def test_bad_input_is_one_message(cli, words, said):
    check_refused(cli(*words), *said)


def test_a_kernel_that_refuses_is_one_message_and_leaves_nothing(cli, tmp_path):
    cli.refused = "tc"
    check_refused(
        cli("up", "--latency", "1ms"), "qdisc kind is unknown", "netem", "nothing is left"
    )
    assert list(cli.netns.iterdir()) == []
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_after_a_restart_of_the_machine_it_is_said_and_down_tidies(cli):
    cli("up")
    for path in cli.netns.iterdir():
        path.unlink()
    assert "lacks 3 namespaces" in cli("status")[1]
    check_refused(cli("run", "--", "ls"), "was the machine restarted?", "scaling testbed down")
    assert cli("down")[0] == 0


def test_a_signal_during_up_gives_the_code_of_shells(cli, monkeypatch):
    def interrupted(*_):
        raise Interrupted(15)

    monkeypatch.setattr(commands, "up", interrupted)
    code, out, _ = cli("up")
    assert code == 143 and "SIGTERM" in out and "removed again" in out
