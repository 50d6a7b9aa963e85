"""What is asked where any text will do: short prompts of many kinds and languages, each with many ways to go on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from ultrafast.errors import ConfigError

_KINDS: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "story": (
        ("Write the beginning of a story about {}.", "Describe {} to somebody who has never seen one."),
        ("a lighthouse", "a lost key", "a night train", "two rival bakers", "a storm at sea", "an old clock"),
    ),
    "advice": (
        ("Give me advice on {}.", "What should I know before {}?"),
        ("learning to swim", "moving to a new city", "baking bread", "buying a used car", "keeping bees"),
    ),
    "facts": (
        ("Explain {} in simple words.", "Why does {} matter?"),
        ("photosynthesis", "inflation", "a prime number", "the printing press", "plate tectonics", "a vaccine"),
    ),
    "code": (
        ("Write a Python function that {}.", "Write a shell command that {} and explain it."),
        ("counts the words of a file", "finds duplicate lines", "renames photos by date", "checks a web address"),
    ),
    "data": (
        ("Make up a JSON object that describes {}.", "List five properties of {} as a table."),
        ("a library book", "a weather station", "a customer order", "a hiking trail"),
    ),
    "Deutsch": (
        ("Schreibe den Anfang einer Geschichte über {}.", "Was sollte man über {} wissen?"),
        ("einen Leuchtturm", "das Brotbacken", "einen Nachtzug", "den Garten im Winter"),
    ),
    "français": (
        ("Raconte une courte histoire sur {}.", "Pourquoi aime-t-on {} ?"),
        ("un vieux phare", "le pain frais", "un train de nuit", "la mer en hiver"),
    ),
    "español": (
        ("Escribe el comienzo de un cuento sobre {}.", "¿Qué hay que saber sobre {}?"),
        ("un faro", "el pan casero", "un viaje en tren", "la lluvia"),
    ),
    "русский": (
        ("Напиши начало рассказа про {}.", "Что нужно знать про {}?"),
        ("старый маяк", "ночной поезд", "домашний хлеб", "зимний лес"),
    ),
    "中文": (
        ("写一个关于{}的故事的开头。", "为什么人们喜欢{}?"),
        ("灯塔", "夜班火车", "新鲜面包", "冬天的大海"),
    ),
    "日本語": (
        ("{}についての物語の冒頭を書いてください。", "{}について教えてください。"),
        ("古い灯台", "夜行列車", "焼きたてのパン", "冬の海"),
    ),
}


def prompts(count: int, seed: int = 0) -> list[str]:
    """So many different prompts, the kinds in turn.

    Raises:
        ConfigError: there are not so many.
    """
    rng = random.Random(seed)
    kinds = []
    for forms, topics in _KINDS.values():
        texts = [form.format(topic) for form, topic in product(forms, topics)]
        kinds.append(rng.sample(texts, len(texts)))
    longest = max(map(len, kinds))
    in_turn = [texts[i] for i in range(longest) for texts in kinds if i < len(texts)]
    return _first(in_turn, count, "there are {} prompts here; give a file with more by --prompts-file")


def prompts_of(path: Path, count: int) -> list[str]:
    """The first prompts of a file, one a line; empty lines and repetitions do not count.

    Raises:
        ConfigError: it cannot be read, is no text, or has too few.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: no UTF-8 text") from None
    texts = list(dict.fromkeys(line.strip() for line in lines if line.strip()))
    return _first(texts, count, f"{path}: has {{}} prompts; ask for no more, or add some")


def _first(texts: Sequence[str], count: int, problem: str) -> list[str]:
    if count > len(texts):
        raise ConfigError(f"{count} prompts are wanted: {problem.format(len(texts))}")
    return list(texts[:count])
