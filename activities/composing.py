"""Composing user messages: the results of a response's calls, and news of operations that it doesn't know of."""

from __future__ import annotations

import json
from collections.abc import Sequence

from settled.activities.apart import apart
from settled.activities.calls import ShownResult, awaits_server, proposed_calls, result_blocks, shown_ids
from settled.activities.journal import Operation
from settled.activities.outputs import READ_OUTPUT
from settled.activities.presenting import standing_text
from settled.activities.standing import Stands
from settled.activities.stores import Stores
from settled.activities.summary import named
from settled.activities.transcript import Node, Role, make_node
from settled.activities.view import last_said
from settled.workflows.contract.calls import CallResult
from settled.workflows.contract.operation import OperationState, OperationView, Order, Standing


async def answer_calls(
    stores: Stores, head: str, results: Sequence[CallResult], news: Sequence[OperationView] = ()
) -> str:
    """Add the user message that answers the head's calls; returns the new head.

    The head stays as it is where there is nothing to add.

    Raises:
        TranscriptError: a call has no result, or a result no call.
    """
    node = await stores.transcripts.node(head)
    calls = proposed_calls(node.content) if node.role is Role.ASSISTANT else []
    shown = {result.slot: await _shown(stores, result) for result in results}
    blocks = result_blocks(calls, shown, shown_ids(node) if calls else {})
    if news and awaits_server(last_said(await stores.transcripts.chain(head))):
        news = ()  # nothing but results may stand here; they are told with the next message
    if news:
        # After the results: text in front of them is refused by the API.
        blocks.append({"type": "text", "text": news_text(news)})
    if not blocks:
        return head
    message = make_node(node, Role.USER, blocks, [operation.key for operation in news])
    await stores.transcripts.add(message)
    return message.digest


async def settled_or_open(
    stores: Stores, order: Order, task: str, stands: Stands, operation: Operation | None
) -> CallResult:
    """The result of a write as the ledger has it: what it came to or, where that isn't known, just that.

    Args:
        stores: where its texts go.
        order: which call.
        task: whose call.
        stands: how the operation stands towards it.
        operation: as the ledger has it.
    """
    if stands.standing is not Standing.SETTLED:
        kind, text = standing_text(operation)
        return CallResult(slot=order.slot, error=kind, content=await stores.artifacts.put(text))
    stored = b"{}"
    if stands.error is None and operation is not None and operation.result:
        stored = await stores.artifacts.get(operation.result["result"])
    record = await stores.tasks.get(task)
    pages = record is not None and READ_OUTPUT in record.tools
    told = await apart(lambda: stands.told(json.loads(stored), pages=pages), stored)
    return CallResult(slot=order.slot, error=stands.error, content=await stores.outputs.keep(task, order.tool, told))


async def _shown(stores: Stores, result: CallResult) -> ShownResult:
    text = (await stores.artifacts.get(result.content)).decode() if result.content else result.note
    return ShownResult(text=text, is_error=result.error is not None)


async def news_for(stores: Stores, task: str, chain: Sequence[Node]) -> list[OperationView]:
    """The task's operations that this conversation never proposed nor was told of: a reset forgot them, say."""
    return unknown_to(chain, await stores.ledger.of_task_besides(task, mentioned_in(chain)))


def mentioned_in(chain: Sequence[Node]) -> set[str]:
    """The keys of the operations that a conversation knows of."""
    return {key for node in chain for key in node.mentions}


def unknown_to(chain: Sequence[Node], operations: Sequence[OperationView]) -> list[OperationView]:
    """Those of the operations that are news to this conversation."""
    mentioned = mentioned_in(chain)
    return [
        operation
        for operation in operations
        if operation.key not in mentioned and operation.state is not OperationState.NOT_EXECUTED
    ]


def news_text(news: Sequence[OperationView]) -> str:
    """What the model is told of operations that it doesn't remember: a line for each, but for the earliest of many."""
    shown = {operation.key for operation in named(news)}
    lines = [
        f"- {operation.tool} (operation {operation.key[:12]}): {operation.state}"
        for operation in news
        if operation.key in shown
    ]
    if len(shown) < len(news):
        lines.append(f"- and {len(news) - len(shown)} earlier ones, all of them settled")
    return (
        "For your information, from the executor: this task has already acted, outside of what you can see above. "
        "An action that is proposed again is not executed again; its stored result is returned.\n" + "\n".join(lines)
    )
