"""Agent profiles: which a worker starts with, and which it refuses: every fault at once, with file, field and mend."""

from __future__ import annotations

from pathlib import Path

import pytest

from settled.activities.agents import AgentProfile, ThinkingKind
from settled.activities.profiles import load_profiles
from settled.activities.registry import Registry, discover
from settled.activities.roots import root_of
from settled.workflows.contract.task import Limits
from settled.workflows.errors import ConfigurationError

CLERK = 'model = "claude"\nsystem = "You are the clerk."\ntools = ["lookup_stock"]\n'
KNOWN = Registry({name: tool for name, tool in discover().tools.items() if name in ("lookup_stock", "reserve_stock")})
CRITERION = "[[acceptance]]\ncheck = 'operation'\ntool = 'reserve_stock'\n"


def profiles(folder: Path, **files: str) -> dict[str, AgentProfile]:
    """What is read from a folder with these files."""
    for name, text in files.items():
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    return load_profiles(folder, KNOWN)


def faults(folder: Path, **files: str) -> list[str]:
    """The lines with which the start is refused."""
    with pytest.raises(ConfigurationError) as refused:
        profiles(folder, **files)
    return str(refused.value).splitlines()


def test_a_profile_is_a_toml_file_named_after_it(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a profile")
    read_back = profiles(tmp_path, clerk=f"{CLERK}[limits]\nturns = 3\n", other='model = "m"\nsystem = "s"')
    assert list(read_back) == ["clerk", "other"]
    assert read_back["clerk"].tools == ("lookup_stock",)
    assert read_back["clerk"].limits.resolved() == Limits(turns=3, requests=100, wall_seconds=604_800.0)
    assert read_back["other"].tools == ()


def test_a_profile_that_an_editor_saved_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "clerk.toml").write_text(CLERK, encoding="utf-8-sig")
    assert load_profiles(tmp_path, KNOWN)["clerk"].model == "claude"


def test_a_profile_with_everything_is_taken_as_it_is_written(tmp_path: Path) -> None:
    """What the newest models refuse (`disabled`, say) is passed on: which do is the provider's to say."""
    text = f"""{CLERK}
max_tokens = 4096
max_tokens_most = 4096
fallback = ["claude-second", "claude-third"]
effort = "high"
context_tokens = 100000
on_needs_human = "end"
on_exhausted = "wait"
stream = true
thinking = {{ type = "enabled", budget_tokens = 4095 }}
[limits]
cost = 0.1
wall_seconds = 60
{CRITERION}arguments = {{ order = "1", sku = "A1", quantity = 2 }}
"""
    read_back = profiles(tmp_path, clerk=text)["clerk"]
    sent = root_of(read_back, KNOWN, read_back.tools).parameters
    assert sent["thinking"] == {"type": "enabled", "budget_tokens": 4095}
    assert sent["output_config"] == {"effort": "high"}
    assert str(read_back.limits.cost) == "0.1"
    for kind in set(ThinkingKind) - {ThinkingKind.ENABLED}:
        thinks = profiles(tmp_path, clerk=f"{CLERK}thinking = {{ type = '{kind}' }}")["clerk"]
        assert root_of(thinks, KNOWN, ()).parameters["thinking"] == {"type": str(kind)}


FAULTS: dict[str, list[str]] = {
    "model = ": ["not TOML: "],
    'model = "m"\nsystem = "caf\udce9"': ["not TOML: "],
    "": ["model: Field required", "system: Field required"],
    'model = ""\nsystem = ""': ["model: String should have at least 1", "system: String should have at least 1"],
    'model = "my model"\nsystem = " "': [
        "model: must be the provider's name of a model, without white space",
        "system: holds nothing but white space",
    ],
    "model = 1\nsystem = 2026-11-30\ntools = 'lookup_stock'": [
        "model: Input should be a valid string",
        "tools: Input should be a valid array",
    ],
    # Fields that there are none of, with the nearest one
    f"{CLERK}sytem = 's'": ["sytem: unknown field; did you mean system?"],
    f"{CLERK}thinkng = {{ type = 'adaptive' }}": ["thinkng: unknown field; did you mean thinking?"],
    f"{CLERK}[limit]\nturns = 1": ["limit: unknown field; did you mean limits?"],
    f"{CLERK}[limits]\nturn = 1": ["limits.turn: unknown field; did you mean turns?"],
    f"{CLERK}thinking = {{ type = 'adaptive', budget = 1 }}": [
        "thinking.budget: unknown field; did you mean budget_tokens?"
    ],
    f"{CLERK}{CRITERION}argumens = {{}}\narguments = {{ order = '1', sku = 'A1', quantity = 2 }}": [
        "acceptance.0.argumens: unknown field; did you mean arguments?"
    ],
    f"{CLERK}temperature = 1": ["temperature: unknown field; there are model, system, tools, "],
    # Fields in a wrong place: a table goes on until the next one
    f"[limits]\nturns = 1\n{CLERK}": [
        "model: Field required",
        "system: Field required",
        *(f"limits.{name}: unknown field; {name} belongs above [limits]" for name in ("model", "system", "tools")),
    ],
    f"{CLERK}{CRITERION}arguments = {{ order = '1', sku = 'A1', quantity = 2 }}\nstream = true": [
        "acceptance.0.stream: unknown field; stream belongs above [[acceptance]]"
    ],
    f"{CLERK}turns = 3\nbudget_tokens = 2000": [
        "turns: unknown field; turns belongs under [limits]",
        "budget_tokens: unknown field; budget_tokens belongs under [thinking]",
    ],
    # Limits
    f"{CLERK}[limits]\nturns = 0\npages = 1": ["limits.turns: Input should be greater", "limits.pages: unknown"],
    f"{CLERK}[limits]\nturns = true": ["limits.turns: Input should be a valid integer"],
    f"{CLERK}[limits]\nrequests = '9'": ["limits.requests: Input should be a valid integer"],
    f"{CLERK}[limits]\ncalls = 1.5": ["limits.calls: Input should be a valid integer"],
    f"{CLERK}[limits]\ncost = 0": ["limits.cost: Input should be greater than 0"],
    f"{CLERK}[limits]\ninput_tokens = 0\noutput_tokens = -1": [
        "limits.input_tokens: Input should be greater",
        "limits.output_tokens: Input should be greater",
    ],
    f"{CLERK}[limits]\nwall_seconds = inf": ["limits.wall_seconds: Input should be"],
    f"{CLERK}[limits]\nwall_seconds = nan": ["limits.wall_seconds: Input should be"],
    f"{CLERK}[limits]\nwall_seconds = 1e300": ["limits.wall_seconds: Input should be"],
    # Policy
    f"{CLERK}on_needs_human = 'die'": ["on_needs_human: must be wait or end"],
    f"{CLERK}on_exhausted = 'die'": ["on_exhausted: must be end or wait"],
    f"{CLERK}stream = 1": ["stream: Input should be a valid boolean"],
    # The model's own settings
    f"{CLERK}max_tokens = 0": ["max_tokens: Input should be greater"],
    f"{CLERK}max_tokens = 9\nmax_tokens_most = 8": ["max_tokens_most: must be at least max_tokens, which is 9"],
    f"{CLERK}max_tokens_most = 8": ["max_tokens_most: must be at least max_tokens, which is 8192"],
    f"{CLERK}context_tokens = 999": ["context_tokens: Input should be greater than or equal to 1000"],
    f"{CLERK}effort = 'huge'": ["effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'"],
    f"{CLERK}thinking = {{}}": ["thinking.type: Field required"],
    f"{CLERK}thinking = {{ type = 'deep' }}": ["thinking.type: Input should be 'adaptive', "],
    f"{CLERK}thinking = {{ type = 'enabled' }}": ["thinking.budget_tokens: needed with type enabled"],
    f"{CLERK}thinking = {{ type = 'enabled', budget_tokens = 1023 }}": ["thinking.budget_tokens: Input should be gre"],
    f"{CLERK}thinking = {{ type = 'adaptive', budget_tokens = 2000 }}": [
        "thinking.budget_tokens: goes with type enabled only; leave it out"
    ],
    f"{CLERK}thinking = {{ type = 'enabled', budget_tokens = 8192 }}": [
        "thinking: budget_tokens must be below max_tokens, which is 8192"
    ],
    f"{CLERK}fallback = ['a', 'a']": ["fallback: 'a' comes twice in the chain of models, model included"],
    f"{CLERK}fallback = ['claude']": ["fallback: 'claude' comes twice in the chain of models, model included"],
    f"{CLERK}fallback = ['', 'a b']": ["fallback.0: String should have", "fallback.1: must be the provider's name"],
    f"{CLERK}fallback = {[str(n) for n in range(11)]}": ["fallback: "],
    f"{CLERK}context_tokens = 8192": ["context_tokens: must be above max_tokens, which is 8192"],
    f"{CLERK}max_tokens_most = 9000\ncontext_tokens = 9000": [
        "context_tokens: must be above max_tokens_most, which is 9000"
    ],
    # What is too much for the parser
    f"{CLERK}max_tokens = {'9' * 5000}": ["not TOML that can be read: it holds a number with too many digits"],
    f"{CLERK}max_tokens = 0x{'f' * 6000}": ["not TOML that can be read: it holds a number with too many digits"],
    f"{CLERK}max_tokens = {'[' * 5000}{']' * 5000}": ["not TOML that can be read: nested too deeply"],
    # Tools and acceptance
    CLERK.replace("[", '["fly", '): ["tools: no tool 'fly'; this worker has lookup_stock, reserve_stock"],
    CLERK.replace('"lookup_stock"', '"no such"'): ["tools.0: String should match pattern"],
    CLERK.replace("[", '["lookup_stock", '): ["tools: 'lookup_stock' is there 2 times; name it once"],
    f"{CLERK}[[acceptance]]\ntool = 'reserve_stock'": ["acceptance.0.check: Field required"],
    f"{CLERK}[[acceptance]]\ncheck = 'hope'": ["acceptance.0.check: there is no check 'hope'; the checks are"],
    f"{CLERK}[[acceptance]]\ncheck = 'operation'\ntool = 'lookup_stock'": [
        "acceptance.0.tool: the check 'operation' needs the name of a tool that writes"
    ],
    f"{CLERK}{CRITERION}arguments = {{ order = '1', sku = 'A1' }}": ["acceptance.0.arguments: "],
}
"""What is written, and the beginning of each line that it leads to."""


@pytest.mark.parametrize("text", FAULTS, ids=range(len(FAULTS)))
def test_a_profile_with_faults_refuses_the_start_with_a_line_for_each(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
    lines = faults(tmp_path, clerk=CLERK)
    assert len(lines) == len(FAULTS[text]), lines
    for line, fault in zip(lines, FAULTS[text], strict=True):
        assert line.startswith(f"agent bad (bad.toml): {fault}")


def test_faults_of_every_kind_are_listed_at_once(tmp_path: Path) -> None:
    """Those that need two fields, the tools or the checks are not kept back until the others are mended."""
    bad = """
model = ""
tools = ["fly"]
max_tokens = 100
max_tokens_most = 10
thinking = { type = "enabled", budget_tokens = 2000 }
sytem = "s"
[[acceptance]]
check = "hope"
"""
    lines = faults(tmp_path, a="model = ", **{"b c": bad}, clerk=CLERK)
    assert [line.split(": ")[1] for line in lines] == [
        "not TOML",
        "the file's name, which is the agent's",
        "model",
        "system",
        "max_tokens_most",
        "thinking",
        "sytem",
        "tools",
        "acceptance.0.check",
    ]


def test_what_cannot_be_read_as_a_profile_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "gone.toml").symlink_to(tmp_path / "nowhere")
    assert faults(tmp_path, clerk=CLERK) == [
        "agent folder (folder.toml): can't be read: Is a directory",
        "agent gone (gone.toml): can't be read: No such file or directory",
    ]


def test_a_folder_without_profiles_refuses_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^SETTLED_AGENTS: .* holds no NAME.toml profile; write one$"):
        load_profiles(tmp_path, KNOWN)
    with pytest.raises(ConfigurationError, match=r"^SETTLED_AGENTS: .*nowhere is not a folder"):
        load_profiles(tmp_path / "nowhere", KNOWN)


def test_no_value_of_a_profile_is_told(tmp_path: Path) -> None:
    """A prompt may hold what is nobody's business."""
    lines = faults(tmp_path, bad="model = 'm'\nsystem = ['hunter2']\neffort = 'hunter2'\nthinking = 'hunter2'")
    assert len(lines) == 3
    assert "hunter2" not in "".join(lines)
