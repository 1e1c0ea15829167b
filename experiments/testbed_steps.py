"""Training steps across the hosts of testbeds, predicted and measured.

    sudo python -m experiments.testbed_steps
    sudo python -m experiments.testbed_steps --only stage        meshes with this in their name

Calibrates this machine with as many devices as a testbed has (quickly), then trains a small model
on testbeds of 2 and 4 hosts at three link rates. `scaling train` predicts each step before it runs.
No fit has seen a step on a testbed. The page is experiments/results/DATE-testbed-steps.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from statistics import mean, median
from typing import Any

from experiments.gpu.machine import git_commit
from scaling.profiles.machine import busy, cpu_model, versions
from scaling.report.formatting import columns
from scaling.testbed.build import down, up
from scaling.testbed.job import run_job
from scaling.testbed.machine import present_machine
from scaling.testbed.plan import new_testbed
from scaling.testbed.state import state_folder

HOSTS = (2, 4)
BANDWIDTHS = ("1Gbit", "500Mbit", "200Mbit")
MESHES = {
    2: ("data=2", "fsdp=2"),
    4: ("data=4", "fsdp=4", "data=2,tensor=2", "stage=4", "stage=2,data=2"),
}
MICROBATCHES = 4  # of meshes with stages, one for each of at most four
STEPS = 14
WARM_UP = 4  # steps: first use of buffers, threads and connections
MODEL = {
    "vocab_size": 1024, "d_model": 256, "n_layers": 4, "n_heads": 8, "n_kv_heads": 8,
    "d_ff": 1024, "mlp": "swiglu", "norm": "rmsnorm", "positions": "rope",
}  # fmt: skip
BATCH = {"global_batch": 16, "seq_len": 64}
SCHEMA = 1


@dataclass(frozen=True)
class Case:
    """A mesh on a testbed: predicted seconds of a step, and those of each measured one."""

    hosts: int
    bandwidth: str
    mesh: str
    predicted: float
    low: float
    high: float
    time: dict[str, float]
    measured: tuple[float, ...]

    @property
    def typical(self) -> float:
        """The median of the measured steps."""
        return median(self.measured)

    @property
    def error(self) -> float:
        """predicted / measured - 1."""
        return self.predicted / self.typical - 1

    @property
    def spread(self) -> float:
        """Distance of the quartiles over the median."""
        ordered, quarter = sorted(self.measured), len(self.measured) // 4
        return (ordered[-1 - quarter] - ordered[quarter]) / self.typical


def train(hosts: int, bandwidth: str, meshes: Sequence[str]) -> list[Case]:
    """All meshes on one testbed, which is there only meanwhile."""
    machine, folder = present_machine(), state_folder()
    testbed = new_testbed("steps", hosts, 1, bandwidth)
    up(testbed, machine, folder)
    cases = []
    try:
        for mesh in meshes:
            with tempfile.TemporaryDirectory() as scratch:
                run = {"name": "testbed", "model": MODEL, "batch": BATCH}
                run |= {"precision": {"compute": "fp32"}, "train": {"steps": STEPS}}
                file, out = Path(scratch) / "run.json", Path(scratch) / "out"
                file.write_text(json.dumps(run), encoding="utf-8")
                words = [sys.executable, "-m", "scaling", "train", str(file), "--mesh", mesh]
                if "stage" in mesh:
                    words += ["--set", f"batch.microbatches={MICROBATCHES}"]
                if code := run_job(testbed, machine, [*words, "--run-dir", str(out)]):
                    raise SystemExit(code)
                cases.append(_case(hosts, bandwidth, mesh, out))
    finally:
        down(testbed, machine, folder)
    return cases


def _case(hosts: int, bandwidth: str, mesh: str, out: Path) -> Case:
    predicted = json.loads((out / "predicted.json").read_text(encoding="utf-8"))
    lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    seconds = [entry["step_time"] for entry in map(json.loads, lines) if "loss" in entry]
    ranges = (predicted["step_time"], predicted["step_time_low"], predicted["step_time_high"])
    return Case(hosts, bandwidth, mesh, *ranges, predicted["time"], tuple(seconds[WARM_UP:]))


def page(cases: Sequence[Case], machine: str, load: str, only: str = "") -> list[str]:
    """Lines of the table and its summary."""
    command = "sudo python -m experiments.testbed_steps" + (f" --only {only}" if only else "")
    head = ["hosts", "link", "mesh", "predicted", "measured", "spread", "error", "inside"]
    rows = [
        [
            *(str(c.hosts), c.bandwidth, c.mesh),
            *(f"{1e3 * c.predicted:.0f} ms", f"{1e3 * c.typical:.0f} ms"),
            *(f"{c.spread:.1%}", f"{c.error:+.1%}"),
            "yes" if c.low <= c.typical <= c.high else "no",
        ]
        for c in cases
    ]
    errors = [abs(c.error) for c in cases]
    met = sum(abs(c.error) < max(0.10, 2 * c.spread) for c in cases)
    inside = sum(c.low <= c.typical <= c.high for c in cases)
    return [
        "# Training steps across the hosts of testbeds, predicted and measured",
        "",
        f"{date.today().isoformat()}, {machine}; {load or 'nothing else ran'}.",
        f"Made by `{command}`. All hosts share this machine's cores.",
        "",
        "```",
        *columns([head, *rows]),
        "```",
        "",
        f"Absolute error: n {len(errors)}, mean {mean(errors):.1%}, median {median(errors):.1%}, "
        f"worst {max(errors):.1%}; {inside} inside the range. "
        f"Below max(10 %, twice the spread): {met}.",
    ]


def main(arguments: list[str] | None = None) -> None:
    """Calibrate, train everywhere, save, print."""
    parser = argparse.ArgumentParser(prog="python -m experiments.testbed_steps")
    parser.add_argument("--out", type=Path, default=Path("experiments/results"))
    parser.add_argument("--only", default="", help="meshes with this in their name")
    parser.add_argument("--quick", action="store_true", help="two hosts and one rate only")
    args = parser.parse_args(arguments)
    load, cases = busy(), []
    chosen = {n: [mesh for mesh in MESHES[n] if args.only in mesh] for n in HOSTS}
    for hosts in HOSTS[:1] if args.quick else [n for n in HOSTS if chosen[n]]:
        words = [sys.executable, "-m", "scaling", "calibrate", "--quick", "--devices", str(hosts)]
        subprocess.run(words, check=True)
        for bandwidth in BANDWIDTHS[:1] if args.quick else BANDWIDTHS:
            cases += train(hosts, bandwidth, chosen[hosts])
    folder = args.out / f"{date.today().isoformat()}-testbed-steps{args.only and '-' + args.only}"
    folder.mkdir(parents=True, exist_ok=True)
    data: dict[str, Any] = {"schema": SCHEMA, "date": date.today().isoformat()}
    data |= {"machine": cpu_model(), "versions": versions(), "commit": git_commit()}
    data |= {"model": MODEL, "batch": BATCH, "cases": [asdict(case) for case in cases]}
    (folder / "results.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    lines = page(cases, cpu_model(), load, args.only)
    (folder / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
