"""Where serving changes its regime: critical batch, largest useful tensor axis, 2D sharding.

    critical batch   B = (b / 2) (C / W) (E / k)     products of b-byte weights take as long as
                                                     reading them: 2 B A / C = b P / W
    tensor axis      Y < F / (B beta), beta = W / W_n     the sums of [B, D] over Y devices take as
                                                     long as reading the MLP's 2 D F / Y weights
    2D sharding      N > 18 F / D                    from there cutting D as well as F sends less
    latency          v < Y W_l T_h                   the hops of a sum take longer than its bytes
    KV cache         B = M / (T V)                   reading it takes as long as the weights

The tensor axis and 2D sharding are the guide's, for two matrices of bf16 weights; the latter
assumes that 1D uses the links of three torus dimensions. A gated MLP reads three matrices, so that
its limit is 1.5 times as far.
"""

from scaling.meshes.levels import levels
from scaling.meshes.placement import crossed_level
from scaling.models.accounting.matrices import expert_width
from scaling.models.config import ModelConfig
from scaling.questions.answer import Answer, Input, by_formula
from scaling.questions.serving.decode import Case, link_rate
from scaling.questions.serving.step import calls, decode_pass


def threshold_answers(case: Case) -> list[Answer]:
    """Return the thresholds that the model and the mesh have."""
    parts = [*critical_batches(case), *_cache_batch(case)]
    config = case.model.config
    if config is not None:
        parts += [*_tensor_limit(case, config), *_latency_bound(case)]
        parts += _two_dims(config)
    return parts


def critical_batches(case: Case) -> list[Answer]:
    """Return the batch from which products are compute bound; of experts, and of all weights."""
    model, chip = case.model, case.servers.cluster.accelerator
    dtype = model.formats.compute
    C = Input("C", chip.peak(dtype), "FLOP/s", f"{dtype} peak")
    W = Input("W", case.servers.peak_bytes, "bytes/s", "memory bandwidth of a device")
    b = Input("b", model.formats.weight_bytes, "bytes", f"of a weight in {model.formats.weights}")
    rule = "b / 2 * C / W"
    parts = [by_formula("critical batch", "sequences", rule, (b, C, W))]
    if model.routed:
        E = Input("E", model.experts, "experts", "of a layer")
        k = Input("k", model.used, "experts", "of a token")
        name = "critical batch of the experts"
        parts.append(by_formula(name, "sequences", f"{rule} * E / k", (b, C, W, E, k)))
    if model.active < model.total:
        P = Input("P", model.total, "parameters")
        A = Input("A", model.active, "parameters", "that a token uses")
        name = "critical batch of all weights"
        parts.append(by_formula(name, "sequences", f"{rule} * P / A", (b, C, W, P, A)))
    return parts


def _cache_batch(case: Case) -> list[Answer]:
    if not case.model.kv_token:
        return []
    M = Input("M", case.model.weight_bytes, "bytes", "of weights")
    T = Input("T", case.model.kept(case.context), "tokens", "of each that the KV cache holds")
    V = Input("V", case.model.kv_token, "bytes", f"of a token in {case.model.formats.kv}")
    name = "batch whose KV cache is as large as the weights"
    return [by_formula(name, "sequences", "M / (T * V)", (M, T, V))]


def _latency_bound(case: Case) -> list[Answer]:
    """Bytes of a sum over tensor below which its hops decide."""
    servers = case.servers
    size = servers.mesh.tensor
    if size == 1:
        return []
    own = [level for level in levels(servers.cluster) if level.own_hops]
    inside = crossed_level(servers.groups("tensor"), servers.cluster) in ("node", "domain")
    link = next((x for x in own if (x.link != "network") == inside), own[0])
    inputs = (
        Input("Y", size, "devices", "along tensor"),
        Input("W_l", link.bandwidth, "bytes/s", link.name),
        Input("T_h", link.hop_latency, "s", "of a hop"),
    )
    name = "bytes of a sum below which its hops decide"
    return [by_formula(name, "bytes", "Y * W_l * T_h", inputs)]


def _tensor_limit(case: Case, config: ModelConfig) -> list[Answer]:
    work = decode_pass(case.servers, case.model, case.batch, case.context)
    found = [c for c in calls(case.model, case.servers, work) if c.kind == "all-reduce"]
    if not found:
        return []
    W_n = 2 * link_rate(found[0], case.servers)
    width = expert_width(config) * config.moe.experts_per_token if config.moe else config.d_ff
    inputs = (
        Input("F", width, "", "hidden units of a token"),
        Input("B", work.sequences, "sequences", "of a copy of the model"),
        Input("W", case.servers.peak_bytes, "bytes/s", "memory bandwidth of a device"),
        Input("W_n", W_n, "bytes/s", "of a device's links: twice an all-reduce's"),
    )
    bound = float(inputs[0].value) * W_n / (work.sequences * case.servers.peak_bytes)
    size = case.servers.mesh.tensor
    binds = f"the links: tensor={size} is beyond it" if size > bound else ""
    beta = by_formula("beta, memory over links", "", "W / W_n", inputs[2:])
    name, formula = "largest useful tensor size", "F * W_n / (B * W)"
    return [by_formula(name, "devices", formula, inputs, binds=binds), beta]


def _two_dims(config: ModelConfig) -> list[Answer]:
    F = Input("F", config.d_ff, "", "hidden units")
    D = Input("D", config.d_model, "", "width of the stream")
    note = "1D sends 4 B D / (3 W), 2D sends c B D / (sqrt(N) W)"
    name = "devices from which weights are better cut along D and F"
    formula = "32 * F / D * (3 / 4) ** 2"
    c = by_formula("constant c of 2D sharding", "", "sqrt(32 * F / D)", (F, D))
    return [by_formula(name, "devices", formula, (F, D), notes=(note,)), c]
