"""What the README shows must work as it is written."""

from __future__ import annotations

import re
import types
from pathlib import Path

from pydantic.fields import FieldInfo

from settled.activities.agents import AgentProfile, ProfileLimits
from settled.activities.registry import register
from settled.activities.toolkit import WriteTool
from settled.worker.settings import Settings
from settled.workflows.contract.ending import EndReason, Status, Verdict
from settled.workflows.contract.operation import Evidence
from settled.workflows.contract.task import TaskRequest

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_tool_that_the_readme_adds_is_accepted_by_the_registry() -> None:
    """Its code block is a whole tool family."""
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    family = types.ModuleType("readme_tool")
    exec(compile(code, "README.md", "exec"), family.__dict__)
    registry = register([family])
    assert isinstance(registry.tools["refund_payment"], WriteTool)


def test_every_field_of_a_task_request_is_in_the_readme() -> None:
    """And so is every status, and every end reason that this release can come to."""
    for name in (*TaskRequest.model_fields, *Status):
        assert f"`{name}`" in README, name


def test_every_end_reason_in_the_readme_is_one() -> None:
    """A renamed reason would be found here."""
    table = README[README.index("| status |") : README.index("Status, end reason, verdict")]
    named = {word for word in re.findall(r"`([a-z_]+)`", table) if word not in {*Status, "operations"}}
    assert named <= set(EndReason)
    assert len(named) == 16


def test_every_field_of_a_profile_is_in_the_readme_with_its_default() -> None:
    """A new field, or another default, would be found here."""
    table = README[README.index("| `model` | required |") : README.index("## Testing your own agents")]
    rows = dict(re.findall(r"^\| (`.*?`) \| ([^ |]+)", table, re.MULTILINE))
    defaults = {
        **{f"`{name}`": field for name, field in AgentProfile.model_fields.items() if name != "limits"},
        **{f"`[limits]` `{name}`": field for name, field in ProfileLimits.model_fields.items()},
    }
    assert rows == {name: written(field) for name, field in defaults.items()}


def written(field: FieldInfo) -> str:
    """A default as the README writes it."""
    match field.default:
        case _ if field.is_required():
            return "required"
        case () | None:
            return "none"
        case bool(flag):
            return str(flag).lower()
        case str(word):
            return f'`"{word}"`'
        case number:
            return f"{number:.0f}"


def test_the_readme_says_what_every_kind_of_evidence_and_every_verdict_is() -> None:
    """Apart from the evidence of the next release."""
    for name in (*Evidence, *Verdict):
        assert f"`{name}`" in README or name is Evidence.PERSON, name


def test_every_setting_in_the_readme_is_one() -> None:
    """A renamed setting would be found here."""
    named = set(re.findall(r"`SETTLED_([A-Z_]+)`", README))
    assert named
    assert {name.lower() for name in named} <= set(Settings.model_fields)
