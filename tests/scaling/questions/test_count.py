"""`scaling count`: formulas in the guide's letters against `scaling.models.accounting`."""

import pytest

import scaling as sc
from scaling.meshes.errors import InputError
from scaling.models.accounting import (
    activation_bytes,
    count_parameters,
    kv_cache_bytes,
    model_flops,
)
from scaling.models.accounting.flops import credited_forward
from scaling.models.presets import preset_names
from scaling.run.recipes import recipe
from tests.scaling.cli.running import check_refused, run
from tests.scaling.questions.formulas import check

GUIDES = {  # of the guide's chapter on inference, question 1
    "model.n_layers": 64,
    "model.d_model": 4096,
    "model.d_ff": 16384,
    "model.n_heads": 32,
    "model.n_kv_heads": 8,
    "model.head_dim": 256,
    "model.vocab_size": 32128,
    "model.tied_embeddings": True,
}


@pytest.mark.parametrize("name", preset_names())
def test_formulas_and_accounting_count_every_recipe_alike(name):
    """Two derivations: letters of the guide, and the weight matrices that the trainer makes."""
    answer, of = check(sc.count(name)), recipe(name)
    config, seq = of.model, of.batch.seq_len
    counted = count_parameters(config)
    assert answer.answer == counted.total
    assert sum(row["parameters"] for row in answer.rows) == counted.total
    if config.moe:
        assert answer["active parameters"].answer == pytest.approx(counted.active, rel=1e-12)
    groups = credited_forward(config, 1, seq).groups
    forward = answer["forward FLOPs of a token"]
    assert forward["projections"].answer * seq == groups["projections"]
    assert forward["MLP"].answer * seq == groups["mlp"] + groups.get("router", 0)
    assert forward["attention core"].answer * seq == pytest.approx(groups["attention"], rel=1e-12)
    assert forward["head"].answer * seq == groups["head"]
    exact = answer["training FLOPs of a token"].answer * of.batch.tokens
    assert exact == pytest.approx(model_flops(config, of.batch.global_batch, seq), rel=1e-12)
    assert answer["KV cache of a token"].answer == kv_cache_bytes(config, 1, of.precision.between)


def test_parameters_of_llama3_70b_by_part():
    answer = sc.count("llama3-70b")
    assert answer["MLP"].answer == 56_371_445_760
    assert answer["attention"].answer == 12_079_595_520
    assert answer["embedding"].answer + answer["head"].answer == 2_101_346_304


def test_a_model_without_a_recipe_is_counted_by_its_shapes():
    answer = check(sc.count("custom", set=GUIDES, kv="int8"))
    small = answer["norms and biases"].answer
    assert answer.answer - small == 18_385_207_296
    assert answer["KV cache of a token"].answer == 262_144


def test_experts_are_counted_in_all_and_per_token():
    moe = {"model.moe.n_experts": 16, "model.moe.experts_per_token": 2}
    answer = check(sc.count("custom", set=GUIDES | moe))
    routers = 64 * 4096 * 16
    small = answer["norms and biases"].answer + routers
    assert answer.answer - small == 211_658_735_616
    assert answer["active parameters"].answer - small == 31_270_109_184


def test_contexts_at_which_attention_costs_as_much():
    """T = 2 D for projections, and 8 D for a block with F = 4 D and three matrices."""
    shapes = {"vocab_size": 1, "d_model": 4096, "n_layers": 3, "n_heads": 32, "d_ff": 16384}
    model = {f"model.{name}": value for name, value in shapes.items()}
    answer = sc.count("custom", set=model)
    of = "context at which the attention core costs as much as"
    assert answer[f"{of} its projections"].answer == 2 * 4096
    assert answer[f"{of} all else in a layer"].answer == 8 * 4096
    halved = sc.count("custom", set=model, causal=True)
    assert halved[f"{of} its projections"].answer == 4 * 4096


def test_what_training_keeps():
    """The guide's 13B model: three checkpoints, of sizes D, F and F, are the block's input, gate
    and up."""
    kept = {"remat": "mlp_gate,mlp_up"}
    answer = check(sc.count("llama2-13b", batch="16M", set=kept))
    assert answer["activations kept"].answer == pytest.approx(41.94304e12)
    assert answer["weights and optimiser"].answer == pytest.approx(130e9, rel=2e-3)
    rule = sc.count("llama3-70b", batch="4M", checkpoints_per_layer=12, devices=8960)
    device = rule["weights, optimiser and activations of a device"].answer
    assert device == pytest.approx(7.1e9, rel=1e-3)


@pytest.mark.parametrize("name", ["llama3-8b", "mixtral-8x7b", "deepseek-v3"])
def test_activations_are_those_of_the_accounting(name):
    of = recipe(name)
    config, batch, seq = of.model, of.batch.global_batch, of.batch.seq_len
    dense = config.moe.first_dense_layers if config.moe else config.n_layers
    one = lambda moe: sum(activation_bytes(config, batch, seq, of.remat, moe=moe).values())
    kept = (
        dense * one(False) + (config.n_layers - dense) * one(True)
        if config.moe
        else (config.n_layers * one(False))
    )
    assert sc.count(name)["activations kept"].answer == pytest.approx(kept, rel=1e-12)


def test_a_whole_training_run():
    answer = sc.count("llama3-405b", tokens="15T")
    assert answer["FLOPs of the training"].answer == pytest.approx(3.6526e25, rel=1e-3)
    assert sc.count("llama3-8b")["tokens by Chinchilla's rule"].answer == 20 * float(
        sc.count("llama3-8b")
    )


def test_a_window_bounds_context_and_cache():
    window = {"model.sliding_window": 1024}
    near, far = (sc.count("llama3-8b", set=window, seq_len=n) for n in (1024, 8192))
    for name in ("KV cache of a sequence", "forward FLOPs of a token"):
        assert near[name].answer == far[name].answer


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("llama3-80b", ("unknown recipe", "did you mean 'llama3-8")),
        ("custom", ("the model lacks vocab_size", "--set model.d_model=4096")),
        ("custom --set model.d_modl=3", ("did you mean 'd_model'?",)),
        ("custom --set model=3", ("expected",)),
        ("llama3-8b --kv int9", ("--kv 'int9'", "did you mean 'int8' or 'int4'?")),
        ("llama3-8b --dtype int8", ("--dtype 'int8' is no format",)),
        ("llama3-8b --batch 4X", ("--batch '4X'",)),
        ("llama3-8b --tokens 0", ("--tokens",)),
        ("llama3-8b --seq-len 0", ("--seq-len=0",)),
        ("gpt2-124m --seq-len 4096", ("1024 learned positions",)),
        ("llama3-8b --devices 0", ("--devices=0",)),
        ("llama3-8b --checkpoints-per-layer nan", ("--checkpoints-per-layer nan",)),
        ("llama3-8b --bytes-per-parameter -1", ("--bytes-per-parameter -1",)),
        ("llama3-8b --set precision.compute=int8", ("int8",)),
    ],
)
def test_bad_input_is_refused(capsys, words, parts):
    check_refused(run(capsys, "count", *words.split()), *parts, one_line=False)


def test_custom_is_a_run_for_every_command(capsys):
    shapes = [
        f"--set={key}={value}" for key, value in GUIDES.items() if key != "model.tied_embeddings"
    ]
    code, out, err = run(capsys, "config", "custom", *shapes)
    assert (code, err) == (0, "")
    with pytest.raises(InputError, match="lacks n_layers"):
        sc.load_run("custom", set={k: v for k, v in GUIDES.items() if "n_layers" not in k})


def test_devices_that_training_fills_by_the_guides_rule():
    """applied-training.md: 21.6 TB with 4 checkpoints a layer are 225.7 chips of 96 GB."""
    asked = {"batch": "4M", "checkpoints_per_layer": 4}
    answer = check(sc.count("llama3-70b", **asked, memory="96GB"))
    name = "devices that weights, optimiser and activations fill"
    assert float(answer[name]) == pytest.approx(225.7, rel=2e-3)
    assert float(sc.count("llama3-70b", **asked, memory=96e9)[name]) == float(answer[name])


@pytest.mark.parametrize("memory", ["0GB", "-1", "nan", "1e19", "many", 0, float("nan")])
def test_what_is_no_memory_is_refused(memory):
    with pytest.raises(InputError):
        sc.count("tiny", memory=memory)


def test_what_remat_computes_again():
    """transformers.md, Q6: with all results of matrices kept, the two products of attention."""
    kept = "query,key,value,attention_out,mlp_gate,mlp_up"
    rows = sc.count("llama3-8b", set={"remat": kept})["activations kept"].rows
    again = {row["remat"]: row["again for a token (FLOPs)"] for row in rows}
    assert again["none"] == 0
    assert again[kept] == 4 * 8192 * 32 * 128 * 32  # 4 T N H of every layer
    assert again["none"] < again["selective"] < again["full"]
