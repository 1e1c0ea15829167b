"""What fits: weights and KV caches against the memory of the devices.

    largest batch   floor(N (H - m) / (T V))      m bytes of weights on each of N devices of H bytes
    fewest devices  ceil(M / H),  ceil((M + B T V) / H)

The textbook takes all the memory of the board; the fitted number what a framework can allocate.
"""

import math
from dataclasses import replace

from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.meshes.host_link import COPY_SHARE, rated_host_bandwidth
from scaling.meshes.torus import shape_text, slice_shape
from scaling.models.accounting.matrices import Reach, layer_reaches
from scaling.questions.answer import Answer, Input
from scaling.questions.serving.case import ServingCase

Memory = tuple[float, float]  # bytes of the board, and those that can be allocated


def memory_answers(case: ServingCase) -> list[Answer]:
    """Return bytes of weights and caches, what is left, and what fits."""
    memory = memory_of(case.servers.cluster)
    of_token = case.model.kv_token
    parts = [
        case.answer("weights", "bytes", "M" if case.model.formats.experts else "P * b"),
        Answer("KV cache of a token", of_token, "bytes", ideal=of_token),
        case.answer("KV cache of a sequence", "bytes", "T * V"),
        case.answer("KV cache of the batch", "bytes", "B * T * V"),
        *_loads(case),
    ]
    if memory is None:
        return [*parts, Answer("largest batch", None, binds="the memory of the chip is not known")]
    H = Input("H", memory[0], "bytes", "of memory on a device")
    left = memory[1] - case.servers.device_weights(case.model)
    note = ("the fitted number leaves out what the driver keeps",)
    batch = "fewest devices for weights and batch"
    return [
        *parts,
        case.answer("left beside the weights", "bytes", "H - m", H, fitted=left, notes=note),
        _largest_batch(case, memory, H),
        *_longest_context(case, memory, H),
        case.answer("devices that the weights fill", "devices", "M / H", H),
        _fewest("fewest devices for the weights", "ceil(M / H)", case, memory, H),
        _fewest(batch, "ceil((M + B * T * V) / H)", case, memory, H),
    ]


def memory_of(cluster: Cluster) -> Memory | None:
    """Return bytes of memory of a device, on the board and for a framework; None: not known."""
    chip = cluster.accelerator
    board = chip.memory or chip.usable_memory
    return None if board is None else (board, chip.usable_memory or board)


def fitting_batch(case: ServingCase, memory: float) -> int | None:
    """Return the most sequences that fit; None: they take no memory."""
    sequence = case.model.kv_token * case.model.kept(case.context)
    sequence *= case.servers.key_copies(case.model.config)
    left = memory - case.servers.device_weights(case.model)
    if not sequence:
        return None
    return max(0, math.floor(case.servers.devices * left / sequence))


def topology(cluster: Cluster, devices: int) -> tuple[int, str]:
    """Return the next larger number of devices that is used together, and what it is called.

    Inside a node, and of TPU slices, powers of two; then whole nodes.
    """
    node, torus = cluster.parts["chip"], cluster.torus
    count = 1 << max(0, devices - 1).bit_length()
    if torus is not None and count <= torus.chips:
        try:
            return count, f"{count} ({shape_text(slice_shape(torus, count))})"
        except InputError:
            return count, str(count)
    if torus is None and count <= node:
        return count, str(count)
    nodes = math.ceil(devices / node)
    return nodes * node, f"{nodes * node} ({nodes} node{'s' * (nodes > 1)} of {node})"


def _largest_batch(case: ServingCase, memory: Memory, H: Input) -> Answer:
    most, fitted = (fitting_batch(case, each) for each in memory)
    if most is None or fitted is None:
        return Answer("largest batch", None, binds="nothing: the KV cache takes no memory")
    if not most:
        alone = memory[1] <= case.servers.device_weights(case.model)
        what = "the weights alone do" if alone else "one sequence beside the weights does"
        why = f"{what} not fit: use more devices, or --{'weights' if alone else 'kv'} int8"
        return Answer("largest batch", 0, "sequences", binds=why, ideal=0, fitted=0)
    formula = "floor(N * (H - m) / (T * V))"
    binds = "" if fitted >= case.batch else f"memory has no room for a batch of {case.batch}"
    return case.answer("largest batch", "sequences", formula, H, fitted=fitted, binds=binds)


def _longest_context(case: ServingCase, memory: Memory, H: Input) -> list[Answer]:
    """Tokens of each sequence of the batch that fit; none with windows, which bound them."""
    model, servers = case.model, case.servers
    m, devices = servers.device_weights(model), servers.devices
    windowed = model.config is not None and set(layer_reaches(model.config)) != {Reach()}
    if windowed or not model.kv_token or m >= memory[1]:
        return []
    copies = servers.key_copies(model.config)
    fitted = math.floor(devices * (memory[1] - m) / (case.batch * model.kv_token * copies))
    name, formula = "longest context of the batch", "floor(N * (H - m) / (B * V))"
    return [case.answer(name, "tokens", formula, H, fitted=fitted)]


def _fewest(name: str, formula: str, case: ServingCase, memory: Memory, H: Input) -> Answer:
    """The fewest devices, and the next number of them that is used together."""
    board, usable = (case.answer(name, "devices", formula, replace(H, value=n)) for n in memory)
    ideal, fitted = int(float(board)), int(float(usable))
    words = f"next topology: {topology(case.servers.cluster, ideal)[1]}"
    if fitted != ideal:
        words += "; with the memory that can be allocated: "
        words += topology(case.servers.cluster, fitted)[1]
    return replace(board, answer=fitted, fitted=fitted, notes=(words,))


def _loads(case: ServingCase) -> list[Answer]:
    """Reading the weights once: from the devices' memory, and from that of their hosts."""
    weights, memory = case.servers.device_weights(case.model), case.profile.memory
    rate = (memory.bandwidth or case.servers.peak_bytes) * memory.efficiency
    parts = [case.answer("reading all weights from memory", "s", "m / W", fitted=weights / rate)]
    cluster = case.servers.cluster
    rated = rated_host_bandwidth(cluster) or rated_host_bandwidth(cluster, "socket")
    if rated is not None:
        W_h = Input("W_h", rated, "bytes/s", "of a device's way to its host")
        fitted = weights / (COPY_SHARE * rated)
        name = "loading the weights from the hosts"
        parts.append(case.answer(name, "s", "m / W_h", W_h, fitted=fitted))
    return parts
