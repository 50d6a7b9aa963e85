"""`ultrafast bench exam` as a program: killed and gone on with, interrupted, and what it writes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from support.exam_server import ExamServer, Said, exam_server

PROGRAM = [sys.executable, "-c", "from ultrafast.cli.main import main; main()", "bench", "exam"]
IDS = [f"q{number:02}" for number in range(40)]
TIERS = ["default", "ultrafast"]
CONCURRENCY = 3


def say(body: dict[str, Any]) -> Said:
    return Said(delay_s=0.02 if body["service_tier"] == "ultrafast" else 0.05)


def start(server: ExamServer, folder: Path, *more: str) -> subprocess.Popen[str]:
    questions = folder / "set.jsonl"
    questions.write_text(
        "\n".join(json.dumps({"id": name, "question": f"What is [{name}]?", "answer": "42"}) for name in IDS)
    )
    arms = [word for tier in TIERS for word in ("--tier", tier)]
    options = ["--set", str(questions), "--url", server.url, "--concurrency", str(CONCURRENCY), *arms, *more]
    return subprocess.Popen(
        [*PROGRAM, *options],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OPENAI_API_KEY": "sk-secret"},
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=60)
    return process.returncode, output, errors


def test_killed_five_times_at_random_every_question_is_answered_once(tmp_path: Path) -> None:
    draw = random.Random()
    seed = draw.randrange(1 << 30)
    draw.seed(seed)
    with exam_server(say) as server:
        kills = 0
        while kills < 5:
            process = start(server, tmp_path)
            server.wait_for_asks(len(server.bodies) + len(TIERS) + draw.randint(1, 4))
            time.sleep(draw.uniform(0, 0.03))
            process.send_signal(signal.SIGKILL)
            finish(process)
            kills += 1
        code, output, errors = finish(start(server, tmp_path, "--answers", "answers.jsonl", "--json", "exam.json"))
        assert code == 0, f"seed {seed}: {errors}"
        asked = server.asked(IDS)
        code, again, errors = finish(start(server, tmp_path))
        assert (code, again) == (0, output)
        assert "none is asked for" in errors
        assert server.asked(IDS) == asked
    records = [json.loads(line) for line in (tmp_path / "exam.jsonl").read_bytes().splitlines()]
    answered = Counter((record["arm"], record["question"]) for record in records if "call" in record)
    assert answered == {(tier, name): 1 for tier in TIERS for name in IDS}, f"seed {seed}"
    # Asked more than once is only what was under way at a kill, and never after its answer.
    assert sum(asked.values()) - len(answered) <= kills * CONCURRENCY, f"seed {seed}"
    done: set[tuple[str, str]] = set()
    for record in records:
        if "asking" in record:
            assert (record["arm"], record["asking"]) not in done, f"seed {seed}"
        elif "call" in record:
            done.add((record["arm"], record["question"]))
    lines = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_bytes().splitlines()]
    assert Counter((line["arm"], line["question"]) for line in lines) == answered
    assert all(line["correct"] for line in lines)
    document = json.loads((tmp_path / "exam.json").read_bytes())
    lost = sum(arm["lost"] for arm in document["results"]["arms"])
    assert sum(asked.values()) - len(answered) <= lost
    assert (document["kind"], document["setup"]["concurrency"]) == ("exam", CONCURRENCY)
    assert document["results"]["complete"] is True
    written = "".join(path.read_text() for path in tmp_path.iterdir() if path.suffix in (".json", ".jsonl"))
    assert "sk-secret" not in written
    assert str(tmp_path) not in written
    assert "default" in output
    assert "ultrafast" in output
    assert "sum of" in output


def test_interrupted_it_tells_what_is_there(tmp_path: Path) -> None:
    with exam_server(lambda body: Said(delay_s=0.05)) as server:
        process = start(server, tmp_path)
        server.wait_for_asks(len(TIERS) + 8)
        process.send_signal(signal.SIGINT)
        code, output, errors = finish(process)
    assert code == 130
    assert "The run is not complete" in output
    assert "the same command goes on from there" in errors
    assert "Traceback" not in errors


def test_the_sample_is_marked_in_everything(tmp_path: Path) -> None:
    with exam_server(lambda body: Said("Answer: B")) as server:
        options = ["--url", server.url, "--json", "e.json", "--html", "e.html", "--limit", "3"]
        done = subprocess.run([*PROGRAM, *options], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    for text in (done.stdout, done.stderr, (tmp_path / "e.html").read_text(), (tmp_path / "e.json").read_text()):
        assert "It is not Humanity" in text
    assert "<script" not in (tmp_path / "e.html").read_text()
