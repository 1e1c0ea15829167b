"""Public recipes, as they are stored and as the page says them."""

from dataclasses import replace
from pathlib import Path

import scaling as sc
from experiments.published.audit import TABLED, Audited, errors, findings, key, page, recipes, table
from scaling.run import read_run

ROOT = Path(__file__).parents[3]


def test_every_recipe_is_a_run_with_its_source():
    rows = recipes()
    assert len({row["id"] for row in rows}) == len(rows) >= 40
    for row in rows:
        run = read_run(row["run"])
        place = sc.load_cluster(run.cluster.name, run.cluster.nodes)
        assert " @ " in row["reference"] and row["source"] and run.mesh
        gpus = run.cluster.overrides.get("gpus_per_node", place.devices_per_node)
        assert run.mesh.devices == gpus * run.cluster.nodes
        assert run.batch.global_batch % (run.batch.microbatches * run.mesh.batch_shards) == 0


def test_the_table_has_every_recipe():
    lines = (ROOT / TABLED).read_text().splitlines()
    assert len([line for line in lines if line.startswith("| ")]) - 1 == len(recipes())


def test_what_does_not_fit_and_what_is_slow_is_said():
    recipe = next(row for row in recipes() if row["source"] == "torchtitan")
    run = read_run(recipe["run"])
    priced = sc.predict(run, source="analytic")
    plan = sc.plan(recipe["run"], top=1).best
    assert plan is not None
    slow = replace(priced, step_time=2 * plan.step_time)
    lacking = replace(priced, memory=replace(priced.memory, capacity=1e9, fits=False))
    rows = [Audited(recipe, run, p, plan, None, p.step_time / 1.1) for p in (slow, lacking)]
    assert rows[0].saved == 0.5 and rows[1].saved is None
    told = "\n".join(findings(rows))
    assert "Does not fit by the model: 1 of 2" in told and "it was run by its authors" in told
    assert "more than 20% on the table: 1 of 1 that fit" in told and "50% less" in told
    assert "median +10%" in errors(rows) and "1 said not to fit" in errors(rows)
    assert table(rows).count("\n| ") == 2 + 1 and told in page(rows)
    assert key(run) == key(read_run(recipe["run"]))
