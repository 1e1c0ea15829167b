"""This project's training step against PyTorch's, turn about on one GPU.

    python -m experiments.baselines.alternate --torch-python PATH --out experiments/results
    python -m experiments.baselines.alternate --torch-python PATH --out runs/ab --tiny

    ours, torch | torch, ours | ours, torch     rounds; each turn is a process of its own

Turns change order, so that a device that gets warm slows both. A case in which one side runs out of
memory, or fails, is kept with what it said. PyTorch may live in another environment than jax.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

SIDES = ("jax", "torch")
SCHEMA = 1  # of the results file
SAID = 600  # characters that are kept of a side that failed
TIMEOUT = 600.0  # s of one turn, its compile included


@dataclass(frozen=True)
class Case:
    """A model, and the batch that both sides train on."""

    model: str
    batch: int  # sequences
    sequence: int  # tokens
    remat: str = "none"  # of ours; PyTorch keeps all activations

    @property
    def name(self) -> str:
        """A case in a few words."""
        return f"{self.model} {self.batch}x{self.sequence}"

    @property
    def words(self) -> list[str]:
        return [
            *("--model", self.model, "--batch", str(self.batch)),
            *("--sequence", str(self.sequence)),
        ]


# As the first two of experiments.gpu.cases; half the batch of the second, because PyTorch keeps all
# activations. Not tried on a GPU yet: a side that runs out of memory says so.
CASES = (Case("gpt2-124m", 32, 1024), Case("llama3-1b", 4, 2048))
TINY = (Case("tiny-gpt", 4, 32), Case("tiny", 4, 32))

Turn = Callable[[str, Case], dict[str, Any]]  # (side, case) -> its document, or {"error": ..}


def alternate(cases: Sequence[Case], rounds: int, turn: Turn) -> list[dict[str, Any]]:
    """All turns of all cases: per case the documents of each side, and the ratio of the medians."""
    found = []
    for case in cases:
        turns: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
        for number in range(rounds):
            for side in SIDES if number % 2 == 0 else SIDES[::-1]:
                turns[side].append(turn(side, case))
        found.append({"case": asdict(case), "turns": turns, **compared(turns)})
    return found


def compared(turns: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Median tokens/s of each side, ours over PyTorch's; None where a side has none."""
    rates = {
        side: [t["tokens_per_second"] for t in done if "tokens_per_second" in t]
        for side, done in turns.items()
    }
    medians = {side: median(values) if values else None for side, values in rates.items()}
    ours, theirs = (medians[side] for side in SIDES)
    return {"tokens_per_second": medians, "ratio": ours / theirs if ours and theirs else None}


def table(results: Sequence[dict[str, Any]]) -> str:
    """A line per case."""
    lines = []
    for result in results:
        case, rates = Case(**result["case"]), result["tokens_per_second"]
        words = [
            f"{side} {rates[side]:,.0f} tokens/s" if rates[side] else f"{side} failed"
            for side in SIDES
        ]
        ratio = f", {result['ratio']:.2f}x" if result["ratio"] else ""
        lines.append(f"{case.name}: {', '.join(words)}{ratio}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Run all turns; the results are written anew after each case."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the results file")
    parser.add_argument("--torch-python", type=Path, required=True, help="a Python that has torch")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each side (3)")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--tiny", action="store_true", help="toys that run anywhere")
    args = parser.parse_args(arguments)
    pythons = {"jax": sys.executable, "torch": str(args.torch_python)}
    now = datetime.now(UTC)
    path = args.out / f"pytorch-{now:%Y-%m-%d}.json"
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "date": now.isoformat(timespec="seconds"),
        "cases": [],
    }
    turn = lambda side, case: one_turn(pythons[side], side, case)
    for case in TINY if args.tiny else CASES:
        if args.only not in case.name:
            continue
        document["cases"] += alternate([case], args.rounds, turn)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        print(table(document["cases"][-1:]), flush=True)
    print(f"results: {path}")


def one_turn(python: str, side: str, case: Case) -> dict[str, Any]:
    """One side in a process of its own."""
    words = [python, "-m", f"experiments.baselines.{side}_step", *case.words]
    words += ["--remat", case.remat] if side == "jax" else []
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"side": side, "error": str(error)}
    if done.returncode != 0:
        return {"side": side, "error": done.stderr[-SAID:]}
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
