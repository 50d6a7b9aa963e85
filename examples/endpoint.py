"""What the examples share: where to ask and in which tiers, and what that took."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import openai
from openai import AsyncOpenAI

TIERS = ("default", "ultrafast")


def options(name: str, description: str) -> argparse.ArgumentParser:
    """The options that all examples have; each adds its own."""
    parser = argparse.ArgumentParser(
        prog=f"python -m examples.{name}", description=description, epilog=f"example: python -m examples.{name}"
    )
    parser.add_argument("--url", default="http://127.0.0.1:8000/v1", help="of an OpenAI-compatible API (%(default)s)")
    parser.add_argument("--model", help="(the first that the endpoint lists)")
    parser.add_argument(
        "--tier",
        action="append",
        metavar="TIER",
        help="service_tier to ask for; several are compared; 'none' leaves it out (default and ultrafast)",
    )
    parser.add_argument(
        "--api-key-env", default="OPENAI_API_KEY", metavar="NAME", help="variable with the key (%(default)s)"
    )
    parser.add_argument(
        "--no-temperature", action="store_true", help="send none instead of 0: some models refuse the field"
    )
    return parser


def positive(text: str) -> int:
    """A whole number above 0, for `argparse`."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


@dataclass
class Spent:
    """What the requests of one run took.

    Attributes:
        decode_s: seconds of decoding, added up over the requests, as the server states them; None: it does not.
    """

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    decode_s: float | None = 0.0
    served: set[str] = field(default_factory=set)

    def add(self, answer: Any) -> None:
        """Count an answer: a completion of Chat Completions, its last chunk, or a response of Responses."""
        usage = answer.usage
        self.requests += 1
        self.served.add(str(answer.service_tier))
        if usage is not None:
            is_chat = hasattr(usage, "prompt_tokens")
            details = usage.prompt_tokens_details if is_chat else usage.input_tokens_details
            self.prompt_tokens += usage.prompt_tokens if is_chat else usage.input_tokens
            self.output_tokens += usage.completion_tokens if is_chat else usage.output_tokens
            self.cached_tokens += (details and details.cached_tokens) or 0
        stated = (answer.model_extra or {}).get("ultrafast")  # what our server measured
        if self.decode_s is not None:
            self.decode_s = self.decode_s + stated["decode_ms"] / 1e3 if stated else None

    def __str__(self) -> str:
        decode = "" if self.decode_s is None else f", {self.decode_s:.1f} s of decoding in all"
        return (
            f"{self.requests} requests, {self.prompt_tokens:,} prompt tokens ({self.cached_tokens:,} cached), "
            f"{self.output_tokens:,} output tokens{decode}"
        )


class Endpoint:
    """One model in one tier.

    Attributes:
        client: of the `openai` package.
        model: to ask.
        tier: to ask for; None: the field is left out.
        fields: that every request has, beside what it asks.
        is_ours: it is an Ultrafast server, which has extensions.
        mark: what a prompt begins with, so that no run profits from what an earlier one left in the server's caches.
        spent: by all requests so far that were counted.
    """

    def __init__(self, client: AsyncOpenAI, model: str, tier: str | None, *, is_ours: bool, temperature: bool) -> None:
        self.client = client
        self.model = model
        self.tier = tier
        self.is_ours = is_ours
        salt = secrets.token_hex(4)
        self.mark = "" if is_ours else f"[{salt}] "
        self.fields: dict[str, Any] = {"model": model}
        if temperature:
            self.fields["temperature"] = 0
        extra = {"service_tier": tier} if tier else {}
        if is_ours:  # the same prompts in every tier, and caches apart
            extra["cache_salt"] = salt
        self.fields["extra_body"] = extra
        self.spent = Spent()

    @property
    def name(self) -> str:
        """The tier, as reports call it, and the one that served where that is another."""
        asked = self.tier or "no tier"
        others = ", ".join(sorted(self.spent.served - {asked}))
        return f"{asked} (served: {others})" if others and self.tier else asked

    async def json(self, instructions: str, text: str, schema: dict[str, Any], *, max_tokens: int) -> str:
        """Ask once; the answer is JSON of a strict schema, unless a limit cut it."""
        answer = await self.client.chat.completions.create(
            messages=[{"role": "system", "content": self.mark + instructions}, {"role": "user", "content": text}],
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "answer", "strict": True, "schema": schema},
            },
            max_completion_tokens=max_tokens,
            **self.fields,
        )
        self.spent.add(answer)
        return answer.choices[0].message.content or ""


@asynccontextmanager
async def endpoints(args: argparse.Namespace) -> AsyncIterator[list[Endpoint]]:
    """One a tier, for the model named or the first that is there."""
    key = os.environ.get(args.api_key_env) or "unused"
    async with AsyncOpenAI(base_url=args.url, api_key=key, max_retries=0) as client:
        models = (await client.models.list()).data
        model = args.model or next((entry.id for entry in models), None)
        if model is None:
            raise SystemExit(f"{args.url} lists no model; name one with --model")
        is_ours = any(entry.owned_by == "ultrafast" for entry in models if entry.id == model)
        tiers = [None if tier == "none" else tier for tier in args.tier or TIERS]
        yield [Endpoint(client, model, tier, is_ours=is_ours, temperature=not args.no_temperature) for tier in tiers]


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run an example; what goes wrong with the endpoint is one line, and exit status 1."""
    try:
        asyncio.run(main())
    except openai.APIConnectionError as error:
        sys.exit(f"No answer from {error.request.url}. Is the server running? `make serve` starts one.")
    except openai.APIStatusError as error:
        hint = " Name the endpoint's tiers with --tier, or 'none'." if "service_tier" in error.message else ""
        sys.exit(f"The endpoint refused: {error.message}{hint}")
    except KeyboardInterrupt:
        sys.exit(130)
