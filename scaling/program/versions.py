"""Versions of packages and settings of jax that decide a compiled program beside its source."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

PACKAGES = (
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "jax-cuda12-pjrt",
    "jax-cuda13-pjrt",
    "nvidia-cudnn-cu12",
    "nvidia-cudnn-cu13",
)
# The devices and the files of jax decide nothing.
FLAGS = "XLA_FLAGS"
TRUTH = {"true": True, "false": False}
NO_SETTINGS = ("JAX_PLATFORMS", "JAX_NUM_CPU_DEVICES", "JAX_COMPILATION_CACHE_DIR")


def compiler_versions() -> dict[str, str]:
    """Versions of the packages that decide the program."""
    return installed_versions(PACKAGES)


def installed_versions(packages: Iterable[str]) -> dict[str, str]:
    """Versions of those of the packages that are installed."""
    from importlib.metadata import PackageNotFoundError, version  # which takes the longest to load

    installed = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            installed[package] = version(package)
    return installed


def compiler_settings() -> dict[str, str]:
    """The environment's settings of jax and XLA, such as JAX_ENABLE_X64."""
    names = sorted(n for n in os.environ if n.startswith("JAX_") or n == FLAGS)
    return {name: os.environ[name] for name in names if name not in NO_SETTINGS}


def xla_flags() -> dict[str, bool | str]:
    """Options in XLA_FLAGS, or in the file that it names: name -> value, as a compile takes it."""
    text = os.environ.get(FLAGS, "").strip()
    if text and not text.startswith("-"):
        try:
            text = Path(text).read_text(encoding="utf-8")
        except (OSError, ValueError):  # XLA has no flags then either
            text = ""
    return dict(xla_option(word[2:]) for word in text.split() if word.startswith("--"))


def xla_option(text: str) -> tuple[str, bool | str]:
    """Name and value of NAME=VALUE, true for NAME alone; XLA reads numbers from their texts."""
    name, equals, value = text.partition("=")
    return name, TRUTH.get(value.lower(), value) if equals else True
