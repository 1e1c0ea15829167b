"""The explorer's answers: the numbers of `scaling predict`, and one message for bad input."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from xml.etree import ElementTree

import pytest

import scaling as sc
from scaling.cli.main import main
from scaling.course.explorer.answer import answer
from scaling.course.explorer.programs import programs
from scaling.course.explorer.request import by_key, request_of
from scaling.course.explorer.source_lines import source_line
from scaling.meshes.errors import InputError
from scaling.profiles.io import profile_of
from scaling.program.ir import Origin
from scaling.program.stored import stored_programs

GROUPS = {group["group"]: group for group in programs({})}
FIRST = {name: group["families"][0]["stops"][0]["key"] for name, group in GROUPS.items()}
MANY = FIRST["splits of 64 GPUs"]
KEY = FIRST["remat"]
PACKAGE = Path(sc.__file__).parent


def changes_for(key):
    """A link, and a figure that every cluster has."""
    links = "network" if by_key()[key].nodes > 1 else "nvlink"
    return {"peak": 0.5, **({links: 0.5} if links in stop_of(key)["figures"] else {})}


def stop_of(key):
    stops = (s for g in GROUPS.values() for f in g["families"] for s in f["stops"])
    return next(stop for stop in stops if stop["key"] == key)


def check(key, given):
    """The answer has the numbers of the prediction, and pictures that are pictures."""
    found = answer({"program": key, **given})
    texts = [f"{name} x{factor:g}" for name, factor in given.items()]
    expected = sc.predict(**by_key()[key].arguments).what_if(*texts)
    assert found["step"]["seconds"] == expected.step_time
    assert found["memory"]["peak"] == expected.memory.peak
    assert found["memory"]["fits"] == expected.memory.fits
    assert found["bottleneck"] == expected.bottleneck
    assert len(found["collectives"]) == len(expected.collectives)
    for row, line in zip(found["collectives"], expected.collectives, strict=True):
        assert (row["name"], row["bytes"]) == (f"{line.kind}[{line.axis}]", line.bytes)
    assert bool(found["chosen"]) == bool(expected.collectives)
    for picture in found["pictures"]:
        assert ElementTree.fromstring(picture["svg"]).tag == "svg"
        assert picture["title"] and picture["words"]
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("group", list(FIRST)[::3])
def test_the_first_program_of_a_group_has_the_numbers_of_the_prediction(group):
    """Of every third group; the long tier has all programs."""
    check(FIRST[group], {"peak": 0.5})


@pytest.mark.slow
@pytest.mark.parametrize("stored", stored_programs(), ids=lambda s: f"{s.run} {s.mesh} {s.key}")
def test_every_program_has_the_numbers_of_the_prediction(stored):
    check(stored.key, changes_for(stored.key))


def test_every_stored_program_is_a_stop_of_its_group():
    assert [name for name in GROUPS] == list(dict.fromkeys(s.group for s in stored_programs()))
    stops = [s["key"] for g in GROUPS.values() for f in g["families"] for s in f["stops"]]
    assert sorted(stops) == sorted(stored.key for stored in stored_programs())
    for group in GROUPS.values():
        assert len({family["name"] for family in group["families"]}) == len(group["families"])
        for family in group["families"]:
            labels = [stop["label"] for stop in family["stops"]]
            assert all(labels) and len(set(labels)) == len(labels)


def test_the_command_prints_the_same_step_time(capsys):
    found = answer({"program": KEY, "nvlink": 0.5, "memory_bandwidth": 1.25})
    words = found["command"].replace("'", "").split(" --what-if ")
    options = [w for change in words[1:] for w in ("--what-if", change)]
    assert main([*words[0].split()[1:], *options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step_time"] == found["step"]["seconds"]
    assert found["changes"] == ["nvlink x0.5", "memory_bandwidth x1.25"]


def test_figures_that_are_as_built_change_nothing():
    found = answer({"program": KEY, "network": 1, "nvlink": 1.0, "latency": 1.00001})
    assert not found["changes"] and not found["step"]["change"]
    assert "--what-if" not in found["command"]


def test_slower_links_make_a_slower_step_and_say_by_how_much():
    slow = answer({"program": MANY, "network": 0.25})
    assert slow["step"]["seconds"] > answer({"program": MANY})["step"]["seconds"]
    assert "as built" in slow["step"]["change"]
    names = [picture["name"] for picture in slow["pictures"]]
    assert names == ["split", "streams", "look", "memory", "roofline", "cluster"]


def test_stages_of_a_pipeline_have_a_row_each():
    pictures = {p["name"]: p for p in answer({"program": FIRST["pipelines"]})["pictures"]}
    assert "stage 1" in pictures["stages"]["svg"] and "1f1b" in pictures["stages"]["words"]


def test_a_chosen_collective_says_its_bytes_links_and_line_of_the_model():
    rows = answer({"program": MANY})["collectives"]
    wanted = next(row for row in rows if row["name"] == "all-gather[fsdp]")
    found = answer({"program": MANY, "collective": wanted["id"]})
    chosen, cluster = found["chosen"], found["pictures"][-1]
    assert chosen["id"] == wanted["id"] and wanted["size"] in chosen["bytes"]
    assert wanted["size"] in chosen["arrays"] and "x 2 bytes (bf16)" in chosen["arrays"]
    assert any(level["level"] == "NICs of a node" for level in chosen["levels"])
    assert "NICs of a node: " in cluster["svg"] and "of 64 devices" in cluster["words"]
    file, line = chosen["origins"][0]["line"].split(", line ")
    source = (PACKAGE / file).read_text().splitlines()
    assert source[int(line) - 1].strip() == chosen["origins"][0]["text"]


def test_stages_that_hand_on_to_one_another_have_one_letter():
    """A permute has pairs of devices; four stages of two devices are two chains."""
    stored = next(s for s in stored_programs() if s.mesh == "stage=4,fsdp=2")
    rows = answer({"program": stored.key})["collectives"]
    permute = next(row for row in rows if row["name"] == "permute[stage]")
    found = answer({"program": stored.key, "collective": permute["id"]})
    assert "pairs of devices" in found["chosen"]["groups"]
    drawn = found["pictures"][-1]["svg"]
    assert [drawn.count(f", in group {letter}<") for letter in "ABC"] == [4, 4, 0]
    assert [drawn.count(f">{letter}</text>") for letter in "ABC"] == [4, 4, 0]


def test_an_unknown_collective_leaves_the_longest():
    first = answer({"program": MANY})["collectives"][0]
    assert answer({"program": MANY, "collective": "gone"})["chosen"]["id"] == first["id"]


def test_a_program_that_talks_with_nobody_has_no_collective():
    alone = next(s.key for s in stored_programs() if s.mesh == "data=1")
    assert answer({"program": alone})["chosen"] is None


@pytest.mark.parametrize("as_text", [True, False])
def test_a_calibration_replaces_the_profile(as_text):
    profile = profile_of(sc.load_cluster("dgx-a100").accelerator)
    document = asdict(profile)
    given = json.dumps(document) if as_text else json.loads(json.dumps(document))
    found = answer({"program": KEY, "calibration": given})
    expected = sc.predict(**by_key()[KEY].arguments, calibration=profile)
    assert found["step"]["seconds"] == expected.step_time
    assert found["command"].endswith("--calibration calibration.json")


@pytest.mark.parametrize(("part", "figure"), [("vector", "flops")])
def test_a_calibration_under_which_nothing_ends_is_refused(part, figure):
    document = json.loads(json.dumps(asdict(profile_of(sc.load_cluster("dgx-h100").accelerator))))
    fits = document[part] if isinstance(document[part], list) else [document[part]]
    for fit in fits:
        fit[figure] = 1e-320
    with pytest.raises(InputError, match="the calibration has figures that no machine has"):
        answer({"program": KEY, "calibration": document})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "program=None must be the key of a stored program"),
        ({"program": 3}, "program=3 must be the key"),
        ({"program": ["a"]}, "must be the key"),
        ({"program": "000000000000"}, "no program '000000000000'"),
        ({"program": "x" * 10**6}, "no program 'xxx"),
        ({"program": KEY, "nvlnk": 2}, "unknown key 'nvlnk'; did you mean 'nvlink'"),
        ({"program": KEY, "nvlink": "2"}, "nvlink='2' must be a factor from 0.01 to 100"),
        ({"program": KEY, "nvlink": None}, "nvlink=None must be a factor"),
        ({"program": KEY, "nvlink": True}, "nvlink=True must be a factor"),
        ({"program": KEY, "nvlink": 0}, "nvlink=0 must be a factor"),
        ({"program": KEY, "peak": -1}, "peak=-1 must be a factor"),
        ({"program": KEY, "peak": 1000}, "peak=1000 must be a factor"),
        ({"program": KEY, "peak": math.nan}, "peak=nan must be a factor"),
        ({"program": KEY, "peak": math.inf}, "peak=inf must be a factor"),
        ({"program": KEY, "memory": [1]}, "must be a factor"),
        ({"program": KEY, "look": 2}, "look=2 must be a number from 0 to 1"),
        ({"program": KEY, "look": "end"}, "look='end' must be a number"),
        ({"program": KEY, "collective": 1}, "collective=1 must be the name of a call"),
        ({"program": KEY, "calibration": 7}, "the calibration must be the JSON"),
        ({"program": KEY, "calibration": "no"}, "the calibration"),
        ({"program": KEY, "calibration": {}}, "the calibration: missing"),
        ({"program": KEY, "calibration": {"version": 1, "speed": 2}}, "unknown key 'speed'"),
    ],
)
def test_bad_input_gets_one_message(given, message):
    with pytest.raises(InputError) as error:
        answer(given)
    assert message in str(error.value) and len(str(error.value)) < 4000


def test_a_figure_that_the_cluster_lacks_is_refused():
    key = next(s.key for s in stored_programs() if "nvlink" not in stop_of(s.key)["figures"])
    with pytest.raises(InputError, match="has no such links"):
        answer({"program": key, "nvlink": 2})


def test_programs_takes_nothing():
    with pytest.raises(InputError, match="programs: unknown key 'group'"):
        programs({"group": "remat"})


def test_a_factor_is_one_text_on_the_page_and_in_the_command():
    assert request_of({"program": KEY, "peak": 1 / 3}).changes == ("peak x0.3333",)


@pytest.mark.parametrize(
    ("origin", "stages", "file", "scope"),
    [
        (Origin("forward", "layers/mlp"), False, "models/transformer.py", "mlp"),
        (Origin("backward", "layers/mlp/experts"), False, "models/experts.py", "experts"),
        (Origin("backward", "drain/layers/hand_on"), True, "models/pipeline/loss.py", "hand_on"),
        (Origin("optimizer", ""), False, "training/step.py", "optimizer"),
    ],
)
def test_an_origin_has_the_line_that_opens_its_scope(origin, stages, file, scope):
    line = source_line(origin, stages)
    assert line.file == file and f'named_scope("{scope}")' in line.text
    assert (PACKAGE / file).read_text().splitlines()[line.line - 1].strip() == line.text


def test_an_origin_that_nobody_opens_has_no_line():
    assert source_line(Origin("forward", "elsewhere")) is None and source_line(Origin()) is None
