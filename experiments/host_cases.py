"""The runs whose steps `experiments.host_check` predicts and measures: varied in every way."""

from dataclasses import dataclass

from scaling.meshes.shape import MeshShape
from scaling.models.accounting.remat import Remat
from scaling.models.config import ModelConfig
from scaling.run import Batch, Precision, Run, Train

DEVICES = 8


@dataclass(frozen=True)
class Case:
    """A run, in the words of the table."""

    width: int
    layers: int
    sequences: int
    length: int
    mesh: MeshShape
    remat: Remat = "none"
    microbatches: int = 1
    vocabulary: int = 2048

    @property
    def name(self) -> str:
        """`4 x 256, 16 x 128 tokens, fsdp=8, remat full`."""
        extras = [f"remat {self.remat}"] if self.remat != "none" else []
        extras += [f"{self.microbatches} microbatches"] if self.microbatches > 1 else []
        size = f"{self.layers} x {self.width}, {self.sequences} x {self.length} tokens"
        return ", ".join([size, str(self.mesh), *extras])

    @property
    def run(self) -> Run:
        """The runs that are trained."""
        model = ModelConfig(
            vocab_size=self.vocabulary,
            d_model=self.width,
            n_layers=self.layers,
            n_heads=8,
            n_kv_heads=8,
            d_ff=4 * self.width,
            mlp="swiglu",
            norm="rmsnorm",
            positions="rope",
        )
        return Run(
            name=self.name,
            model=model,
            batch=Batch(self.sequences, self.length, self.microbatches),
            mesh=self.mesh,
            precision=Precision(compute="fp32"),
            remat=self.remat,
            train=Train(steps=1),
        )


CASES = (
    Case(256, 4, 16, 64, MeshShape(data=8)),
    Case(256, 4, 16, 64, MeshShape(fsdp=8)),
    Case(256, 6, 8, 128, MeshShape(data=2, fsdp=4)),
    Case(256, 4, 16, 128, MeshShape(fsdp=2, tensor=4), "full"),
    Case(320, 4, 16, 64, MeshShape(data=4, tensor=2)),
    Case(384, 4, 8, 128, MeshShape(data=2, fsdp=2, tensor=2)),
    Case(384, 3, 16, 64, MeshShape(fsdp=8), "selective"),
    Case(384, 3, 32, 32, MeshShape(data=8), microbatches=2),
    Case(512, 2, 16, 64, MeshShape(fsdp=4, tensor=2)),
    Case(512, 3, 8, 64, MeshShape(tensor=8)),
    Case(512, 2, 8, 128, MeshShape(data=4, fsdp=2), "full"),
    Case(640, 2, 16, 32, MeshShape(data=2, tensor=4)),
    Case(768, 2, 8, 64, MeshShape(fsdp=8), vocabulary=4096),
    Case(192, 8, 16, 64, MeshShape(data=2, fsdp=2, tensor=2), "selective", vocabulary=512),
)
