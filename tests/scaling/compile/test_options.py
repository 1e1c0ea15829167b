"""Compiler options that the compiler knows, and a compilation cache where it was asked for."""

from pathlib import Path

import jax
import pytest

import scaling as sc
from scaling.compile.jitted import mesh
from scaling.compile.lower import lower
from scaling.compile.options import (
    GPU_OPTIONS,
    WITHOUT_DEVICE,
    compiler_options,
    use_compilation_cache,
)
from scaling.program.versions import xla_flags

SCHEDULER = "xla_gpu_enable_latency_hiding_scheduler"
CACHE = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")


@pytest.fixture
def jax_settings():
    """Restores jax's cache settings, so that no other test compiles into a folder that is gone."""
    before = {name: getattr(jax.config, name) for name in CACHE}
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.parametrize("platform", ["gpu", "cuda", "cpu", "tpu"])
def test_the_compiler_knows_every_option(platform):
    """XLA refuses unknown names on any platform, so a misspelt GPU option shows on the CPU."""
    lowered = jax.jit(lambda x: x + 1).lower(1.0)
    assert lowered.compile(compiler_options=compiler_options(platform))(1.0) == 2.0


def test_the_compiler_would_refuse_a_misspelt_option():
    lowered = jax.jit(lambda x: x + 1).lower(1.0)
    with pytest.raises(jax.errors.JaxRuntimeError, match="xla_gpu_enable_latency_hidin"):
        lowered.compile(compiler_options={"xla_gpu_enable_latency_hidin": True})


def test_gpus_hide_latency_by_either_of_their_names():
    assert compiler_options("gpu") == compiler_options("cuda")
    assert compiler_options("gpu")["xla_gpu_enable_latency_hiding_scheduler"] is True
    assert compiler_options("cpu") == compiler_options("tpu") == {}


def test_changing_the_options_of_one_compile_changes_no_other():
    compiler_options("gpu").clear()
    assert compiler_options("gpu")


@pytest.mark.parametrize(
    "text, flags",
    [
        ("", {}),
        (" --a=True  --b=false --c --d=3 other", {"a": True, "b": False, "c": True, "d": "3"}),
        ("--list=x,y --empty= --map=k=v", {"list": "x,y", "empty": "", "map": "k=v"}),
        ("FILE", {"in_the_file": "1.5"}),
        ("no such file", {}),
    ],
)
def test_flags_of_the_environment_are_read_as_xla_reads_them(text, flags, tmp_path, monkeypatch):
    (tmp_path / "flags").write_text("--in_the_file=1.5\n")
    monkeypatch.setenv("XLA_FLAGS", text.replace("FILE", str(tmp_path / "flags")))
    assert xla_flags() == flags


def test_what_the_environment_sets_is_none_of_ours(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", f"--{SCHEDULER}=false")
    assert compiler_options("gpu") == {k: v for k, v in GPU_OPTIONS.items() if k != SCHEDULER}
    assert compiler_options("gpu", xla={SCHEDULER: True})[SCHEDULER] is True


@pytest.mark.deviceless
@pytest.mark.parametrize("places", [(), ("flags",), ("flags", "jit"), ("flags", "jit", "call")])
def test_options_of_the_user_go_before_ours_in_the_order_of_their_nearness(places, monkeypatch):
    given = {place: {SCHEDULER: False, "xla_gpu_graph_min_graph_size": place} for place in places}
    flags = given.get("flags", {}).items()
    monkeypatch.setenv("XLA_FLAGS", " ".join(f"--{k}={v}" for k, v in flags))
    step = jax.jit(lambda x: x + 1, compiler_options=given.get("jit"))
    cluster = sc.load_cluster("dgx-h100")
    made = lower(step, (1.0,), mesh({"d": 1}, cluster), given.get("call"))
    nearest = given[places[-1]] if places else {}
    assert made.options == {**GPU_OPTIONS, **nearest, **WITHOUT_DEVICE}
    ours = {k: v for k, v in GPU_OPTIONS.items() if not places or k != SCHEDULER}
    assert made.added == {**ours, **WITHOUT_DEVICE}


def test_the_cache_is_where_it_was_asked_for(tmp_path, jax_settings):
    folder = use_compilation_cache(tmp_path / "deep" / "cache")
    assert folder == tmp_path / "deep" / "cache" and folder.is_dir()
    assert jax.config.jax_compilation_cache_dir == str(folder)
    assert use_compilation_cache(folder) == folder


def test_each_version_of_jax_has_a_cache_of_its_own(tmp_path, monkeypatch, jax_settings):
    monkeypatch.setenv("SCALING_CACHE", str(tmp_path))
    assert use_compilation_cache() == tmp_path / f"xla-jax-{jax.__version__}"


@pytest.mark.parametrize("given", [None, ""])
def test_by_default_the_cache_is_in_the_home_folder(given, tmp_path, monkeypatch, jax_settings):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.delenv("SCALING_CACHE", raising=False)
    if given is not None:
        monkeypatch.setenv("SCALING_CACHE", given)
    assert use_compilation_cache().parent == tmp_path / ".cache" / "scaling"
