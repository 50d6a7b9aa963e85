"""``POST /v1/chat/completions``: OpenAI's Chat Completions, plain and streamed."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ultrafast.errors import RequestError
from ultrafast.serving.errors import error_body
from ultrafast.serving.generate import loop_of, run
from ultrafast.serving.wire import sse
from ultrafast.serving.wire.body import decode, read_body
from ultrafast.serving.wire.chat_answer import ChatAnswer
from ultrafast.serving.wire.chat_request import DECODER, job
from ultrafast.serving.wire.whole import whole_answer


async def create_chat_completion(request: Request) -> Response:
    """The endpoint."""
    body = await read_body(request)
    ask = decode(DECODER, body)
    loop = loop_of(request.app.state.loops, ask.model)
    running = await run(
        request, loop, job(ask), request_id=request.state.request_id, body_size=len(body), whole=not ask.stream
    )
    answer = ChatAnswer(loop, ask, running)
    if ask.stream:
        return sse.EventStream(answer.frames(), running=running, on_error=error_frame)
    return await whole_answer(request, running, answer.completion)


def error_frame(error: RequestError) -> bytes:
    """A failure after the first byte."""
    return sse.frame({"error": error_body(error)})
