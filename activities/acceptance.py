"""Acceptance: evidence for each criterion, gathered by the executor after the last write. A claim is no evidence.

The check `operation` asks for two things that must agree: the ledger says that the operation is completed, and the
service's own record, looked up now, shows the same request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from settled.activities.admission import Grants, may_see, validate
from settled.activities.artifacts import clean
from settled.activities.attempt import Person, Terms, as_answer, call_tool
from settled.activities.database import unavailable
from settled.activities.intents import Earlier, Meanings
from settled.activities.journal import Operation
from settled.activities.keys import fingerprint, remote_key, undoes_key_of
from settled.activities.registry import Registry
from settled.activities.settling import names_our_request
from settled.activities.steady import steady
from settled.activities.stores import Stores
from settled.activities.tool_errors import failure_of
from settled.activities.toolkit import Found, InFlux, Lookup, WriteTool
from settled.workflows.contract.ending import Verdict
from settled.workflows.contract.operation import OperationState
from settled.workflows.contract.result import Finding
from settled.workflows.contract.task import Criterion

OPERATION = "operation"
CHECK_SECONDS = 20.0
FIRST_PAUSE_SECONDS = 0.5


def faults_of_criteria(criteria: Sequence[Criterion], registry: Registry) -> list[str]:
    """What is wrong with the criteria, a line each."""
    faults = []
    for place, criterion in enumerate(criteria):
        where = f"acceptance.{place}"
        if criterion.check != OPERATION:
            faults.append(f"{where}.check: there is no check {criterion.check!r}; the checks are {OPERATION}")
            continue
        tool = registry.tools.get(criterion.tool or "")
        if not isinstance(tool, WriteTool):
            faults.append(f"{where}.tool: the check {OPERATION!r} needs the name of a tool that writes")
            continue
        try:
            validate(tool, criterion.arguments)
        except ValueError as error:
            faults.append(f"{where}.arguments: {error}")
    return faults


def verdict_of(findings: Sequence[Finding]) -> Verdict:
    """What the findings amount to. No criteria: nothing was verified."""
    if not findings:
        return Verdict.NO_CRITERIA
    return Verdict.ACCEPTED if all(finding.passed for finding in findings) else Verdict.NOT_ACCEPTED


@dataclass(frozen=True)
class Acceptance:
    """The checks, and what they work with."""

    stores: Stores
    registry: Registry

    async def gather(self, criteria: Sequence[Criterion], grants: Grants) -> tuple[Finding, ...]:
        """Run each criterion's check. A check that can't be carried out has not passed."""
        findings = []
        for criterion in criteria:
            if faults := faults_of_criteria([criterion], self.registry):
                findings.append(_failed(criterion, f"can't be checked: {'; '.join(faults)}"))
            else:
                findings.append(await self._safely(criterion, grants))
        return tuple(findings)

    async def _safely(self, criterion: Criterion, grants: Grants) -> Finding:
        try:
            return await self._operation(criterion, grants)
        except Exception as error:
            if unavailable(error):
                raise
            # A tool may hand back anything; a check that breaks over it has not passed.
            return _failed(criterion, f"can't be checked: {failure_of(error).text}")

    async def _operation(self, criterion: Criterion, grants: Grants) -> Finding:
        tool = self.registry.write(criterion.tool or "")
        arguments = validate(tool, criterion.arguments)
        meanings = Meanings(registry=self.registry, read=self.stores.ledger.read, realm=grants.realm)
        operation = (await meanings.of(tool, arguments, Earlier())).operation
        if operation is None:
            return _failed(criterion, f"{tool.name}: the ledger has no such operation")
        if not may_see(tool, operation, grants.principal):
            return _failed(criterion, f"{tool.name}: it is an operation of another principal, and not shown")
        if operation.state is not OperationState.COMPLETED:
            return _failed(criterion, f"{tool.name}: the ledger says {operation.state}, not completed")
        if operation.subject.fingerprint != fingerprint(arguments):
            return _failed(criterion, f"{tool.name}: completed, but with other arguments than the criterion's")
        return await self._record(criterion, tool, operation)

    async def _record(self, criterion: Criterion, tool: WriteTool, operation: Operation) -> Finding:
        """Whether the service's own record agrees with the ledger."""
        if tool.transactional:
            # The effect was committed together with the ledger's own row: there is no other record to agree with it.
            done = f"{tool.name}: committed together with the ledger's mark"
            return Finding(check=criterion.check, passed=True, evidence=done)
        if not callable(tool.lookup):
            return _failed(criterion, f"{tool.name}: completed by the ledger, but its service offers no lookup")
        arguments = validate(tool, criterion.arguments)
        key, undoes_key = remote_key(operation.key, operation.generation), undoes_key_of(operation.subject)
        try:
            found = await _asked(tool.lookup, arguments, Person.behind(operation.subject), key, undoes_key)
        # A service that can't be asked may fail in any way; what isn't shown has not passed.
        except Exception as error:
            return _failed(criterion, f"{tool.name}: the service could not be asked: {failure_of(error).text}")
        if not isinstance(found, Found):
            return _failed(criterion, f"{tool.name}: completed by the ledger, but the service has no record of it")
        if not names_our_request(found, key, arguments.model_dump(mode="json")):
            return _failed(criterion, f"{tool.name}: the service's record is of another request")
        if not found.stands:
            return _failed(criterion, f"{tool.name}: it was done, but the service's record says that it stands no more")
        answer = as_answer(found.answer, tool.name)
        source = clean(answer.source)
        return Finding(
            check=criterion.check,
            passed=True,
            evidence=f"{tool.name}: completed by the ledger, and {source} has the same record under {key}",
            version=clean(answer.version),
        )


def _failed(criterion: Criterion, evidence: str) -> Finding:
    return Finding(check=criterion.check, passed=False, evidence=evidence)


async def _asked(lookup: Lookup, arguments: BaseModel, person: Person, key: str, undoes_key: str) -> Any:
    """The lookup's answer; a service that can't be asked, or isn't done yet, is asked again for a while.

    Raises:
        Exception: what the lookup raised last.
    """
    give_up = steady() + CHECK_SECONDS
    pause = FIRST_PAUSE_SECONDS
    while True:
        left = give_up - steady()
        try:
            terms = Terms(key=key, undoes_key=undoes_key, deadline=steady() + max(left, 1.0))
            answer = await call_tool(lookup, arguments, person, terms)
            if not isinstance(answer, InFlux) or left <= pause:
                return answer
        except Exception:
            if left <= pause:
                raise
        await asyncio.sleep(pause)
        pause *= 2
