"""The answer to `scaling serve`: the decode step, with everything that follows from it."""

from dataclasses import replace

from scaling.meshes.errors import InputError
from scaling.profiles.prices import dollars_per_hour
from scaling.questions.answer import Answer, Input, by_formula
from scaling.questions.serving.case import ServingCase, check_servers
from scaling.questions.serving.decode import decode_step
from scaling.questions.serving.memory import memory_answers
from scaling.questions.serving.thresholds import threshold_answers
from scaling.questions.serving.traffic import (
    ServedRequest,
    frontier,
    request_answers,
    seconds_of_step,
    throughput,
)


def serve(
    case: ServingCase,
    request: ServedRequest,
    price: float | None = None,
    kind: str | None = None,
) -> Answer:
    """Return the time of a decode step; its parts are throughput, memory, thresholds and requests.

    `rows` are batches with their step, throughput, and whether they fit.

    Raises:
        InputError: a mesh that cannot serve, a batch with less than a sequence for a copy.
    """
    check_servers(case.servers, case.model)
    mesh = case.servers.mesh
    if case.batch < case.shards:
        raise InputError(
            f"--batch {case.batch} leaves some of the {case.shards} shards of the "
            f"batch (data x expert of mesh {mesh}) without a sequence; use at least as many"
        )
    step = decode_step(case)
    parts = (
        *step.parts,
        *throughput(case, step),
        case.answer("FLOPs of a token", "FLOPs", "2 * A"),
        *memory_answers(case),
        *threshold_answers(case),
        *request_answers(case, step, request),
        *_money(case, step, kind, price),
    )
    count = f"{mesh.devices} device{'s' * (mesh.devices > 1)}"
    model = f"{case.model.name} in {case.model.formats.weights}"
    notes = [f"{model} on {count} ({mesh} on {case.servers.cluster.name})"]
    most = next(part for part in parts if part.name == "largest batch")
    if most.answer is not None and most.binds:
        notes.append(f"it does not fit: {most.binds}")
    return replace(step, parts=parts, rows=frontier(case), notes=tuple(notes))


def _money(case: ServingCase, step: Answer, kind: str | None, stated: float | None) -> list[Answer]:
    chip = case.servers.cluster.accelerator
    price = dollars_per_hour(chip, kind, stated)
    if price is None:
        return []
    t, fitted = seconds_of_step(step)
    formula, p = "p * N / 3600 * t / B * 1000000", price.input(chip)
    money = case.answer("a million tokens", "dollars", formula, p, t, fitted=fitted)
    low, high = (float(money) * end / price.default for end in (price.low, price.high))
    ranged = replace(money, low=low, high=high, notes=(price.words,))
    dtype = case.model.formats.compute
    inputs = Input("C", chip.peak(dtype), "FLOP/s", f"{dtype} peak"), p
    notes, name = (price.source,), "FLOPs for a dollar"
    return [by_formula(name, "FLOPs", "C * 3600 / p", inputs, notes=notes), ranged]
