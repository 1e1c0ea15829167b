"""Profiles: saved and read without loss, strict about keys, honest about where figures are from."""

import json
from dataclasses import asdict, replace

import pytest

from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.profiles.io import (
    differences,
    ideal,
    link_file,
    profile_from,
    profile_of,
    read_profile,
    write_profile,
)
from scaling.profiles.profile import (
    ANY,
    CollectiveFit,
    Evidence,
    attention_fit,
    evidences,
    matmul_fit,
)
from scaling.profiles.samples import CollectiveSample, MatmulSample, Samples
from scaling.profiles.shipped import shipped, shipped_names

HERE = Evidence("a test", "2026-11", "measured", 3, 0.01, 0.02, 0.03, 0.04)


def calibrated():
    """An H100's profile with raw samples and a measured collective added."""
    return replace(
        profile_of(catalog.accelerator("h100-sxm")),
        collectives=(CollectiveFit("all-reduce", 8, 1, 1e-5, 2e11, HERE),),
        samples=Samples(
            matmul=(MatmulSample("bf16", 1, 64, 64, 64, (1e-6, 1.1e-6)),),
            collective=(CollectiveSample("all-reduce", 8, 1, 1e6, (2e-5,)),),
        ),
        versions={"jax": "0.10.2"},
    )


def test_a_profile_survives_the_file(tmp_path):
    path = tmp_path / "profile.json"
    write_profile(calibrated(), path)
    assert read_profile(path) == calibrated()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"matmull": []}, "unknown key 'matmull'; did you mean 'matmul'"),
        ({"memory": {"efficency": 1.0}}, "unknown key 'efficency'; did you mean 'efficiency'"),
        ({"matmul": [{"dtype": "bf16"}]}, r"matmul\[0\]: missing 'efficiency', 'evidence'"),
        ({"version": "one"}, "version: expected int, got 'one'"),
    ],
)
def test_a_wrong_key_or_value_is_named(change, message):
    data = {**asdict(shipped("h100-sxm")), **change}
    with pytest.raises(InputError, match=message):
        profile_from(json.dumps(data), "mine.json")


FRACTION, RATE, AMOUNT = "above 0 and at most 1", "above 0", "at least 0"


def changed(key, value):
    """The calibration with another figure at `matmul.0.efficiency`."""
    data = json.loads(json.dumps(asdict(calibrated())))
    *places, last = (int(part) if part.isdigit() else part for part in key.split("."))
    table = data
    for place in places:
        table = table[place]
    table[last] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("matmul.0.efficiency", -1, FRACTION),
        ("matmul.0.efficiency", 0, FRACTION),
        ("attention.0.executed", 50, "from 0 to 1"),
        ("links.0.efficiency", 1.01, FRACTION),
        ("matmul.0.peak", -1e9, RATE),
        ("vector.flops", 0, RATE),
        ("collectives.0.bandwidth", 0, RATE),
        ("matmul.0.half_sizes", [0, -1, 0], AMOUNT),
        ("links.0.alpha", -1e-6, AMOUNT),
        ("collectives.0.ranks", 0, "at least 1"),
        ("memory.evidence.mean_error", -0.1, AMOUNT),
        ("samples.matmul.0.seconds", [1e-6, -1.0], AMOUNT),
    ],
)
def test_a_figure_that_no_machine_has_is_refused(key, value, words):
    last = key.rpartition(".")[2]
    with pytest.raises(InputError, match=rf"^mine.json: .*{last}(\[\d\])?=.* must be {words}"):
        profile_from(changed(key, value), "mine.json")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "fast", True])
@pytest.mark.parametrize("key", ["matmul.0.efficiency", "vector.flops", "links.0.hop_overhead"])
def test_a_figure_that_is_no_number_is_refused(key, value):
    with pytest.raises(InputError, match=f"{key.rpartition('.')[2]}: expected float, got"):
        profile_from(changed(key, value), "mine.json")


def test_a_file_of_another_format_is_read_if_it_can_be_and_else_says_so():
    assert profile_from(changed("version", 7), "mine.json").version == 7
    data = {**asdict(calibrated()), "version": 7, "news": 1}
    with pytest.raises(InputError, match="unknown key 'news'.*mine.json is of format 7, this is 3"):
        profile_from(json.dumps(data), "mine.json")
    del data["news"], data["version"]
    with pytest.raises(InputError, match="mine.json: missing 'version'"):
        profile_from(json.dumps(data), "mine.json")


def test_a_file_that_is_no_profile_says_so(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        read_profile(tmp_path / "absent.json")
    with pytest.raises(InputError, match="mine.json is not JSON"):
        profile_from("{", "mine.json")


@pytest.mark.parametrize("name", shipped_names())
def test_every_shipped_figure_has_a_source_and_a_date(name):
    profile = shipped(name)
    assert profile.name == profile.machine == name
    assert catalog.accelerator(name).name == name
    for evidence in evidences(profile):
        assert len(evidence.source) > 20
        assert evidence.date[:2] == "20"
        assert evidence.grade != "measured"  # that word is for `scaling calibrate`


def test_fitted_figures_state_their_errors():
    own = [fit for fit in shipped("h100-sxm").attention if fit.evidence.grade == "calibrated"]
    assert {fit.direction for fit in own} == {"forward", "backward", "decode"}
    for fit in own:
        assert 0 < fit.evidence.median_error < 0.15
        assert fit.evidence.median_error < fit.evidence.error_p90


def test_a_chip_borrows_the_passes_and_formats_of_attention_that_it_lacks():
    on = lambda chip, *what: attention_fit(profile_of(catalog.accelerator(chip)), *what)
    assert "on gb200" in on("h100-sxm", "backward", "fp8").evidence.source
    assert "on a100-sxm-80g" in on("l40s", "backward").evidence.source
    assert "on b200-sxm" in on("gb200", "decode").evidence.source
    assert on("a100-sxm-80g", "forward", "bf16", "cudnn").library == "flash-attention-2"
    assert on("b200-sxm", "forward", "bf16", "cudnn").library == "cudnn"


def test_the_grade_is_that_of_the_weakest_figure():
    profile = shipped("h100-sxm")
    assert profile.grade == "datasheet"
    own = lambda fits: tuple(fit for fit in fits if fit.evidence.grade == "calibrated")
    matmul, attention = own(profile.matmul), own(profile.attention)
    vector = replace(profile.vector, evidence=HERE)
    measured = replace(profile, matmul=matmul, attention=attention, grouped=(), vector=vector)
    assert measured.grade == "calibrated"


@pytest.mark.parametrize(
    ("chip", "lends"),
    [
        *(("rtx3090", "l40s"), ("rtx-pro-6000", "l40s"), ("v100-sxm-16g", "a100-")),  # mma.sync
        *(("gb300", "b200-sxm"), ("h200-sxm", "h100-sxm"), ("mi250x-gcd", "h100-sxm")),
    ],
)
def test_a_chip_without_rows_borrows_from_one_whose_matrix_units_work_alike(chip, lends):
    profile = profile_of(catalog.accelerator(chip))
    assert profile.name == profile.machine == chip
    assert profile.grade == "datasheet"
    for fit in profile.matmul:
        assert f"assumed as on {lends}" in fit.evidence.source
    fitted = {fit.evidence for fit in profile.links}
    assert {evidence.grade for evidence in fitted} <= {"calibrated", "datasheet"}


def test_vector_rates_are_lanes_times_clock():
    vector = profile_of(catalog.accelerator("rtx3090")).vector
    assert vector.flops == pytest.approx(82 * 128 * 1.695e9, rel=0.01)
    assert vector.flops / vector.transcendentals == 128 / 16
    ampere = profile_of(catalog.accelerator("a100-sxm-80g")).vector
    assert ampere.flops / ampere.transcendentals == 64 / 16


def test_every_chip_has_links_whose_evidence_is_of_their_own_collectives():
    groups = link_file().inside
    named = [chip for group in groups for chip in group.chips]
    assert len(named) == len(set(named)) and set(named) <= set(catalog.accelerator_names())
    assert [group.chips for group in groups].count(()) == 1
    for fit in (*(fit for group in groups for fit in group.links), *link_file().between):
        known = fit.evidence
        assert 0 < fit.efficiency <= 1 and known.error_p90 > 0 and known.latency_p90 > 0
        if known.grade == "calibrated":
            assert known.samples > 0 and known.measured and "fitted on" in known.source
        else:
            assert known.samples == 0 and known.measured is None and "assumed" in known.source


def test_what_was_never_measured_is_not_called_calibrated():
    """No all-gather was published over EFA, no PAT anywhere, and no other network but these."""
    for fit in link_file().between:
        unknown = fit.algorithm == "pat" or fit.transport == "any"
        unknown |= fit.transport == "efa" and fit.kind == "all-gather"
        # Slingshot has the figures of any transport, and two collectives of one machine
        machine = fit.transport == "any" and fit.algorithm in ("ring", "tree")
        assert not unknown or machine or fit.evidence.grade == "datasheet", fit


def test_a_tpu_has_links_and_a_vector_rate_of_its_own():
    profile = profile_of(catalog.accelerator("tpu-v5p"))
    assert {fit.link for fit in profile.links} == {"ici", "nvlink", "xgmi", "pcie", "network"}
    assert profile.vector.flops == pytest.approx(2 * 4 * 8 * 128 * 1.75e9, rel=0.01)
    assert profile.grade == "datasheet"


def test_a_chip_without_peaks_has_to_be_calibrated():
    with pytest.raises(InputError, match="cpu has no peak rates .* run `scaling calibrate`"):
        profile_of(catalog.accelerator("cpu"))
    with pytest.raises(InputError, match="no profile is called 'h100'; did you mean 'h100-sxm'"):
        shipped("h100")


def test_where_a_calibration_does_not_hold_is_said():
    profile = calibrated()
    assert differences(profile, "h100-sxm", {"jax": "0.10.2", "flax": "0.12"}) == []
    assert differences(replace(profile, version=0), "here", {"jax": "0.11"}) == [
        "the calibration is of format 0, not 3",
        "the calibration was measured on h100-sxm, this is here",
        "the calibration was measured with jax 0.10.2, this is 0.11",
    ]


def test_each_use_of_a_calibration_made_under_load_says_so():
    loaded = replace(calibrated(), other_load=0.45)
    (warning,) = differences(loaded, "h100-sxm", {})
    assert "other processes used 45% of the processor" in warning and "again" in warning


def test_a_dtype_without_a_fit_takes_that_of_any():
    profile = shipped("h100-sxm")
    assert matmul_fit(profile, "fp8").dtype == "fp8"
    assert matmul_fit(profile, "fp16").dtype == ANY
    with pytest.raises(InputError, match="has no matmul in 'tf32'; it has none"):
        matmul_fit(replace(profile, matmul=()), "tf32")


def test_an_ideal_profile_has_no_attention_of_its_own():
    assert attention_fit(ideal(), "forward") is None
    assert attention_fit(shipped("h100-sxm"), "backward").direction == "backward"


def test_an_attention_takes_the_fit_of_its_library_and_format():
    profile = profile_of(catalog.accelerator("gb200"))
    assert attention_fit(profile, "forward", "bf16", "cudnn").library == "cudnn"
    assert attention_fit(profile, "forward", "bf16", "another").library == ANY
    assert attention_fit(profile, "backward", "fp8", "cudnn").dtype == "fp8"
    assert attention_fit(profile, "decode").direction == "decode"
    assert attention_fit(profile, "backward", "fp16").dtype == ANY
    forward = replace(profile, attention=profile.attention[:1])
    assert attention_fit(forward, "decode").direction == "forward"
