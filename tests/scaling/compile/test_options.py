"""Compiler options that the compiler knows, and a compilation cache where it was asked for."""

from pathlib import Path

import jax
import pytest

from scaling.compile.options import compiler_options, use_compilation_cache

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
