"""Weights from and to safetensors files: every bit, every name, every slice."""

import functools
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from scaling.meshes.devices import host_mesh
from scaling.meshes.errors import InputError
from scaling.meshes.rules import make_rules
from scaling.meshes.shape import MeshShape
from scaling.models.config import Mla, ModelConfig, Moe, RopeScaling, Yarn
from scaling.models.execution import Execution
from scaling.models.huggingface.export import family_of, to_huggingface
from scaling.models.huggingface.read import read_config
from scaling.models.presets import preset, preset_names
from scaling.models.transformer import Transformer
from scaling.run import Batch, Run
from scaling.training.step import abstract_state
from scaling.training.weights.exported import export_weights
from scaling.training.weights.imported import (
    INDEX,
    SINGLE,
    WeightFiles,
    import_weights,
    open_weights,
    read_part,
)
from scaling.training.weights.naming import to_dict

_toy = functools.partial(ModelConfig, 48, d_model=32, n_layers=3, n_heads=4, d_ff=40)
MODELS = {
    "gpt2": _toy(
        mlp="gelu",
        norm="layernorm",
        positions="learned",
        max_positions=24,
        tied_embeddings=True,
        bias=True,
    ),
    "llama": _toy(n_kv_heads=2, bias=True, rope_scaling=RopeScaling(8.0, 1.0, 4.0, 64)),
    "mistral": _toy(n_kv_heads=2, sliding_window=7),
    "mixtral": _toy(n_kv_heads=2, moe=Moe(4, 2)),
    "qwen2": _toy(n_kv_heads=2, qkv_bias=True),
    "qwen3": _toy(n_kv_heads=2, head_dim=16, qk_norm=True, tied_embeddings=True),
    "qwen3_moe": _toy(
        n_kv_heads=2, qk_norm=True, moe=Moe(4, 2, d_ff_expert=24, normalize_weights=False)
    ),
    "deepseek_v3": _toy(
        mla=Mla(12, 8, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=10),
        yarn=Yarn(4.0, 16, mscale=1.0, mscale_all_dim=1.0),
        moe=Moe(
            4,
            2,
            d_ff_expert=16,
            n_shared_experts=2,
            first_dense_layers=1,
            gate="sigmoid",
            selection_bias=True,
            n_groups=2,
            groups_per_token=1,
        ),
    ),
}
ONE = MeshShape()
CUT = MeshShape(data=2, fsdp=2, tensor=2)


def like(config: ModelConfig, mesh: MeshShape = ONE) -> Transformer:
    """Shapes and shardings on a mesh of fake devices."""
    execution = Execution(make_rules(mesh, sequence_parallel=True), compute="fp32")
    with jax.set_mesh(host_mesh(mesh)):
        return abstract_state(Run("toy", config, Batch(1, 16)), execution).params


def drawn(config: ModelConfig, mesh: MeshShape = ONE) -> Transformer:
    """Random parameters."""
    shapes = like(config, mesh)
    random = np.random.default_rng(0)
    put = lambda leaf: jax.device_put(
        random.standard_normal(leaf.shape).astype(np.float32), leaf.sharding
    )
    return jax.tree.map(put, shapes)


def contents(folder: Path) -> dict[str, np.ndarray]:
    files = sorted(folder.glob("*.safetensors"))
    return {name: array for file in files for name, array in load_file(file).items()}


@pytest.mark.parametrize("family", MODELS)
def test_an_export_read_back_on_a_mesh_is_the_parameters(family: str, tmp_path: Path) -> None:
    config = MODELS[family]
    params = drawn(config)
    export_weights(params, tmp_path / "out", 24)
    assert family_of(config) == family
    modes = {file.stat().st_mode for file in (tmp_path / "out").iterdir()}
    assert len(modes) == 1  # who may read one may read all
    there = json.loads((tmp_path / "out" / "config.json").read_text())
    assert there["model_type"] == family
    wanted = like(config, CUT)
    again = import_weights(tmp_path / "out", wanted)
    chex.assert_trees_all_equal(to_dict(params), to_dict(again))
    for leaf, shape in zip(*map(jax.tree.leaves, (again, wanted)), strict=True):
        assert leaf.sharding == shape.sharding and leaf.dtype == jnp.float32


@pytest.mark.parametrize("family", ["gpt2", "deepseek_v3"])
def test_an_export_of_an_import_is_the_files_also_in_bf16_and_in_many_files(
    family: str, tmp_path: Path
) -> None:
    config, first, second = MODELS[family], tmp_path / "first", tmp_path / "second"
    export_weights(drawn(config), first, 24, "bf16", most=8000)
    assert len(list(first.glob("model-*-of-*.safetensors"))) > 3
    index = json.loads((first / INDEX).read_text())
    assert index["weight_map"].keys() == contents(first).keys()
    export_weights(import_weights(first, like(config, CUT)), second, 24, "bf16")
    assert (second / SINGLE).is_file() and not (second / INDEX).exists()
    before, after = contents(first), contents(second)
    assert before.keys() == after.keys()
    for name, array in before.items():
        assert array.dtype == after[name].dtype == jnp.bfloat16
        np.testing.assert_array_equal(array.view(np.uint16), after[name].view(np.uint16))


def test_a_device_reads_its_own_slices_only(tmp_path: Path, monkeypatch) -> None:
    config = MODELS["llama"]
    export_weights(drawn(config), tmp_path / "out", 24)
    read: list[int] = []
    original = WeightFiles.read

    def counted(self, name, index):
        part = original(self, name, index)
        read.append(part.size)
        return part

    monkeypatch.setattr(WeightFiles, "read", counted)
    import_weights(tmp_path / "out", like(config, CUT))
    whole = sum(array.size for array in contents(tmp_path / "out").values())
    vectors = sum(a.size for a in contents(tmp_path / "out").values() if a.ndim == 1)
    assert whole <= sum(read) <= whole + 3 * vectors  # once per part, although data has two


def test_a_slice_is_that_of_the_whole(tmp_path: Path) -> None:
    """Any rectangle, those included that cut dimensions which lie together in the file."""
    config = MODELS["deepseek_v3"]
    export_weights(drawn(config), tmp_path / "out", 24)
    files, parameters = open_weights(tmp_path / "out", config)
    random = np.random.default_rng(0)
    for stored in parameters.values():
        whole = read_part(files, stored, tuple(slice(None) for _ in stored.parameter_shape))
        assert whole.shape == stored.parameter_shape
        for _ in range(3):
            ends = [sorted(random.integers(0, n + 1, 2)) for n in whole.shape]
            index = tuple(slice(int(a), int(b)) for a, b in ends)
            if whole[index].size:
                np.testing.assert_array_equal(read_part(files, stored, index), whole[index])


def test_queries_lie_in_the_file_as_rows_of_heads_and_rotated_pairs_side_by_side(
    tmp_path: Path,
) -> None:
    params = drawn(MODELS["deepseek_v3"])
    export_weights(params, tmp_path / "out", 24)
    rows = contents(tmp_path / "out")["model.layers.1.self_attn.q_b_proj.weight"]
    ours = np.asarray(params.layers.attention.query_b_RNK[...])[0]  # the first layer with experts
    assert rows.shape == (4 * 10, 12)
    for head in range(4):
        of_head = rows[10 * head : 10 * head + 10]
        np.testing.assert_array_equal(of_head[:6], ours[:, head, :6].T)
        np.testing.assert_array_equal(of_head[6::2], ours[:, head, 6:8].T)  # low halves
        np.testing.assert_array_equal(of_head[7::2], ours[:, head, 8:].T)


def test_gpt2_files_without_prefix_and_with_masks_are_read(tmp_path: Path) -> None:
    config = MODELS["gpt2"]
    params = drawn(config)
    export_weights(params, tmp_path / "out", 24)
    bare = {name.removeprefix("transformer."): a for name, a in contents(tmp_path / "out").items()}
    bare["h.0.attn.bias"] = np.ones((1, 1, 24, 24), np.float32)
    save_file(bare, tmp_path / "old.safetensors")
    again = import_weights(tmp_path / "old.safetensors", like(config))
    chex.assert_trees_all_equal(to_dict(params), to_dict(again))


def test_halves_are_read_where_the_config_says_so(tmp_path: Path) -> None:
    config = MODELS["deepseek_v3"]
    params = drawn(config)
    export_weights(params, tmp_path, 24)
    described = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(described | {"rope_interleave": False}))
    read = import_weights(tmp_path, like(config)).layers.attention.kv_a_DR[...]
    ours = np.asarray(params.layers.attention.kv_a_DR[...])
    np.testing.assert_array_equal(np.asarray(read)[..., [8, 10, 9, 11]], ours[..., 8:])
    np.testing.assert_array_equal(read[..., :8], ours[..., :8])


@pytest.mark.parametrize("name", [n for n in preset_names() if n != "tiny-moe"])
def test_a_written_config_is_the_model_again(name: str, tmp_path: Path) -> None:
    config = preset(name)
    (tmp_path / "config.json").write_text(json.dumps(to_huggingface(config, 4096)))
    again = read_config(tmp_path)
    if config.moe:
        moe = replace(config.moe, aux_loss=again.moe.aux_loss, d_ff_expert=again.moe.d_ff_expert)
        config = replace(config, moe=moe)
    assert again == config


def test_releases_that_work_out_the_factor_of_yarn_find_that_of_the_model() -> None:
    """transformers before 5 has max_position_embeddings / original_max_position_embeddings."""
    yarn = Yarn(40.0, 4096, mscale=1.0, mscale_all_dim=1.0)
    written = to_huggingface(replace(preset("deepseek-v3"), yarn=yarn), 128)
    scaling = written["rope_scaling"]
    factor = written["max_position_embeddings"] / scaling["original_max_position_embeddings"]
    assert factor == scaling["factor"] == 40.0
    assert to_huggingface(preset("deepseek-v3"), 128)["max_position_embeddings"] == 128


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"mlp": "relu"}, "mlp='relu'"),
        ({"positions": "none", "qk_norm": True}, "positions='none'"),  # SmolLM3 has no qk_norm
    ],
)
def test_a_model_that_no_family_expresses_is_refused_by_its_fields(change, named) -> None:
    with pytest.raises(InputError, match=f"no Hugging Face family.*differs in {named}"):
        family_of(_toy(**change))


FINAL = "model.norm.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: {n: a for n, a in t.items() if n != FINAL}, f"1 of 21 .* missing .{FINAL}"),
        (lambda t: t | {FINAL: np.ones(31, np.float32)}, r"is \[31\], not \[32\]"),
        (lambda t: t | {"other": np.ones(1, np.float32)}, r"1 tensors have no place.*\(other\)"),
        (lambda t: t | {FINAL: np.ones(32, np.int8)}, "neither F32, BF16, F16 .*is I8"),
        (lambda t: {}, r"21 of 21 tensors are missing \(.*, .*, .* and 18 more\)"),
    ],
)
def test_files_of_another_model_are_refused_with_names_and_numbers(
    change, message: str, tmp_path: Path
) -> None:
    config = replace(MODELS["mistral"], n_layers=2)
    export_weights(drawn(config), tmp_path / "out", 24)
    file = tmp_path / "out" / SINGLE
    save_file(change(load_file(file)), file)
    with pytest.raises(InputError, match=message):
        open_weights(tmp_path / "out", config)


def test_a_file_that_is_cut_short_is_refused_with_its_size(tmp_path: Path) -> None:
    config = MODELS["llama"]
    export_weights(drawn(config), tmp_path / "out", 24)
    file = tmp_path / "out" / SINGLE
    whole = file.read_bytes()
    for size in (0, 5, 40, len(whole) - 1):
        file.write_bytes(whole[:size])
        with pytest.raises(InputError, match=rf"\({size:,} bytes\) is no whole safetensors file"):
            open_weights(tmp_path / "out", config)


def test_an_index_that_is_wrong_is_refused(tmp_path: Path) -> None:
    config, folder = MODELS["llama"], tmp_path / "out"
    export_weights(drawn(config), folder, 24, most=8000)
    index = json.loads((folder / INDEX).read_text())
    first = index["weight_map"]["lm_head.weight"]
    index["weight_map"]["lm_tail.weight"] = first
    (folder / INDEX).write_text(json.dumps(index))
    with pytest.raises(InputError, match=f"{first} lacks lm_tail.weight"):
        open_weights(folder, config)
    (folder / first).unlink()
    with pytest.raises(InputError, match=f"{first} is missing"):
        open_weights(folder, config)
    with pytest.raises(InputError, match=f"holds neither {SINGLE} nor {INDEX}"):
        open_weights(tmp_path, config)
    for text in ("[]", '{"weight_map": 3}', '{"weight_map": {"a": 1}}'):
        (folder / INDEX).write_text(text)
        with pytest.raises(InputError, match="has no weight_map"):
            open_weights(folder, config)


def test_an_export_writes_over_nothing_and_needs_room(tmp_path: Path, monkeypatch) -> None:
    params = drawn(MODELS["mistral"])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note").write_text("mine")
    with pytest.raises(InputError, match="full is not empty; choose another --output"):
        export_weights(params, tmp_path / "full", 24)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=7))
    with pytest.raises(InputError, match="bytes are needed, 7 are free"):
        export_weights(params, tmp_path / "new", 24)


@pytest.mark.parametrize(
    "named",
    [
        lambda name: f"language_model.{name}",
        lambda name: name.replace("model.", "model.language_model.", 1),
    ],
    ids=["before release 5", "since"],
)
def test_the_text_model_of_files_with_more_parts_is_read(named, tmp_path: Path, capsys) -> None:
    config = MODELS["mistral"]
    params = drawn(config)
    export_weights(params, tmp_path / "out", 24)
    text = json.loads((tmp_path / "out" / "config.json").read_text())
    whole = {"model_type": "mistral3", "text_config": text, "vision_config": {"depth": 3}}
    tensors = {named(name): array for name, array in contents(tmp_path / "out").items()}
    tensors["vision_tower.patch_conv.weight"] = np.zeros(3, np.float32)
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "config.json").write_text(json.dumps(whole))
    save_file(tensors, tmp_path / "whole" / SINGLE)
    assert read_config(tmp_path / "whole") == config
    again = import_weights(tmp_path / "whole", like(config))
    chex.assert_trees_all_equal(to_dict(params), to_dict(again))
    said = capsys.readouterr().err
    assert "vision_config is left out" in said and "1 tensors beside the text model" in said


def test_numbers_of_four_bits_are_those_of_their_format(tmp_path: Path) -> None:
    """Sign, two bits of exponent with a bias of 1, one of mantissa, times a power of two."""
    random = np.random.default_rng(0)
    blocks = random.integers(256, size=(2, 6, 3, 16)).astype(np.uint8)
    scales = random.integers(120, 134, size=(2, 6, 3)).astype(np.uint8)
    other = {
        "x_blocks": blocks,
        "x_scales": scales[..., :2],
        "y_blocks": blocks,
        "z_scales": scales,
    }
    save_file({"w_blocks": blocks, "w_scales": scales} | other, tmp_path / SINGLE)
    files = WeightFiles(tmp_path)
    assert files.tensors.keys() == {"w", *other}
    assert files.tensors["w"].get_shape() == [2, 96, 6]

    def number(expert: int, column: int, row: int) -> float:
        group, place = divmod(column, 32)
        code = int(blocks[expert, row, group, place // 2]) >> 4 * (place % 2) & 15
        exponent, half = code >> 1 & 3, (code & 1) / 2
        size = 2.0 ** (exponent - 1) * (1 + half) if exponent else half
        return (-1 if code & 8 else 1) * size * 2.0 ** (int(scales[expert, row, group]) - 127)

    whole = np.array([[[number(e, c, r) for r in range(6)] for c in range(96)] for e in range(2)])
    every = (slice(None),) * 3
    np.testing.assert_array_equal(files.read("w", every), whole)
    part = slice(1, 2), slice(37, 70), slice(2, 5)
    np.testing.assert_array_equal(files.read("w", part), whole[part])
