"""Profiles on disk: JSON, read strictly; those of GPUs lie beside this module.

profile_of(catalog.load("dgx-h100").accelerator)   # shipped: from published measurements
profile_of(accelerator)                 # of your own: the efficiencies of the nearest chip
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

from scaling.meshes.accelerator import Accelerator
from scaling.meshes.errors import InputError
from scaling.meshes.reading import content_hash, parse_json, read, read_text
from scaling.profiles.checks import check_figures
from scaling.profiles.profile import (
    ANY,
    VERSION,
    Evidence,
    InterferenceFit,
    LinkFit,
    LinkKind,
    MatmulFit,
    MemoryFit,
    Profile,
    VectorFit,
)
from scaling.profiles.shipped import DATA, chip_profile
from scaling.program.ir import CollectiveKind

LINK_FILE, HOST_LINK_FILE = DATA / "links.json", DATA / "host_links.json"
IDEAL_NAME = "ideal"
IDEAL = Evidence("definition: every peak is reached and nothing waits", "", "datasheet")
LINKS: tuple[LinkKind, ...] = get_args(LinkKind)
# What "How to Scale Your Model" prices level by level (gpus.md, 2026-06), and no GPU library runs.
LEVEL_BY_LEVEL: tuple[CollectiveKind, ...] = (
    *("all-reduce", "all-gather", "reduce-scatter", "broadcast"),
)
# An all-gather over 16 TPU v5e reaches 42.3 of 45 GB/s of a link (read from a figure, within 1 %);
# a small one over 4 takes about 8 us, 3 of them its hops of 1 us. Hops and bytes add up in what was
# measured: the larger of the two alone would be 12 % too fast at 4 MiB. Assumed of all TPUs.
ICI = LinkFit(
    "any",
    "ici",
    efficiency=42.3 / 45,
    evidence=Evidence(
        "How to Scale Your Model, chapter on sharded matrices: all-gathers measured on TPU v5e",
        "2026-06",
        "datasheet",
    ),
    alpha=5e-6,
    hop_overhead=1e-6,
    latency_factor=0.0,
)
# By experiments/published/fit_overlap.py, which leaves each machine out; assumed of all GPUs.
INTERFERENCE = InterferenceFit(
    cores=0.036,
    most=0.63,
    evidence=Evidence(
        "Dazz993/Mist @ d69e530: a product beside an all-gather on A100 40 GB and V100",
        "2024",
        "calibrated",
        samples=224,
        median_error=0.021,  # of the time of both, as that below: machines that were left out
        error_p90=0.106,
    ),
)
GPUS = ("NVIDIA", "AMD")  # collectives are kernels there; others have engines of their own


def profile_document(profile: Profile) -> dict[str, Any]:
    """The profile as its file has it, with the hash of what it says."""
    document: dict[str, Any] = json.loads(json.dumps(asdict(profile)))
    return document | {"sha256": content_hash(document)}


def write_profile(profile: Profile, path: Path) -> None:
    """Save as JSON."""
    path.write_text(json.dumps(profile_document(profile), indent=1) + "\n", encoding="utf-8")


def read_profile(path: Path) -> Profile:
    """The profile in a JSON file; InputError as of `profile_from`."""
    return profile_from(read_text(path), str(path))


def profile_from(text: str, where: str) -> Profile:
    """The profile in a JSON text; `where` is its name in messages.

    Raises:
        InputError: not JSON, an unknown or missing key (`version` too), a value of the wrong type
            or one that no machine has; of another format than this one, it says so. One that does
            not match its hash.
    """
    data = parse_json(text, where)
    if isinstance(data, dict) and (said := data.pop("sha256", None)) is not None:
        if said != content_hash(data):
            raise InputError(
                f"{where} is not as it was written, its sha256 is another: run `scaling calibrate` "
                "again, or delete the key sha256 if you changed it yourself"
            )
    try:
        profile = read(Profile, data, where)
    except InputError as error:
        version = data.get("version", VERSION) if isinstance(data, dict) else VERSION
        if version == VERSION or not isinstance(version, int):
            raise
        raise InputError(
            f"{error} ({where} is of format {version}, this is {VERSION}: run `scaling calibrate`)"
        ) from None
    if "version" not in data:
        raise InputError(f"{where}: missing 'version', the number of its format")
    check_figures(profile, where)
    return profile


def differences(profile: Profile, machine: str, versions: Mapping[str, str]) -> list[str]:
    """Reasons why a calibration may not hold here; none if it was made here, in quiet."""
    reasons = [load_warning(profile.other_load)] if profile.other_load else []
    if profile.version != VERSION:
        reasons.append(f"the calibration is of format {profile.version}, not {VERSION}")
    if profile.machine != machine:
        reasons.append(f"the calibration was measured on {profile.machine}, this is {machine}")
    for package, here in versions.items():
        there = profile.versions.get(package)
        if there is not None and there != here:
            reasons.append(f"the calibration was measured with {package} {there}, this is {here}")
    return reasons


def load_warning(share: float) -> str:
    """The warning about a calibration during which other processes used the processors."""
    return (
        f"other processes used {share:.0%} of the processor while this machine was calibrated: "
        "its figures may be too slow; run `scaling calibrate` again when it is quiet"
    )


def profile_of(accelerator: Accelerator) -> Profile:
    """The shipped profile of a chip, with its links; of one that nobody measured, what is assumed.

    Raises:
        InputError: the chip has no stated peaks; a calibration has to measure them.
    """
    interference = INTERFERENCE if accelerator.vendor in GPUS else None
    links = links_of(accelerator)
    return replace(chip_profile(accelerator), links=links, interference=interference)


@dataclass(frozen=True)
class ChipLinks:
    """Fits of the links inside a node."""

    chips: tuple[str, ...]  # (): all others
    links: tuple[LinkFit, ...]


@dataclass(frozen=True)
class LinkFile:
    """How collectives use links, as data/links.json has it, fitted on published measurements.

    And data/host_links.json: how JAX's CPU collectives do, fitted on this project's.
    """

    made_by: str
    between: tuple[LinkFit, ...]  # nodes, or hosts of a testbed
    figures: Mapping[str, float] = field(default_factory=dict)  # that were searched for; the links
    # follow from them
    inside: tuple[ChipLinks, ...] = ()


@cache
def link_file(chip: str | None = None, file: Path = LINK_FILE) -> LinkFile:
    """Shipped fits of links; of those inside a node only a chip's own and all others'.

    What several kinds of collectives have in common is one row of the file, with all kinds.
    """
    data = json.loads(file.read_text(encoding="utf-8"))
    groups = data.get("inside", ())
    if chip is not None:  # reading the rest takes longer than most prices
        groups = [group for group in groups if chip in group["chips"] or not group["chips"]]
    of_kinds = lambda rows: [row | {"kind": kind} for row in rows for kind in row["kind"]]
    data["inside"] = [group | {"links": of_kinds(group["links"])} for group in groups]
    return read(LinkFile, data | {"between": of_kinds(data["between"])}, file.name)


@cache
def host_links() -> tuple[LinkFit, ...]:
    """The shipped fits of the links between hosts of a testbed."""
    return link_file(file=HOST_LINK_FILE).between


def links_of(accelerator: Accelerator, file: LinkFile | None = None) -> tuple[LinkFit, ...]:
    """The fits of a chip's own links, those of all chips for its others, and those between nodes.

    `file` None: those that are shipped.
    """
    file = file or link_file(accelerator.name)
    known = {chip: group.links for group in file.inside for chip in group.chips or ("",)}
    of_chip = (ICI,) if accelerator.vendor == "Google" else known.get(accelerator.name, ())
    rest = (fit for fit in known[""] if fit.link not in {one.link for one in of_chip})
    return (*of_chip, *rest, *file.between)


def ideal(hops: bool = False) -> Profile:
    """Every peak is reached and latencies are zero: lower bounds, and the textbook's numbers.

    With `hops`, a collective takes at least its hops, each the latency of its links: the guide's
    max(T_hop x hops, V/W).
    """
    return Profile(
        name=IDEAL_NAME,
        machine=ANY,
        date="",
        matmul=(MatmulFit(ANY, 1.0, IDEAL),),
        memory=MemoryFit(1.0, IDEAL),
        vector=VectorFit(float("inf"), float("inf"), IDEAL),
        links=tuple(_ideal_links(hops)),
    )


def _ideal_links(hops: bool) -> Iterator[LinkFit]:
    """Links at full bandwidth, of any algorithm; the book's level by level among them."""
    for link in LINKS:
        fit = LinkFit("any", link, 1.0, IDEAL, latency_factor=float(hops), overlaps=hops)
        yield fit
        yield replace(fit, algorithm="ring")
        for kind in LEVEL_BY_LEVEL:
            yield replace(fit, algorithm="hierarchical", kind=kind)
