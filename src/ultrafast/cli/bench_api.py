"""`ultrafast bench api`: the speed of an endpoint."""

from __future__ import annotations

import asyncio
import os
import secrets
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ultrafast.cli import load_options as opt
from ultrafast.cli.endpoint_options import (
    DEFAULT_BASE_URL,
    DEFAULT_KEY_ENV,
    ApiOption,
    AskedModel,
    BaseUrl,
    KeyEnv,
    PriceInput,
    PriceOutput,
    Tiers,
    endpoints_of,
    found_at,
    prices_of,
)
from ultrafast.errors import ConfigError

if TYPE_CHECKING:
    from ultrafast.bench.load.results import Results
    from ultrafast.bench.load.runner import Setup
    from ultrafast.bench.load.setup import Wish
    from ultrafast.bench.load.slo import Slo

INVALID = 3
"""Exit code of a run for whose figures the client was too slow."""


def api(
    url: BaseUrl = DEFAULT_BASE_URL,
    model: AskedModel = None,
    tier: Tiers = None,
    api: ApiOption = "chat",
    profile: opt.Profile = "quick",
    prompt_tokens: opt.PromptTokens = None,
    output_tokens: opt.OutputTokens = None,
    concurrency: opt.Concurrency = None,
    think: opt.Think = 0.0,
    rate: opt.Rate = None,
    arrivals: opt.Arrivals = "poisson",
    trace: opt.TraceFile = None,
    trace_format: opt.TraceFormat = None,
    time_scale: opt.TimeScale = 1.0,
    max_in_flight: opt.MaxInFlight = None,
    requests: opt.Requests = None,
    duration: opt.Duration = None,
    warmup: opt.Warmup = None,
    category: opt.CategoryOption = None,
    shared_prefix: opt.SharedPrefix = 0,
    temperature: opt.Temperature = None,
    ignore_eos: opt.IgnoreEos = None,
    seed: opt.Seed = None,
    timeout: opt.Timeout = 600.0,
    slo: opt.SloOption = None,
    tokenizer: opt.Tokenizer = None,
    workers: opt.Workers = None,
    api_key_env: KeyEnv = DEFAULT_KEY_ENV,
    price_input: PriceInput = None,
    price_output: PriceOutput = None,
    json_file: opt.JsonFile = None,
    calls_file: opt.CallsFile = None,
    csv_file: opt.CsvFile = None,
    html_file: opt.HtmlFile = None,
    compare: opt.Compare = None,
) -> None:
    """Measure output speed, time to first token and whole calls of any OpenAI-compatible endpoint.

    Each combination of tier, lengths and load is a cell; cells are measured in turns. Exit codes: 3 when the client was
    too slow for what it measured, 130 after Ctrl-C, which keeps what is done.

    Example: ultrafast bench api --tier ultrafast --tier default --concurrency 1,8 --html report.html
    """
    if compare is not None:
        _compare(*compare, html_file)
        return
    from ultrafast.bench.load.setup import Wish, loads_of, setup_of

    wish = Wish(
        profile=profile,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        concurrency=concurrency,
        think_s=think,
        rate=rate,
        spread=arrivals,
        trace=trace,
        trace_format=trace_format,
        time_scale=time_scale,
        max_in_flight=max_in_flight,
        calls=requests,
        duration_s=duration,
        warm_up=warmup,
        category=category,
        shared_tokens=shared_prefix,
        temperature=temperature,
        seed=secrets.randbelow(2**32) if seed is None else seed,
        timeout_s=timeout,
        slo=slo,
        tokenizer=tokenizer,
        workers=workers,
    )
    files = _Files(json_file, calls_file, csv_file, html_file)
    files.check()
    loads, prices, slo_asked = loads_of(wish), prices_of(price_input, price_output), wish.objectives
    found = asyncio.run(found_at(url, model, api_key_env))
    endpoints = endpoints_of(found, url, tier, api, api_key_env, prices)
    goes_on = found.is_ours if ignore_eos is None else ignore_eos
    setup = setup_of(wish, loads, endpoints, ignore_eos=goes_on, sends_seed=found.is_ours)
    results = _run(setup, slo_asked, calls_file)
    if results.cells:
        _tell(results, setup, wish, files)
    if not results.is_complete:
        raise typer.Exit(130)
    if not results.is_valid:
        raise typer.Exit(INVALID)


@dataclass(frozen=True, slots=True)
class _Files:
    """What to write, beside the table."""

    json: Path | None
    calls: Path | None
    csv: Path | None
    html: Path | None

    def check(self) -> None:
        """Before a long run, rather than after it.

        Raises:
            ConfigError: one cannot be written.
        """
        for file in filter(None, (self.json, self.calls, self.csv, self.html)):
            if file.is_dir() or not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
                raise ConfigError(f"{file}: cannot be written")


def _run(setup: Setup, slo: Slo | None, calls_file: Path | None) -> Results:
    from ultrafast.bench.client.clock import RunClock
    from ultrafast.bench.load.results import results_of
    from ultrafast.bench.load.runner import run
    from ultrafast.bench.records import CallLog
    from ultrafast.cli.progress import call_bar

    with ExitStack() as stack:
        show = stack.enter_context(call_bar())
        log = None
        if calls_file is not None:
            calls_file.unlink(missing_ok=True)
            log = stack.enter_context(CallLog(calls_file))
        done = run(setup, RunClock(), show, lambda call: log.append(call) if log else None)
    return results_of(setup, done, slo)


def _tell(results: Results, setup: Setup, wish: Wish, files: _Files) -> None:
    from ultrafast.bench.load.report import page_of
    from ultrafast.bench.load.results import to_csv, to_json
    from ultrafast.bench.load.setup import description
    from ultrafast.bench.load.table import text_of
    from ultrafast.bench.records import document, write_document

    print(text_of(results))
    doc = document("api", description(wish, setup), to_json(results))
    if files.json:
        write_document(files.json, doc)
    if files.csv:
        files.csv.write_text(to_csv(results), encoding="utf-8")
    if files.html:
        page_of(results, doc).write(files.html)


def _compare(before: Path, after: Path, html_file: Path | None) -> None:
    from ultrafast.bench import compare
    from ultrafast.bench.records import read_document
    from ultrafast.report.page import Page

    first, second = (read_document(path, "api") for path in (before, after))
    comparison = compare.compare(first, second)
    print(compare.text(comparison))
    if html_file:
        page = Page("Two runs compared", {"First run": first["made_at"], "Second run": second["made_at"]})
        compare.add_to(page, comparison)
        page.write(html_file)
