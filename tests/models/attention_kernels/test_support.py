"""Which heads have a flash kernel on which GPU: the support matrix, row by row."""

import pytest

from scaling.meshes.errors import InputError
from scaling.models.attention_kernels.support import check_cudnn, has_flash
from scaling.models.config import Mla, ModelConfig

PRE_AMPERE, AMPERE, ADA, HOPPER, BLACKWELL, GEFORCE = 7.5, 8.0, 8.9, 9.0, 10.0, 12.0
ALL = {AMPERE, ADA, HOPPER, BLACKWELL, GEFORCE}


def heads(keys: int, values: int) -> ModelConfig:
    """A model with keys and values of these lengths; latent attention where they differ."""
    mla = None if keys == values else Mla(32, 32, keys - 8, 8, values)
    return ModelConfig(64, d_model=64, n_layers=1, n_heads=2, head_dim=values, d_ff=64, mla=mla)


@pytest.mark.parametrize(
    ("keys", "values", "where"),
    [
        (64, 64, ALL),
        (128, 128, ALL),
        (20, 20, set()),  # no multiple of 8
        (136, 136, {HOPPER}),
        (256, 256, {HOPPER}),
        (264, 264, set()),
        (192, 128, {HOPPER, BLACKWELL}),
        (96, 64, {HOPPER, BLACKWELL}),
        (192, 192, {HOPPER}),
        (192, 64, {HOPPER}),
        (128, 192, {HOPPER}),
        (96, 60, set()),
    ],
)
def test_a_head_has_a_kernel_where_the_matrix_has_it(keys, values, where):
    model = heads(keys, values)
    found = {c for c in (0.0, PRE_AMPERE, *ALL) if has_flash(model, c)}
    assert found == where


def test_a_cudnn_without_the_kernel_of_unequal_heads_is_refused_by_name():
    check_cudnn(heads(128, 128), 90800)
    check_cudnn(heads(192, 128), 91002)
    with pytest.raises(InputError, match=r"cuDNN 9\.8\.0 has no attention with keys of 192 and "):
        check_cudnn(heads(192, 128), 90800)
    with pytest.raises(InputError, match=r"begins with 9\.10\.2; install a later nvidia-cudnn"):
        check_cudnn(heads(192, 128), 91001)
