"""Messages of a schedule: who sends how many bytes to whom, and after which others."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from scaling.meshes.cluster import Cluster
from tests.oracle.graph import chip_name


@dataclass(frozen=True)
class Message:
    """Bytes from one node of the cluster's graph to another.

    A message starts when those in `after` have arrived and those in `behind` have left, as a
    thread block does that works through its channel step by step.
    """

    stops: tuple[str, ...]  # source, nodes that the route has to pass, target
    bytes: float
    after: tuple[int, ...] = ()  # numbers of earlier messages of the schedule
    behind: tuple[int, ...] = ()

    @property
    def source(self) -> str:
        return self.stops[0]

    @property
    def target(self) -> str:
        return self.stops[-1]


@dataclass
class ScheduleBuilder:
    """A schedule while it is written: messages in order, and the last one of each queue."""

    cluster: Cluster
    # (source, target) -> the device that forwards between two without a link
    forwarding: Mapping[tuple[int | str, int | str], int] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    last: dict[Hashable, int] = field(default_factory=dict)

    def send(
        self,
        source: int | str,
        target: int | str,
        bytes: float,
        after: Sequence[int] = (),
        queue: Hashable = None,
    ) -> int:
        """Adds one message between devices or nodes of the graph and returns its number.

        It leaves after the messages of `after` arrived and the last one of its queue left.
        """
        behind = (self.last[queue],) if queue is not None and queue in self.last else ()
        number = len(self.messages)
        if queue is not None:
            self.last[queue] = number
        forwarder = self.forwarding.get((source, target))
        ends = (source, target) if forwarder is None else (source, forwarder, target)
        stops = tuple(e if isinstance(e, str) else chip_name(self.cluster, int(e)) for e in ends)
        self.messages.append(Message(stops, bytes, tuple(after), behind))
        return number
