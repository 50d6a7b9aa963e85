"""Options of `ultrafast bench api`: what to ask, how much of it at a time, and what to write."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

Profile = Annotated[
    Literal["quick", "aa", "voice", "load"],
    typer.Option(
        "--profile",
        help="Where other options start from: quick; aa: 10,000 tokens in, 1,500 out; voice: time to the first clause; "
        "load: one call a second, p99.",
    ),
]
PromptTokens = Annotated[str | None, typer.Option(metavar="N[,N…]", help="Tokens of a prompt; of a trace: at most.")]
OutputTokens = Annotated[str | None, typer.Option(metavar="N[,N…]", help="Tokens of an answer; of a trace: at most.")]
Concurrency = Annotated[str | None, typer.Option(metavar="N[,N…]", help="Closed loop: so many calls in flight.")]
Think = Annotated[float, typer.Option(min=0, help="Seconds between one call of a closed loop and the next.")]
Rate = Annotated[str | None, typer.Option(metavar="R[,R…]", help="Open loop: so many calls a second.")]
Arrivals = Annotated[Literal["poisson", "constant"], typer.Option(help="How the calls of an open loop are spaced.")]
TraceFile = Annotated[
    Path | None,
    typer.Option("--trace", metavar="FILE", help="Replay a trace: CSV of Azure or BurstGPT, JSON lines of Mooncake."),
]
TraceFormat = Annotated[
    Literal["azure", "burstgpt", "mooncake"] | None, typer.Option(help="Of the trace; default: found out.")
]
TimeScale = Annotated[float, typer.Option(help="Stretch the time of the trace; 0.5 replays it twice as fast.")]
MaxInFlight = Annotated[
    int | None,
    typer.Option(min=1, help="Of an open loop or a trace; others wait, which is part of their latency."),
]
Requests = Annotated[int | None, typer.Option(min=1, help="Calls of each cell; default: the profile's, or --duration.")]
Duration = Annotated[float | None, typer.Option(min=0.1, help="Seconds of each cell.")]
Warmup = Annotated[
    int | None, typer.Option(min=0, help="Calls before each cell, not counted; default: as many as are in flight.")
]
CategoryOption = Annotated[
    Literal["prose", "code", "math", "json"] | None,
    typer.Option("--category", help="What prompts and answers are: drafts fit some better. Default: prose."),
]
SharedPrefix = Annotated[int, typer.Option(min=0, help="Tokens that all prompts begin with alike; otherwise none.")]
Temperature = Annotated[float | None, typer.Option(min=0, max=2, help="Default: the server's.")]
IgnoreEos = Annotated[
    bool | None,
    typer.Option("--ignore-eos/--no-ignore-eos", help="Answers of full length; default: from Ultrafast servers."),
]
Seed = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="The same seed gives the same prompts and arrivals, which a server may have in its prefix cache by then; "
        "default: another one each time.",
    ),
]
Timeout = Annotated[float, typer.Option(min=0.1, help="Seconds after which a call counts as one without end.")]
SloOption = Annotated[
    str | None,
    typer.Option(
        "--slo",
        metavar="BOUNDS",
        help="What counts as good, such as ttft=0.5,speed=50: ttft, ttfat, clause, e2e, gap in s, speed in tokens/s.",
    ),
]
Tokenizer = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Recount answers with this tokenizer.json, to compare models by one unit."),
]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes that make calls; default: what their events want.")]

JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Also write everything to this file.")]
CallsFile = Annotated[
    Path | None, typer.Option("--calls", metavar="FILE", help="Also write every call to this file, as JSON lines.")
]
CsvFile = Annotated[
    Path | None, typer.Option("--csv", metavar="FILE", help="Also write the figures of each cell to this file.")
]
HtmlFile = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Also write a report with plots to this file.")
]
Compare = Annotated[
    tuple[Path, Path] | None,
    typer.Option(metavar="A.json B.json", help="Measure nothing: compare two runs that --json wrote."),
]
