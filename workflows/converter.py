"""The data converter of clients, workers and replays: pydantic, forgiving towards what people send.

A workflow's input that can't be decoded would fail the workflow task for ever, and the task would hang without a word.
`AgentTask.run` takes any input, undecodable ones included, and `open_task` refuses them with a readable line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.common import RawValue
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import DataConverter, DefaultFailureConverter, PayloadConverter

from settled.workflows.contract.names import INVALID_TASK, TASK_NOT_SUCCEEDED


class ForgivingPayloadConverter(PydanticPayloadConverter):
    """Keeps a payload raw where nobody says what type it should have and it can't be decoded."""

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        """Decode; without type hints, never raise."""
        if type_hints:
            return super().from_payloads(payloads, type_hints)
        return [self._decode_or_keep(payload) for payload in payloads]

    def _decode_or_keep(self, payload: Payload) -> Any:
        try:
            return super().from_payloads([payload])[0]
        # Whatever is wrong with it (encoding, JSON, Unicode), the answer is the same: keep it as it came.
        except Exception:
            return RawValue(payload)


class PlainFailureConverter(DefaultFailureConverter):
    """Leaves out the stack trace of failures that people are meant to read: how a task ended, what its input lacks."""

    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        """Convert the exception into the failure."""
        super().to_failure(exception, payload_converter, failure)
        if failure.application_failure_info.type in (INVALID_TASK, TASK_NOT_SUCCEEDED):
            failure.stack_trace = ""


data_converter = DataConverter(
    payload_converter_class=ForgivingPayloadConverter, failure_converter_class=PlainFailureConverter
)
"""The one converter: history stays plain JSON, readable in the Temporal UI and CLI."""
