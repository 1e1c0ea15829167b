"""When everything happens: the schedule replayed on a compute stream and a communication stream.

    compute  |matmul|matmul|......wait|matmul|        ....: exposed communication
    comm          |all-gather[fsdp]---|                     |---|: hidden where compute is busy

A kernel starts when the compute stream is free. An asynchronous collective is issued there too, but
starts when the communication stream is free: one runs at a time, in the order of issue, as XLA's
GPU runtime has it (openxla/xla, AsyncStreamKind). A Wait holds the compute stream until its
collective is over; a synchronous collective holds both. Of several branches the one that takes
longest runs. Asynchronous kernels (copies) get a stream of their own; waiting for them counts as
`host`, because that is where they copy to and from.

What is computed in the idle trips of a loop (`simulate.pipeline_bubble`) is a pipeline's bubble.

Every instant of the step is compute, bubble, optimizer, exposed communication or host, so these sum
to the step time. Times may be numpy arrays over configurations; the trip counts of loops may not.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from scaling.program.ir import Number, Program, as_float
from scaling.simulate.streams import Event, Streams, later


@dataclass(frozen=True)
class Timeline:
    """Where a step's time goes, in seconds. The first five sum to `total`."""

    compute: Number
    optimizer: Number
    exposed_communication: Number
    bubble: Number
    host: Number
    hidden_communication: Number
    by_name: Mapping[str, Number]  # name -> seconds of all its calls
    exposed_by_name: Mapping[str, Number]  # name -> seconds that the compute stream stood still
    events: tuple[Event, ...] = ()  # where asked for

    @property
    def total(self) -> Number:
        """Seconds of the whole step."""
        busy = self.compute + self.optimizer + self.exposed_communication
        return busy + self.bubble + self.host


def run_schedule(
    program: Program,
    times: Mapping[str, Number],
    host: Number = 0.0,
    record: bool = False,
) -> Timeline:
    """Walk the schedule.

    Args:
        program: what happens, in which order.
        times: seconds of one call of every kernel and collective, by name.
        host: seconds per step during which the device waits for the host.
        record: keep every event, of every iteration of every loop (for a trace); the times are
            then numbers.
    """
    streams = Streams({name: as_float(seconds) for name, seconds in times.items()}, record)
    streams.block(program.schedule)
    exposed = streams.named("exposed")
    standing = sum(exposed.values(), 0.0)
    return Timeline(
        compute=streams.sum("compute"),
        optimizer=streams.sum("optimizer"),
        exposed_communication=standing,
        bubble=streams.sum("bubble"),
        host=as_float(host) + streams.sum("copy"),
        hidden_communication=later(0.0, streams.sum("communication") - standing),
        by_name=streams.named("time"),
        exposed_by_name=exposed,
        events=tuple(streams.events),
    )
