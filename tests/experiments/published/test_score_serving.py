"""`serve` beside measured serving."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.published import score_serving as scored
from experiments.published.csv_rows import rows_of
from scaling.models.accounting import count_parameters
from scaling.profiles.power import power_file
from scaling.questions.serving.decode import decode_step
from scaling.questions.serving.engine import engine_of
from scaling.questions.serving.traffic import ServedRequest, request_answers, throughput

SHIPPED = np.array(
    [
        *(getattr(engine_of("vllm").overheads, name) for name in scored.CONSTANTS[:-1]),
        engine_of("vllm").large_tiles,
        *(getattr(power_file().board, name) for name in scored.POWERS),
    ]
)


def test_every_row_is_scored_or_has_a_reason():
    rows = rows_of(scored.TABLE)
    assert len(scored.measured()) == sum(not scored.missing(row) for row in rows) > len(rows) / 2
    assert {one.model for one in scored.measured()} == set(scored.shapes())


@pytest.mark.parametrize("model", sorted(scored.shapes()))
def test_a_described_model_has_the_parameters_that_the_table_says(model):
    """Parameters are the language model's: an encoder of images, and biases, are not in it."""
    row = next(row for row in rows_of(scored.TABLE) if row["model"] == model)
    config, _ = scored.shape_of(model)
    count = count_parameters(config)
    assert count.total / 1e9 == pytest.approx(float(row["total_params_B"]), rel=0.07)
    assert count.active / 1e9 == pytest.approx(float(row["active_params_B"]), rel=0.12)


def test_the_fit_prices_as_serve_does():
    """Where the benchmark repeats no request."""
    rng = np.random.default_rng(0)
    predictions = scored.predicted(SHIPPED)
    rows = scored.measured()
    new = [i for i, one in enumerate(rows) if one.prompts == one.case.batch / one.generate]
    for i in rng.choice(new, 12, replace=False):
        one = scored.measured()[i]
        step = decode_step(one.case)
        asked = ServedRequest(scored.PROMPTS[one.task], one.generate)
        step = replace(
            step, parts=(*request_answers(one.case, step, asked), *throughput(one.case, step))
        )
        names = (
            "tokens/s with prompts mixed in",
            "median time between tokens",
            "energy of a token with prompts mixed in",
        )
        told = [float(step[name]) for name in names]
        measured = (one.tokens, one.between, one.joules)
        assert told == pytest.approx(predictions[:, i] * measured, rel=1e-6)


def test_left_out_models_are_nearer_than_the_roofline_and_mostly_in_range():
    error, naive = np.abs(scored.left_out() - 1), np.abs(scored.roofline() - 1)
    assert (np.median(error, axis=1) < scored.GOAL).all()
    assert (np.median(error, axis=1) < np.median(naive, axis=1) / 2).all()
    assert (scored.inside().mean(axis=1) > 0.8).all()


def test_shipped_constants_are_those_of_the_fit():
    """As written then: kernels that are refitted move them until `--write` is run again."""
    every = np.ones(len(scored.measured()), bool)
    steps = (scored.steps(c[:-4], scored.features())[1] for c in (SHIPPED, scored.fitted(every)))
    shipped, fitted = steps
    assert np.median(np.abs(shipped / fitted - 1)) < 0.1
