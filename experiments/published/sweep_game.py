"""The problems of the course's sweep, with what a rule and the planner choose of each.

    python -m experiments.published.sweep_game        writes scaling/course/web/pages/sweeps.json

A planner's choices are the first `TRIES` in its order, whatever came of them: what it says fits may
have run out of memory. The rule of thumb is told what ran, and has its first choice alone.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import scaling
from experiments.published.plan_models import Guess, left_out, shipped
from experiments.published.score_plans import on_its_network
from experiments.published.sweeps import NODE, Problem, Tried, measured_on, playbook, problems
from scaling.course.sweeps.game import COLUMNS, FILE, TRIES
from scaling.planning.rules import FEWEST, MEGATRON, layout_of
from scaling.run import read_run

NETWORKS = {"good": "sound", "slow": "sick"}
ABOUT = (
    "Facts only: what was tried and what was measured. Ultra-Scale Playbook (nanotron), raw table "
    "of huggingface.co/spaces/nanotron/ultrascale-playbook, Apache-2.0: AWS p5 (8 H100 a node), "
    "December 2024 to January 2025, sequences of 4,096 tokens, no recomputation, bf16 with fp32 "
    "gradients. A step time is one sample. Predictions and choices are this project's."
)
CHOOSERS = {
    "rule": "rule of thumb: fewest tensor x stage that runs",
    "planner": "scaling plan, first choice",
    "planner_best": f"scaling plan, best of its first {TRIES}",
    "left_out": "the same without this model's runs, first",
    "best": "the best that was measured",
}


def document(today: str) -> dict[str, Any]:
    """Return all that the game reads; `today` is the date that its predictions carry."""
    found = [p for p in problems() if p.source == "Ultra-Scale Playbook"]
    counts = Counter(row.status for row in playbook())
    made = {"scaling": scaling.__version__, "date": today}
    return {
        "about": ABOUT,
        "software": "nanotron",
        "made": made | {"by": "python -m experiments.published.sweep_game"},
        "tried": len(playbook()),
        "outcomes": {name: counts[name] for name in ("ok", "oom", "failed")},
        "choosers": CHOOSERS,
        "columns": list(COLUMNS),
        "problems": [described(problem) for problem in found],
    }


def described(problem: Problem) -> dict[str, Any]:
    """Return one problem; its rows stand in the order of their axes, so that it tells nothing."""
    rows = sorted(problem.rows, key=chosen)
    problem = replace(problem, rows=tuple(rows))
    here = on_its_network(problem).rows
    sound = on_its_network(replace(problem, fabric="good")).rows
    guesses = {"planner": shipped(here), "left_out": left_out(here)}
    times = [[guess.time for guess in said] for said in (guesses["planner"], shipped(sound))]
    run, model, gpus = rows[0].run, rows[0].model, rows[0].gpus
    network = NETWORKS[problem.fabric or ""]
    suffix = "-sick" * (network == "sick")
    return {
        "name": f"{model.removeprefix('llama ')}-{gpus}{suffix}",
        "model": run["model"] | {"name": model},
        "gpus": gpus,
        "global_batch": run["batch"]["global_batch"],
        "seq_len": run["batch"]["seq_len"],
        "network": network,
        "bus_bandwidth": {"inside": bus(problem, NODE), "across": bus(problem, gpus)},
        "rule": rows.index(first_of(problem.ran)),
        **{name: order(said)[:TRIES] for name, said in guesses.items()},
        "rows": [
            [*chosen(row), row.step_time, digits(own), digits(healthy), row.inside or None]
            for row, own, healthy in zip(rows, *times, strict=True)
        ],
    }


def chosen(row: Tried) -> tuple[int, ...]:
    """Return tensor, stage, data, zero stage, and sequences of a microbatch."""
    data, batch = row.mesh.get("fsdp", row.mesh.get("data", 1)), row.run["batch"]
    tensor, stage = row.mesh.get("tensor", 1), row.mesh.get("stage", 1)
    zero = int(row.id.rpartition("-z")[2])
    return tensor, stage, data, zero, batch["global_batch"] // data // batch["microbatches"]


def first_of(rows: Sequence[Tried]) -> Tried:
    """Return the rule's choice; of as few devices tensor first, then the largest microbatch."""

    def place(row: Tried) -> tuple[Any, ...]:
        layout = layout_of(read_run(row.run, row.id), NODE)
        rules = FEWEST.key(layout), MEGATRON.key(layout)
        return *rules, layout.microbatches, -layout.zero_stage

    return min(rows, key=place)


def order(said: Sequence[Guess]) -> list[int]:
    """Return the rows as a planner ranks them, the best first."""
    return sorted(range(len(said)), key=lambda i: said[i].key)


def bus(problem: Problem, ranks: int) -> float:
    """Return the all-reduce's bus bandwidth that jobs on this network measured, bytes/s."""
    calls = measured_on(problem.fabric or "", problem.rows[0].gpus)
    found = [call for call in calls if call["collective"] == "all-reduce"]
    return next(call["bus_bandwidth"] for call in found if call["ranks"] == ranks)


def digits(seconds: float) -> float:
    return float(f"{seconds:.4g}")


def text_of(made: dict[str, Any]) -> str:
    """Return the document with one row of figures on a line, so that a change can be read."""
    head, tail = json.dumps({**made, "problems": []}, indent=1).rsplit("[]", 1)
    each = []
    for problem in made["problems"]:
        rows = ",\n".join(map(json.dumps, problem["rows"]))
        own = json.dumps({**problem, "rows": []})
        each.append(f"{own.removesuffix('[]}')}[\n{rows}\n]}}")
    return "\n".join([f"{head}[", ",\n".join(each), f"]{tail}\n"])


def main() -> None:
    """Write the file."""
    FILE.write_text(text_of(document(date.today().isoformat())), encoding="utf-8")
    print(f"wrote {FILE}")


if __name__ == "__main__":
    main()
