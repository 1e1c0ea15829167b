"""The frozen model that a loss compares with (`Loss`): the reference of DPO, a teacher.

It is spread over the mesh by the same rules as the trained one, gathered layer by layer whatever
its ZeRO stage, and runs forward alone: nothing is kept of it, and it has no gradients.
"""

from dataclasses import replace

from scaling.meshes.errors import InputError, reworded
from scaling.models.config import ModelConfig
from scaling.run.recipes import resolve
from scaling.run.run import OURS, Run


def reference_model(run: Run) -> ModelConfig | None:
    """The shape of the model that the loss compares with; None: cross-entropy has none.

    Raises:
        InputError: no such teacher, or one of another vocabulary.
    """
    loss = run.train.loss
    if loss is None or loss.teacher is None:
        return None if loss is None else run.model
    model = loss.teacher_model
    if model is None:
        with reworded("train.loss.teacher: "):
            model = resolve(loss.teacher).model
    if model.vocab_size != run.model.vocab_size:
        raise InputError(
            f"train.loss.teacher {loss.teacher!r} has a vocabulary of {model.vocab_size:,} tokens "
            f"and the model one of {run.model.vocab_size:,}: distillation compares token by token"
        )
    return model


def with_teacher_model(run: Run) -> Run:
    """The run with its teacher's shape written down, if it has a teacher. For errors see above."""
    loss = run.train.loss
    if loss is None or loss.teacher is None:
        return run
    loss = replace(loss, teacher_model=reference_model(run))
    return replace(run, train=replace(run.train, loss=loss))


def reference_run(run: Run) -> Run | None:
    """The run as its reference is used; None where there is none. For errors see above."""
    model = reference_model(run)
    if model is None:
        return None
    if run.software != OURS:
        raise InputError(f"train.loss is the trainer's, and software is {run.software!r}")
    train = replace(
        run.train, loss=None, lora=None, freeze=(), trainable=(), ema=None, groups={}, z_loss=0.0
    )
    sharding = replace(run.sharding, zero_stage=3)
    precision = replace(run.precision, frozen="fp32")
    return replace(
        run, model=model, remat="none", sharding=sharding, train=train, precision=precision
    )


def stores_reference(run: Run) -> bool:
    """True if the reference has parameters of its own: with adapters alone trained,
    DPO compares with the model without them, and nothing is stored."""
    train = run.train
    return train.loss is not None and not (train.pairs and train.lora and not train.trainable)
