"""Runs of equal values in arrays of labels, and classes of equal columns.

labels   0 0 0 1 1 4 4 4    three runs; in one pass, without sorting
"""

import numpy as np


def column_classes(traits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The number of each column's class of equal columns, and an example of each class.

    `traits` is int [traits, columns].
    """
    if traits.shape[1] == 0 or bool((traits == traits[:, :1]).all()):
        return np.zeros(traits.shape[1], int), np.arange(min(1, traits.shape[1]))
    order = np.lexsort(traits)
    new = run_starts(*traits[:, order])
    number = np.empty(len(order), int)
    number[order] = np.cumsum(new) - 1
    return number, order[new]


def run_starts(*labels: np.ndarray) -> np.ndarray:
    """True where any of the labels differs from the one before it, and at the first."""
    new = np.ones(len(labels[0]), bool)
    np.not_equal(labels[0][1:], labels[0][:-1], out=new[1:])
    for other in labels[1:]:
        new[1:] |= other[1:] != other[:-1]
    return new


def run_lengths(starts: np.ndarray, size: int) -> np.ndarray:
    """Lengths of runs that begin at `starts` and cover `size` places."""
    return np.diff(starts, append=size)


def run_sums(values: np.ndarray, new: np.ndarray) -> np.ndarray:
    """The sum over the run that each value belongs to; runs begin where `new` is True."""
    starts = np.flatnonzero(new)
    return np.repeat(np.add.reduceat(values, starts), run_lengths(starts, len(values)))


def counted(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct values, and how often each stands there; sorted only where they decrease.

    `np.unique` sorts in any case, which takes ten times as long for millions of devices.
    """
    if values.size == 0 or bool((values[1:] < values[:-1]).any()):
        return np.unique(values, return_counts=True)
    starts = np.flatnonzero(run_starts(values))
    return values[starts], run_lengths(starts, values.size)
