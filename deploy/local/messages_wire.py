"""The steps of a script on the wire: a message as JSON or as events, and what happens to a connection instead."""

import asyncio
import json
import re
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from aiohttp import web

from settled.local.messages_cache import input_tokens
from settled.local.messages_rules import SERVER_CALLS, Block, Body, canonical
from settled.local.messages_script import (
    ERROR_TYPES,
    PARTIAL,
    Cut,
    CutStream,
    HttpError,
    NotAMessage,
    Reply,
    Stall,
    Step,
    StreamError,
    new_id,
)

REQUEST_ID = web.RequestKey("request_id", str)
Event = tuple[str, Mapping[str, Any]]
STATUSES = {name: status for status, name in ERROR_TYPES.items()}


def message(reply: Reply, body: Body) -> dict[str, Any]:
    """The reply to `body` as one JSON message."""
    output = max(1, len(canonical(reply.blocks())) // 4)
    cached = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    return {
        "id": new_id("msg"),
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": reply.blocks(),
        "stop_reason": reply.stop_reason,
        "stop_sequence": reply.stop_sequence,
        "stop_details": reply.stop_details,
        "usage": {"input_tokens": input_tokens(body), **cached, "output_tokens": output, **reply.usage},
    }


def events(reply: Reply, body: Body) -> Iterator[Event]:
    """The reply to `body` as the events of a stream: each one's name, and its data less the `type`, which is that."""
    whole = message(reply, body)
    ending = {name: whole[name] for name in ("stop_reason", "stop_sequence", "stop_details")}
    usage = {**whole["usage"], "output_tokens": 1}
    yield "message_start", {"message": {**whole, **dict.fromkeys(ending), "content": [], "usage": usage}}
    for index, block in enumerate(reply.content):
        start, deltas = _stretched(block)
        yield "content_block_start", {"index": index, "content_block": start}
        if index == 0:
            yield "ping", {}
        for delta in deltas:
            yield "content_block_delta", {"index": index, "delta": delta}
        yield "content_block_stop", {"index": index}
    yield "message_delta", {"delta": ending, "usage": whole["usage"]}
    yield "message_stop", {}


def frame(name: str, data: Mapping[str, Any]) -> bytes:
    """An event as it stands in the stream; in ASCII, because a script may hold lone surrogates, which UTF-8 can't."""
    return f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode()


def _stretched(block: Block) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as its start and its deltas. A block of unknown type is whole at its start."""
    match block:
        case {"type": "text", "text": str(said)}:
            cited = [{"type": "citations_delta", "citation": item} for item in block.get("citations") or ()]
            start = {**block, "text": "", **({"citations": []} if cited else {})}
            return start, [*cited, *({"type": "text_delta", "text": piece} for piece in _thirds(said))]
        case {"type": "thinking", "thinking": str(thought), "signature": str(signature)}:
            pieces = [{"type": "thinking_delta", "thinking": piece} for piece in _thirds(thought)]
            signed = {"type": "signature_delta", "signature": signature}
            return {**block, "thinking": "", "signature": ""}, [*pieces, signed]
        case {"type": str(kind), "input": given} if kind in ("tool_use", *SERVER_CALLS):
            start = {name: value for name, value in block.items() if name != PARTIAL}
            written = ["", *_within_strings(block.get(PARTIAL, json.dumps(given, ensure_ascii=False)))]
            return {**start, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in written]
    return dict(block), []


def _thirds(whole: str) -> list[str]:
    size = -(-len(whole) // 3) or 1
    return [whole[start : start + size] for start in range(0, len(whole), size)]


def _within_strings(whole: str) -> list[str]:
    """Pieces of JSON cut in the middle of its strings, where a careless reader goes wrong; about 32 at most."""
    middles = [(found.start() + found.end()) // 2 for found in re.finditer(r'"(?:[^"\\]|\\.)+"', whole)]
    return [whole[start:end] for start, end in pairwise([0, *middles[:: 1 + len(middles) // 32], len(whole)])]


async def _send_reply(request: web.Request, body: Body, step: Reply) -> web.StreamResponse:
    if not body.get("stream"):
        return web.json_response(message(step, body))
    return await _write(await _open_stream(request), _frames(step, body))


async def send_http_error(request: web.Request, _: Body, step: HttpError) -> web.StreamResponse:
    said = error_body(step.type or ERROR_TYPES.get(step.status, "api_error"), step.message, request[REQUEST_ID])
    if step.details is not None:
        said["error"]["details"] = step.details
    return web.json_response({"type": "error", **said}, status=step.status, headers=step.headers)


async def _send_stream_error(request: web.Request, body: Body, step: StreamError) -> web.StreamResponse:
    if not body.get("stream"):
        return await send_http_error(request, body, HttpError(STATUSES.get(step.type, 500), step.type, step.message))
    said = frame("error", error_body(step.type, step.message, request[REQUEST_ID]))
    return await _write(await _open_stream(request), [*_frames(step.reply, body)[: step.after_events], said])


async def _send_cut(request: web.Request, body: Body, step: CutStream) -> web.StreamResponse:
    streams = bool(body.get("stream"))
    how = step.how if streams or step.how is not Cut.CLEAN_EOF else Cut.FIN
    response = web.StreamResponse()
    if how is Cut.CLEAN_EOF or step.after_events > 0:
        whole = json.dumps(message(step.reply, body)).encode()
        pieces = _frames(step.reply, body)[: step.after_events] if streams else [whole[: len(whole) // 2]]
        response = await _open_stream(request) if streams else await _open_json(request, len(whole))
        await _write(response, pieces)
    if how is not Cut.CLEAN_EOF:
        _hang_up(request, how)
    return response


async def _send_stall(request: web.Request, body: Body, step: Stall) -> web.StreamResponse:
    if not body.get("stream") or step.after_events == 0:
        await asyncio.sleep(step.seconds)
        return await _send_reply(request, body, step.reply)
    frames = _frames(step.reply, body)
    response = await _write(await _open_stream(request), frames[: step.after_events])
    ends = asyncio.get_running_loop().time() + step.seconds
    while (left := ends - asyncio.get_running_loop().time()) > 0:
        await asyncio.sleep(min(left, step.ping_every or left))
        if step.ping_every:
            await _write(response, [frame("ping", {})])
    return await _write(response, frames[step.after_events :])


async def _send_bytes(_: web.Request, __: Body, step: NotAMessage) -> web.StreamResponse:
    raw = step.body.encode() if isinstance(step.body, str) else step.body
    return web.Response(body=raw, status=step.status, headers={"content-type": step.content_type})


SENDERS: Mapping[type[Step], Callable[[web.Request, Body, Any], Awaitable[web.StreamResponse]]] = {
    Reply: _send_reply,
    HttpError: send_http_error,
    StreamError: _send_stream_error,
    CutStream: _send_cut,
    Stall: _send_stall,
    NotAMessage: _send_bytes,
}


def error_body(type: str, message: str, request_id: str) -> dict[str, Any]:
    return {"error": {"type": type, "message": message}, "request_id": request_id}


def _frames(reply: Reply, body: Body) -> list[bytes]:
    return [frame(name, data) for name, data in events(reply, body)]


async def _open_stream(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    return response


async def _open_json(request: web.Request, length: int) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "application/json", "content-length": str(length)})
    await response.prepare(request)
    return response


async def _write(response: web.StreamResponse, pieces: Sequence[bytes]) -> web.StreamResponse:
    for piece in pieces:
        await response.write(piece)
    return response


def _hang_up(request: web.Request, how: Cut) -> None:
    """End the connection under the reply; what was written so far still arrives."""
    transport = request.transport
    if transport is None:
        return
    if how is Cut.RESET:  # lingering for no time makes the kernel send RST instead of FIN
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.close()
