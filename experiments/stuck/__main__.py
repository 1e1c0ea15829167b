"""Jobs of which a process, or a link, stands still: when that is noticed, who is named.

    python -m experiments.stuck [--out experiments/results] [--only sleeps,link]

Two hosts of a testbed (which needs root), or four whose link stalls, train `tiny` with
`--restarts 3` and `train.watchdog_minutes=0.4`. The seconds count from the harm.
"""

import argparse
import tempfile
from datetime import date
from pathlib import Path

from experiments.stuck.bench import CASES, MINUTES, Outcome, tried
from scaling.profiles.machine import versions
from scaling.testbed.machine import present_machine

HEAD = """| a host | noticed | job ended | trains again | named | stack | steps made again |
|---|---|---|---|---|---|---|"""


def main() -> None:
    """Try the cases, print the table, and write it with `--out`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder of results; default: print only")
    parser.add_argument("--only", help="cases, joined by commas: " + ", ".join(CASES))
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(CASES)
    rows = [HEAD]
    print(HEAD, flush=True)
    for name in names:
        with tempfile.TemporaryDirectory() as place:
            rows.append(row(tried(CASES[name], present_machine(), Path(place))))
        print(rows[-1], flush=True)
    if options.out:
        folder = options.out / f"{date.today()}-stuck"
        folder.mkdir(parents=True, exist_ok=True)
        made_with = ", ".join(f"{name} {number}" for name, number in versions().items())
        limit = f"the limit of a step was {60 * MINUTES:.0f} s instead of the default's 300 s"
        head = f"# Hosts that stand still\n\n{date.today()}, {made_with}; {limit}."
        (folder / "README.md").write_text("\n".join([head, "", *rows, ""]))


def row(outcome: Outcome) -> str:
    """One line of the table."""
    times = (outcome.noticed, outcome.ended, outcome.resumed)
    seconds = " | ".join(f"{time:.0f} s" for time in times)
    again = f"{outcome.lost}, from {outcome.saved}"
    stack = "yes" if outcome.stack else "no"
    return f"| {outcome.case.name} | {seconds} | {outcome.said} | {stack} | {again} |"


if __name__ == "__main__":
    main()
