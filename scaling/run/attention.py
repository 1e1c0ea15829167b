"""Whether a run's attention is the fused one that it asks for."""

from scaling.models.attention_kernels.support import lacks_flash
from scaling.run.run import Run


def stored_scores(run: Run, capability: float | None) -> list[str]:
    """Why the trainer's attention stores its scores on an NVIDIA GPU of this compute capability
    (0.0 or None: another device) though the run asks for flash attention; else nothing."""
    reason = lacks_flash(run.model, capability) if capability and run.attention == "flash" else ""
    return [f"attention stores its scores: {reason}"] if reason else []
