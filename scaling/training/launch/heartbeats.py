"""Heartbeats of the processes of a job, for whom the others wait, and links that lose what is sent.

Every process runs the same program, and counts the places of it that it passes:

    process 0   ... | data 12 | step 12 | data 13 | step 13 .... waits in a collective
    process 1   ... | data 12 | step 12 | data 13 .............. stands still: fewest places

A place has a limit. The job is stuck when all that are behind are over theirs: who waits for a
process that still writes a checkpoint, whose limit is long, has patience. Imports no jax.
"""

import ipaddress
import json
import os
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

Link = tuple[str, str]  # address of this end of a connection, and of the peer

# Limits chosen by this project: "within minutes", but above any pause of a sound job. PyTorch's are
# 10 minutes of NCCL's groups and 30 of others (docs.pytorch.org/docs/stable/distributed.html).
FLOOR = 5 * 60.0  # s for a step, at least
TIMES = 10.0  # medians of the steps before, if that is longer
LONG = 30 * 60.0  # s for the rest: compiling, restoring, connections of the first steps, a save
LEARN = 3  # steps before FLOOR holds
BEAT = 5.0  # s between heartbeats, in a job of many more: see RATE
RATE = 500  # heartbeats/s that the coordinator takes at most; chosen by this project
SILENT = 4  # heartbeats that did not come
MUTE = "does not answer"
NAMED = 8  # processes that a message names
ASKED = 64  # whose links, and stacks where nobody is behind, are looked at
DIFFERENT = 3  # stacks that are shown then
PLACES = {
    "start": "before the first step",
    "data": "waiting for the batch of step {}",
    "step": "in step {}",
    "agreement": "after step {}",
    "comparison": "in the comparison of hosts after step {}",
    "evaluation": "in the evaluation after step {}",
    "checkpoints": "in the checkpoint after step {}",
    "end": "at the end",
}
BEATS = "SCALING_TRAIN_BEATS"  # environment: where the supervisor of a process hears its beats
SHORT = ("data", "step", "agreement", "comparison")  # others may take LONG


@dataclass(frozen=True)
class Beat:
    """Where a process is."""

    count: int  # places that it has passed
    step: int
    place: str
    waited: float  # s there
    limit: float  # s that it may be there
    host: str
    silent: float = 0.0  # s since it was heard, if SILENT heartbeats of it did not come

    def text(self) -> str:
        """One line of JSON."""
        return json.dumps(list(asdict(self).values()))

    def where(self) -> str:
        """Its place in words."""
        return PLACES[self.place].format(self.step)


def read_beat(text: str) -> Beat:
    """The beat of such a line."""
    return Beat(*json.loads(text))


@cache
def supervisor_pipe() -> int | None:
    """Where the supervisor of this process hears its heartbeats; None without one."""
    number = os.environ.pop(BEATS, None)  # no process that this one starts has it
    if number is None:
        return None
    os.set_inheritable(int(number), False)
    os.set_blocking(int(number), False)
    return int(number)


def tell_supervisor(beat: Beat) -> None:
    """Write a line to the supervisor, if there is one that reads."""
    if (pipe := supervisor_pipe()) is not None:
        with suppress(OSError):  # full, or nobody reads
            os.write(pipe, f"{beat.text()}\n".encode())


def step_limit(minutes: float | None, place: str, steps: int, seconds: Sequence[float]) -> float:
    """Seconds that a process may be at a place.

    Args:
        minutes: `train.watchdog_minutes`, of a step; None: derived.
        steps: begun so far, without those that compile anew.
        seconds: of steps before.
    """
    asked = FLOOR if minutes is None else 60 * minutes
    if place not in SHORT or steps <= LEARN:
        return max(LONG, asked)
    if minutes is not None or not seconds:
        return asked
    return max(FLOOR, TIMES * statistics.median(seconds))


def stuck(beats: Mapping[int, Beat]) -> list[int] | None:
    """Processes for which the others wait; [] if nobody is behind; None while the job may go on.

    Silent ones are stuck for certain; where all answer, those that have passed the fewest places
    are, unless all have passed as many.
    """
    least = min(beat.count for beat in beats.values())
    behind = [i for i, beat in beats.items() if beat.count == least]
    if any(beats[i].waited <= beats[i].limit for i in behind):
        return None
    silent = [i for i, beat in beats.items() if beat.silent]
    return silent or (behind if len(behind) < len(beats) else [])


def verdict(
    beats: Mapping[int, Beat],
    culprits: Sequence[int],
    stacks: Mapping[int, str],
    links: Mapping[int, Sequence[Link]],
) -> str:
    """What stands still, by process, host, step and place.

    Args:
        culprits: processes for which the others wait; none: say what differs between them.
        stacks: of processes.
        links: connections of processes that get no answer.
    """
    lines = []
    for i in culprits[:NAMED]:
        beat = beats[i]
        state = f"stands still for {beat.waited:.0f} s"
        if beat.silent:
            state = f"{MUTE} for {beat.silent:.0f} s, and was last heard"
        lines.append(
            f"stuck: process {i} ({beat.host}) {state} {beat.where()}; its limit is "
            f"{beat.limit:.0f} s (train.watchdog_minutes)"
        )
        lines += [f"  {stacks[i]}"] if i in stacks else []
    if len(culprits) > NAMED:
        lines.append(f"and {len(culprits) - NAMED} more: {list(culprits[NAMED:])}")
    if not culprits:
        beat = beats[0]
        lines.append(
            f"stuck: all processes wait for {beat.waited:.0f} s {beat.where()}, none is behind: a "
            f"collective between them is lost, or a device stands still; the limit is "
            f"{beat.limit:.0f} s (train.watchdog_minutes)"
        )
        for stack, processes in _alike(stacks)[:DIFFERENT]:
            lines.append(f"  {processes}: {stack}")
    for where, processes in _alike({i: b.where() for i, b in beats.items() if i not in culprits}):
        lines += [f"{processes}: {where}"] if culprits else []
    if votes := Counter(end for pairs in links.values() for pair in pairs for end in pair):
        most = sorted(end for end, n in votes.items() if n == max(votes.values()))
        owners = {own: i for i, pairs in links.items() for own, _ in pairs}
        ends = (f"{e} (process {owners[e]})" if e in owners else e for e in most)
        lines.append(f"look at the link of {', '.join(ends)}: what is sent there is lost")
    return "\n".join(lines)


def _alike(texts: Mapping[int, str]) -> list[tuple[str, str]]:
    """Each text with the processes that have it, the rarest first."""
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for i, text in texts.items():
        groups[text].append(i)
    who = lambda p: f"process {p[0]}" if len(p) == 1 else f"{len(p)} processes, {p[0]} first"
    return [(text, who(p)) for text, p in sorted(groups.items(), key=lambda pair: len(pair[1]))]


def lost_links() -> list[Link]:
    """TCP connections of this process that get no answer; [] where Linux does not say."""
    links, sockets = [], set()
    with suppress(OSError):
        for fd in os.listdir("/proc/self/fd"):
            with suppress(OSError):  # closed by now
                sockets.add(os.readlink(f"/proc/self/fd/{fd}"))
        for name in ("tcp", "tcp6"):
            links += unanswered(Path(f"/proc/self/net/{name}").read_text(), sockets)
    return links


def unanswered(table: str, sockets: Collection[str]) -> list[Link]:
    """Connections of a `/proc/net/tcp` (proc(5)) that send something again and again.

    Args:
        sockets: inodes of those that count.
    """
    rows = [line.split() for line in table.splitlines()[1:]]
    return sorted(
        {
            (_address(row[1]), _address(row[2]))
            for row in rows
            if int(row[6], 16) and f"socket:[{row[9]}]" in sockets
        }
    )


def _address(text: str) -> str:
    """10.77.0.1 of 01004D0A:1F90: each four bytes in the order of an x86 or ARM machine."""
    raw = bytes.fromhex(text.partition(":")[0])
    words = b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4))
    address = ipaddress.ip_address(words)
    return str(getattr(address, "ipv4_mapped", None) or address)
