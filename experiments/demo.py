"""`make demo`: measure this machine, predict a step, train on a sharded mesh, compare, sample.

    calibrate (once) -> train: predicted beside measured -> sample -> compare -> predict on H100

Uses the GPUs present, else eight fake devices of this machine's CPU. The last part compiles the
same step for a DGX H100, which needs no GPU but JAX's CUDA plugin, published for Linux on x86-64;
without it that part is left out.
"""

import argparse
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scaling.api.calibrate import calibrate
from scaling.api.runs import load_run
from scaling.cli.main import main as scaling
from scaling.compile.quiet import quiet
from scaling.meshes.errors import InputError
from scaling.pictures.axes import Frame, Scale
from scaling.pictures.chart import Series, chart
from scaling.pictures.files import write_picture
from scaling.pictures.legend import Look
from scaling.pictures.palette import BLUE, SKY
from scaling.profiles.calibrations import profile_for
from scaling.simulate.resolve import HOST, target
from scaling.training.launch.gpu import avoid_absent_gpus
from scaling.training.run_folder.metrics import read_metrics

HOST_DEVICES = 8
RECORDED = "20:22"  # steps whose profile is recorded, once caches are warm
HOST_MESH = "data=2,fsdp=2,tensor=2"
PROMPT = "def "
ON_H100 = ["predict", "demo", "--mesh", HOST_MESH, "--cluster", "dgx-h100"]


def main() -> int:
    """Train, sample, compare, predict, plot; returns the exit code of the first that fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run-dir", type=Path, default=Path("runs/demo"))
    parser.add_argument("--steps", type=int, help="fewer steps, to try it (at least 22)")
    given = parser.parse_args()
    _make_room(given.run_dir)
    avoid_absent_gpus()
    start = time.perf_counter()
    steps = [] if given.steps is None else ["--steps", str(given.steps)]
    with quiet():  # imports jax
        mesh, folder = _mesh(), str(given.run_dir)
    parts: list[tuple[str, list[str]]] = [
        (
            "training, predicted beside measured",
            ["train", "demo", *mesh, "--run-dir", folder, "--record-profile", RECORDED, *steps],
        ),
        (f"a sample, after {PROMPT!r}", ["sample", folder, "--prompt", PROMPT]),
        ("predicted and measured", ["compare", folder]),
    ]
    _calibrate_once()
    for title, words in parts:
        _announce(title, words)
        if code := scaling(words):
            return code
    _predict_elsewhere()
    print(f"\n{_summary(given.run_dir)}\ndemo took {time.perf_counter() - start:.0f} s")
    print("next: scaling predict llama3-70b --mesh fsdp=64,tensor=8 --cluster dgx-h100 --nodes 64")
    return 0


def _announce(title: str, words: list[str]) -> None:
    print(f"\n== {title}: scaling {' '.join(words)}\n", flush=True)


def _predict_elsewhere() -> None:
    """In a process of its own: jax compiles for absent GPUs only where it uses no present ones."""
    _announce("the same step on eight H100, which are not here", ON_H100)
    if subprocess.run([sys.executable, "-m", "scaling", *ON_H100]).returncode:
        print("left out: this machine cannot compile for them, as said above", flush=True)


def _calibrate_once() -> None:
    """Measure this machine's CPU quickly, unless it has been measured as it is now."""
    import jax

    if jax.default_backend() != "cpu":
        return
    try:
        _, doubts = profile_for(target(load_run("demo", mesh=f"fsdp={HOST_DEVICES}"), HOST).cluster)
    except InputError as error:
        doubts = [str(error)]
    if doubts:
        print(f"== measuring this machine, once: {doubts[0]}\n", flush=True)
        calibrate(quick=True, devices=HOST_DEVICES)


def _make_room(folder: Path) -> None:
    """Move an earlier demo to another name; refuse to move anything else."""
    if not folder.exists():
        return
    file = folder / "run.json"
    if not file.exists() or json.loads(file.read_text())["name"] != "demo":
        raise SystemExit(f"{folder} exists and is not an earlier demo; choose another --run-dir")
    numbered = (folder.with_name(f"{folder.name}-{n}") for n in itertools.count(1))
    earlier = folder.rename(next(path for path in numbered if not path.exists()))
    print(f"the earlier demo is now {earlier}")


def _mesh() -> list[str]:
    """Arguments that name the mesh: 2 x 2 x 2 on eight devices, all as fsdp on another number."""
    import jax

    from scaling.meshes.devices import use_host_devices

    use_host_devices(HOST_DEVICES)
    count = jax.device_count()
    usable = 1 << (count.bit_length() - 1)  # the demo's sizes are powers of two
    if usable < count:
        raise SystemExit(
            f"the demo needs 1, 2, 4, 8, ... devices, {count} are present; show it {usable}, for "
            f"example CUDA_VISIBLE_DEVICES={','.join(map(str, range(usable)))}"
        )
    return ["--mesh", HOST_MESH if count == HOST_DEVICES else f"fsdp={count}"]


def _summary(folder: Path) -> str:
    records = read_metrics(folder)
    losses = [r["loss"] for r in records if "loss" in r]
    held_out = [r["held_out_loss"] for r in records if "held_out_loss" in r]
    paths = _plot_loss(records, "demo: Python's standard library, byte by byte", folder / "loss")
    parts = [f"loss {losses[0]:.3f} -> {losses[-1]:.3f} in {len(losses)} steps"]
    parts += [f"held out {held_out[-1]:.3f}"] if held_out else []
    return f"{', '.join(parts)}; plots: {', '.join(map(str, paths))}"


def _plot_loss(records: Sequence[dict[str, Any]], title: str, stem: Path) -> list[Path]:
    """Training and held-out loss against the step.

    Args:
        records: lines of `metrics.jsonl`.
        title: above the picture.
        stem: path without suffix; `.png` and `.svg` are written.
    """
    train = [(r["step"], r["loss"]) for r in records if r.get("loss") is not None]
    held_out = [(r["step"], r["held_out_loss"]) for r in records if "held_out_loss" in r]
    paths = [stem.with_suffix(suffix) for suffix in (".png", ".svg")]
    losses = [loss for _, loss in train + held_out]
    series = {
        "training": Series(Look(SKY, "", ""), train),
        "held out": Series(Look(BLUE, "o", ""), held_out),
    }
    x = Scale(0, max(step for step, _ in train + held_out), "step")
    y = Scale(min(losses), max(losses), "loss (nats per token)")
    write_picture(chart(title, Frame(x, y), series), *paths)
    return paths


if __name__ == "__main__":
    raise SystemExit(main())
