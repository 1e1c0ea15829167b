"""TCP connections of this process whose peer does not answer, as Linux counts them."""

import ipaddress
import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

Link = tuple[str, str]  # address of this end of a connection, and of the peer


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
