"""What an inference engine adds to its kernels: seconds of a pass, tiles of experts.

    seconds of a pass = kernels + collectives + B x sequence + L x layer + ...

Without an engine kernels and collectives follow one another with nothing between them. What an
engine does is a fact with a source; its seconds are fitted on measured steps, each model left out
in turn (experiments/published/score_serving.py). Both stand in questions/data/engines.toml.
"""

from dataclasses import dataclass, fields
from functools import cache

from scaling.meshes.errors import check_keys
from scaling.meshes.reading import package_toml, read

Range = tuple[float, float]  # measured over predicted, of models left out: 5 and 95 % quantiles


@dataclass(frozen=True)
class Overheads:
    """Seconds of a pass beside its kernels, for each of what it has; or how many of them it has."""

    sequence: float = 0.0  # whose token is sampled and sent
    layer: float = 0.0  # with its all-reduces, beside their bytes
    expert_layer: float = 0.0  # rows are sorted by expert and summed again
    quantised_layer: float = 0.0  # activations are rounded to 8 bits

    def times(self, counts: "Overheads") -> float:
        """Seconds of so many."""
        return sum(getattr(self, f.name) * getattr(counts, f.name) for f in fields(self))


@dataclass(frozen=True)
class Engine:
    """How one engine runs a forward pass."""

    title: str = "kernels one after another, collectives by NCCL"
    source: str = ""  # of what it does
    evidence: str = ""  # what its seconds were fitted on
    overheads: Overheads = Overheads()
    large_tiles: float = 1.0  # time of products of experts in tiles that nobody measured
    copies_keys: bool = (
        False  # a device of `tensor` has a whole head of keys, however few there are
    )
    pads_copies: bool = False  # shards of the batch compute as many tokens as the fullest
    own_all_reduce: bool = False  # for the devices of a node, at the rate of the links
    range: Range | None = None  # of a step


@dataclass(frozen=True)
class EngineFile:
    """The engines by their names."""

    engines: dict[str, Engine]


NO_ENGINE = Engine()


@cache
def engine_file() -> EngineFile:
    """Return what is shipped."""
    return read(EngineFile, package_toml("questions/data/engines.toml"), "engines.toml")


def engine_of(software: str | None) -> Engine:
    """Return the engine of that name; None: none."""
    if software is None:
        return NO_ENGINE
    check_keys([software], engine_file().engines, "--software", "engine")
    return engine_file().engines[software]
