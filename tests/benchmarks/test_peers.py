"""What the comparison makes of its samples: ratios, table, JSON, chart; and the talk with an engine's process."""

from __future__ import annotations

import json
import os
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import peers_chart
import peers_report
from engines.client import EngineError, Entrant, Process
from engines.task import TASKS, Setting, thread_counts
from peers_report import Comparison, Outcome

_OURS = Entrant("ultrafast", "Ultrafast", "ultrafast_engine")


@pytest.fixture
def comparison() -> Comparison:
    """Ours, one peer that was three times slower in the middle of the rounds, and one that could not be started."""
    found = Comparison("Some <CPU>", 2, "model", "Linux 6")
    ours = found.outcomes["ultrafast"] = Outcome(_OURS, "1.0", 0.5)
    ours.speeds = {"decode_64": {1: 300.0, 2: 600.0, 3: 400.0}, "prompt_512": {1: 1000.0, 2: 1000.0}}
    ours.settings = {"decode_64": "2 threads", "prompt_512": "2 threads"}
    peer = found.outcomes["slow"] = Outcome(Entrant("slow", "Slow & steady", "slow"), "2.0", 1.0)
    peer.speeds = {"decode_64": {1: 100.0, 2: 300.0, 3: 100.0}}
    peer.settings = {"decode_64": "1 thread, flash attention"}
    peer.errors = {"prompt_512": "ValueError: too long"}
    found.outcomes["missing"] = Outcome(Entrant("missing", "Missing", "missing"), error="No such file")
    return found


def test_ratios_compare_the_same_round(comparison: Comparison) -> None:
    assert comparison.ratio("slow", "decode_64") == 3.0  # of 3, 2 and 4; the ratio of the medians would be 4
    assert comparison.ratio("slow", "prompt_512") is None
    assert comparison.tasks == ["decode_64", "prompt_512"]


def test_table(comparison: Comparison) -> None:
    lines = peers_report.table(comparison).splitlines()
    assert "| engine | decode at 64 | prompt of 512 | load |" in lines
    assert "| Ultrafast | 400 (300 to 600) | 1,000 (1,000 to 1,000) | 0.50 s |" in lines
    assert "| Slow & steady | 100 (100 to 300) **3.0×** | failed | 1.00 s |" in lines
    assert (
        "- Slow & steady (2.0): 1 thread, flash attention (decode at 64); prompt of 512 failed: ValueError: too long"
        in lines
    )
    assert "- Missing: could not be run: No such file" in lines


def test_json_has_every_sample(comparison: Comparison) -> None:
    engines = json.loads(peers_report.document(comparison))["engines"]
    assert engines["slow"]["tasks"]["decode_64"] == {
        "setting": "1 thread, flash attention",
        "tokens_per_s": [100.0, 300.0, 100.0],
        "median": 100.0,
        "ours_times_faster": 3.0,
    }
    assert engines["missing"]["error"] == "No such file"


def test_the_block_in_a_document_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "notes.md"
    file.write_text("# Notes\n", encoding="utf-8")
    peers_report.write_block(file, "one")
    file.write_text(file.read_text(encoding="utf-8") + "\nafter\n", encoding="utf-8")
    peers_report.write_block(file, "two")
    text = file.read_text(encoding="utf-8")
    assert text.startswith("# Notes\n\n<!--")
    assert text.endswith("\nafter\n")
    assert "two" in text
    assert "one" not in text
    assert text.count("<!--") == 2


def test_the_chart_is_an_svg_with_a_bar_for_each_figure(comparison: Comparison) -> None:
    svg = ET.fromstring(peers_chart.chart(comparison))
    bars = [element for element in svg.iter() if element.tag.endswith("rect")]
    widths = [float(bar.attrib["width"]) for bar in bars]
    assert len(bars) == 3
    assert widths[1] == pytest.approx(widths[0] / 4, abs=0.1)
    texts = [element.text for element in svg.iter() if element.tag.endswith("text")]
    assert "Slow & steady" in texts
    assert "100   ÷ 3.0" in texts


def test_tasks_are_the_same_for_everybody() -> None:
    task = TASKS["sequences_16"]
    assert task.prompts() == task.prompts()
    assert [len(prompt) for prompt in task.prompts()] == [32] * 16
    assert task.speed(2.0) == 16 * 32 / 2
    assert TASKS["prompt_512"].speed(2.0) == 256
    assert thread_counts(TASKS["decode_64"], 4) == [1, 4]
    assert thread_counts(TASKS["one_thread"], 4) == [1]
    assert str(Setting(1, ("flash attention",))) == "1 thread, flash attention"


Start = Callable[..., Process]

_ENGINE = """
from engines.task import Setting

def model_file(path, variant):
    if variant == "broken":
        raise ValueError("no\\nsuch variant")
    return path

class Engine:
    version = "7"
    def settings(self, task):
        return [Setting(1), Setting(2)]
    def seconds(self, task, setting):
        print("chatter")
        if task.name == "prompt_512":
            raise RuntimeError("out of memory")
        return 4.0 / setting.threads

def load(path, variant, threads):
    return Engine()
"""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts the engine above."""
    (tmp_path / "scripted.py").write_text(_ENGINE, encoding="utf-8")
    folder = Path(peers_report.__file__).parent
    monkeypatch.setattr("engines.client._FOLDER", f"{folder}{os.pathsep}{tmp_path}")
    log = (tmp_path / "log").open("w", encoding="utf-8")

    def start(variant: str = "as it is") -> Process:
        entrant = Entrant("scripted", "Scripted", "scripted", variant)
        return Process(entrant, Path(sys.executable), Path("model.gguf"), 2, os.environ, log)

    yield start
    log.close()


def test_an_engine_in_a_process(start: Start) -> None:
    process = start()
    try:
        assert process.version == "7"
        assert process.measure(TASKS["decode_64"]) == 48 / 2  # the faster of the two settings
        assert process.settings == {"decode_64": "2 threads"}
        with pytest.raises(EngineError, match="RuntimeError: out of memory"):
            process.measure(TASKS["prompt_512"])
        assert process.measure(TASKS["decode_64"]) == 48 / 2  # an error ends nothing
    finally:
        process.close()
    with pytest.raises((EngineError, ValueError)):
        process.measure(TASKS["decode_64"])


def test_an_engine_that_cannot_start(start: Start) -> None:
    with pytest.raises(EngineError, match="ValueError: no such variant"):
        start("broken")
