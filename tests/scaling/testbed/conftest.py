"""A system that only keeps books: namespaces are files, and commands fail when they are told to;
and real testbeds, where this machine lets us make some."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from scaling.meshes.errors import InputError
from scaling.testbed.build import down, up
from scaling.testbed.machine import CommandFailed, Machine, present_machine
from scaling.testbed.plan import TestbedConfig, new_testbed
from scaling.testbed.state import all_states


@dataclass
class FakeSystem:
    """What `ip` and `tc` would have done."""

    folder: Path
    fails: set[int] = field(default_factory=set)  # numbers of commands, counted from 0
    calls: list[tuple[str, ...]] = field(default_factory=list)
    running: dict[str, set[int]] = field(default_factory=dict)  # processes by namespace
    deaf: set[int] = field(default_factory=set)  # processes that only SIGKILL ends
    signals: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("netns", "cache"):
            (self.folder / name).mkdir()

    @property
    def machine(self) -> Machine:
        folder = self.folder
        return Machine(self.run, self.kill, folder / "netns", folder / "etc", grace=0.0)

    @property
    def states(self) -> Path:
        return self.folder / "cache" / "testbeds"

    def run(self, words: Sequence[str]) -> str:
        self.calls.append(tuple(words))
        if len(self.calls) - 1 in self.fails:
            raise CommandFailed(f"`{' '.join(words)}`: no such luck")
        named = self.folder / "netns" / words[3 if words[1] == "netns" else 2]
        if tuple(words[:3]) == ("ip", "netns", "add"):
            if named.exists():
                raise CommandFailed("File exists")
            named.touch()
        elif not named.exists():
            raise CommandFailed(f"there is no namespace {named.name}")
        elif tuple(words[:3]) == ("ip", "netns", "del"):
            named.unlink()
        elif tuple(words[:3]) == ("ip", "netns", "pids"):
            return "".join(f"{pid}\n" for pid in sorted(self.running.get(words[3], ())))
        return ""

    def kill(self, pid: int, number: int) -> None:
        self.signals.append((pid, number))
        for pids in self.running.values():
            if pid in pids and (number == 9 or pid not in self.deaf):
                pids.discard(pid)

    def files(self) -> dict[str, str | None]:
        """Everything there is, with its text; None for folders. Empty caches do not count."""
        found = {
            str(p.relative_to(self.folder)): p.read_text() if p.is_file() else None
            for p in self.folder.rglob("*")
        }
        return {name: text for name, text in found.items() if name != "cache/testbeds"}


@pytest.fixture(scope="session")
def new_system() -> type[FakeSystem]:
    return FakeSystem


@pytest.fixture
def system(tmp_path) -> FakeSystem:
    return FakeSystem(tmp_path)


@pytest.fixture
def testbed() -> TestbedConfig:
    return TestbedConfig("lab", "0123abcd", hosts=2, devices=2, bandwidth=125_000_000)


@pytest.fixture(scope="session")
def machine(tmp_path_factory):
    """This machine, if it can have testbeds."""
    try:
        found, folder = present_machine(), tmp_path_factory.mktemp("states")
        testbed = new_testbed("probe", 1, 1, "1Gbit")
        up(testbed, found, folder)
        down(testbed, found, folder)
    except InputError as error:
        pytest.skip(f"no testbed here: {error}")
    return found


@pytest.fixture
def make(machine, tmp_path):
    """Makes testbeds, and removes them after the test."""

    def made(name="test", **figures):
        testbed = new_testbed(name, **({"hosts": 2, "devices": 2, "bandwidth": "1Gbit"} | figures))
        up(testbed, machine, tmp_path / "states")
        return testbed

    yield made
    for record in list(all_states(tmp_path / "states")):
        down(record.testbed, machine, tmp_path / "states")
