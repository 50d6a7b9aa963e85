"""`ultrafast simulate mesh`: a model, executed on a mesh of processing elements (PEs)."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ultrafast.cli.options import DEFAULT_MODEL
from ultrafast.errors import ConfigError

if TYPE_CHECKING:
    from ultrafast.cli.simulate_check import Checked
    from ultrafast.wafer.mesh.operations import Operation
    from ultrafast.wafer.mesh.run import Simulation, Step

_CHECK_PROMPTS = (
    "What is the capital of France, and what is it known for?",
    "How do I stay calm in a storm?",
    "Write a short poem about the sea.",
)


def mesh(
    model: Annotated[str, typer.Argument(help="Model: a known name, a path, or hf:ORG/REPO[/FILE].")] = DEFAULT_MODEL,
    size: Annotated[str, typer.Option("--mesh", metavar="ROWSxCOLUMNS", help="PEs of each layer's region.")] = "16x16",
    device: Annotated[str, typer.Option(help="Whose PEs and clock: wse-2 or wse-3.")] = "wse-3",
    tokens: Annotated[int | None, typer.Option(help="How many to generate; default: 8, of a check 32.")] = None,
    prompt: Annotated[
        str | None,
        typer.Option(help="The text to continue, as it is; default: a sentence, of a check three questions."),
    ] = None,
    accumulate: Annotated[Literal["fp32", "fp16"], typer.Option(help="Sums within a PE.")] = "fp32",
    links: Annotated[Literal["fp32", "fp16"], typer.Option(help="Partial sums between PEs.")] = "fp16",
    check: Annotated[
        bool,
        typer.Option("--check", help="Compare the tokens with the engine's plain fp32 reference; exit 1 if not equal."),
    ] = False,
    trace_file: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="Write the last token's way, for ui.perfetto.dev.")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all figures as JSON.")] = None,
) -> None:
    """Execute a model on a mesh of PEs, tile by tile in 16 bits, and count cycles by event simulation.

    Each layer has a region of ROWSxCOLUMNS PEs. The time of every operation is shown beside the closed form that plans
    are made with.

    Example: ultrafast simulate mesh --mesh 16x16 --tokens 8 --trace token.json
    """
    from ultrafast.cli.progress import ensure_on_disk
    from ultrafast.models import fetch
    from ultrafast.wafer import catalog
    from ultrafast.wafer.mesh.numbers import Numbers
    from ultrafast.wafer.mesh.run import Simulation

    rows, columns = _sides(size)
    count = tokens if tokens is not None else 32 if check else 8
    if count < 1:
        raise ConfigError(f"--tokens is {count}; it must be at least 1")
    part = catalog.device(device)
    ensure_on_disk(model)
    path = fetch.resolve(model)
    print(f"cutting {path.name} into tiles for {rows} x {columns} PEs", file=sys.stderr)
    simulation = Simulation(path, rows, columns, part, numbers=Numbers(accumulate, links))
    if check:
        results = _checked(simulation, path, [prompt] if prompt is not None else None, count)
        last = results[-1].last
    else:
        results = []
        last = _generated(simulation, prompt if prompt is not None else "The capital of France is", count)
    print(_report(simulation, last))
    if trace_file is not None:
        from ultrafast.wafer.mesh.trace import trace

        layer, num_layers, head = simulation.parts(last.context)
        title = f"{simulation.decoder.shape.name} on {rows} x {columns} PEs a layer"
        made = trace(layer, num_layers, head, clock_hz=part["clock_hz"], title=title)
        trace_file.write_text(json.dumps(made), encoding="utf-8")
    if json_file is not None:
        json_file.write_text(json.dumps(_figures(simulation, last, results), indent=1) + "\n", encoding="utf-8")
    if not all(one.equal for one in results):
        raise typer.Exit(1)


def _sides(size: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,6})x(\d{1,6})", size.strip().lower())
    if not found:
        raise ConfigError(f"--mesh is {size[:40]!r}; it must be ROWSxCOLUMNS, such as 16x16")
    return int(found[1]), int(found[2])


def _generated(simulation: Simulation, prompt: str, count: int) -> Step:
    """Prints the text as it comes."""
    tokenizer = simulation.tokenizer
    ids = tokenizer.encode(prompt)
    found = []
    for step in simulation.steps(ids, count):
        found.append(step)
        print(f"token {len(found)} of {count}: {tokenizer.decode([step.token])!r}", file=sys.stderr)
    print(prompt + tokenizer.decode([step.token for step in found]), end="\n\n")
    return found[-1]


def _checked(simulation: Simulation, path: Path, prompts: list[str] | None, count: int) -> list[Checked]:
    from ultrafast.cli.simulate_check import MARGIN, compare
    from ultrafast.engine.engine import Engine

    results = []
    with Engine(str(path), isa="reference") as engine:
        for prompt in prompts or _CHECK_PROMPTS:
            asked: Any = (
                prompt if prompts or not engine.tokenizer.chat_template else [{"role": "user", "content": prompt}]
            )
            start = time.perf_counter()
            one = compare(simulation, engine, engine.encode_prompt(asked), count)
            results.append(one)
            print(f"{prompt!r}: {one.words} ({time.perf_counter() - start:.1f} s)", file=sys.stderr)
    turned = [margin for one in results for margin in one.turned]
    near = sum(margin <= MARGIN for margin in turned)
    total = len(results) * count
    print(
        f"{total - len(turned)} of {total} tokens are those of the fp32 reference, {near} differ at a near-tie (margin "
        f"up to {MARGIN}), {len(turned) - near} otherwise\n"
    )
    return results


def _report(simulation: Simulation, last: Step) -> str:
    """Time of the last token, by operation."""
    clock, shape, decoder = simulation.clock, simulation.decoder.shape, simulation.decoder
    layer, num_layers, head = simulation.parts(last.context)
    hertz = simulation.device["clock_hz"]
    planned = simulation.planned_cycles(last.context)
    lines = [
        f"{shape.name}: {num_layers} layers of {clock.rows} x {clock.columns} PEs, output projection on "
        f"{simulation.head_regions} such regions",
        _memory(decoder.tile_bytes, simulation.room_bytes),
        f"{'of a layer':24}{'cycles':>10}{'closed form':>13}{'':>9}{'arithmetic':>12}",
        *map(_line, layer),
        "of the output projection",
        *map(_line, head),
        "",
        f"a token, with {last.context} positions before it",
        f"  simulated             {last.cycles:>10,.0f} cycles {last.cycles / hertz * 1e6:>9,.1f} µs "
        f"{hertz / last.cycles:>8,.0f} tokens/s",
        f"  closed forms          {last.predicted:>10,.0f} cycles {last.predicted / last.cycles - 1:>+9.1%}",
        f"  cost model of plans   {planned:>10,.0f} cycles {planned / last.cycles - 1:>+9.1%}",
    ]
    return "\n".join(lines)


def _memory(needed: float, room: float) -> str:
    words = f"weights and cache take {needed / 1024:,.1f} kB of each PE, which has {room / 1024:,.1f} kB for them"
    return words if needed <= room else f"{words}: {(needed - room) / 1024:,.1f} kB too few, take a larger mesh"


def _line(one: Operation) -> str:
    cycles = one.timing.cycles
    error = f"{one.predicted / cycles - 1:+.1%}"
    return f"  {one.name:22}{cycles:>10,.1f}{one.predicted:>13,.1f}{error:>9}{one.timing.computed / cycles:>12.0%}"


def _figures(simulation: Simulation, last: Step, results: list[Checked]) -> dict[str, Any]:
    from dataclasses import asdict

    layer, num_layers, head = simulation.parts(last.context)
    parts = [("layer", one) for one in layer] + [("head", one) for one in head]
    return {
        "model": simulation.decoder.shape.name,
        "device": simulation.device.name,
        "rows": simulation.clock.rows,
        "columns": simulation.clock.columns,
        "numbers": asdict(simulation.decoder.numbers),
        "num_layers": num_layers,
        "head_regions": simulation.head_regions,
        "tile_bytes": simulation.decoder.tile_bytes,
        "context": last.context,
        "token_cycles": last.cycles,
        "token_cycles_closed_forms": last.predicted,
        "token_cycles_cost_model": simulation.planned_cycles(last.context),
        "token_s": last.cycles / simulation.device["clock_hz"],
        "operations": [
            {
                "of": of,
                "name": one.name,
                "cycles": one.timing.cycles,
                "closed_form": one.predicted,
                "events": one.timing.events,
            }
            for of, one in parts
        ],
        "checks": [one.as_json() for one in results],
    }
