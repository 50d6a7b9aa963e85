"""What is asked and how, in words: what a reader must know before any figure."""

from __future__ import annotations

from collections.abc import Iterator

from ultrafast.bench.exam.setup import Setup


def title_of(setup: Setup) -> str:
    """What was asked, in a line."""
    chosen = setup.questions
    return f"{chosen.name}: {len(chosen.questions):,} questions ({chosen.source})"


def facts_of(setup: Setup) -> dict[str, str]:
    """What a reader must know of the run."""
    first, sampling = setup.endpoints[0], setup.temperature
    return {
        "Question set": title_of(setup),
        "Endpoint": first.base_url,
        "Model": first.model,
        "API": first.api,
        "In flight": f"{setup.concurrency}",
        "Limit": f"{setup.max_tokens:,} tokens an answer",
        "Reasoning effort": setup.reasoning_effort or "the server's default",
        "Temperature": "the server's default" if sampling is None else f"{sampling:g}",
    }


def notes_of(setup: Setup) -> Iterator[str]:
    """What must be said of the set and how it was asked."""
    chosen = setup.questions
    if chosen.note:
        yield chosen.note
    if chosen.left_out:
        yield f"{chosen.left_out:,} questions of the set have an image, and were left out (--images send asks them)."
    if with_files := sum(bool(question.files) for question in chosen.questions):
        yield f"{with_files:,} tasks come with files, which were not sent: what counts here is time, not quality."
    if any(question.kind == "open" for question in chosen.questions):
        yield "End to end is from sending the prompt to the end of the message: no tools are run, no files written."
