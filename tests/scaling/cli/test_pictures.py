"""--plot of every command: the picture is there, and a wrong kind or name is one message."""

import json

import pytest

from tests.scaling.cli.running import check_refused, run

STEP = ("gpt2-124m", "--cluster", "dgx-h100", "--mesh", "data=2,fsdp=4", "--source", "analytic")
RING = ("collective", "all-gather", "--cluster", "dgx-h100", "--nodes", "2")


def test_predict_draws_every_kind_that_is_asked_for(capsys, tmp_path):
    kinds = ("time", "memory", "roofline", "timeline", "mesh")
    words = [f"--plot={kind}={tmp_path / kind}.png" for kind in kinds]
    code, out, err = run(capsys, "predict", *STEP, *words, "--json")
    assert code == 0 and json.loads(out)["devices"] == 8, err
    assert {path.stem for path in tmp_path.glob("*.png")} == set(kinds)


def test_scale_draws_curves_and_prints_both(capsys, tmp_path):
    path = tmp_path / "curves.svg"
    words = [*STEP, "--scale", "1,2", "--plot", f"scaling={path}"]
    code, out, err = run(capsys, "predict", *words)
    assert code == 0 and "strong scaling" in out and "weak scaling" in out, err
    assert "<svg" in path.read_text(encoding="utf-8")


def test_collective_draws_the_ring(capsys, tmp_path):
    words = ["all-gather", "--bytes", "1MiB", "--cluster", "dgx-h100", "--devices", "0,1,2"]
    code, _, err = run(capsys, "collective", *words, "--plot", f"ring={tmp_path / 'ring.svg'}")
    assert code == 0 and (tmp_path / "ring.svg").exists(), err


def test_plan_cluster_and_sharding_draw(capsys, tmp_path):
    where = lambda name: str(tmp_path / f"{name}.svg")
    plan = ("plan", "tiny", "--cluster", "dgx-h100", "--top", "2", "--plot", where("plan"))
    assert run(capsys, *plan)[0] == 0
    assert run(capsys, "cluster", "show", "dgx-h100", "--plot", where("cluster"))[0] == 0
    sharding = ("sharding", "tiny", "--mesh", "fsdp=4", "--plot", where("mesh"))
    assert run(capsys, *sharding)[0] == 0
    assert len(list(tmp_path.glob("*.svg"))) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("predict", *STEP, "--plot", "step.svg"), "write KIND=FILE"),
        (("predict", *STEP, "--plot", "rofline=step.svg"), "roofline"),
        (("predict", *STEP, "--plot", "memory="), "write KIND=FILE"),
        (("predict", *STEP, "--plot", "memory=a.gif"), "end the name with .png"),
        (("predict", *STEP, "--plot", "memory=none/a.svg"), "there is no folder none"),
        (("predict", *STEP, "--plot=memory=a.svg", "--plot=memory=b.svg"), "given twice"),
        (("predict", *STEP, "--plot=memory=a.svg", "--plot=time=a.svg"), "both name a.svg"),
        (("predict", *STEP, "--plot=memory=a.svg", "--plot-memory=b.svg"), "give one"),
        (("predict", *STEP, "--plot", "scaling=a.svg"), "kind"),
        (("predict", *STEP, "--scale", "1,2", "--plot", "memory=a.svg"), "scaling"),
        (("predict", *STEP, "--scale", "1,2", "--nodes", "2"), "--nodes is for one number"),
        (("predict", *STEP, "--scale", "2,1"), "in rising order"),
        (("predict", "runs.jsonl", "--scale", "1,2"), "--scale is for one run"),
        (("predict", "tiny", "--scale", "1,2"), "--scale needs --cluster"),
        (("plan", "tiny", "--cluster", "dgx-h100", "--plot", "a.txt"), "end the name with .png"),
        (("cluster", "list", "--plot", "a.svg"), "write scaling cluster show NAME --plot FILE"),
        (("cluster", "show", "dgx-h100", "--plot", "a"), "end the name with .png"),
        (("cluster", "show", "dgx-h100", "--plot", "none/a.svg"), "a.svg: there is no folder none"),
        (("sharding", "tiny", "--plot", "none/a.svg"), "there is no folder none"),
        (("compare", "runs/none", "--also", "runs/b"), "add --plot FILE"),
        (("compare", "a.json", "b.json", "--plot", "a.svg"), "is for a finished run"),
        ((*RING, "--plot", "ring=a.svg"), "a ring of 2 to 8 is drawn"),
        (("collective", "broadcast", *RING[2:], "--plot", "ring=a.svg"), "all-to-all"),
    ],
)
def test_what_cannot_be_drawn_is_refused(capsys, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    check_refused(run(capsys, *words), message)
    assert not list(tmp_path.iterdir())
