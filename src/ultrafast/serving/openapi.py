"""An OpenAPI document, made from the types that requests are decoded into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ultrafast import __version__
from ultrafast.serving import answers

Schema = Mapping[str, Any]

_REF = "#/components/schemas/{name}"
_EVENT_STREAM: dict[str, Any] = {"text/event-stream": {"schema": {}}}  # of an event: there are many kinds
_GENERAL_ERRORS = ("400", "404", "405")
_BODY_ERRORS = ("408", "413")  # of whatever has a body
_ENGINE_ERRORS = ("429", "500", "503")  # of whatever the engine works for


@dataclass(frozen=True, slots=True)
class Operation:
    """What one method of one path takes and gives.

    Attributes:
        request: type that the body is decoded into; None: there is no body.
        answer: schema of the JSON body of a 200, or None where it has none.
        generates: the engine works for it, so that it may have no room.
        streams: with ``stream: true`` the answer is server-sent events.
        parameters: of path and query, as OpenAPI has them.
        error: schema of the body of an error.
        statuses: beside 200 and the errors that all have, with their schemas.
        leads_to: ids of operations that take the answer's ``id``, and their parameter for it.
    """

    method: str
    path: str
    id: str
    summary: str
    answer: Schema | None = None
    request: type[msgspec.Struct] | None = None
    generates: bool = False
    streams: bool = False
    parameters: Sequence[Schema] = ()
    error: Schema = field(default_factory=lambda: answers.ERROR)
    statuses: Mapping[str, Schema] = field(default_factory=dict)
    leads_to: Mapping[str, str] = field(default_factory=dict)


def parameter(name: str, where: str, schema: Schema, description: str) -> dict[str, Any]:
    """A parameter of a path or query; those of a path are required."""
    return {"name": name, "in": where, "required": where == "path", "schema": schema, "description": description}


def document(operations: Sequence[Operation], models: Sequence[str]) -> dict[str, Any]:
    """The OpenAPI 3.1 document of these operations on a server of these models."""
    requests = [operation.request for operation in operations if operation.request]
    _, components = msgspec.json.schema_components(requests, ref_template=_REF)
    for component in components.values():
        if "model" in component.get("properties", {}):
            component["properties"]["model"] = {"enum": list(models)}
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Ultrafast",
            "version": __version__,
            "description": "Speed as a service tier: the same weights, answered as fast as `service_tier` says.",
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": components},
    }


def _operation(operation: Operation) -> dict[str, Any]:
    content: dict[str, Any] = {} if operation.answer is None else {"application/json": {"schema": operation.answer}}
    if operation.streams:
        content |= _EVENT_STREAM
    responses: dict[str, Any] = {"200": _response("The answer.", content)}
    if operation.leads_to:
        responses["200"]["links"] = {
            target: {"operationId": target, "parameters": {name: "$response.body#/id"}}
            for target, name in operation.leads_to.items()
        }
    errors = (
        *_GENERAL_ERRORS,
        *(_BODY_ERRORS if operation.request else ()),
        *(_ENGINE_ERRORS if operation.generates else ()),
    )
    for status in errors:
        responses[status] = _response("An error.", {"application/json": {"schema": operation.error}})
    for status, schema in operation.statuses.items():
        responses[status] = _response("Also an answer.", {"application/json": {"schema": schema}})
    described: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "responses": responses,
    }
    if operation.parameters:
        described["parameters"] = list(operation.parameters)
    if operation.request is not None:
        schema = {"$ref": _REF.format(name=operation.request.__name__)}
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return described


def _response(description: str, content: Mapping[str, Any]) -> dict[str, Any]:
    headers = {"x-request-id": {"schema": {"type": "string"}, "required": True}}
    return {"description": description, "headers": headers, "content": dict(content)}
