"""`ultrafast models`: what is known by name, and what is on disk."""

from __future__ import annotations

from typing import Any

from ultrafast.cli.options import Json


def models(as_json: Json = False) -> None:
    """List the models known and those on disk.

    Example: ultrafast models --json
    """
    from ultrafast.models import catalog

    on_disk = {model.name: model for model in catalog.on_disk()}
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "size_bytes": (on_disk.get(name) or catalog.KNOWN[name]).size_bytes,
            "path": str(on_disk[name].path) if name in on_disk else None,
            "description": catalog.KNOWN[name].description if name in catalog.KNOWN else None,
            "licence": catalog.KNOWN[name].licence if name in catalog.KNOWN else None,
        }
        for name in {**catalog.KNOWN, **on_disk}
    ]
    if as_json:
        import json

        print(json.dumps(rows, indent=2))
        return
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        where = row["path"] or f"not on disk; get it with: ultrafast pull {row['name']}"
        print(f"{row['name']:{width}}  {row['size_bytes'] / 1e6:9,.1f} MB  {where}")
        if row["description"]:
            print(f"{'':{width + len('  123,456.7 MB  ')}}{row['description']} ({row['licence']})")
