"""The MLP of one layer as limits see it: its weights, its products, and their time on one device.

    D, F       width of the model, of the MLP (of one expert)
    products   2, as the guide counts: D x F and F x D; 3 with the gate of a SwiGLU
    E, k       experts, and those that a token takes; 1 and 1 without experts

The guide asks when such a block hides its communication ("How to Scale Your Model", training.md and
gpus.md, 2026-06): FLOPs and bytes of the weights grow alike with D, F and the number of products,
so that limits on the batch are those of whole layers, but for the scores of attention.
"""

from dataclasses import dataclass

from scaling.meshes.accelerator import Accelerator
from scaling.meshes.shape import MeshShape
from scaling.models.accounting.matrices import BYTES, expert_width
from scaling.profiles.profile import Profile
from scaling.program.ir import CollectiveKind
from scaling.program.ops import matmul
from scaling.run import Run
from scaling.simulate.kernels import kernel_time

PassKind = int  # 1: forward; 2: backward, with twice the FLOPs
UNSHARDED = MeshShape()


@dataclass(frozen=True)
class MlpShape:
    """The MLP of one layer."""

    width: int  # D
    inner: int  # F, of one expert
    products: int = 2
    experts: int = 1  # E
    chosen: int = 1  # k, of a token
    dtype: str = "bf16"  # of the products
    bytes: float = 2.0  # of a number that is gathered or exchanged
    reduce_bytes: float = 2.0  # of a gradient that is summed

    @property
    def weights(self) -> float:
        """Number of weights of the layer's MLP, all experts together."""
        return float(self.products * self.width * self.inner * self.experts)

    def bytes_in(self, kind: CollectiveKind) -> float:
        """Return the bytes of a number that is gathered, or that is summed."""
        return self.bytes if kind == "all-gather" else self.reduce_bytes


def mlp_of(run: Run) -> MlpShape:
    """Return the MLP of a run's model, its experts where it has some, in the run's formats."""
    model, precision, moe = run.model, run.precision, run.model.moe
    sent = BYTES[precision.between]
    return MlpShape(
        width=model.d_model,
        inner=expert_width(model) if moe else model.d_ff,
        products=3 if model.mlp == "swiglu" else 2,
        experts=moe.n_experts if moe else 1,
        chosen=moe.experts_per_token if moe else 1,
        dtype=precision.compute,
        bytes=float(sent),
        reduce_bytes=float(BYTES["fp32"] if precision.reduce == "fp32" else sent),
    )


def math_time(
    mlp: MlpShape,
    rows: float,
    cut: MeshShape,
    chip: Accelerator,
    profile: Profile,
    passes: PassKind = 1,
) -> float:
    """Return the seconds of the products of one layer's MLP on one device.

    Args:
        rows: tokens of its share of the batch; devices along tensor have the same ones, those along
            expert their own, whose products are grouped, of even load.
        cut: axes that cut the weights.
        passes: 1 forward; 2 backward: gradients of what goes in, and of the weights.
    """
    experts, F = max(1.0, mlp.experts / cut.expert), mlp.inner / cut.tensor
    m = rows * mlp.chosen / experts
    up, down = (experts, m, F, mlp.width), (experts, m, mlp.width, F)
    shapes = [(up, mlp.products - 1), (down, 1)]
    if passes > 1:
        shapes = [(down, mlp.products - 1), (up, 1), ((experts, mlp.width, F, m), mlp.products)]
    product = lambda dims: matmul("product", dims, mlp.dtype, grouped=mlp.experts > 1)
    return sum(float(kernel_time(product(d), chip, profile).time) * n for d, n in shapes)
