"""The folder of one measurement, which every stage adds to, and what is brought home of it.

DATE-gpu-NAME/results.json        all stages: status, seconds, measurements
              results.md          the same for a reader, written anew after each stage
              calibration.json    the efficiencies of this device, with their samples
              raw/STAGE.tar.gz    what a process printed; programs, profiles
"""

import json
import re
import shutil
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

RESULTS, TABLE, CALIBRATION, RAW = "results.json", "results.md", "calibration.json", "raw"
SCHEMA = 2  # of results.json; a key that goes or changes its meaning makes it 3
MOST_FILES, MOST_BYTES = 8, 15 * 2**20  # of a packed measurement, and of one of its files


def find_folder(out: Path, slug: str, day: str, tiny: bool) -> Path:
    """The newest folder of measurements of such a device, or a new one of today."""
    there = sorted(out.glob(f"????-??-??-gpu-{slug}"), reverse=True)
    same = [folder for folder in there if (folder / RESULTS).exists()]
    return next((f for f in same if read(f)["tiny"] == tiny), out / f"{day}-gpu-{slug}")


def read(folder: Path) -> dict[str, Any]:
    """The results so far."""
    return json.loads((folder / RESULTS).read_text(encoding="utf-8"))


def write(folder: Path, name: str, text: str) -> None:
    """Write a file; whoever reads it meets the old one or the new one, whole."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{name}.partial"
    partial.write_text(text, encoding="utf-8")
    partial.replace(folder / name)


def save(document: dict[str, Any], folder: Path) -> None:
    """Write the results."""
    write(folder, RESULTS, json.dumps(document, indent=1, allow_nan=False) + "\n")


def keep_raw(folder: Path, stage: str, raw: Path) -> None:
    """The files of a stage as one archive."""
    file = archive(folder, stage)
    file.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file, "w:gz") as tar:
        tar.add(raw, arcname=file.name.removesuffix(".tar.gz"))


def archive(folder: Path, stage: str) -> Path:
    """Where the raw data of a stage are."""
    return folder / RAW / (re.sub(r"[^\w.=-]+", "-", stage) + ".tar.gz")


def pack(folder: Path, to: Path, names: Iterable[str]) -> list[str]:
    """Copy a measurement into few files of bounded size; returns the stages left out for room.

    Args:
        folder: of the measurement.
        to: made if it is not there.
        names: of the stages, the raw data of the first of which come first.
    """
    to.mkdir(parents=True, exist_ok=True)
    for name in (RESULTS, TABLE, CALIBRATION):
        if (folder / name).exists():
            shutil.copy(folder / name, to / name)
    bundles: list[list[Path]] = [[]]
    left_out, sizes = [], [0]
    for name in names:
        file = archive(folder, name)
        size = file.stat().st_size + 1024 if file.exists() else 0  # with the header of a tar
        if size > MOST_BYTES or not size:
            left_out += [name] if size else []
            continue
        if sizes[-1] + size > MOST_BYTES:
            if len(bundles) == MOST_FILES - 3:
                left_out.append(name)
                continue
            bundles.append([])
            sizes.append(0)
        bundles[-1].append(file)
        sizes[-1] += size
    for number, files in enumerate(bundles, 1):
        with tarfile.open(to / f"raw-{number}.tar", "w") as tar:
            for file in files:
                tar.add(file, arcname=f"{RAW}/{file.name}")
    return left_out
