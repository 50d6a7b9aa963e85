"""`ultrafast plan`: what a model needs of a device, and how fast it then is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ultrafast.cli.this_machine import NAME as THIS

if TYPE_CHECKING:
    from ultrafast.wafer.plan import Question


def plan(
    model: Annotated[
        str, typer.Argument(help="Model: a name of the catalogue, a GGUF file, or a Hugging Face config.json.")
    ] = "smollm2-135m",
    device: Annotated[
        str, typer.Option(help=f"Device: a name of the catalogue, or '{THIS}' for this machine.")
    ] = "wse-3",
    precision: Annotated[
        str | None,
        typer.Option(help="Of the weights, e.g. fp8 or fp4,attention=bf16,kv=fp8; default: the file's, else bf16."),
    ] = None,
    context: Annotated[str, typer.Option(help="Positions a sequence may have, e.g. 8192 or 32k.")] = "8k",
    prompt: Annotated[int, typer.Option(help="Tokens of the prompt, for the time to first token.")] = 1024,
    users: Annotated[int, typer.Option(help="Sequences at once, whose caches must fit.")] = 1,
    count: Annotated[int, typer.Option("--devices", help="How many; default: the fewest that hold it.")] = 0,
    most: Annotated[int, typer.Option("--max-devices", help="How many there may be.")] = 1024,
    target: Annotated[float | None, typer.Option(help="Tokens a second that one user shall get.")] = None,
    draft: Annotated[int, typer.Option(help="Tokens of a draft; 0: no speculation.")] = 0,
    acceptance: Annotated[float, typer.Option(help="Chance that a drafted token is accepted.")] = 0.7,
    network_ms: Annotated[float, typer.Option(help="To the service and back, part of the time to first token.")] = 0.0,
    usd_per_hour: Annotated[float | None, typer.Option(help="Price of one device; default: the catalogue's.")] = None,
    prefill_on: Annotated[
        str | None, typer.Option(help="Have other devices compute the prompts, and send what they found to the wafers.")
    ] = None,
    against: Annotated[
        list[str] | None, typer.Option("--against", help="Another device to compare with; several times.")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a report with pictures.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
    known: Annotated[bool, typer.Option("--list", help="List the models and devices of the catalogue.")] = False,
    validate: Annotated[
        bool, typer.Option("--validate", help="Show published measurements beside what is predicted of them.")
    ] = False,
    records: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Validate by these; of the form of wafer/data/published.json.")
    ] = None,
) -> None:
    """How many wafers, GPUs or CPUs a model takes, and the speed, energy and cost that they give.

    Example: ultrafast plan llama-3.1-70b --device wse-3 --users 8 --target 750 --html plan.html
    """
    from ultrafast.cli import plan_report as report
    from ultrafast.cli import plan_validation as validation
    from ultrafast.wafer import catalog, outlook
    from ultrafast.wafer import plan as planner

    if known:
        print(report.catalogue())
        return
    if validate or records is not None:
        print(validation.text(records, as_json=as_json))
        return
    question = _question(
        model, device, precision, context, prompt, users, count, most, draft, acceptance, network_ms, usd_per_hour
    )
    if prefill_on is not None:
        question = replace(question, prefill=catalog.device(prefill_on))
    made = planner.make(question)
    reached = None if target is None else outlook.reach(made, target)
    others = outlook.compare(question, [catalog.device(name) for name in against or report.default_others(question)])
    answer = report.Answer(made, reached, others)
    print(report.to_json(answer) if as_json else report.text(answer))
    if html is not None:
        report.page(answer).write(html)


def _question(
    model: str,
    device: str,
    precision: str | None,
    context: str,
    prompt: int,
    users: int,
    count: int,
    most: int,
    draft: int,
    acceptance: float,
    network_ms: float,
    usd_per_hour: float | None,
) -> Question:
    from ultrafast.cli.this_machine import this_machine
    from ultrafast.wafer import catalog
    from ultrafast.wafer.cost.speculation import Speculation
    from ultrafast.wafer.plan import Question

    shape = catalog.model(model)
    bits = catalog.precision(model, precision)
    return Question(
        shape,
        this_machine(shape, bits) if device == THIS else catalog.device(device),
        bits,
        context=min(_number(context), shape.max_context) if context == "8k" else _number(context),
        prompt=prompt,
        users=users,
        count=count,
        most=most,
        speculation=Speculation.from_rate(acceptance, draft) if draft else None,
        network_s=network_ms / 1e3,
        usd_per_hour=usd_per_hour,
    )


def _number(text: str) -> int:
    """``32k`` is 32 x 1024."""
    from ultrafast.errors import ConfigError

    digits, times = (text[:-1], 1024) if text[-1:].lower() == "k" else (text, 1)
    try:
        return int(digits) * times
    except ValueError:
        raise ConfigError(f"--context {text!r} is no number of positions; it looks like 8192 or 32k") from None
