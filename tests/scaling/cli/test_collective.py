"""`scaling collective` from the command line."""

import json
import subprocess
import sys
from importlib.resources import files

import numpy as np
import pytest

from scaling.api import calibrate
from scaling.collectives.cost import collective_time
from scaling.meshes import catalog
from scaling.profiles.calibrations import profile_for
from tests.scaling.cli.running import run

COMMON = ["collective", "all-reduce", "--cluster", "dgx-h100"]


def test_one_size_is_one_document(capsys):
    code, out, err = run(capsys, *COMMON, "--bytes", "1GiB", "--json")
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert (document["kind"], document["bytes"], document["ranks"]) == ("all-reduce", 2**30, 8)


@pytest.mark.parametrize(
    ("words", "count"), [(("--bytes", "65536,1MiB,1GiB"), 3), (("--sweep", "1KiB:8KiB"), 4)]
)
def test_several_sizes_are_a_list(capsys, words, count):
    code, out, _ = run(capsys, *COMMON, *words, "--json")
    documents = json.loads(out)
    assert code == 0 and len(documents) == count
    assert [d["bytes"] for d in documents] == sorted(d["bytes"] for d in documents)


def test_the_table_reads_like_that_of_nccl_tests(capsys):
    code, out, _ = run(capsys, *COMMON, "--sweep", "1MiB:4MiB", "--nodes", "2", "--dtype", "bf16")
    lines = out.splitlines()
    assert code == 0
    assert lines[0] == "all-reduce bf16, 16 ranks on 2 x dgx-h100, calibrated figures"
    assert "algbw GB/s" in lines[1] and "busbw GB/s" in lines[1]
    assert [line.split("  ")[0].strip() for line in lines[2:5]] == ["1 MiB", "2 MiB", "4 MiB"]
    assert lines[5].startswith("bottleneck: ")


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_call_takes_as_long_as_in_a_prediction(capsys, nodes):
    cluster = catalog.load("dgx-h100", nodes)
    profile, _ = profile_for(cluster)
    groups = np.arange(cluster.devices)[None]
    expected = collective_time("all-reduce", 2**30, groups, cluster, profile).time
    words = (*COMMON, "--nodes", str(nodes), "--json")
    assert json.loads(run(capsys, *words)[1])["time"] == expected


def test_overrides_and_axes_reach_the_price(capsys):
    slow = ("--nodes", "2", "--override", "node_network_bandwidth=100e9", "--json")
    mesh = ("--mesh", "data=2,tensor=8", "--axis", "data")
    code, out, _ = run(capsys, *COMMON, *slow, *mesh)
    document = json.loads(out)
    assert (code, document["groups"], document["ranks"]) == (0, 8, 2)
    assert document["lower_bound"] >= 8 * 2**30 / 100e9


A2A = ["collective", "all-to-all", "--cluster", "dgx-h100"]


def test_a_skew_is_priced_and_named_where_it_is_given(capsys):
    dense, skewed = (
        json.loads(run(capsys, *A2A, "--ideal", "--json", *words)[1])
        for words in ((), ("--skew", "1.5"))
    )
    assert skewed.pop("skew") == 1.5 and "skew" not in dense
    assert skewed["time"] == pytest.approx(1.5 * dense["time"])
    assert skewed.keys() == dense.keys()
    _, out, _ = run(capsys, *A2A, "--skew", "1.5")
    assert out.startswith("all-to-all with skew 1.5, 8 ranks on dgx-h100")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*COMMON, "--skew", "1.5"), "skew 1.5 is for all-to-all"),
        ((*A2A, "--skew", "9"), "skew 9: the busiest of 8 members receives from 1"),
    ],
)
def test_a_skew_that_cannot_be_ends_with_2_and_the_reason(capsys, words, message):
    code, out, err = run(capsys, *words, "--json")
    assert code == 2 and message in err and len(err.strip().splitlines()) == 1
    assert message in json.loads(out)["error"]


def test_the_picture_is_written(capsys, tmp_path):
    path = tmp_path / "picture.png"
    assert run(capsys, *COMMON, "--sweep", "1MiB:1GiB", "--plot", str(path))[0] == 0
    assert path.stat().st_size > 5000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--bytes", "1GiB", "--sweep", "1KiB:1MiB"), "give one of them"),
        (("--bytes", "1Gb"), "small b means bits"),
        (("--algorithm", "pat"), "pat does not do all-reduce"),
        (("--nodes", "2", "--algorithm", "nvls"), "nvls stays inside one NVLink domain"),
        (("--mesh", "data=16"), "needs 16 devices"),
        (("--axis", "data"), "needs --mesh"),
        (("--device-order", "tensor,data"), "orders the axes of a mesh: add --mesh"),
        (("--bytes", ""), "'' is not a size"),
        (("--plot", "picture.odd"), "end the name with .png"),
    ],
)
def test_bad_input_ends_with_2_and_one_message(capsys, words, message):
    code, out, err = run(capsys, *COMMON, *words, "--json")
    assert code == 2 and message in err and len(err.strip().splitlines()) == 1
    assert json.loads(out)["name"] == "all-reduce" and message in json.loads(out)["error"]


def test_doubtful_figures_of_a_users_file_and_of_overrides_are_warned_of(capsys, tmp_path):
    shipped = files("scaling.meshes.catalog").joinpath("clusters", "dgx-h100.toml")
    text = shipped.read_text(encoding="utf-8")
    assert "value = 50e9" in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace("value = 50e9", "value = 400e9"), encoding="utf-8")
    override = ("--nodes", "2", "--override", "node_network_bandwidth=400", "--json")
    code, out, err = run(capsys, *COMMON[:2], "--cluster", str(path), *override)
    assert code == 0 and json.loads(out)["ranks"] == 16
    assert "400 GB/s per link looks like bits; write 5e+10" in err
    assert "looks like GB/s; write 400e9" in err
    assert all(line.startswith("warning: ") for line in err.splitlines())


def test_the_choice_is_in_the_document(capsys):
    _, out, _ = run(capsys, *COMMON, "--bytes", "4MiB", "--json")
    document = json.loads(out)
    choice = document["choice"]
    assert choice["by"] == "fastest" and choice["nccl"]["version"] == "2.30.7"
    assert choice["nccl"]["algorithm"] == "nvls"
    assert choice["alternatives"][0]["time"] > document["time"]
    _, out, _ = run(capsys, *COMMON, "--bytes", "1GiB")
    chosen, nccl = out.splitlines()[-2:]
    assert chosen.startswith("selected: nvls, fastest of 2 by fitted time (ring ")
    assert nccl.startswith("NCCL 2.30.7 itself would take nvls Simple by its own table (est. ")


def test_where_there_is_no_nccl_nothing_is_said_of_it(capsys):
    words = ("collective", "all-reduce", "--cluster", "mi300x-8")
    assert "NCCL" not in run(capsys, *words)[1]
    assert "nccl" not in run(capsys, *words, "--json")[1]


def test_neither_jax_nor_scipy_nor_networkx_is_loaded():
    commands = (
        "all-reduce --cluster dgx-h100",
        "all-to-all --cluster tpu-v5e --skew 1.5 --json",
        "all-gather --cluster dgx-h100 --nodes 2 --mesh data=2 --ideal",
    )
    check = (
        "import sys; from scaling.cli.main import main; "
        f"codes = [main(['collective', *words.split()]) for words in {commands!r}]; "
        "heavy = {'jax', 'scipy', 'networkx', 'matplotlib'} & set(sys.modules); "
        "assert not any(codes) and not heavy, (codes, heavy)"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_machine_that_was_never_measured_is_measured_first_but_not_for_bad_input(
    capsys, monkeypatch
):
    asked = []
    monkeypatch.setattr(calibrate, "host_calibration", lambda devices: None)
    monkeypatch.setattr(calibrate, "calibrate_in_subprocess", asked.append)
    here = ("collective", "all-reduce", "--cluster", "host", "--override", "gpus_per_node=3")
    code, _, err = run(capsys, *here, "--algorithm", "rign")
    assert code == 2 and "did you mean 'ring'" in err and not asked
    code, _, err = run(capsys, *here)
    assert asked == [3] and "this machine is measured first, quickly, with 3 devices" in err
    assert code == 2 and "scaling calibrate" in err  # which was only pretended here


def price(capsys, *words):
    """The JSON of one collective."""
    return json.loads(run(capsys, "collective", *words, "--json")[1])


PAIRS = ("all-reduce", "--cluster", "rtx3090-10-nvlink", "--bytes", "1GB")
EIGHT = ("--cluster", "dgx-h100", "--bytes", "1GB", "--ideal")


def test_groups_of_listed_devices(capsys):
    one = price(capsys, *PAIRS, "--devices", "0,1")
    two = price(capsys, *PAIRS, "--devices", "0,1:2,3")
    far = price(capsys, *PAIRS, "--devices", "1,2")
    assert (one["ranks"], one["groups"], two["groups"]) == (2, 1, 2)
    assert one["time"] == two["time"] < far["time"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--devices", "0,99"), "none of the 10 devices"),
        (("--devices", "0,0"), "device 0 is there twice"),
        (("--devices", "0,1:2"), "groups of 2, 1 devices"),
        (("--devices", "0,1", "--mesh", "data=2"), "leave --mesh and --axis out"),
        (("--devices", "a"), "none of the 10 devices"),
        (("--active", "2"), "is for all-to-all"),
        (("--random",), "add --active"),
        (("--hops",), "add --ideal"),
    ],
)
def test_options_that_do_not_go_together(capsys, words, says):
    code, _, errors = run(capsys, "collective", *PAIRS, *words)
    assert code == 2 and says in errors


@pytest.mark.parametrize(
    ("words", "part"),
    [(("4",), 0.5), (("100",), 1), (("4", "--random"), 1 - (7 / 8) ** 4)],
)
def test_an_all_to_all_to_some_destinations(capsys, words, part):
    dense = price(capsys, "all-to-all", *EIGHT)
    some = price(capsys, "all-to-all", *EIGHT, "--active", *words)
    assert some["bytes"] == dense["bytes"] and "sent" not in dense
    assert some["time"] == pytest.approx(part * dense["time"], rel=1e-6)
    assert some["bus_bandwidth"] == pytest.approx(dense["bus_bandwidth"])


def test_the_textbook_has_no_range_and_lets_switches_add_on_request(capsys):
    found = price(capsys, "all-reduce", *EIGHT)
    assert found["algorithm"] == "ring"  # gpus.md: 2 V / W
    ring = 2 * 7 / 8 * 1e9 / 450e9
    assert found["time"] == found["time_low"] == found["time_high"] == pytest.approx(ring)
    assert " from " not in run(capsys, "collective", "all-reduce", *EIGHT)[1]
    added = price(capsys, "all-reduce", *EIGHT, "--algorithm", "nvls")
    assert added["time"] == pytest.approx(2.5e-3)


def test_hops_bind_small_messages_in_the_textbook(capsys):
    """sharding.md, pop quiz 2: three hops of 1 us on a line of four TPU v5e."""
    words = "all-gather --bytes 131072 --cluster tpu-v5e --nodes 4 --ideal --hops".split()
    mesh = ("--mesh", "data=4,fsdp=8", "--axis", "data")
    assert price(capsys, *words, *mesh)["time"] == pytest.approx(3e-6)


def test_the_rates_of_the_levels_by_themselves(capsys):
    """gpus.md, collectives between nodes: 514 GB/s in a node, 17.1 TB/s above a unit.

    The nodes' NICs at 403 and not 413: a node lacks 127/128 of the array, not 31/32.
    """
    found = price(capsys, "all-gather", *EIGHT, "--nodes", "128")
    rates = {each["level"]: found["bytes"] / each["time"] / 1e9 for each in found["levels"]}
    assert rates["NVLink of a chip"] == pytest.approx(514.3, abs=0.1)
    assert rates["NICs of a node"] == pytest.approx(400 * 128 / 127)
    assert rates["uplinks of a leaf group"] == pytest.approx(17067, abs=1)


def test_bytes_of_switches_in_the_table(capsys):
    printed = run(capsys, "collective", "all-gather", *EIGHT, "--nodes", "4", "--switches")[1]
    assert [line.split()[:2] for line in printed.splitlines()[-2:]] == [
        ["node", "4"],
        ["leaf", "1"],
    ]


def test_devices_of_a_cluster_that_numbers_them_otherwise_are_named_by_the_hosts_numbers(capsys):
    bridged = catalog.load("rtx3090-10-nvlink")
    numbers = bridged.machine_numbers
    pairs = next(link.pairs for link in bridged.links if link.kind == "nvlink")
    own = {tuple(numbers[i] for i in pair) for pair in pairs}
    assert own == {(1, 2), (3, 4), (6, 7), (8, 9)}, "the pairs of the report"
    _, printed, _ = run(capsys, "collective", *PAIRS, "--devices", "0,1")
    assert "devices 0 to 9 are the host's 1 2 3 4 0 6 7 8 9 5" in printed
