"""Whether stated confidence is deserved."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

BIN = 100  # answers


def calibration_error(confidence: Sequence[float], correct: Sequence[bool]) -> float:
    """Root mean square of (mean confidence - accuracy) over bins of answers, weighted by their size; from 0 to 1.

    Answers are sorted by confidence and cut into bins of 100, of which the last takes the rest (of fewer than 200
    answers there is one bin). This is the rule of inspect_evals, which keeps every bin; the script published with
    Humanity's Last Exam drops the top one, and so gives other numbers.

    Args:
        confidence: from 0 to 1.

    Returns:
        ``nan`` without answers.
    """
    n = len(confidence)
    if n == 0:
        return math.nan
    order = np.argsort(np.asarray(confidence), kind="stable")
    gap = (np.asarray(confidence, dtype=float) - np.asarray(correct, dtype=float))[order]
    starts = np.arange(max(1, n // BIN)) * BIN
    sizes = np.diff([*starts, n])
    return float(math.sqrt((sizes / n * (np.add.reduceat(gap, starts) / sizes) ** 2).sum()))
