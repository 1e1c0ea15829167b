"""The answer to `scaling serve`: the decode step, with everything that follows from it."""

from dataclasses import replace

from scaling.meshes.errors import InputError
from scaling.questions.answer import Answer, Input, by_formula
from scaling.questions.prices import flops_per_dollar, price_of
from scaling.questions.serving.decode import Case, decode_step
from scaling.questions.serving.memory import memory_answers
from scaling.questions.serving.servers import check_servers
from scaling.questions.serving.thresholds import threshold_answers
from scaling.questions.serving.traffic import Request, frontier, request_answers, throughput


def serve(case: Case, request: Request, price: float | None = None) -> Answer:
    """Return the time of a decode step; its parts are throughput, memory, thresholds and requests.

    `rows` are batches with their step, throughput, and whether they fit.

    Raises:
        InputError: a mesh that cannot serve, a batch with less than a sequence for a copy.
    """
    check_servers(case.servers, case.model)
    mesh = case.servers.mesh
    if case.batch < mesh.data * mesh.expert:
        raise InputError(
            f"--batch {case.batch} leaves some of the {mesh.data * mesh.expert} shards of the "
            f"batch (data x expert of mesh {mesh}) without a sequence; use at least as many"
        )
    step = decode_step(case)
    A = Input("A", case.model.active, "parameters", "that a token uses")
    parts = (
        *step.parts,
        *throughput(case, step),
        by_formula("FLOPs of a token", "FLOPs", "2 * A", (A,)),
        *memory_answers(case),
        *threshold_answers(case),
        *request_answers(case, step, request),
        *_money(case, step, price),
    )
    count = f"{mesh.devices} device{'s' * (mesh.devices > 1)}"
    model = f"{case.model.name} in {case.model.formats.weights}"
    notes = [f"{model} on {count} ({mesh} on {case.servers.cluster.name})"]
    most = next(part for part in parts if part.name == "largest batch")
    if most.answer is not None and most.binds:
        notes.append(f"it does not fit: {most.binds}")
    return replace(step, parts=parts, rows=frontier(case), notes=tuple(notes))


def _money(case: Case, step: Answer, stated: float | None) -> list[Answer]:
    chip = case.servers.cluster.accelerator
    price = price_of(chip, stated)
    if price is None:
        return []
    B = Input("B", case.batch, "sequences")
    N = Input("N", case.servers.devices, "devices")
    t = Input("t", float(step.ideal or 0.0), "s", "of a step")
    fitted = price[0].value * case.servers.devices / 3600 * float(step) / case.batch * 1e6
    formula = "p * N / 3600 * t / B * 1000000"
    money = by_formula("a million tokens", "dollars", formula, (price[0], N, t, B), fitted)
    return [flops_per_dollar(chip, case.model.formats.compute, price), money]
