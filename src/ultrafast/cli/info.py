"""`ultrafast info`: the model, the machine, and what speed to expect of the two."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ultrafast.cli.options import DEFAULT_MODEL, Isa, Json, Model, Threads

if TYPE_CHECKING:
    from ultrafast.engine.engine import Engine


def info(model: Model = DEFAULT_MODEL, threads: Threads = None, isa: Isa = None, as_json: Json = False) -> None:
    """Show model, machine and the speed to expect.

    The last line is the pace that memory sets: decoding at the speed of a plain sequential read of the same bytes,
    measured on the spot. Decode comes near it, or above it where a cache keeps a part of the weights.

    Example: ultrafast info --json
    """
    from ultrafast.cli.progress import ensure_on_disk
    from ultrafast.engine.engine import Engine

    ensure_on_disk(model)
    with Engine(model, threads=threads, isa=isa) as engine:
        facts = _facts(engine)
    if as_json:
        import json

        print(json.dumps(facts, indent=2))
    else:
        _show(facts)


def _facts(engine: Engine) -> dict[str, Any]:
    from ultrafast.engine import native, topology

    machine = topology.detect()
    shape = {**asdict(engine.shape), "num_parameters": engine.shape.num_parameters}
    del shape["rope_inv_freq"]  # long, and of no use to a reader
    speed = native.read_speed(engine.weight_bytes, engine.threads)
    return {
        "model": {"id": engine.model_id, "path": str(engine.path), "bytes_per_token": engine.weight_bytes, **shape},
        "machine": {**asdict(machine), "default_threads": topology.default_threads(machine)},
        "engine": {
            "isa": engine.isa,
            "isas_available": native.available_isas(),
            "isas_supported": native.supported_isas(),
            "threads": engine.threads,
            "num_pinned": engine.num_pinned,
            "max_context": engine.max_context,
            "num_slots": engine.num_slots,
        },
        "limit": {
            "read_bytes_per_s": speed.bytes_per_s,
            "read_method": speed.method,
            "bound_tokens_per_s": speed.bytes_per_s / engine.weight_bytes,
        },
    }


def _show(facts: dict[str, Any]) -> None:
    model, machine, engine, limit = facts["model"], facts["machine"], facts["engine"], facts["limit"]
    quota = "no quota" if machine["cpu_quota"] is None else f"a quota of {machine['cpu_quota']:g}"
    caches = ", ".join(
        f"{name} {_size(machine[field])}"
        for name, field in (("L1d", "l1d_bytes"), ("L2", "l2_bytes"), ("L3", "l3_bytes"))
        if machine[field]
    )
    rows = {
        "model": f"{model['id']}: {model['architecture']}, {model['num_parameters'] / 1e6:,.0f} M parameters",
        "file": model["path"],
        "shape": (
            f"{model['num_layers']} layers, hidden {model['hidden_size']}, FFN {model['intermediate_size']}, "
            f"{model['num_heads']} heads / {model['num_kv_heads']} KV heads of {model['head_dim']}, "
            f"vocabulary {model['vocab_size']:,}"
        ),
        "context": f"{engine['max_context']:,} tokens, {engine['num_slots']} slots",
        "machine": f"{machine['cpu_model']}, {len(machine['cores'])} physical cores allowed, {quota}",
        "caches": caches or "unknown",
        "memory": f"{_size(machine['memory_bytes'])} available",
        "engine": f"{engine['isa']} ({_others(engine)}), {_threads(engine)}, {engine['num_pinned']} pinned",
        "limit": (
            f"about {limit['bound_tokens_per_s']:,.0f} tokens/s: {model['bytes_per_token'] / 1e6:,.1f} MB "
            f"read per token, {limit['read_bytes_per_s'] / 1e9:,.1f} GB/s measured just now"
        ),
    }
    for name, text in rows.items():
        print(f"{name:8} {text}")


def _others(engine: dict[str, Any]) -> str:
    supported = engine["isas_supported"]
    missing = [name for name in engine["isas_available"] if name not in supported]
    return f"runs here: {', '.join(supported)}" + (f"; does not: {', '.join(missing)}" if missing else "")


def _threads(engine: dict[str, Any]) -> str:
    return f"{engine['threads']} thread{'s' * (engine['threads'] != 1)}"


def _size(count: int) -> str:
    """Bytes for people, in powers of 1024 as caches and memory are sold."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if count >= factor:
            return f"{count / factor:,.1f} {unit}"
    return f"{count / 1024:,.0f} KiB"
