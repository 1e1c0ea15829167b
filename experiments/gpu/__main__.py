"""Measures the GPUs of this machine stage by stage (`make gpu`), and goes on where it stopped.

    python -m experiments.gpu --out DIR                  9 minutes; as often as it takes
    python -m experiments.gpu --out DIR --list           the stages, and which are done
    python -m experiments.gpu --out DIR --only kernel    some of them
    python -m experiments.gpu --out DIR --tiny           toys on a CPU

Every stage is a process (`worker.py`); its result is on disk before the next begins. A stage that
the time ends is run by the next call; one that fails is not, without --again.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from experiments.gpu.machine import git_commit, nvidia_smi, slug, without_paths
from experiments.gpu.record import (
    CALIBRATION,
    RESULTS,
    SCHEMA,
    TABLE,
    find_folder,
    keep_raw,
    pack,
    read,
    save,
    write,
)
from experiments.gpu.stages import MOST, Stage, is_done, next_stage, stages
from experiments.gpu.table import line, report

LOG, SAID = "log.txt", 300  # what a stage printed; its last characters that a crash is told by
TO_WRITE = 10.0  # s at the end of a call


def main(arguments: list[str] | None = None) -> None:
    """Run the stages that are left, as far as the time goes."""
    args = _parse(arguments)
    deadline = time.monotonic() + 60 * args.minutes - TO_WRITE
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))
    now = datetime.now(UTC)
    names = nvidia_smi(("name",))
    device = slug(names[0]["name"] if names and not args.tiny else "cpu")
    folder = find_folder(args.out, device, f"{now:%Y-%m-%d}", args.tiny)
    document = read(folder) if (folder / RESULTS).exists() else _empty(args, now)
    if args.list:
        print("\n".join(_listed(document)))
        return
    if args.calibration is not None:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(args.calibration, folder / CALIBRATION)
        document["stages"]["calibration"] = {"status": "ok", "result": {"file": "given"}}
    tried: dict[str, Any] = {}
    save(document, folder)
    while stage := next_stage(document, args.only, tried, deadline - time.monotonic(), args.again):
        print(f"{stage.name} ...", end=" ", flush=True)
        before = document["stages"].get(stage.name, {})
        found = run_stage(stage, folder, deadline - time.monotonic(), args.torch_python)
        if "interrupted" == found["status"] == before.get("status"):
            found["status"] = "timed out"  # else it would take all the time of every call
        tried[stage.name] = found
        document["stages"][stage.name] = found
        save(document, folder)
        write(folder, TABLE, report(document))
        print(line(stage, found), flush=True)
    print(f"\n{report(document)}\n{_left(document, folder)}")
    if args.pack is not None:
        left_out = pack(folder, args.pack, [stage.name for stage in stages(document)])
        print(f"packed into {args.pack.name}; without raw data of: {', '.join(left_out) or 'none'}")


def run_stage(stage: Stage, folder: Path, left: float, torch_python: str = "") -> dict[str, Any]:
    """What came of a stage, run in a process of its own; its raw data are in the folder.

    Args:
        left: seconds of this call; after them, or after `MOST` times what it should take, the
            process and its children are ended.
    """
    start, limit = time.monotonic(), min(left, MOST * stage.seconds)
    with tempfile.TemporaryDirectory() as scratch:
        raw, result = Path(scratch) / "raw", Path(scratch) / "result.json"
        raw.mkdir()
        command = [sys.executable, "-m", "experiments.gpu.worker", stage.name]
        command += ["--folder", str(folder), "--result", str(result), "--raw", str(raw)]
        command += ["--torch-python", torch_python] if torch_python else []
        with (raw / LOG).open("w", encoding="utf-8") as log:
            # A chip that is absent is compiled for where jax sees no other.
            environment = os.environ | ({"JAX_PLATFORMS": "cpu"} if stage.kind == "absent" else {})
            status = _status(command, environment, log, limit)
        if status is None:
            found = {"status": "interrupted" if limit == left else "timed out"}
            found["error"] = f"ended after {limit:.0f} s"
        elif result.exists():
            found = json.loads(result.read_text(encoding="utf-8"))
        else:
            said = (raw / LOG).read_text(encoding="utf-8", errors="replace")
            found = {"status": "crashed", "error": f"exit {status}: {_last(said)}"}
        keep_raw(folder, stage.name, raw)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {**found, "date": now, "seconds": round(time.monotonic() - start, 1)}


def _status(command: list[str], env: dict[str, str], log: IO[str], limit: float) -> int | None:
    """The exit status of a process; None if it was ended, with its children, after `limit` s."""
    process = subprocess.Popen(
        command, stdout=log, stderr=subprocess.STDOUT, env=env, start_new_session=True
    )
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:  # also where this process itself is ended
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _last(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    return without_paths(lines[-1] if lines else "nothing was printed")[-SAID:]


def _empty(args: argparse.Namespace, now: datetime) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "date": now.isoformat(timespec="seconds"),
        "tiny": args.tiny,
        "commit": args.commit or git_commit(),
        "stages": {},
    }


def _listed(document: dict[str, Any]) -> Iterator[str]:
    """A line per stage, in the order in which they run."""
    for stage in stages(document):
        status = document["stages"].get(stage.name, {}).get("status", "to do")
        yield f"{stage.name:<50} {stage.seconds:5.0f} s  {status}"


def _left(document: dict[str, Any], folder: Path) -> str:
    """What is left to do, and where the results are."""
    left = [stage for stage in stages(document) if not is_done(document, stage)]
    if not left:
        return f"all stages are done (--again repeats them): {folder.name}"
    seconds = sum(stage.seconds for stage in left)
    return (
        f"{len(left)} stages are left, about {seconds / 60:.0f} minutes: run the same command "
        f"again. Results: {folder.name}"
    )


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.gpu", description=str(__doc__).partition("\n")[0]
    )
    add = parser.add_argument
    add("--out", type=Path, required=True, help="folder of all results")
    add("--minutes", type=float, default=9.0, help="of this call (%(default)s)")
    add("--only", default="", help="stages whose name contains this")
    add("--again", action="store_true", help="also those that are done")
    add("--list", action="store_true", help="name the stages and do nothing")
    add("--calibration", type=Path, help="a calibration of this device, instead of measuring one")
    add("--torch-python", default="", help="a Python that has PyTorch (this one)")
    add("--pack", type=Path, help="also copy the results into this folder, as a few files")
    add("--tiny", action="store_true", help="toys that run anywhere")
    add("--commit", help="what is measured, where git cannot tell")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
