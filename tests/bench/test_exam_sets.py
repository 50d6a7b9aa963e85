"""Question sets: files in every format, precise errors, and the hub."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants
from hypothesis import given, settings
from hypothesis import strategies as st

from support.fake_hub import COMMIT, FakeHub, fake_hub
from ultrafast.bench.exam.files import rows_of
from ultrafast.bench.exam.questions import questions_from
from ultrafast.bench.exam.sets import SAMPLE_NOTE, load
from ultrafast.errors import ConfigError, DownloadError

PIXEL = "data:image/png;base64,iVBORw0KGgo="
ROWS: list[dict[str, Any]] = [
    {
        "id": "1",
        "question": "One, or\n“two”?",
        "image": "",
        "answer": "A",
        "answer_type": "multipleChoice",
        "author_name": "somebody",
        "rationale": "so",
        "raw_subject": "Logic",
        "category": "Math",
    },
    {"id": "2", "question": "Which?", "image": PIXEL, "answer": "0.5", "answer_type": "exactMatch"},
]
TASK = {
    "task_id": "t1",
    "sector": "Finance",
    "occupation": "Clerk",
    "prompt": "Write a memo.",
    "reference_files": ["reference_files/a.xlsx"],
}


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    match path.suffix:
        case ".jsonl":
            path.write_text("\n\n".join(map(json.dumps, rows)))
        case ".json":
            path.write_text(json.dumps(rows))
        case ".csv":
            with path.open("w", newline="", encoding="utf-8-sig") as file:
                writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)))
                writer.writeheader()
                writer.writerows(rows)
        case ".parquet":
            pyarrow = pytest.importorskip("pyarrow")
            from pyarrow import parquet

            parquet.write_table(pyarrow.Table.from_pylist(rows), path)


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".parquet"])
def test_every_format_gives_the_same_questions(tmp_path: Path, suffix: str) -> None:
    write(tmp_path / f"set{suffix}", ROWS)
    loaded = load(str(tmp_path / f"set{suffix}"))
    first, second = loaded.questions
    assert (first.id, first.text, first.kind, first.answer) == ("1", "One, or\n“two”?", "multipleChoice", "A")
    assert (first.subject, first.category, first.image) == ("Logic", "Math", "")
    assert (second.kind, second.answer, second.image) == ("exactMatch", "0.5", PIXEL)
    assert loaded.name == f"set{suffix}"
    assert str(tmp_path) not in loaded.source


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_tasks_of_gdpval(tmp_path: Path, suffix: str) -> None:
    write(tmp_path / f"set{suffix}", [TASK])
    (task,) = load(str(tmp_path / f"set{suffix}")).questions
    assert (task.id, task.kind, task.text, task.files) == ("t1", "open", "Write a memo.", ("reference_files/a.xlsx",))
    assert (task.category, task.subject, task.answer) == ("Finance", "Clerk", "")


def test_parquet_needs_a_package_and_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "set.parquet").write_bytes(b"PAR1")
    with pytest.raises(ConfigError, match=r"pip install 'ultrafast\[exam\]'"):
        load(str(tmp_path / "set.parquet"))


def test_the_sample_is_ours_and_says_so() -> None:
    sample = load("sample")
    assert len(sample.questions) == 40
    assert {question.kind for question in sample.questions} == {"multipleChoice", "exactMatch"}
    assert len({question.subject for question in sample.questions}) > 10
    assert "not Humanity's Last Exam" in sample.note
    assert sample.note == SAMPLE_NOTE


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("set.jsonl", '{"id": "1", "question": "q", "answer": "a"}\n{"id": "2",', "set.jsonl, line 2: not JSON"),
        ("set.jsonl", "[1]", "line 1: a question is an object"),
        ("set.jsonl", '{"id": "1", "answer": "a"}', "line 1: question is missing"),
        ("set.jsonl", '{"id": "1", "question": " ", "answer": "a"}', "line 1: question is blank"),
        ("set.jsonl", '{"id": "1", "question": "q"}', "line 1: answer is missing"),
        ("set.jsonl", '{"id": ["1"], "question": "q", "answer": "a"}', "line 1: id must be text"),
        ("set.jsonl", '{"id": true, "question": "q", "answer": "a"}', "line 1: id must be text"),
        (
            "set.jsonl",
            '{"id": 1, "question": "q", "answer": "a"}\n\n{"id": "1", "question": "q", "answer": "a"}',
            "line 3: the id '1' is taken: set.jsonl, line 1",
        ),
        ("set.jsonl", '{"id": "1", "question": "q", "answer": "a", "answer_type": "essay"}', "not 'essay'"),
        ("set.jsonl", '{"id": "1", "question": "q", "answer": "a", "image": "cat.png"}', "image must be a URL"),
        ("set.jsonl", '{"task_id": "1", "prompt": "p", "reference_files": [1]}', "must be a list of names"),
        ("set.jsonl", "", "no question"),
        ("set.json", '{"id": "1"}', "a list of questions"),
        ("set.json", "[[]]", "set.json, item 1: a question is an object"),
        ("set.json", "[" * 100_000, "not JSON|nested too deeply"),
        ("set.csv", "id,question,answer\n1,q\n", "set.csv, line 2: 2 cells under 3 columns"),
        ("set.csv", "id,id\n1,2\n", "two columns have one name"),
        ("set.csv", 'id,question,answer\n1,"a\nb",c\n2,,c\n', "set.csv, line 4: question is missing"),
        ("set.csv", 'id,question,answer\n1,"a', "not CSV"),
        ("set.parquet", "PAR1 and no more", "cannot be read as parquet"),
        ("set.txt", "", "ends in .jsonl"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, name: str, content: str, message: str) -> None:
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=message) as raised:
        load(str(tmp_path / name))
    assert len(str(raised.value).splitlines()) == 1


def test_no_such_set() -> None:
    with pytest.raises(ConfigError, match="neither a file nor a known set: sample, hle, hle-rolling, gdpval"):
        load("hel")


FUZZ = st.one_of(
    st.binary(max_size=200),
    st.lists(
        st.dictionaries(
            st.sampled_from(
                ["id", "question", "answer", "answer_type", "image", "task_id", "prompt", "reference_files"]
            ),
            st.one_of(
                st.none(), st.booleans(), st.floats(), st.text(max_size=5), st.lists(st.text(max_size=3), max_size=2)
            ),
        ),
        max_size=3,
    ).map(lambda rows: "\n".join(map(json.dumps, rows)).encode()),
)


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".parquet"])
def test_any_bytes_are_questions_or_a_declared_error(tmp_path_factory: pytest.TempPathFactory, suffix: str) -> None:
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path_factory.mktemp("fuzz") / f"set{suffix}"

    @settings(max_examples=40, deadline=None)
    @given(FUZZ)
    def read(content: bytes) -> None:
        path.write_bytes(content)
        with suppress(ConfigError):
            assert questions_from(rows_of(path))

    read()


def test_what_is_chosen(tmp_path: Path) -> None:
    rows = [{**ROWS[0], "id": str(i), "image": PIXEL if i % 4 == 0 else ""} for i in range(40)]
    write(tmp_path / "set.jsonl", rows)
    whole = load(str(tmp_path / "set.jsonl"))
    first = whole.chosen(images=False, limit=10, seed=1)
    assert (len(first.questions), first.left_out) == (10, 10)
    assert not any(question.image for question in first.questions)
    assert first.digest == whole.chosen(images=False, limit=10, seed=1).digest
    assert first.digest != whole.chosen(images=False, limit=10, seed=2).digest
    assert whole.chosen(images=True, limit=None, seed=1).left_out == 0
    assert len(whole.chosen(images=True, limit=None, seed=1).questions) == 40


def test_a_set_of_images_alone(tmp_path: Path) -> None:
    write(tmp_path / "set.jsonl", [ROWS[1]])
    with pytest.raises(ConfigError, match="--images send"):
        load(str(tmp_path / "set.jsonl")).chosen(images=False, limit=None, seed=0)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub._snapshot_download.HF_HUB_CACHE", str(tmp_path / "hub"), raising=False)
    files = {"data/test-00000-of-00002.parquet": b"", "data/test-00001-of-00002.parquet": b"", "extra.csv": b"no,set"}
    if "pyarrow" in sys.modules or _has_pyarrow():
        for number, name in enumerate(list(files)[:2]):
            path = tmp_path / "part.parquet"
            write(path, [ROWS[number]])
            files[name] = path.read_bytes()
    questions = {"sets/own.jsonl": json.dumps(ROWS[0]).encode(), "sets/other.jsonl": b"{"}
    with fake_hub({"datasets/cais/hle": files, "datasets/org/own": questions}) as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        huggingface_hub.close_session()
        yield server
    huggingface_hub.close_session()


def _has_pyarrow() -> bool:
    from importlib.util import find_spec

    return find_spec("pyarrow") is not None


def test_a_known_set_of_several_files_on_the_hub(hub: FakeHub) -> None:
    pytest.importorskip("pyarrow")
    loaded = load("hle")
    assert [question.id for question in loaded.questions] == ["1", "2"]
    assert loaded.name == "Humanity's Last Exam"
    assert COMMIT in loaded.source
    assert not any("extra.csv" in path for _, path, _ in hub.requests)


def test_a_file_on_the_hub_and_then_offline(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [question.id for question in load("hf:org/own/sets/own.jsonl").questions] == ["1"]
    asked = len(hub.requests)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert load("hf:org/own/sets/own.jsonl").source == f"org/own on the hub, revision {COMMIT}"
    assert load(f"hf:org/own/sets/own.jsonl@{COMMIT}").questions
    assert len(hub.requests) == asked
    with pytest.raises(DownloadError, match="not in the hub's cache"):
        load("gdpval")


def test_a_gated_set_says_what_to_do(hub: FakeHub) -> None:
    hub.gated = True
    with pytest.raises(
        DownloadError, match=r"accept its terms at https://huggingface.co/datasets/cais/hle .* HF_TOKEN"
    ):
        load("hle")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hf:org/nothing/a.jsonl", "no data set org/nothing"),
        ("hf:org/own/none.jsonl", "holds no none.jsonl"),
        ("hf:org/own/sets/other.jsonl", "other.jsonl, line 1: not JSON"),
        ("hf:org/own", "hf:ORG/NAME/FILE"),
        ("hf:org/own/../a.jsonl", "hf:ORG/NAME/FILE"),
        ("hf:org/own/*.jsonl", "hf:ORG/NAME/FILE"),
    ],
)
def test_names_on_the_hub_that_are_wrong(hub: FakeHub, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(name)


def test_no_hub(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    huggingface_hub.close_session()
    with pytest.raises(DownloadError, match="cannot be reached"):
        load("hf:org/own/sets/own.jsonl")
