"""Do two sets of sampled texts come from one distribution? A permutation test within prompts.

Five statistics, each large for another kind of difference, all on the same permutations, so that their smallest rank
gives one exact p-value (Westfall and Young 1993), however they depend on each other:

- ``hamming``: maximum mean discrepancy with a Hamming kernel, the share of equal characters (model equality testing,
  Gao et al. 2024, https://arxiv.org/abs/2410.20247);
- ``prefix``: the same with the length of the common beginning: where texts part, what follows is noise;
- ``spread``: whether texts of one arm begin alike more often than those of the other;
- ``commonness``: whether they are made of more common pieces, as counted over both arms: what a temperature changes
  all along a text, so that it shows ten times sooner than in the others;
- ``length``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]

CHARACTERS = 160  # of each text that are compared
_BEGINNING = 16  # characters: beginnings that are equal for longer count no more
_PIECE = 5  # bytes of UTF-8: a word or half of one in most languages
_PERMUTATIONS = 999
_SMALL_PRODUCT = 200_000  # multiplications


@dataclass(frozen=True, slots=True)
class Effect:
    """A difference with its one-sided bounds, each at the confidence asked."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a test of two sets of texts gives.

    Attributes:
        p: of all statistics together.
        by_statistic: p of each alone, not corrected.
        agreement: that a pair of texts, one from each arm, loses against pairs from one arm: share of equal characters.
        commonness: how much more common the second arm's pieces are, in standard deviations of a text.
        within, across: mean share of equal characters.
    """

    prompts: int
    samples: int
    p: float
    by_statistic: Mapping[str, float]
    agreement: Effect
    commonness: Effect
    within: tuple[float, float]
    across: float


def compare(
    first: Sequence[Sequence[str]], second: Sequence[Sequence[str]], *, seed: int, confidence: float = 0.95
) -> Comparison:
    """Compares texts by prompt: the same number of them for each prompt and arm, at least two, and two prompts."""
    texts = [[*a, *b] for a, b in zip(first, second, strict=True)]
    prompts, m = len(texts), len(first[0])
    if prompts < 2 or m < 2 or any(len(row) != 2 * m for row in texts):
        raise ValueError("at least two prompts with two texts each are needed, and the same number in both arms")
    equal = _equal_characters(texts)
    hamming = _without_self(equal.mean(axis=-1, dtype=np.float32))
    prefix = _without_self(_common_beginning(equal))
    common, length = _commonness(texts), np.array([[len(text) for text in row] for row in texts], dtype=float)
    labels = _labels(prompts, m, np.random.default_rng(seed))
    observed = {
        "hamming": _discrepancy(labels, hamming),
        "prefix": _discrepancy(labels, prefix),
        "spread": _contrast(labels, prefix.sum(axis=2)),
        "commonness": _contrast(labels, common),
        "length": _contrast(labels, length),
    }
    ranks = {name: _ranks(values) for name, values in observed.items()}
    smallest = np.min(np.stack([*ranks.values()]), axis=0)
    within_first, within_second, across = _agreement(hamming, m)
    return Comparison(
        prompts,
        m,
        float(np.mean(smallest <= smallest[0])),
        {name: float(rank[0]) for name, rank in ranks.items()},
        effect((within_first + within_second) / 2 - across, confidence),
        _shift(common, m, confidence),
        (float(within_first.mean()), float(within_second.mean())),
        float(across.mean()),
    )


def effect(by_prompt: Floats, confidence: float) -> Effect:
    """The mean over prompts, which are independent, with Student's bounds."""
    n = len(by_prompt)
    value = float(by_prompt.mean())
    if n < 2:
        return Effect(value, -math.inf, math.inf)
    reach = float(stats.t.ppf(confidence, n - 1) * by_prompt.std(ddof=1)) / math.sqrt(n)
    return Effect(value, value - reach, value + reach)


def samples_needed(margin: float, *, power: float, alpha: float = 0.05) -> int:
    """Texts an arm, over all prompts, for the bounds of equal arms to clear a margin in standard deviations on both
    sides: ``2 (z_alpha + z_(1 + power)/2)² / m²``."""
    z = stats.norm.isf(alpha) + stats.norm.ppf((1 + power) / 2)
    return math.ceil(2 * (z / margin) ** 2)


def _equal_characters(texts: Sequence[Sequence[str]]) -> NDArray[np.bool_]:
    """[prompt, text, text, character]; both texts at an end are equal there."""
    codes = np.zeros((len(texts), len(texts[0]), CHARACTERS), dtype=np.uint32)
    for row, group in zip(codes, texts, strict=True):
        for line, text in zip(row, group, strict=True):
            points = np.frombuffer(text[:CHARACTERS].encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
            line[: len(points)] = points + 1
    return np.asarray(codes[:, :, None, :] == codes[:, None, :, :])


def _common_beginning(equal: NDArray[np.bool_]) -> NDArray[np.float32]:
    beginning = np.minimum.accumulate(equal[..., :_BEGINNING], axis=-1)
    return np.asarray(beginning.mean(axis=-1, dtype=np.float32))


def _without_self(kernel: NDArray[np.float32]) -> NDArray[np.float32]:
    each = np.arange(kernel.shape[1])
    kernel[:, each, each] = 0
    return kernel


def _commonness(texts: Sequence[Sequence[str]]) -> Floats:
    """[prompt, text]: mean logarithm of how often a text's pieces occur in all texts, in units of the standard
    deviation among texts of one prompt."""
    flat = [np.frombuffer(text.encode("utf-8", "surrogatepass"), dtype=np.uint8) for row in texts for text in row]
    hashes = [_pieces(line) for line in flat]
    owner = np.repeat(np.arange(len(hashes)), [len(line) for line in hashes])
    _, which, counts = np.unique(np.concatenate(hashes), return_inverse=True, return_counts=True)
    sums = np.bincount(owner, weights=np.log(counts)[which], minlength=len(hashes))
    sizes = np.bincount(owner, minlength=len(hashes))
    scores = (sums / np.maximum(sizes, 1)).reshape(len(texts), -1)
    scores -= scores.mean(axis=1, keepdims=True)
    spread = math.sqrt(float((scores**2).sum()) / max(1, scores.size - len(texts)))
    return scores / spread if spread > 0 else scores


def _pieces(line: NDArray[np.uint8]) -> NDArray[np.uint64]:
    size = max(0, len(line) - _PIECE + 1)
    pieces = np.zeros(size, dtype=np.uint64)
    for i in range(_PIECE):
        pieces = pieces << np.uint64(8) | line[i : i + size]
    return pieces


def _labels(prompts: int, m: int, random: np.random.Generator) -> NDArray[np.float32]:
    """[prompt, permutation, text]: 1 for the first arm, -1 for the second; the first permutation is what was seen."""
    seen = np.repeat(np.array([1, -1], dtype=np.float32), m)
    labels = np.broadcast_to(seen, (prompts, 1 + _PERMUTATIONS, 2 * m)).copy()
    random.permuted(labels[:, 1:], axis=2, out=labels[:, 1:])
    return labels


def _discrepancy(labels: NDArray[np.float32], kernel: NDArray[np.float32]) -> Floats:
    """By permutation: within-arm minus across-arm sums, which is MMD² but for a factor and a constant."""
    # In pieces so small that BLAS starts no threads, which on a busy machine mostly wait for each other.
    rows = max(1, _SMALL_PRODUCT // kernel.shape[1] ** 2)
    starts = range(0, labels.shape[1], rows)
    parts = (np.einsum("npi,npi->p", piece @ kernel, piece) for piece in (labels[:, i : i + rows] for i in starts))
    return np.concatenate([*parts]).astype(np.float64)


def _contrast(labels: NDArray[np.float32], scores: NDArray[np.float32] | Floats) -> Floats:
    """By permutation: how far the arms' sums are apart, either way."""
    return np.asarray(np.abs(np.einsum("npi,ni->p", labels, scores, dtype=np.float64, casting="same_kind")))


def _ranks(values: Floats) -> Floats:
    """The p-value that each permutation would have had: the share at least as large (ties count as larger)."""
    ordered = np.sort(values)
    slack = 1e-6 * max(1.0, float(np.abs(values).max()))  # sums in another order are equal
    return 1 - np.searchsorted(ordered, values - slack, side="left") / len(values)


def _agreement(kernel: NDArray[np.float32], m: int) -> tuple[Floats, Floats, Floats]:
    """By prompt: the mean over pairs within the first arm, within the second, and across."""
    pairs = m * (m - 1)
    within_first = kernel[:, :m, :m].sum(axis=(1, 2), dtype=np.float64) / pairs
    within_second = kernel[:, m:, m:].sum(axis=(1, 2), dtype=np.float64) / pairs
    return within_first, within_second, kernel[:, :m, m:].mean(axis=(1, 2), dtype=np.float64)


def _shift(scores: Floats, m: int, confidence: float) -> Effect:
    return effect(scores[:, m:].mean(axis=1) - scores[:, :m].mean(axis=1), confidence)
