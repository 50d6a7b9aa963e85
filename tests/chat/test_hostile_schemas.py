"""Schemas made to take long or much: each is refused or served, in bounded memory, by a process that lives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_MEMORY = 1200 << 20  # bytes of address space beyond what the process has at its beginning
_HANG_S = 300

PROGRAM = """
import json, random, resource, sys, threading
sys.path.insert(0, "tests")
from support.grammars import wander
from support.scripted_engine import ByteTokenizer
from ultrafast.chat.grammar import answer_grammar
from ultrafast.chat.syntax import HERMES
from ultrafast.engine.grammar import Grammars
from ultrafast.errors import RequestError
from ultrafast.models import fetch
from ultrafast.models.gguf import GgufFile
from ultrafast.models.tokenizer import Tokenizer
from ultrafast.types import OutputFormat, ToolChoice

def nested(levels, inner):
    for _ in range(levels):
        inner = {"type": "object", "properties": {"a": inner}}
    return inner

def doubled(keyword, levels):
    names = {f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**names, f"d{levels}": {"type": "string"}}}

def linked(levels, cycle):
    names = {f"d{n}": nested(20, {"$ref": f"#/$defs/d{n + 1}"}) for n in range(levels)}
    names[f"d{levels}"] = {"$ref": "#/$defs/d0"} if cycle else {"type": "null"}
    return {"$ref": "#/$defs/d0", "$defs": names}

HOSTILE = {
    "deep": nested(40, {}), "too deep": nested(400, {}), "far too deep": json.loads("[" * 900 + "]" * 900),
    "many references": linked(100, False), "a circle of references": linked(400, True),
    "twice each, any": doubled("anyOf", 60), "twice each, all": doubled("allOf", 60),
    "twice each, one": doubled("oneOf", 60),
    "a product": {"allOf": [{"anyOf": [{"properties": {f"p{i}_{j}": {}}} for j in range(4)]} for i in range(12)]},
    "large enum": {"enum": [f"value number {n}" for n in range(9000)]},
    "long constant": {"const": "x" * 250_000}, "a megabyte": {"enum": ["y" * 100_000] * 10},
    "a megabyte of description": {"type": "null", "description": "z" * 1_000_000},
    "many optional": {"type": "object", "properties": {f"p{n}": {"type": "integer"} for n in range(1000)}},
    "many lists": {"anyOf": [{"type": "array", "items": {"type": "integer", "minimum": n}} for n in range(2000)]},
    "many patterns": {"type": "object", "properties": {f"p{n}": {"pattern": f"^x{{{n}}}y*$"} for n in range(400)}},
    "names by pattern": {"patternProperties": {f"^{chr(97 + n)}.*z{{40}}$": {} for n in range(16)}},
    "large counts": {"type": "array", "items": {"maxLength": 2**31 - 1}, "minItems": 10**6, "maxItems": 2**31 - 1},
    "large properties": {"type": "object", "maxProperties": 10**9},
    "nested repetition": {"type": "string", "pattern": "^(((((a{9}){9}){9}){9}){9}){2}$"},
    "much repetition": {"type": "string", "pattern": "^(.*a.{900}){20}$"},
    "exponential": {"type": "string", "pattern": "^(a|b)*a(a|b){300}$"},
    "ambiguous": {"type": "string", "pattern": "^((a*)*(a*)*)*b$", "minLength": 900},
    "intersections": {"allOf": [{"type": "string", "pattern": f"{c}.{{3,40}}{c}"} for c in "abcdefghij"]},
    "large multiples": {"type": "integer", "multipleOf": 9_999_991},
    "multiples": {"type": "integer", "multipleOf": 99_991},
    "small multiples": {"type": "number", "multipleOf": 1e-9},
    "common multiples": {"allOf": [{"type": "integer", "multipleOf": n} for n in (101, 103, 107)]},
    "contains itself": {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    "is itself": {"$ref": "#"}, "alternatives of itself": {"anyOf": [{"$ref": "#"}, {"items": {"$ref": "#"}}]},
}

with GgufFile(fetch.resolve("smollm2-135m")) as file:
    tokenizer = Tokenizer.from_gguf(file.metadata)
grammars = Grammars(tokenizer)
Grammars.prepare(grammars, "start: /a/")
soft = resource.getrlimit(resource.RLIMIT_AS)
in_use = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (in_use + int(sys.argv[1]), soft[1]))

def attack(name, schema):
    try:
        grammar = answer_grammar(HERMES, [], ToolChoice(), OutputFormat("json_schema", schema), "none")
        grammars.prepare(grammar)
        text, complete = wander(grammars.constraint(grammar), tokenizer, random.Random(1), max_tokens=150)
    except RequestError as error:
        assert error.status == 400, error
        print(name, "refused", error.message[:150])
    else:
        print(name, "written", len(text))

for name, schema in HOSTILE.items():
    thread = threading.Thread(target=attack, args=(name, schema))  # with the stack of a thread, as in the server
    thread.start()
    thread.join()
print("alive", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, "MiB")
"""


def test_hostile_schemas_are_bounded_in_memory_and_end_no_process(embedded_model_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(_MEMORY)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_HANG_S, check=False)
    print(ended.stdout)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert "Traceback" not in ended.stderr, ended.stderr[-2000:]
    lines = ended.stdout.splitlines()
    assert lines[-1].startswith("alive")
    outcomes = [line.split(" refused ")[0] for line in lines if " refused " in line]
    assert {"too deep", "a circle of references", "nested repetition", "common multiples"} <= set(outcomes)
    assert len(lines) - len(outcomes) > 10  # what is only large is served
