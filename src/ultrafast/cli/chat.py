"""`ultrafast chat`: talk to a model in the terminal, or ask it one question."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ultrafast.cli.options import DEFAULT_MODEL, Context, Isa, MaxTokens, Model, Seed, Temperature, Threads
from ultrafast.errors import RequestError

if TYPE_CHECKING:
    from ultrafast.engine.engine import Engine

_COMMANDS = "/reset (forgets what was said), /quit (leaves)"


def chat(
    question: Annotated[
        str | None, typer.Argument(help="Ask this and leave; without it, text piped in is asked.")
    ] = None,
    model: Model = DEFAULT_MODEL,
    system: Annotated[str | None, typer.Option(help="System message: how the model should behave.")] = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = 0.0,
    seed: Seed = 0,
    threads: Threads = None,
    isa: Isa = None,
    context: Context = None,
) -> None:
    """Talk to a model, or ask it one question.

    Answers go to stdout, their speed to stderr. /reset forgets what was said, /quit leaves, Ctrl-C cuts an answer.

    Example: ultrafast chat "What is a wafer?"
    """
    from ultrafast.cli.progress import ensure_on_disk
    from ultrafast.engine.engine import Engine

    if question is None and not sys.stdin.isatty():
        question = sys.stdin.read()
    if question is not None and not question.strip():
        print("ultrafast: error: the question is empty; give one, or run in a terminal to talk", file=sys.stderr)
        raise typer.Exit(2)
    ensure_on_disk(model)
    with Engine(model, threads=threads, isa=isa, context=context) as engine:
        conversation = Conversation(engine, system, max_tokens=max_tokens, temperature=temperature, seed=seed)
        if question is None:
            _converse(conversation, engine.model_id)
        else:
            conversation.ask(question)


class Conversation:
    """The messages so far, and how to get the next one."""

    def __init__(self, engine: Engine, system: str | None, **sampling: Any) -> None:
        self._engine = engine
        self._system = [{"role": "system", "content": system}] if system else []
        self._sampling = sampling
        self.messages: list[dict[str, str]] = []

    def ask(self, question: str) -> None:
        """Prints the answer as it comes and keeps it, also when Ctrl-C cuts it; a refused question is not kept."""
        asked = [*self.messages, {"role": "user", "content": question}]
        stream = self._engine.stream([*self._system, *asked], **self._sampling)
        texts, speed = [], Speed()
        try:
            for delta in stream:
                speed.count(len(delta.token_ids))
                texts.append(delta.text)
                print(delta.text, end="", flush=True)
        finally:
            if texts:
                self.messages = [*asked, {"role": "assistant", "content": "".join(texts)}]
                print()
        print(speed, file=sys.stderr)


class Speed:
    """Counts tokens as a reader sees them come. The rate leaves out the first delta: it waited for the prompt."""

    def __init__(self) -> None:
        self.asked = self.first = self.last = time.perf_counter()
        self.tokens = self.in_first = 0

    def count(self, tokens: int) -> None:
        self.last = time.perf_counter()
        if not self.tokens:
            self.first, self.in_first = self.last, tokens
        self.tokens += tokens

    def __str__(self) -> str:
        rate, seconds = "", self.last - self.first
        if seconds > 0 and self.tokens > self.in_first:
            rate = f", {(self.tokens - self.in_first) / seconds:,.0f} tokens/s"
        return f"[{self.tokens} tokens{rate}, first after {(self.first - self.asked) * 1e3:,.0f} ms]"


def _converse(conversation: Conversation, name: str) -> None:
    import readline  # noqa: F401 - gives input() line editing and history

    print(f"{name}: {_COMMANDS}", file=sys.stderr)
    while True:
        try:
            line = input("> ").strip()
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print()  # what comes next in the terminal starts on its own line
            raise
        if line == "/quit":
            return
        if line == "/reset":
            conversation.messages = []
        elif line.startswith("/"):
            print(f"no command {line.split()[0]}; there are {_COMMANDS}", file=sys.stderr)
        elif line:
            try:
                conversation.ask(line)
            except KeyboardInterrupt:
                print("[cut]", file=sys.stderr)
            except RequestError as error:
                print(f"{error} (/reset forgets what was said so far)", file=sys.stderr)
