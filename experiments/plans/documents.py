"""Pages that correct the conclusions of the source documents, each in English and in Korean.

    python -m experiments.plans.documents          # writes docs/documents/*.md

`pages/NAME.LANGUAGE.md` is the text of a page; `{{name}}` in it stands for a figure, and every
figure is computed here. Both languages of a page have the same figures, so they cannot disagree.
The documents are named by what they are about; only their numbers and claims are repeated.

    rtx3090      report on ten RTX 3090 and four RTX PRO 6000
    epochs       comparison of V100, A100 and H200 for one training
    p5e          support case: Qwen3-0.6B on four nodes of A100 and of AWS P5e
    gpu_guide    guide to GPU hardware for AI, with prices and memory
    gpu_chapter  Korean summary of the chapter on GPUs of "How to Scale Your Model"

and `published`, the trainings of NVIDIA and DeepSeek that the last of them cites.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

import scaling as sc
from experiments.plans.measured import DDP, P5E, QWEN, QWEN_BATCH, Row, cards, epoch, epochs, qwen
from experiments.plans.published_runs import Published, deepseek, gpts
from scaling.meshes import catalog
from scaling.meshes.units import format_memory, format_time, percent, three_digits
from scaling.planning.result import Plan
from scaling.simulate.capacity import COMMUNICATOR, CONTEXT

PAGES, OUT = Path("experiments/plans/pages"), Path("docs/documents")
LANGUAGES = {"en": "", "ko": "_ko"}  # language -> what the name of its page ends with
FIGURE = re.compile(r"\{\{(\w+)\}\}")
HOUR, DAY = 3600.0, 86400.0  # s
Figures = Mapping[str, str]


def markdown(rows: Iterable[Sequence[object]]) -> str:
    """Rows of a Markdown table, without its head."""
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in rows)


def step(recipe: str, cluster: str, mesh: str, nodes: int = 1, **settings: Any) -> float:
    """Seconds of a predicted step; `used` is the number of GPUs of a node, where not all."""
    used = settings.pop("used", None)
    keys = {key.replace("__", "."): value for key, value in settings.items()}
    overrides = {"gpus_per_node": float(used)} if used else None
    p = sc.predict(recipe, cluster, nodes, mesh, "analytic", set=keys, overrides=overrides)
    return float(p.step_time)


def best(
    recipe: str, cluster: str, nodes: int = 1, used: int | None = None, **options: Any
) -> tuple[Plan | None, str]:
    """The first plan of a full training in mixed precision by DeepSpeed, or why there is none."""
    overrides = {"gpus_per_node": float(used)} if used else None
    settings = {"software": "deepspeed"}
    found = sc.plan(recipe, cluster, nodes, set=settings, top=1, overrides=overrides, **options)
    return found.best, found.error or ""


def trained(cells: Sequence[tuple[str, str, int | None]], models: Sequence[str]) -> str:
    """Rows of a table: tokens/s of the best mesh of each machine (columns) for each model."""
    rows = []
    for model in models:
        row = [model]
        for _, cluster, used in cells:
            count = used or catalog.load(cluster, 1).devices
            plan, _ = best(model, cluster, used=used, batch=4 * count, seq_len=2048)
            rate = plan and plan.prediction.tokens_per_second
            row.append(f"{three_digits(float(rate))}: `{plan.mesh}`" if plan and rate else "-")
        rows.append(row)
    return markdown(rows)


MACHINES = (
    ("8 x RTX 3090", "rtx3090-10", 8),
    ("10 x RTX 3090", "rtx3090-10", None),
    ("4 x RTX PRO 6000", "rtx-pro-6000-4", None),
    ("8 x RTX PRO 6000", "rtx-pro-6000-8", None),
    ("8 x H100", "dgx-h100", None),
)
BOUGHT = {"rtx3090-10": 800.0, "rtx-pro-6000-4": 7000.0, "dgx-h100": 30_000.0}  # $ of a card, as
# the report (RTX 3090, RTX PRO 6000) and the guide (H100) say


def rtx3090() -> Figures:
    """Ten RTX 3090: measured and predicted, bridges, and what to buy for what."""
    rows = list(cards())
    errors = [abs(row.predicted().step_time / (row.measured or 1.0) - 1) for row in rows]
    small: dict[str, Any] = {"software": "pytorch-fsdp", "batch__global_batch": 8, "used": 2}
    alone = step("gpt-305m", "rtx3090-10", "data=2", **small)
    bridged = step("gpt-305m", "rtx3090-10-nvlink", "data=2", **small)
    one = step("gpt-305m", "rtx3090-10", "data=1", **small | {"batch__global_batch": 4, "used": 1})
    ten = best("gpt-305m", "rtx3090-10", batch=40, seq_len=512)[0]
    ten_bridged = best("gpt-305m", "rtx3090-10-nvlink", batch=40, seq_len=512)[0]
    plain = next(row for row in rows if row.mesh == "data=10").predicted().step_time
    assert ten and ten_bridged
    served = []
    for model, weights in (("llama3-70b", "bf16"), ("llama3-70b", "fp8"), ("llama3-405b", "fp8")):
        cells = [f"{model}, {weights}"]
        for cluster in ("rtx-pro-6000-4", "rtx-pro-6000-8", "dgx-h100"):
            cells.append(_served(model, cluster, weights))
        served.append(cells)
    money = []
    for cluster, dollars in BOUGHT.items():
        count = catalog.load(cluster, 1).devices
        plan = best("llama3-1b", cluster, batch=4 * count, seq_len=2048)[0]
        assert plan
        rate = float(plan.prediction.tokens_per_second or 0.0)
        thousands = count * dollars / 1000
        money.append((cluster, f"{thousands:,.0f}", three_digits(rate), f"{rate / thousands:,.0f}"))
    head = [(row.title, *_measured(row), f"{_waits(row):.0%}") for row in rows if row.measured]
    return {
        "table": markdown(head),
        "errors": f"{median(errors):.0%}, {mean(errors):.0%}, {max(errors):.0%}",
        "bridge": f"{alone / bridged:.2f}",
        "efficiency": f"{one / alone:.0%}",
        "efficiency_bridged": f"{one / bridged:.0%}",
        "ten_mesh": str(ten.mesh),
        "ten_time": format_time(ten.step_time),
        "ten_gain": f"{plain / ten.step_time:.2f}",
        "ten_bridged": f"{ten.step_time / ten_bridged.step_time:.2f}",
        "uses": trained(MACHINES, ("llama3-1b", "qwen3-8b", "llama3-8b", "llama3-70b")),
        "lacks_8b": _lacks("llama3-8b", "rtx3090-10", 40),
        "lacks_70b": _lacks("llama3-70b", "rtx-pro-6000-8", 32),
        "served": markdown(served),
        "money": markdown(money),
        "measured_ten": f"{DDP[10] / DDP[1]:.2f}",
    }


def _waits(row: Row) -> float:
    p = row.predicted()
    return float(p.time.exposed_communication) / float(p.step_time)


def _measured(row: Row) -> tuple[str, str, str]:
    """Measured and predicted milliseconds and the error."""
    seconds = float(row.predicted().step_time)
    measured = row.measured or 0.0
    return f"{1e3 * measured:.0f} ms", f"{1e3 * seconds:.0f} ms", f"{seconds / measured - 1:+.0%}"


def _lacks(model: str, cluster: str, batch: int) -> str:
    """Return the bytes that the nearest configuration lacks on each device, as text."""
    error = best(model, cluster, batch=batch, seq_len=2048)[1]
    found = re.search(r"lacks ([\d.,]+ \w+)", error)
    return found[1] if found else "0 GB"


def _served(model: str, cluster: str, weights: str) -> str:
    """Milliseconds of a decode step of one user, or "-" where the weights do not fit."""
    try:
        answer = sc.serve(model, cluster, batch=1, context=8192, weights=weights, compute="bf16")
    except sc.InputError:
        return "-"
    count = catalog.load(cluster, 1).devices
    cache = float(answer["KV cache of the batch"]) / count
    left = float(answer["left beside the weights"]) - CONTEXT - COMMUNICATOR
    return format_time(float(answer)) if left >= cache else "-"


STAND_INS = ("gpt2-124m", "gpt-305m", "gpt2-1.5b")
MEASURED_EPOCH, EPOCHS = 5.67, 10  # hours on four V100, as the comparison states
MEASURED_STEP, MEASURED_BATCH = 1.06, 128  # s; samples


def epochs_page() -> Figures:
    """Hours of an epoch on V100, A100 and H200, by ratios of predicted steps of stand-ins."""
    ratios: dict[str, list[float]] = {}
    machines = {
        "a100": ("dgx-a100-40g", 4), "h200": ("dgx-h200", 1), "h200x2": ("dgx-h200", 2),
        "pro": ("rtx-pro-6000-4", 4),
    }  # fmt: skip
    for model in STAND_INS:
        for compute in ("fp16", "fp32"):
            base = epoch(model, "dgx-station-v100", 4, compute).predicted().step_time
            for name, (cluster, count) in machines.items():
                newer = epoch(model, cluster, count, "bf16").predicted().step_time
                ratios.setdefault(f"{name}_{compute}", []).append(float(base / newer))
    figures: dict[str, str] = {}
    for name, values in ratios.items():
        low, high = min(values), max(values)
        figures[name] = f"{low:.1f} - {high:.1f}"
        hours = MEASURED_EPOCH / high, MEASURED_EPOCH / low
        figures[f"{name}_hours"] = f"{hours[0]:.2g} - {hours[1]:.2g}"
        days = [EPOCHS * h * HOUR / DAY for h in hours]
        figures[f"{name}_days"] = f"{days[0]:.2g} - {days[1]:.2g}"
    steps = MEASURED_EPOCH * HOUR / MEASURED_STEP
    figures["steps"] = f"{steps:,.0f}"
    figures["samples"] = f"{steps * MEASURED_BATCH:,.0f}"
    figures["rows"] = markdown(
        (row.title, format_time(float(row.predicted().step_time))) for row in epochs()
    )
    chips = {
        name: catalog.accelerator(name) for name in ("v100-sxm-32g", "a100-sxm-40g", "h200-sxm")
    }
    v100, a100, h200 = chips.values()
    figures["peak_a100"] = f"{a100.peak('fp16') / v100.peak('fp16'):.1f}"
    figures["peak_h200"] = f"{h200.peak('fp16') / v100.peak('fp16'):.1f}"
    return figures


def p5e() -> Figures:
    """Qwen3-0.6B on four nodes of A100 and of P5e: what was wrong, and what helps."""
    rows = list(qwen())
    pairs = list(zip(rows[::2], rows[1::2], strict=True))
    table = []
    for old, new in pairs:
        a, b = old.predicted(), new.predicted()
        ratio = float(a.step_time) / float(b.step_time)
        length = old.settings["batch.seq_len"]
        waits = [f"{_waits(row):.0%}" for row in (old, new)]
        times = [format_time(float(p.step_time)) for p in (a, b)]
        table.append((length, *times, *waits, f"{ratio:.2f}"))
    length, nodes = 1024, 4
    made = {"software": "deepspeed", "batch__seq_len": length, "batch__microbatches": 1}
    asked = {**made, "batch__global_batch": QWEN_BATCH}
    zero2 = step("qwen3-0.6b", P5E, "fsdp=32", nodes, **asked, sharding__zero_stage=2)
    plain = step("qwen3-0.6b", P5E, "data=32", nodes, **asked)
    zero3 = step("qwen3-0.6b", P5E, "fsdp=32", nodes, **asked, sharding__zero_stage=3)
    tensor = step("qwen3-0.6b", P5E, "fsdp=16,tensor=2", nodes, **asked, sharding__zero_stage=2)
    piped = sc.plan(
        "qwen3-0.6b", P5E, nodes, "stage=2,fsdp=16", batch=QWEN_BATCH, seq_len=length,
        set={"software": "deepspeed"}, top=1,
    ).step_time  # fmt: skip
    assert piped
    tf32 = step(
        "qwen3-0.6b", P5E, "fsdp=32", nodes, **asked, sharding__zero_stage=2,
        precision__compute="tf32",
    )  # fmt: skip
    larger = {
        count: step(
            "qwen3-0.6b", P5E, "fsdp=32", nodes,
            **made | {"batch__global_batch": 32 * count}, sharding__zero_stage=2,
        )
        for count in (4, 16, 32)
    }  # fmt: skip
    rate = lambda count: 32 * count / larger[count]
    settings = {"software": "deepspeed", "sharding.zero_stage": 2, "batch.microbatches": 1}
    used = sc.predict(
        "qwen3-0.6b", P5E, nodes, "fsdp=32", "analytic", batch=QWEN_BATCH, seq_len=4096,
        set=settings,
    ).memory  # fmt: skip
    usable = catalog.load(P5E, 1).accelerator.usable_memory or 1.0
    return {
        "table": markdown(table),
        "measured": f"{QWEN[P5E] / QWEN['dgx-a100-40g']:.2f}",
        "zero2": format_time(zero2),
        "ddp": f"{plain / zero2 - 1:+.0%}",
        "zero3": f"{zero3 / zero2 - 1:+.0%}",
        "tensor": f"{tensor / zero2 - 1:+.0%}",
        "stage": f"{piped / zero2 - 1:+.0%}",
        "tf32": f"{tf32 / zero2 - 1:+.0%}",
        "batch16": f"{rate(16) / rate(4):.1f}",
        "batch32": f"{rate(32) / rate(4):.1f}",
        "memory": format_memory(float(used.peak)),
        "share": percent(float(used.peak) / usable),
    }


GUIDE_TOKENS = 100e9  # of the guide's example, Llama 3 8B on eight A100
GUIDE_DOLLARS = 32.77 / 8  # $ for an hour of an A100 of p4d.24xlarge, as the guide says
GUIDE_CLAIM = 6291.0  # $, as the guide says
MODELS = {"llama3-8b": 8, "llama3-70b": 70, "llama3-405b": 405}


def gpu_guide() -> Figures:
    """Cost of Llama 3 8B on eight A100, memory of a training, and rates of the chips."""
    budget = lambda cluster, **options: sc.budget(
        "llama3-8b", GUIDE_TOKENS, cluster, devices=8, **options
    )
    days = float(budget("dgx-a100", mfu=0.4)) / DAY
    ideal = float(budget("dgx-a100", mfu=1.0)) / DAY
    predicted = float(budget("dgx-a100", batch=64 * 8192)) / DAY
    h100 = float(budget("dgx-h100", batch=64 * 8192)) / DAY
    hours = lambda d: d * 24 * 8
    fewest = []
    for model, size in MODELS.items():
        nodes, plan = _fewest_nodes(model)
        state = 16 * size
        mesh = f"`{plan.mesh}`, remat {plan.run.remat}"
        fewest.append((model, f"{4 * 2 * size:,} GB", f"{state:,} GB", 8 * nodes, mesh))
    exchange = sc.price_collective("all-reduce", "40GB", "rtx4090-8", mesh="data=4", axis="data")
    host = sc.price_collective("all-reduce", "40GB", "rtx3090-10", mesh="data=4", axis="data")
    chip = catalog.accelerator
    a100, h, b200 = chip("a100-sxm-80g"), chip("h100-sxm"), chip("b200-sxm")
    return {
        "days_40": f"{days:.0f}",
        "dollars_40": f"{hours(days) * GUIDE_DOLLARS:,.0f}",
        "days_100": f"{ideal:.0f}",
        "mfu_claimed": f"{0.4 * days / 8:.0%}",
        "days": f"{predicted:.0f}",
        "mfu": f"{ideal / predicted:.0%}",
        "dollars": f"{hours(predicted) * GUIDE_DOLLARS:,.0f}",
        "times": f"{hours(predicted) * GUIDE_DOLLARS / GUIDE_CLAIM:.0f}",
        "days_h100": f"{h100:.0f}",
        "faster": f"{predicted / h100:.1f}",
        "break_even": f"{GUIDE_DOLLARS * predicted / h100:.2f}",
        "fewest": markdown(fewest),
        "exchange": format_time(float(exchange.time)),
        "exchange_3090": format_time(float(host.time)),
        "h100_a100": f"{h.peak('bf16') / a100.peak('bf16'):.2f}",
        "b200_h100": f"{b200.peak('bf16') / h.peak('bf16'):.2f}",
    }


def _fewest_nodes(model: str) -> tuple[int, Plan]:
    """Fewest nodes of 8 H100, a power of two, on which our trainer's step of the recipe fits."""
    nodes = 1
    while not (found := sc.plan(model, "dgx-h100", nodes, top=1)).best:
        nodes *= 2
    assert found.best
    return nodes, found.best


MEASURED_BANDWIDTH = {"256MiB": 0.72, "1GiB": 0.78, "8GiB": 0.815}  # of 450 GB/s, as the guide
# measured an all-reduce among 8 H100


def gpu_chapter() -> Figures:
    """Ridge, limits of data and tensor parallelism, and collectives of H100 nodes."""
    chip = catalog.accelerator
    h100, b200 = chip("h100-sxm"), chip("b200-sxm")
    ridge = lambda c: c.peak("bf16") / (c.memory_bandwidth or 1.0)
    links = 450e9  # B/s of one H100, one way: 18 links of 25 GB/s
    bandwidth = []
    for size, measured in MEASURED_BANDWIDTH.items():
        p = sc.price_collective("all-reduce", size, "dgx-h100", mesh="data=8", axis="data")
        ring = sc.price_collective(
            "all-reduce", size, "dgx-h100", mesh="data=8", axis="data", algorithm="ring"
        )
        shares = (f"{float(x.bus_bandwidth) / links:.0%}" for x in (ring, p))
        bandwidth.append((size, f"{measured:.1%}", *shares))
    across = sc.price_collective("all-reduce", "1GiB", "dgx-h100", 16, mesh="data=128", axis="data")
    inside = sc.price_collective("all-reduce", "1GiB", "dgx-h100", mesh="data=8", axis="data")
    limits = sc.limits("llama3-70b", "dgx-h100", 96)
    tensor = limits["largest tensor axis"]
    return {
        "ridge": f"{ridge(h100):.0f}",
        "ridge_b200": f"{ridge(b200):.0f}",
        "fp32": f"{h100.peak('bf16') / h100.peak('fp32'):.0f}",
        "tf32": f"{h100.peak('bf16') / h100.peak('tf32'):.1f}",
        "inside": f"{h100.peak('bf16') / links:,.0f}",
        "across": f"{h100.peak('bf16') / 400e9:,.0f}",
        "hidden": f"{float(limits):,.0f}",
        "tensor": f"{float(tensor):.1f}",
        "bandwidth": markdown(bandwidth),
        "slower": f"{float(across.time) / float(inside.time):.2f}",
    }


def published() -> Figures:
    """Trainings of NVIDIA and DeepSeek, as published and as priced."""
    tables: dict[str, str] = {}
    for name in ("narayanan", "megatron"):
        runs = list(gpts(name))
        tables[name] = markdown(map(_published_row, runs))
        errors = [run.error for run in runs]
        sizes = sorted(map(abs, errors))
        tables[f"{name}_errors"] = (
            f"{median(errors):+.0%}, {median(sizes):.0%}, {min(errors):+.0%}, {max(errors):+.0%}"
        )
        tables[f"{name}_near"] = f"{sum(size <= 0.1 for size in sizes)} / {len(sizes)}"
    ways = list(deepseek())
    misses = {"miss": ways[-1].error, "bare": list(deepseek(layers=61))[-1].error}
    tables["deepseek"] = markdown(map(_published_row, ways))
    return tables | {name: f"{error:+.0%}" for name, error in misses.items()}


def _published_row(run: Published) -> tuple[str, ...]:
    fits = "" if run.fits else " (!)"
    memory = f"{format_memory(run.memory)}{fits}"
    times = format_time(run.measured), format_time(run.predicted), f"{run.error:+.0%}"
    return (run.name, f"{run.devices:,}", f"`{run.mesh}`", *times, memory, run.chosen)


DOCUMENTS: Mapping[str, Callable[[], Figures]] = {
    "rtx3090": rtx3090,
    "epochs": epochs_page,
    "p5e": p5e,
    "gpu_guide": gpu_guide,
    "gpu_chapter": gpu_chapter,
    "published": published,
}


def filled(text: str, figures: Figures) -> str:
    """The text of a page with its figures in place.

    Raises:
        KeyError: a figure that is not computed.
    """
    return FIGURE.sub(lambda match: figures[match[1]], text)


def pages(names: Iterable[str] = DOCUMENTS) -> Iterator[tuple[Path, str]]:
    """Yield where each page goes, and its text."""
    for name in names:
        figures = DOCUMENTS[name]()
        for language, end in LANGUAGES.items():
            text = (PAGES / f"{name}.{language}.md").read_text(encoding="utf-8")
            yield OUT / f"{name}{end}.md", filled(text, figures)


def main() -> None:
    """Write all pages."""
    OUT.mkdir(exist_ok=True)
    for path, text in pages():
        path.write_text(text, encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
