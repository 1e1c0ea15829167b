"""Seconds of messages that share the hosts' links fairly (fluid model).

    host0 out --- A ---> host1 in      A and B leave host0 at once: half of its link each.
    host0 out --- B ---> host2 in      Once A has ended, B has the whole link.

Shares are max-min fair (Bertsekas and Gallager, Data Networks, chapter 6): the bottleneck link
gives each of its messages an equal share, then the next bottleneck shares what is left.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Transfer:
    """A message between hosts, and the positions of those that must arrive before it starts.

    A message within a host takes no time.
    """

    source: int  # host
    target: int  # host
    bytes: float
    after: tuple[int, ...] = ()


def finish_time(transfers: Sequence[Transfer], bandwidth: float) -> float:
    """Seconds until all have arrived, on links of `bandwidth` bytes/s in each direction."""
    left = {i: t.bytes if t.source != t.target else 0.0 for i, t in enumerate(transfers)}
    now = 0.0
    while left:
        active = [i for i in left if not any(j in left for j in transfers[i].after)]
        assert active, "transfers wait for each other"
        finished = [i for i in active if left[i] <= 0]
        if not finished:
            rates = fair_rates([transfers[i] for i in active], bandwidth)
            ends = [left[i] / rate for i, rate in zip(active, rates, strict=True)]
            step = min(ends)
            now += step
            finished = [i for i, end in zip(active, ends, strict=True) if end <= step * (1 + 1e-9)]
            for i, rate in zip(active, rates, strict=True):
                left[i] -= rate * step
        for i in finished:
            del left[i]
    return now


def fair_rates(transfers: Sequence[Transfer], bandwidth: float) -> list[float]:
    """Bytes/s of each transfer; all are in flight between different hosts."""
    links = [(("out", t.source), ("in", t.target)) for t in transfers]
    free = {link: bandwidth for pair in links for link in pair}
    waiting = set(range(len(transfers)))
    rates = [0.0] * len(transfers)
    while waiting:
        users = {link: [i for i in sorted(waiting) if link in links[i]] for link in free}
        share, bottleneck = min((free[link] / len(on), link) for link, on in users.items() if on)
        for i in users[bottleneck]:
            rates[i] = share
            waiting.remove(i)
            for link in links[i]:
                free[link] = max(0.0, free[link] - share)
    return rates
