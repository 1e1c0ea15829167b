"""`serve` beside serving_ml_energy.csv: tokens/s, time between tokens, joules a token of vLLM.

    python -m experiments.published.score_serving [--out FOLDER] [--write]

Each row is a decode step at its average batch, with the prompts that come in (`mixed_pass`). What
the engine adds is linear in its constants, so that a pass is priced once and fitted often:

    step = kernels + (large_tiles - 1) x experts in large tiles + constants x counts

They are fitted on logarithms of mean steps (batch over tokens/s) and median times between tokens,
those of boards' power on measured watts at measured steps; each model is left out in turn, with
those of the same layers, and the left-out ones are scored. `--write` puts the fit on all rows into
engines.toml and power.toml, and the table into docs/costs/serving.md.

Lengths of prompts are not in the table; the benchmark's code says what they consist of
(github.com/ml-energy/benchmark, mlenergy/llm/datasets.py): turns of a chat with all that came
before, a question with four choices, a file with a hole. `PROMPTS` are what fills the cache in the
H100 rows whose average batch stays below the one that was allowed: 400 to 620, 250 and 1,040 to
1,380 tokens. The mean context of a sequence that is decoded is the prompt and 0.6 of the answer
(answers of different lengths: (1 + v^2) / 2 of the mean with a relative deviation v of 0.45; the
same rows say 0.56 to 0.63).
"""

import argparse
import json
import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields, replace
from functools import cache
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from experiments.published.csv_rows import rows_of
from scaling.meshes import catalog
from scaling.meshes.reading import PACKAGE, read
from scaling.meshes.shape import MeshShape
from scaling.models.config import ModelConfig
from scaling.models.presets import preset
from scaling.pictures.curves import ScatterPoint, scatter
from scaling.pictures.files import write_picture
from scaling.pictures.shapes import Picture
from scaling.profiles.io import ideal, profile_of
from scaling.questions.serving.case import Formats, Servers, ServingCase, served_model
from scaling.questions.serving.engine import Overheads, engine_of
from scaling.questions.serving.memory import fitting_batch, memory_of
from scaling.questions.serving.step import counts, decode_pass, mixed_pass, pass_seconds, totals
from scaling.report.formatting import columns

FOLDER = Path(__file__).parent
TABLE = FOLDER / "serving_ml_energy.csv"
ENGINES = PACKAGE / "questions" / "data" / "engines.toml"
POWER = PACKAGE / "profiles" / "data" / "power.toml"
DOCS = PACKAGE.parent / "docs" / "costs" / "serving.md"
PROMPTS = {"lm-arena-chat": 450, "gpqa": 250, "sourcegraph-fim": 1200}  # tokens
REQUESTS = {"lm-arena-chat": 1024, "gpqa": 198, "sourcegraph-fim": 1024}  # different ones
OF_ANSWER = 0.6  # of its length, that a sequence has behind it in the mean
CLUSTERS = {"H100": "dgx-h100", "B200": "dgx-b200"}
FORMATS = {"bfloat16": "bf16", "fp8": "fp8", "mxfp4": "fp4"}
CONSTANTS = (*(f.name for f in fields(Overheads)), "large_tiles")
START = np.array([4e-5, 2e-5, 7e-5, 6e-5, 1.5])
POWERS = ("idle", "limit", "byte", "peak")
POWER_START = np.array([0.3, 0.92, 2e-10, 20])
TAIL = 5, 95  # quantiles of measured over predicted that a range has
GOAL = 0.2  # median |error| of each model that is left out


@dataclass(frozen=True)
class Shape:
    """One entry of serving_models.toml."""

    preset: str | None = None
    like: str | None = None
    fields: ModelConfig | None = None
    windows: tuple[int, int, int] | None = None
    only_experts: bool = False  # are in the format of the row


@dataclass(frozen=True)
class Measured:
    """One row: what was measured, and the case that it is."""

    model: str
    gpu: str
    task: str
    tokens: float  # 1/s
    between: float  # s, median
    joules: float  # of a token
    watts: float  # of one device
    batch: float
    generate: int
    case: ServingCase

    @property
    def prompts(self) -> float:
        """Prompts that are read in a mean step: of the B / G that come, those not in the cache.

        With `REQUESTS` different ones the benchmark repeats them all until there are 1.5 for each
        place of the batch (configs/vllm/*/sweeps.yaml), of which the first batch is not measured.
        A repeated one is in the prefix cache if it runs just then: B of R are drawn.
        """
        different, batch = REQUESTS[self.task], self.batch
        sent = different * np.ceil(1.5 * batch / different)
        first = max(0.0, different - batch) / (sent - batch)
        return float(batch / self.generate * (first + (1 - first) * np.exp(-batch / different)))


@cache
def shapes() -> dict[str, Shape]:
    """Every described model by its name."""
    with open(FOLDER / "serving_models.toml", "rb") as file:
        return {name: read(Shape, table, name) for name, table in tomllib.load(file).items()}


def shape_of(name: str) -> tuple[ModelConfig, Shape]:
    """The layers of a model."""
    shape = shapes()[name]
    base = shapes()[shape.like] if shape.like else shape
    return base.fields or preset(base.preset or ""), shape


def families() -> np.ndarray:
    """[rows] the layers' name: models of the same layers are left out together."""
    known = {name: shape.preset or shape.like or name for name, shape in shapes().items()}
    return np.array([known[one.model] for one in measured()])


def missing(row: dict[str, str]) -> str:
    """Why `serve` does not describe a row; "" where it does."""
    if row["task"] not in PROMPTS:
        return "images and videos: their encoders are not described"
    return "" if row["model"] in shapes() else "layers with states (Mamba)"


@cache
def measured() -> tuple[Measured, ...]:
    """All rows that `serve` describes."""
    return tuple(measured_of(row) for row in rows_of(TABLE) if not missing(row))


def measured_of(row: dict[str, str]) -> Measured:
    """One row as a case: attention over tensor, or over copies; experts whole where spread."""
    config, shape = shape_of(row["model"])
    stored, devices = FORMATS[row["weights"]], int(row["gpus"])
    parallel = json.loads(row["parallel"])
    copies = parallel["data_parallel"] > 1
    mesh = MeshShape(expert=devices) if copies else MeshShape(tensor=devices)
    cluster = catalog.load(CLUSTERS[row["gpu"]], 1)
    formats = Formats(stored, "bf16", stored if stored == "fp8" else "bf16")
    if shape.only_experts:
        formats = Formats(experts=stored)
    generate = float(row["avg_output_len"])
    context = PROMPTS[row["task"]] + OF_ANSWER * generate
    if shape.windows:
        part, of, window = shape.windows
        context += part / of * (min(context, window) - context)
    whole = parallel["expert_parallel"] > 1 and not copies
    servers = Servers(cluster, mesh, engine_of("vllm"), whole)
    served = served_model(row["model"], config, formats)
    batch = float(row["avg_batch"])
    profile = profile_of(cluster.accelerator)
    case = ServingCase(served, servers, profile, batch, int(context))
    memory = memory_of(cluster)
    fits = None if memory is None else fitting_batch(case, memory[1])
    case = replace(case, batch=min(batch, fits or batch))  # the others wait
    figures = ("output_tokens_per_s", "median_itl_ms", "J_per_token", "avg_power_W_all_gpus")
    tokens, between, joules, watts = (float(row[name]) for name in figures)
    whole_row = tokens, between / 1e3, joules, watts / devices, batch, round(generate), case
    return Measured(row["model"], row["gpu"], row["task"], *whole_row)


@dataclass(frozen=True, eq=False)
class Features:
    """What the passes of all rows consist of; arrays [rows, ...], of decoding and with prompts."""

    kernels: np.ndarray  # [2, rows] s, with collectives
    counted: np.ndarray  # [2, rows, constants]: how often each constant comes
    moved: np.ndarray  # [rows] bytes of a mean step
    math: np.ndarray  # [rows] s of its products at the peak
    share: np.ndarray  # [rows] of steps with prompts


@cache
def features() -> Features:
    """The features of `measured`."""
    found = [_features(one) for one in measured()]
    kernels, counted, moved, math, share = (np.array(part) for part in zip(*found, strict=True))
    return Features(kernels.T, counted.transpose(1, 0, 2), moved, math, share)


def _features(one: Measured) -> tuple[list[float], list[list[float]], float, float, float]:
    case = one.case
    alone = decode_pass(case.servers, case.model, case.batch, case.context)
    prompts = mixed_pass(case, PROMPTS[one.task], one.prompts)
    share = min(1.0, one.prompts)
    passes = alone, prompts
    kernels, counted, work = [], [], []
    for each in passes:
        plain = replace(case.servers.engine, overheads=Overheads())
        of = lambda tiles, each=each, plain=plain: (
            pass_seconds(
                replace(
                    each, servers=replace(each.servers, engine=replace(plain, large_tiles=tiles))
                ),
                case.profile,
            ).total
        )
        kernels.append(of(0.0))
        counted.append([*astuple(counts(each)), of(1.0) - kernels[-1]])
        work.append(np.array(totals(each)))
    moved, math = (1 - share) * work[0] + share * work[1]
    return kernels, counted, moved, math, share


def steps(constants: np.ndarray, f: Features) -> tuple[np.ndarray, np.ndarray]:
    """Median and mean seconds of a step."""
    alone, beside = f.kernels + f.counted @ constants
    mean = alone + f.share * (beside - alone)
    rate = np.array([one.prompts for one in measured()])
    return alone + rate / (1 + rate) * (mean - alone), mean


def watts(constants: np.ndarray, step: np.ndarray, f: Features) -> np.ndarray:
    """Watts of a device, of all rows; with the fit's constants as `Power` has them."""
    most = np.array([one.case.servers.cluster.accelerator.power for one in measured()])
    idle, limit, byte, peak = constants
    x = (peak * f.math + byte * f.moved / most) / step
    return most * (idle - (limit - idle) * np.expm1(-x))


def figures(name: str) -> np.ndarray:
    """One measured figure of all rows."""
    return np.array([getattr(one, name) for one in measured()])


def waiting() -> np.ndarray:
    """[rows] True where copies of the attention wait for one another: they are scored alone."""
    return np.array([one.case.shards > 1 for one in measured()])


def fitted(rows: np.ndarray) -> np.ndarray:
    """The constants of the engine and of power, of these rows alone."""
    f, between = features(), figures("between")
    step = figures("batch") / figures("tokens")
    used = rows & ~waiting()

    def residuals(log: np.ndarray) -> np.ndarray:
        median, mean = steps(np.exp(log), f)
        return np.concatenate([np.log(median / between)[used], np.log(mean / step)[used]])

    of_power = lambda log: np.log(watts(np.exp(log), step, f) / figures("watts"))[used]
    return np.concatenate([_fit(residuals, START), _fit(of_power, POWER_START)])


def _fit(residuals: Callable[[np.ndarray], np.ndarray], start: np.ndarray) -> np.ndarray:
    log = np.log(start)
    found = least_squares(residuals, log, loss="soft_l1", f_scale=0.1, bounds=(log - 4, log + 4))
    return np.exp(found.x)


FIGURES = "tokens/s", "between tokens", "J a token"


def predicted(constants: np.ndarray) -> np.ndarray:
    """Predicted over measured [figures, rows]: tokens/s, time between tokens, J of a token."""
    f, (median, mean) = features(), steps(constants[: len(CONSTANTS)], features())
    devices = np.array([one.case.servers.devices for one in measured()])
    batch = np.array([one.case.batch for one in measured()])
    joules = watts(constants[len(CONSTANTS) :], mean, f) * devices * mean / batch
    given = batch / mean, median, joules
    return np.stack(given) / np.stack([figures(n) for n in ("tokens", "between", "joules")])


def roofline() -> np.ndarray:
    """The same of the textbook's step, with the most that a board draws."""
    found = []
    for one in measured():
        case, servers = one.case, one.case.servers
        plain = replace(
            servers, engine=replace(servers.engine, overheads=Overheads(), large_tiles=1)
        )
        work = replace(mixed_pass(case, PROMPTS[one.task], one.prompts), servers=plain)
        work = replace(work, prompts=one.prompts / case.shards)
        seconds = pass_seconds(work, ideal()).total
        joules = (servers.cluster.accelerator.power or 0) * servers.devices * seconds / one.batch
        found.append((one.batch / seconds / one.tokens, seconds / one.between, joules / one.joules))
    return np.array(found).T


@cache
def left_out() -> np.ndarray:
    """Predicted over measured [figures, rows], each family of models left out of the fit."""
    models, found = families(), np.ones((len(FIGURES), len(measured())))
    for model in sorted(set(models)):
        own = models == model
        found[:, own] = predicted(fitted(~own))[:, own]
    return found


@cache
def watts_left_out() -> np.ndarray:
    """Predicted over measured watts [rows] in steps as long as measured, each family left out."""
    families_of, step = families(), figures("batch") / figures("tokens")
    found = np.ones(len(step))
    for model in sorted(set(families_of)):
        own = families_of == model
        constants = fitted(~own)[len(CONSTANTS) :]
        found[own] = (watts(constants, step, features()) / figures("watts"))[own]
    return found


def spans(rows: np.ndarray) -> np.ndarray:
    """Measured over predicted [2, figures] of these rows, each model left out: a range's ends."""
    over = 1 / left_out()[:, rows]
    both = np.concatenate([over[0], 1 / over[1]])  # of tokens/s, and of steps as their inverse
    ends = np.percentile(both, TAIL), np.percentile(1 / both, TAIL), np.percentile(over[2], TAIL)
    return np.array(ends).T


def inside() -> np.ndarray:
    """[figures, rows] True in the range, whose ends are of the other models."""
    models, found = families(), np.zeros((len(FIGURES), len(measured())), bool)
    for model in sorted(set(models)):
        own = models == model
        low, high = spans(~own)
        over = 1 / left_out()[:, own]
        found[:, own] = (low[:, None] <= over) & (over <= high[:, None])
    return found


def table(keys: Sequence[str], figure: int) -> str:
    """A line for each value of these facts: how far one figure is off, beside the roofline."""
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for i, one in enumerate(measured()):
        groups[tuple(getattr(one, key) for key in keys)].append(i)
        groups["all", *[""] * (len(keys) - 1)].append(i)
    error, within, naive = left_out()[figure] - 1, inside()[figure], roofline()[figure] - 1
    lines = [(*keys, "n", "median", "bias", "worst", "inside", "roofline")]
    for key, own in sorted(groups.items(), key=lambda group: (group[0][0] == "all", group[0])):
        off = error[own]
        worst = f"{off[np.argmax(np.abs(off))]:+.0%}"
        cells = f"{np.median(np.abs(off)):.1%}", f"{np.median(off):+.0%}", worst
        beside = f"{within[own].mean():.0%}", f"{np.median(np.abs(naive[own])):.0%}"
        lines.append((*key, str(len(own)), *cells, *beside))
    return "\n".join((FIGURES[figure], *columns(lines)))


def report() -> str:
    """What `main` prints."""
    reasons: dict[str, int] = defaultdict(int)
    for row in rows_of(TABLE):
        reasons[missing(row)] += 1
    models = figures("model")
    medians = [
        np.median(np.abs(left_out()[:, models == m] - 1), axis=1) for m in sorted(set(models))
    ]
    reached = (np.array(medians) < GOAL).sum(axis=0)
    lines = [
        f"{reasons.pop('')} rows of {len(medians)} models, each left out; not described: "
        + ", ".join(f"{n} rows ({why})" for why, n in reasons.items()),
        "models with a median |error| below 20 %: "
        + ", ".join(f"{name} {n}" for name, n in zip(FIGURES, reached, strict=True)),
        *(table(["model"], i) for i in range(len(FIGURES))),
        *(table(["model", "gpu", "task"], i) for i in range(len(FIGURES))),
        *(table(["gpu"], i) for i in range(len(FIGURES))),
    ]
    return "\n\n".join(lines)


def write() -> None:
    """Put the fit on all rows, and the ranges of left-out models, into both files."""
    every = np.ones(len(measured()), bool)
    constants, (low, high) = fitted(every), spans(every)
    n, models = (~waiting()).sum(), len(set(figures("model")[~waiting()]))
    evidence = f"fitted on {n} points of {models} models, ML.ENERGY leaderboard of 2026-02-16"
    named = dict(zip((*CONSTANTS, *POWERS), constants, strict=True))
    ends = np.percentile(1 / watts_left_out(), TAIL)
    for file, figure in ((ENGINES, 1), (POWER, 2)):
        text = file.read_text()
        for name, value in named.items():
            text = re.sub(rf"(?m)^{name} = .*$", f"{name} = {float(f'{value:.3g}')}", text)
        text = re.sub(r"(?m)^evidence = .*$", f'evidence = "{evidence} (score_serving.py)"', text)
        text = re.sub(r"(?m)^range = .*$", f"range = [{low[figure]:.3f}, {high[figure]:.3f}]", text)
        text = re.sub(r"(?m)^(watts_range) = .*$", rf"\1 = [{ends[0]:.3f}, {ends[1]:.3f}]", text)
        file.write_text(text)
    page = DOCS.read_text()
    DOCS.write_text(re.sub(r"(?m)(^\|.*model left out.*\n)(\|.*\n)+", markdown(), page))


def markdown() -> str:
    """The table of the documentation: medians, and in brackets those of the roofline.

    Of single models only those that miss the goal in one of the figures.
    """
    error, naive = np.abs(left_out() - 1), np.abs(roofline() - 1)
    models = figures("model")
    chosen = {f"`{m.partition('/')[2]}`": models == m for m in sorted(set(models))}
    chosen = {m: own for m, own in chosen.items() if (np.median(error[:, own], 1) > GOAL).any()}
    chosen |= {gpu: figures("gpu") == gpu for gpu in CLUSTERS} | {"all": models == models}
    lines = [f"| model left out | rows | {' | '.join(FIGURES)} |", "|---|---|---|---|---|"]
    for name, own in chosen.items():
        pairs = zip(error[:, own], naive[:, own], strict=True)
        cells = [f"{np.median(one):.0%} ({np.median(rule):.0%})" for one, rule in pairs]
        lines.append(f"| {name} | {own.sum()} | {' | '.join(cells)} |".replace("%", " %"))
    return "\n".join(lines) + "\n"


def picture() -> Picture:
    """Mean steps, predicted with their model left out over measured."""
    steps = figures("batch") / figures("tokens")
    pairs = zip(figures("gpu"), steps, steps / left_out()[0], strict=True)
    points = [ScatterPoint(*pair) for pair in sorted(pairs)]
    title = "Steps of vLLM, models left out"
    return scatter(points, title, ("measured", "predicted"))


def main() -> None:
    """Print the tables; write the constants, or the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.write:
        write()
    print(report())
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "serving.txt").write_text(report() + "\n")
        write_picture(picture(), options.out / "serving.svg")


if __name__ == "__main__":
    main()
