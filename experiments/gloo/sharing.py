"""Seconds that messages take which share the hosts' links, each link fairly, in a fluid picture.

    host0 out --- A ---> host1 in      A and B leave host0 together: half of its link each.
    host0 out --- B ---> host2 in      When A has ended, B has all of it.

Shares are max-min fair (Bertsekas and Gallager, Data Networks, chapter 6): the most
crowded link gives each of its messages an equal part, then the next most crowded what is left.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Transfer:
    """A message between hosts, and which others (by position) must have arrived before it starts.

    One that stays in its host takes no time.
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
        done = [i for i in active if left[i] <= 0]
        if not done:
            rates = fair_rates([transfers[i] for i in active], bandwidth)
            ends = [left[i] / rate for i, rate in zip(active, rates, strict=True)]
            step = min(ends)
            now += step
            done = [i for i, end in zip(active, ends, strict=True) if end <= step * (1 + 1e-9)]
            for i, rate in zip(active, rates, strict=True):
                left[i] -= rate * step
        for i in done:
            del left[i]
    return now


def fair_rates(transfers: Sequence[Transfer], bandwidth: float) -> list[float]:
    """Bytes/s of each of these, all under way between different hosts."""
    links = [(("out", t.source), ("in", t.target)) for t in transfers]
    free = {link: bandwidth for pair in links for link in pair}
    waiting = set(range(len(transfers)))
    rates = [0.0] * len(transfers)
    while waiting:
        users = {link: [i for i in sorted(waiting) if link in links[i]] for link in free}
        share, crowded = min((free[link] / len(on), link) for link, on in users.items() if on)
        for i in users[crowded]:
            rates[i] = share
            waiting.remove(i)
            for link in links[i]:
                free[link] = max(0.0, free[link] - share)
    return rates
