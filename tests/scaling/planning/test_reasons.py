"""Why configurations lose, in words."""

from scaling.planning.reasons import merged


def test_reasons_that_are_alike_are_one_line():
    refusal = lambda size: (
        f"model.n_heads=8 is not divisible by tensor={size}; use tensor of 1, 2, or model.n_heads "
        f"of {size}"
    )
    found = merged({refusal(16): 3, refusal(32): 2, "does not fit": 9, "a=3 is odd": 1})
    assert found == {
        "model.n_heads=8 is not divisible by tensor=16, 32; use tensor of 1, 2": 5,
        "does not fit": 9,
        "a=3 is odd": 1,
    }
    assert merged({refusal(16): 3}) == {refusal(16): 3}
