"""What fits: weights and KV caches against the memory of the devices.

    largest batch   floor(N (H - m) / (T V))      m bytes of weights on each of N devices of H bytes
    fewest devices  ceil(M / H),  ceil((M + B T V) / H)

The textbook takes all the memory of the board; the fitted number what a framework can allocate.
"""

import math

from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.meshes.host_link import COPY_SHARE, rated_host_bandwidth
from scaling.meshes.torus import shape_text, slice_shape
from scaling.questions.answer import Answer, Input, by_formula
from scaling.questions.serving.decode import Case

Memory = tuple[float, float]  # bytes of the board, and those that can be allocated


def memory_answers(case: Case) -> list[Answer]:
    """Return bytes of weights and caches, what is left, and what fits."""
    memory = memory_of(case.servers.cluster)
    model, servers = case.model, case.servers
    V = Input("V", model.kv_token, "bytes", f"of a token in {model.formats.kv}")
    T = Input("T", model.kept(case.context), "tokens")
    B = Input("B", case.batch, "sequences")
    P = Input("P", model.total, "parameters")
    b = Input("b", model.formats.weight_bytes, "bytes", f"of a weight in {model.formats.weights}")
    parts = [
        by_formula("weights", "bytes", "P * b", (P, b)),
        Answer("KV cache of a token", model.kv_token, "bytes", ideal=model.kv_token),
        by_formula("KV cache of a sequence", "bytes", "T * V", (T, V)),
        by_formula("KV cache of the batch", "bytes", "B * T * V", (B, T, V)),
    ]
    parts += _loads(case)
    if memory is None:
        return [*parts, Answer("largest batch", None, binds="the memory of the chip is not known")]
    H = Input("H", memory[0], "bytes", "of memory on a device")
    m = Input("m", servers.device_weights(model), "bytes", "of weights on a device")
    left = memory[1] - m.value
    note = ("the fitted number leaves out what the driver keeps",)
    parts.append(by_formula("left beside the weights", "bytes", "H - m", (H, m), left, notes=note))
    parts.append(_largest_batch(case, memory))
    parts += _longest_context(case, memory)
    M = Input("M", model.weight_bytes, "bytes", "of weights")
    parts.append(by_formula("devices that the weights fill", "devices", "M / H", (M, H)))
    parts.append(_fewest("fewest devices for the weights", "ceil(M / H)", (M, H), case, memory))
    formula = "ceil((M + B * T * V) / H)"
    name = "fewest devices for weights and batch"
    return [*parts, _fewest(name, formula, (M, B, T, V, H), case, memory)]


def memory_of(cluster: Cluster) -> Memory | None:
    """Return bytes of memory of a device, on the board and for a framework; None: not known."""
    chip = cluster.accelerator
    board = chip.memory or chip.usable_memory
    return None if board is None else (board, chip.usable_memory or board)


def fitting_batch(case: Case, memory: float) -> int | None:
    """Return the most sequences that fit; None: they take no memory."""
    sequence = case.model.kv_token * case.model.kept(case.context)
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


def _largest_batch(case: Case, memory: Memory) -> Answer:
    model, servers = case.model, case.servers
    most, fitted = (fitting_batch(case, each) for each in memory)
    if most is None or fitted is None:
        return Answer("largest batch", None, binds="nothing: the KV cache takes no memory")
    if not most:
        why = "the weights alone do not fit: use more devices, or --weights int8"
        return Answer("largest batch", 0, "sequences", binds=why, ideal=0, fitted=0)
    inputs = (
        Input("N", servers.devices, "devices"),
        Input("H", memory[0], "bytes", "of memory on a device"),
        Input("m", servers.device_weights(model), "bytes", "of weights on a device"),
        Input("T", model.kept(case.context), "tokens"),
        Input("V", model.kv_token, "bytes", f"of a token in {model.formats.kv}"),
    )
    formula = "floor(N * (H - m) / (T * V))"
    binds = "" if fitted >= case.batch else f"memory has no room for a batch of {case.batch}"
    return by_formula("largest batch", "sequences", formula, inputs, fitted, binds=binds)


def _longest_context(case: Case, memory: Memory) -> list[Answer]:
    """Tokens of each sequence of the batch that fit; none with a window, which bounds them."""
    model, servers = case.model, case.servers
    m, devices = servers.device_weights(model), servers.devices
    windowed = model.config is not None and model.config.sliding_window is not None
    if windowed or not model.kv_token or m >= memory[1]:
        return []
    inputs = (
        Input("N", devices, "devices"),
        Input("H", memory[0], "bytes", "of memory on a device"),
        Input("m", m, "bytes", "of weights on a device"),
        Input("B", case.batch, "sequences"),
        Input("V", model.kv_token, "bytes", f"of a token in {model.formats.kv}"),
    )
    fitted = math.floor(devices * (memory[1] - m) / (case.batch * model.kv_token))
    formula = "floor(N * (H - m) / (B * V))"
    return [by_formula("longest context of the batch", "tokens", formula, inputs, fitted)]


def _fewest(
    name: str, formula: str, inputs: tuple[Input, ...], case: Case, memory: Memory
) -> Answer:
    """The fewest devices, and the next number of them that is used together."""
    values = {i.symbol: i.value for i in inputs}
    needed = values["M"] + values.get("B", 0) * values.get("T", 0) * values.get("V", 0)
    fitted = math.ceil(needed / memory[1])
    ideal = math.ceil(needed / memory[0])
    words = f"next topology: {topology(case.servers.cluster, ideal)[1]}"
    if fitted != ideal:
        words += "; with the memory that can be allocated: "
        words += topology(case.servers.cluster, fitted)[1]
    return by_formula(name, "devices", formula, inputs, fitted, notes=(words,))


def _loads(case: Case) -> list[Answer]:
    """Reading the weights once: from the devices' memory, and from that of their hosts."""
    m = Input("m", case.servers.device_weights(case.model), "bytes", "of weights on a device")
    W = Input("W", case.servers.peak_bytes, "bytes/s", "memory bandwidth of a device")
    share = case.profile.memory.efficiency
    rate = case.profile.memory.bandwidth or W.value
    name = "reading all weights from memory"
    parts = [by_formula(name, "s", "m / W", (m, W), m.value / (rate * share))]
    cluster = case.servers.cluster
    rated = rated_host_bandwidth(cluster) or rated_host_bandwidth(cluster, "socket")
    if rated is not None:
        W_h = Input("W_h", rated, "bytes/s", "of a device's way to its host")
        name = "loading the weights from the hosts"
        parts.append(by_formula(name, "s", "m / W_h", (m, W_h), m.value / (COPY_SHARE * rated)))
    return parts
