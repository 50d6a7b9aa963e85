"""A report as one HTML file: no script, nothing from outside, light or dark as the reader's system is, fit to print."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Literal, Self

from ultrafast.errors import ConfigError

Tone = Literal["good", "bad", "neutral"]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_NUMERIC = frozenset("0123456789.,:%–-+−×()$ ")


class Page:
    """A report in the making: parts appear in the order in which they are added; all text is escaped.

    Args:
        title: what was measured.
        facts: what the reader must know of it, by name: endpoint, concurrency, when, on what.
    """

    def __init__(self, title: str, facts: Mapping[str, str]) -> None:
        self._title = title
        rows = (f"<div><dt>{_escaped(name)}</dt><dd>{_escaped(value)}</dd></div>" for name, value in facts.items())
        self._parts = [f"<header><h1>{_escaped(title)}</h1>", f'<dl class="facts">{"".join(rows)}</dl></header>']

    def verdict(self, text: str, tone: Tone = "neutral") -> Self:
        """The answer in a sentence or two, set apart."""
        return self._add(f'<p class="verdict {tone}">{_escaped(text)}</p>')

    def section(self, title: str) -> Self:
        return self._add(f"<h2>{_escaped(title)}</h2>")

    def text(self, paragraph: str) -> Self:
        return self._add(f"<p>{_escaped(paragraph)}</p>")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]], note: str | None = None) -> Self:
        """Rows of cells as text, the first of which names the row; columns of figures stand to the right.

        Raises:
            ValueError: a row is longer or shorter than the columns.
        """
        cells = [list(row) for row in rows]
        if any(len(row) != len(columns) for row in cells):
            raise ValueError("a row of another length than the columns")
        right = [all(_is_figure(row[i]) for row in cells) for i in range(len(columns))]
        head = "".join(f'<th scope="col"{_side(r)}>{_escaped(c)}</th>' for c, r in zip(columns, right, strict=True))
        body = "".join(f"<tr>{_row(row, right)}</tr>" for row in cells)
        caption = f"<figcaption>{_escaped(note)}</figcaption>" if note else ""
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return self._add(f'<figure><div class="wide">{table}</div>{caption}</figure>')

    def figure(self, svg: str, caption: str) -> Self:
        """A plot of `ultrafast.report.plots`, which goes in as it is."""
        return self._add(f'<figure><div class="wide">{svg}</div><figcaption>{_escaped(caption)}</figcaption></figure>')

    def html(self) -> str:
        """The whole file."""
        style = files("ultrafast.report").joinpath("page.css").read_text("utf-8")
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta name="color-scheme" content="light dark">\n'
            '<link rel="icon" href="data:,">\n'
            f"<title>{_escaped(self._title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
            + "\n".join(self._parts)
            + "\n</main>\n</body>\n</html>\n"
        )

    def write(self, path: Path) -> None:
        """
        Raises:
            ConfigError: the file cannot be written.
        """
        try:
            path.write_text(self.html(), "utf-8")
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None

    def _add(self, part: str) -> Self:
        self._parts.append(part)
        return self


def legible(text: str) -> str:
    """Text as it can be shown: in one line, without control characters and halves of surrogate pairs."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", "�", " ".join(text.split()))


def _escaped(text: str) -> str:
    return html.escape(legible(text))


def _is_figure(cell: str) -> bool:
    """Whether a cell reads as a number: it starts with one, whatever unit or interval follows, or is empty."""
    return not cell or cell[0] in _NUMERIC or cell.startswith(("needs ", "never"))


def _side(right: bool) -> str:
    return ' class="figures"' if right else ""


def _row(row: Sequence[str], right: Sequence[bool]) -> str:
    cells = [f"<td{_side(r)}>{_escaped(cell)}</td>" for cell, r in zip(row, right, strict=True)]
    if cells:
        cells[0] = f'<th scope="row"{_side(right[0])}>{_escaped(row[0])}</th>'
    return "".join(cells)
