"""The pool of a program that is not ours: as given, as the environment says, else XLA's default."""

import inspect

import pytest

import scaling as sc
from scaling.meshes.errors import InputError
from scaling.meshes.memory_pool import VARIABLES, XLA_DEFAULT, xla_pool

NEW, OLD = VARIABLES
SIZE = 17_500_000_000  # of fp32: 70 GB
TEXT = f"""HloModule step, is_scheduled=true, num_partitions=8
ENTRY %main (x: f32[{SIZE}]) -> f32[] {{
  %x = f32[{SIZE}]{{0}} parameter(0)
  ROOT %zero = f32[] constant(0)
}}"""


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def priced(**options):
    return sc.predict_hlo(TEXT, cluster="dgx-h100", **options)


def test_a_program_of_70_gb_does_not_fit_in_the_pool_that_jax_makes_by_default():
    found = priced()
    assert found.memory.capacity == pytest.approx(0.75 * 84.9e9, rel=1e-3)
    assert found.memory.fits is False
    why = "0.75 of the 84.9 GB that the driver reports, XLA's default share for its pool"
    assert found.capacity_source.startswith(why) and why in str(found)
    assert found.to_dict()["capacity_source"] == found.capacity_source
    assert found.what_if("network x2").memory.fits is False
    assert found.memory.in_use == pytest.approx(0.75 * 84.9e9 + 1.06e9, rel=1e-3)


@pytest.mark.parametrize("name", VARIABLES)
def test_the_environment_counts_when_the_price_is_made(monkeypatch, name):
    monkeypatch.setenv(name, ".9")
    found = priced()
    assert found.memory.fits and f"that {name} of this environment sets" in found.capacity_source


def test_what_is_given_comes_before_the_environment(monkeypatch):
    monkeypatch.setenv(NEW, "0.5")
    found = priced(memory_fraction=0.92)
    assert found.memory.fits and found.capacity_source.startswith("0.92 of the 84.9 GB")
    assert found.what_if("network x2").capacity_source == found.capacity_source


def test_our_own_step_has_the_share_that_the_trainer_sets(monkeypatch):
    monkeypatch.setenv(NEW, "0.5")
    sizes = {"batch.global_batch": 64}
    found = sc.predict("gpt2-124m", cluster="dgx-h100", set=sizes, source="analytic")
    assert found.capacity_source.startswith("0.92 of the 84.9 GB")


@pytest.mark.parametrize("share", [0, -0.1, 1.5, float("nan")])
def test_what_is_no_share_is_refused(share):
    with pytest.raises(InputError, match="memory_fraction=.* above 0 and at most 1"):
        priced(memory_fraction=share)
    with pytest.raises(InputError, match=f"{OLD}=.* must be a share"):
        xla_pool(env={OLD: str(share)})


def test_words_and_two_variables_are_refused_and_empty_ones_are_not_set():
    with pytest.raises(InputError, match=f"{NEW}=most must be a share"):
        xla_pool(env={NEW: "most"})
    with pytest.raises(InputError, match=f"{NEW} and {OLD} are both set"):
        xla_pool(env={NEW: "0.9", OLD: "0.9"})
    assert xla_pool(env={NEW: "", OLD: ""}) == XLA_DEFAULT


def test_the_installed_jax_reads_these_variables():
    """generate_pjrt_gpu_plugin_options of jaxlib, the options that it hands to XLA."""
    from jaxlib import xla_client

    text = inspect.getsource(xla_client)
    assert all(name in text for name in VARIABLES)
