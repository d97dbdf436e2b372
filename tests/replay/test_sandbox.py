"""What the workflow sandbox builds anew for each run: it costs time, and makes other classes of the same names."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, WorkflowInstance, WorkflowInstanceDetails
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from settled.worker.wiring import WORKFLOWS
from settled.workflows.agent_task import AgentTask
from settled.workflows.converter import data_converter
from settled.workflows.settlement import Settlement
from tests.replay.test_replay import recorded


@dataclass(frozen=True)
class WatchedRunner(SandboxedWorkflowRunner):
    """A sandbox that is looked into."""

    built: dict[type, set[str]] = field(default_factory=dict)
    """Those of our modules that were built anew for a run, by its workflow."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Make the sandbox of one run."""
        instance = super().create_instance(det)
        made: Any = instance
        inside = made.importer.new_modules.items()
        ours = {name: module for name, module in inside if name.split(".")[0] == "settled"}
        self.built[det.defn.cls] = {name for name, module in ours.items() if module is not sys.modules[name]}
        return instance


@pytest.mark.parametrize(
    ("workflow", "history"),
    [(AgentTask, "write_completed"), (Settlement, "settlement_found")],
    ids=["agent_task", "settlement"],
)
async def test_a_run_builds_the_module_of_its_workflow_anew_and_no_other_of_ours(workflow: type, history: str) -> None:
    runner = WatchedRunner()
    replayer = Replayer(workflows=WORKFLOWS, data_converter=data_converter, workflow_runner=runner)
    await replayer.replay_workflow(WorkflowHistory.from_json("replayed", recorded(history)))
    assert runner.built[workflow] == {"settled", "settled.workflows", workflow.__module__}, "the inits are inert"
