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
from scaling.questions.serving.case import ServingCase
from scaling.questions.serving.decode import decode_calls, link_rate


def threshold_answers(case: ServingCase) -> list[Answer]:
    """Return the thresholds that the model and the mesh have."""
    parts, config = critical_batches(case), case.model.config
    if case.model.kv_token:
        name = "batch whose KV cache is as large as the weights"
        parts.append(case.answer(name, "sequences", "M / (T * V)"))
    if config is not None:
        parts += [*_tensor_limit(case, config), *_latency_bound(case)]
        parts += _two_dims(config)
    return parts


def critical_batches(case: ServingCase) -> list[Answer]:
    """Return the batch from which products are compute bound; of experts, and of all weights."""
    model, rule = case.model, "b / 2 * C / W"
    parts = [case.answer("critical batch", "sequences", rule)]
    if model.routed:
        name = "critical batch of the experts"
        of_experts = rule.replace("b", "b_e") if model.formats.experts else rule
        parts.append(case.answer(name, "sequences", f"{of_experts} * E / k"))
    if model.active < model.total:
        name = "critical batch of all weights"
        parts.append(case.answer(name, "sequences", f"{rule} * P / A"))
    return parts


def _latency_bound(case: ServingCase) -> list[Answer]:
    """Bytes of a sum over tensor below which its hops decide."""
    servers = case.servers
    if servers.mesh.tensor == 1:
        return []
    own = [level for level in levels(servers.cluster) if level.own_hops]
    inside = crossed_level(servers.groups("tensor"), servers.cluster) in ("node", "domain")
    link = next((x for x in own if (x.link != "network") == inside), own[0])
    W_l = Input("W_l", link.bandwidth, "bytes/s", link.name)
    T_h = Input("T_h", link.hop_latency, "s", "of a hop")
    name = "bytes of a sum below which its hops decide"
    return [case.answer(name, "bytes", "Y * W_l * T_h", W_l, T_h)]


def _tensor_limit(case: ServingCase, config: ModelConfig) -> list[Answer]:
    found = [call for call in decode_calls(case) if call.kind == "all-reduce"]
    if not found:
        return []
    mesh = case.servers.mesh
    width = expert_width(config) * config.moe.experts_per_token if config.moe else config.d_ff
    sequences = case.batch / case.shards
    F = Input("F", width, "", "hidden units of a token")
    B = Input("B", sequences, "sequences", "of a copy of the model")
    rate = 2 * link_rate(found[0], case)
    W_n = Input("W_n", rate, "bytes/s", "of a device's links: twice an all-reduce's")
    bound = width * rate / (sequences * case.servers.peak_bytes)
    binds = f"the links: tensor={mesh.tensor} is beyond it" if mesh.tensor > bound else ""
    name, formula = "largest useful tensor size", "F * W_n / (B * W)"
    return [
        case.answer(name, "devices", formula, F, B, W_n, binds=binds),
        case.answer("beta, memory over links", "", "W / W_n", W_n),
    ]


def _two_dims(config: ModelConfig) -> list[Answer]:
    F = Input("F", config.d_ff, "", "hidden units")
    D = Input("D", config.d_model, "", "width of the stream")
    note = "1D sends 4 B D / (3 W), 2D sends c B D / (sqrt(N) W)"
    name = "devices from which weights are better cut along D and F"
    formula = "32 * F / D * (3 / 4) ** 2"
    c = by_formula("constant c of 2D sharding", "", "sqrt(32 * F / D)", (F, D))
    return [by_formula(name, "devices", formula, (F, D), notes=(note,)), c]
