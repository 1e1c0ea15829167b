"""Every file call of a save: the power is cut after it, or it fails and so do all later ones."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from experiments.faults.bench import ENOUGH, Bench, Outcome, case
from experiments.faults.replay import Left, left_of, replay, survivors, write

HERE = Path(__file__).parent
SAVES = 3  # of which each replaces the one before
ERRORS = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS)


def preloaded(folder: Path, **settings: object) -> dict[str, str]:
    """Variables under which the file calls of a process are seen (`calls.c`); compiles that.

    Raises:
        FileNotFoundError, CalledProcessError: there is no C compiler, or it fails.
    """
    library = folder / "calls.so"
    if not library.exists():
        flags = ["-shared", "-fPIC", "-O1", "-o", str(library)]
        sources = [str(HERE / "calls.c"), "-ldl", "-lpthread"]
        subprocess.run(["cc", *flags, *sources], check=True, capture_output=True)
    return {"LD_PRELOAD": str(library)} | {f"FAULTS_{k}": str(v) for k, v in settings.items()}


def saves(*words: object, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """Start `experiments.faults.saves WORDS`."""
    command = [sys.executable, "-m", "experiments.faults.saves", *map(str, words)]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command,
        cwd=HERE.parents[1],
        env=os.environ | (env or {}),
        stdin=pipe,
        stdout=pipe,
        stderr=subprocess.DEVNULL,
        text=True,
    )


@case
def cuts(bench: Bench) -> Outcome:
    """The power cut after each file call of some saves, on a disk that keeps what was synced."""
    from experiments.faults.saves import restored

    top, log = bench.folder / "cuts", bench.folder / "log"
    top.mkdir()
    words = ("record", top, log, 1, SAVES)
    saves(*words, env=preloaded(bench.folder)).communicate(timeout=ENOUGH)
    tried, good, known = 0, 0, {}
    for disk, saved in replay(log, top):
        for names in survivors(tried).values():
            left: Left = {"checkpoints": {}} | left_of(disk, names)
            key = json.dumps(left, sort_keys=True)
            if key not in known:
                write(left, bench.folder / "left")
                known[key] = restored(bench.folder / "left" / "checkpoints")
                shutil.rmtree(bench.folder / "left")
            tried += 1
            good += known[key] >= saved
    assert saved == SAVES, f"{saved} of {SAVES} saved"
    lost = f"nothing saved; {len(known)} different folders of checkpoints"
    return Outcome(f"power cut after each file call of {SAVES} saves, keep=1", tried, good, lost)


@case
def refusals(bench: Bench) -> Outcome:
    """An error of each file call of a save and of all calls after it."""
    names = ", ".join(errno.errorcode[number] for number in ERRORS)
    found = [_refused(bench, number, once=False) for number in ERRORS]
    return _sum(f"{names} from each file call of a save on", found)


@case
def hiccups(bench: Bench) -> Outcome:
    """An error of each file call of a save, once."""
    return _sum("EIO once, at each file call of a save", [_refused(bench, errno.EIO, once=True)])


def _refused(bench: Bench, number: int, once: bool) -> tuple[int, int, int]:
    """Saves tried; those after which all is well; those that left a temporary folder."""
    folder = bench.folder / f"refused-{number}"
    process = saves("refuse", folder, number, int(once), env=preloaded(bench.folder))
    out, _ = process.communicate(timeout=10 * ENOUGH)
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert process.returncode == 0 and lines, f"{os.strerror(number)}: ended early"
    kept = [one["found"] == 2 if one["saved"] else one["found"] in (1, 2) for one in lines]
    went_on = [one["again"] == 4 and one["then"] == [4] for one in lines]
    clean = [not one["left"] for one in lines]
    good = sum(map(all, zip(kept, went_on, clean, strict=True)))
    return len(lines), good, len(lines) - sum(clean)


def _sum(name: str, found: list[tuple[int, int, int]]) -> Outcome:
    tried, good, left = (sum(part) for part in zip(*found, strict=True))
    return Outcome(name, tried, good, f"nothing saved; {left} temporary folders left")
