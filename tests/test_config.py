"""Configuration files: what they mean, and errors that name file, line and key."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ultrafast import config as config_module
from ultrafast.config import Config, ModelConfig, ServerConfig, load, parse
from ultrafast.engine.tiers import DEFAULT_TIERS, TIERS, Overflow, TierPolicy, Tiers
from ultrafast.errors import ConfigError
from ultrafast.serving.isolation import Isolation

DOCUMENT = Path(__file__).parent.parent / "docs/configuration.md"
EXAMPLE = re.search(r"```toml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)


def example_text() -> str:
    assert EXAMPLE, "the document has an example"
    return EXAMPLE[1]


def problem(text: str) -> str:
    with pytest.raises(ConfigError) as error:
        parse(text, "u.toml")
    return str(error.value)


def test_nothing_is_the_defaults() -> None:
    assert parse("", "u.toml") == Config(ServerConfig("127.0.0.1", 8000, Isolation.NONE), {})
    assert parse("[models.m]\n", "u.toml").models == {"m": ModelConfig()}
    assert ModelConfig().engine_options() == {"tiers": DEFAULT_TIERS}


def test_the_documented_example_is_the_defaults_and_has_every_key() -> None:
    text = example_text()
    read = parse(text, "u.toml")
    assert read.server == ServerConfig()
    assert read.models == {
        "smollm2-135m": ModelConfig(threads=2, isa="avx2", context=8192, cache_mib=160, tiers=DEFAULT_TIERS)
    }
    keys = set(re.findall(r"^#? ?(\w+) = ", text, re.MULTILINE))
    known = {field.name for kind in (ServerConfig, ModelConfig, TierPolicy) for field in fields(kind)}
    assert keys == known - {"tiers"} | {"share"}
    assert set(re.findall(r"tiers\.(\w+)\]", text)) == set(TIERS)


def test_what_is_said_is_changed_and_the_rest_is_not() -> None:
    read = parse(
        """
        server = {port = 9000, isolate_cache = "key"}
        [models."org/a b.gguf"]
        threads = 1
        draft_model = "d.gguf"
        share = 0.5
        tiers.ultrafast = {slots = 2, overflow = "reject", price = 10}
        [models.other.tiers.flex]
        queue = 5
        overflow = "queue"
        """,
        "u.toml",
    )
    ultrafast = replace(DEFAULT_TIERS.policies["ultrafast"], slots=2, overflow=Overflow.REJECT, price=10.0)
    flex = replace(DEFAULT_TIERS.policies["flex"], queue=5, overflow=Overflow.QUEUE)
    assert read == Config(
        ServerConfig(port=9000, isolate_cache=Isolation.KEY),
        {
            "org/a b.gguf": ModelConfig(
                threads=1, draft_model="d.gguf", tiers=Tiers({**DEFAULT_TIERS.policies, "ultrafast": ultrafast}, 0.5)
            ),
            "other": ModelConfig(tiers=Tiers({**DEFAULT_TIERS.policies, "flex": flex})),
        },
    )
    options = read.models["org/a b.gguf"].engine_options()
    assert set(options) == {"threads", "draft_model", "tiers"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n[sever]\n", "u.toml, line 2: sever: unknown key; did you mean 'server'?"),
        ("x = 1", "u.toml, line 1: x: unknown key; known are server, models"),
        ("[server]\n\n# port\nprot = 1", "u.toml, line 4: server.prot: unknown key; did you mean 'port'?"),
        ("[server]\nport = '80'", "u.toml, line 2: server.port: expected `int`, got `str`"),
        ("[server]\nport = 70000", "u.toml, line 2: server.port: expected `int` <= 65535, not 70000"),
        ("server = 5", "u.toml, line 1: server: expected a table, got `int`"),
        ("[server]\nhost = ''", 'u.toml, line 2: server.host: expected `str` of length >= 1, not ""'),
        ("[server]\nhost = 1979-05-27", "u.toml, line 2: server.host: expected `str`, got `date`"),
        (
            "[server]\nisolate_cache = 'all'",
            "u.toml, line 2: server.isolate_cache: must be one of 'none', 'tier', 'key', not \"all\"",
        ),
        ("[[models]]\nthreads = 1", "u.toml, line 1: models: expected a table, got `array`"),
        ("[models]\na = 1", "u.toml, line 2: models.a: expected a table, got `int`"),
        ("[models.'']", 'u.toml, line 1: models."": a model needs a name'),
        ("[models.m]\nshare = 1.0", "u.toml, line 2: models.m.share: expected `float` <= 0.99, not 1.0"),
        ("[models.m]\nshare = nan", "u.toml, line 2: models.m.share: expected `float` >= 0.05, not nan"),
        ("[models.m]\nthreads = true", "u.toml, line 2: models.m.threads: expected `int`, got `bool`"),
        (
            '[models."a/b.gguf".tiers.ultrafast]\nslots = 1\n\n[models."a/b.gguf".tiers.fast]\nslots = -1',
            'u.toml, line 5: models."a/b.gguf".tiers.fast.slots: expected `int` >= 0, not -1',
        ),
        (
            "[models.m.tiers.turbo]\nslots = 1",
            "u.toml, line 1: models.m.tiers.turbo: unknown key; known are ultrafast, fast, default, flex",
        ),
        (
            "[models.m]\ntiers.flex.overflow = 'wait'",
            "u.toml, line 2: models.m.tiers.flex.overflow: must be one of 'default', 'queue', 'reject', not \"wait\"",
        ),
        (
            "[models.m]\ntiers = {default = {overflow = 'default'}}",
            "u.toml, line 2: models.m.tiers.default.overflow: the default tier cannot overflow into itself; "
            "use queue or reject",
        ),
        (
            "[models.m.tiers.default]\nslots = 0",
            "u.toml, line 2: models.m.tiers.default.slots: the default tier needs at least one slot",
        ),
        (
            "[models.m.tiers.ultrafast]\nslots = 0",
            "u.toml, line 2: models.m.tiers.ultrafast.slots: without slots, waiting for one is in vain: "
            "set overflow to reject or default",
        ),
    ],
)
def test_errors_name_file_line_and_key(text: str, message: str) -> None:
    assert problem(text) == message


def test_values_of_several_lines_do_not_shift_the_line() -> None:
    text = (
        "[models.m]\nisa = \"\"\"\nport = 1\n[server]\n\"\"\"\ndraft_model = '''x\n='''\n\nthreads = [\n1, # ]\n2,\n]\n"
    )
    assert problem(text) == "u.toml, line 9: models.m.threads: expected `int`, got `array`"
    assert problem(text.replace("\n", "\r\n")).startswith("u.toml, line 9: models.m.threads")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("[server\nport = 1", "line 1, column 8"),
        ("a = 1\nb = \n", "line 2, column 5"),
        ("[server]\nport = 1\nport = 2", "line 3"),
        ("[server]\n[server]\n", "line 2, column 8"),
        ('a = 1\nb = """never closed\n', "line 2"),
    ],
)
def test_syntax_errors_name_the_line(text: str, where: str) -> None:
    assert problem(text).startswith(f"u.toml, {where}: not valid TOML: ")


def test_what_cannot_be_read(tmp_path: Path) -> None:
    for path, message in [
        (tmp_path / "none.toml", "No such file"),
        (tmp_path, "Is a directory"),
    ]:
        with pytest.raises(ConfigError, match=f"cannot read {path}: {message}"):
            load(path)
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b"[server]\nhost = '\xe9'\n")
    with pytest.raises(ConfigError, match=rf"{latin}, line 2: not UTF-8"):
        load(latin)
    large = tmp_path / "large.toml"
    large.write_bytes(b"#" * (config_module.MAX_BYTES + 1))
    with pytest.raises(ConfigError, match="larger than 1 MiB"):
        load(large)


def test_a_file_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "u.toml"
    path.write_bytes(b"\xef\xbb\xbf[server]\r\nport = 1\r\n")
    assert load(path).server.port == 1


def read(text: str) -> None:
    """Only `ConfigError` may come out, on one line that names the file."""
    try:
        parse(text, "u.toml")
    except ConfigError as error:
        message = str(error)
    else:
        return
    assert message.startswith("u.toml")
    assert re.match(r"u\.toml(, line \d+(, column \d+)?)?: ", message)


WORDS = ["server", "models", "tiers", "m", "", "ultrafast", "default", "flex", "slots", "queue", "overflow", "price"]
WORDS += ["share", "threads", "port", "isolate_cache", "x.y", '"', "é"]
scalars = st.one_of(
    st.integers(), st.floats(), st.booleans(), st.text(max_size=5), st.sampled_from([*WORDS, "reject", "none"])
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=3),
    max_leaves=6,
)


def toml(value: Any) -> str:
    """A value as TOML writes it, on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + "".join(f"\\U{ord(c):08X}" if not 0xD800 <= ord(c) < 0xE000 else "" for c in value) + '"'
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(key)} = {toml(inner)}" for key, inner in value.items()) + "}"
    return str(value)


@settings(max_examples=300, deadline=None)
@given(st.text())
@example("a" + ".a" * 5000 + " = 1")
@example("a = " + "[" * 5000 + "]" * 5000)
@example("a = " + "9" * 5000)
@example("[server]\nport = 1979-13-45")
@example("[" + "a." * 3000 + "a]\nb = 1")
@example('"\\ud800" = 1')
@example("a = '''\n")
def test_any_text(text: str) -> None:
    read(text)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(WORDS[:3]), st.dictionaries(st.sampled_from(WORDS), values, max_size=3)))
def test_any_values(document: dict[str, dict[str, Any]]) -> None:
    lines = [f"{toml(key)} = {toml(value)}" for key, value in document.items()]
    read("\n".join(lines))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_the_example_gone_wrong(data: st.DataObject) -> None:
    text = example_text()
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 20)))
        noise = data.draw(
            st.text(max_size=4) | st.sampled_from(["\n", "[", "]", '"', "'''", "= ", "[[", "}", "-", "0"])
        )
        text = text[:start] + noise + text[end:]
    read(text)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(["", "# x = 1", "  "]), max_size=5), st.data())
def test_the_line_is_right_wherever_the_key_is(blank: list[str], data: st.DataObject) -> None:
    """An unknown key put after any line of the example: that line and no other is named."""
    lines = [*blank, *example_text().splitlines()]
    at = data.draw(st.integers(0, len(lines)))
    lines.insert(at, "zzz = 1")
    with pytest.raises(ConfigError, match=rf"u\.toml, line {at + 1}: (.+\.)?zzz: unknown key"):
        parse("\n".join(lines), "u.toml")


def test_a_large_array_takes_no_time() -> None:
    text = "[server]\nport = [\n" + "1,\n" * 20_000 + "]\n"
    assert problem(text).startswith("u.toml, line 2: server.port: expected `int`, got `array`")
