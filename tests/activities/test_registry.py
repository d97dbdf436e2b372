"""Which tools a worker starts with, and which it refuses: every fault at once, with tool, file and mend."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4

import pytest
from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    HttpUrl,
    Json,
    JsonValue,
    PlainSerializer,
    PositiveInt,
    RootModel,
    SecretStr,
    computed_field,
    create_model,
    field_serializer,
)

from settled.activities import registry
from settled.activities.canonical import canonical
from settled.activities.declarations import faults_of
from settled.activities.registry import discover, effect_of, register, tool_schema
from settled.activities.toolkit import (
    FOREVER,
    Absent,
    Answer,
    Arguments,
    Call,
    ReadTool,
    Scope,
    Tool,
    WriteTool,
    read,
    write,
)
from settled.workflows.contract.turn import Effect
from settled.workflows.errors import ConfigurationError

HERE = "tests/activities/test_registry.py"
Handler = Callable[[Any, Call], Awaitable[Answer]]


class Pay(Arguments):
    """A payment."""

    order: str
    amount: int = 1


async def find_payment(asked: Pay, call: Call) -> Absent:
    return Absent()


async def pay(asked: Pay, call: Call) -> Answer:
    """Pay an order."""
    return Answer(data=None, source="bank")


async def balance(asked: Pay, call: Call) -> Answer:
    """Look up the balance."""
    return Answer(data=None, source="bank")


WORDS: dict[str, Any] = {
    "key": ("order",),
    "scope": Scope.BUSINESS,
    "lookup": find_payment,
    "dedupes": FOREVER,
    "lands_within": timedelta(seconds=30),
}


def paying(**changes: Any) -> WriteTool:
    return write(**{**WORDS, **changes})(pay)


def reading(handler: Handler, **words: Any) -> ReadTool:
    return read(**words)(handler)


def family(*tools: Tool, name: str = "bank") -> ModuleType:
    module = ModuleType(name)
    for number, tool in enumerate(tools):
        setattr(module, f"tool_{number}", tool)
    return module


def refusal(*families: ModuleType) -> list[str]:
    """The lines with which the worker refuses to start."""
    with pytest.raises(ConfigurationError) as refused:
        register(families)
    return str(refused.value).splitlines()


def test_a_complete_declaration_is_accepted() -> None:
    tools = register([family(paying(), reading(balance))]).tools
    assert {name: effect_of(tool) for name, tool in tools.items()} == {"pay": Effect.WRITE, "balance": Effect.READ}


def test_an_explicit_none_is_a_word() -> None:
    """R33: "there is no lookup" may be said; it may only not be left open."""
    assert faults_of(paying(lookup=None, dedupes=None, lands_within=None)) == []


# R33: what a write leaves open


@pytest.mark.parametrize("word", WORDS)
def test_r33_a_write_that_leaves_a_word_out_refuses_the_start(word: str) -> None:
    """R33: the line names the tool, its file, what is missing, and the mend."""
    left = {name: value for name, value in WORDS.items() if name != word}
    (line,) = refusal(family(write(**left)(pay)))
    assert line.startswith(f"tool pay ({HERE}): says nothing on {word}; ")
    mend = line.rpartition("; ")[2] if word != "key" else line
    assert f"{word}=" in mend


def test_r33_everything_that_is_left_out_is_named_at_once() -> None:
    lines = refusal(family(write()(pay)))
    assert [line.split("nothing on ")[1].split(";")[0] for line in lines] == list(WORDS)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"key": ()}, "key is empty; name the arguments that make it the same business action"),
        ({"key": ("order", "invoice")}, "key names 'invoice', which Pay doesn't have"),
        ({"key": "order"}, "key must be a tuple of names, e.g. key=('order',)"),
        ({"scope": "task"}, "scope must be Scope.TASK or Scope.BUSINESS"),
        ({"scope": None}, "scope must be Scope.TASK or Scope.BUSINESS"),
        ({"lookup": "find_payment"}, "lookup must be a function, or None"),
        ({"dedupes": 86_400}, "dedupes must be a timedelta, or None"),
        ({"lands_within": True}, "lands_within must be a timedelta, or None"),
        ({"timeout": timedelta(0)}, "timeout must be above zero"),
        ({"timeout": timedelta(seconds=-1)}, "timeout must be above zero"),
        ({"timeout": timedelta(days=1, microseconds=1)}, "timeout must be above zero, and at most 86400 seconds"),
        ({"timeout": FOREVER}, "timeout must be above zero, and at most 86400 seconds"),
    ],
    ids=str,
)
def test_r33_a_word_that_means_nothing_refuses_the_start(changes: dict[str, Any], fault: str) -> None:
    """A scope of plain text, taken for the other one, would make other keys than were meant."""
    (line,) = refusal(family(paying(**changes)))
    assert line.startswith(f"tool pay ({HERE}): {fault}")


# R33: what the model is told


class Loose(BaseModel):
    model_config = ConfigDict(strict=True)

    order: str


class Lax(BaseModel):
    model_config = ConfigDict(extra="allow")

    order: str


class Choice(RootModel[Pay | Loose]):
    pass


class Tree(Arguments):
    branches: list["Tree"]


class WithLoosePart(Arguments):
    order: str
    parts: list[Loose]


class Odd(Arguments):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    order: str
    callback: Callable[[], None]


async def takes_loose(asked: Loose, call: Call) -> Answer:
    """Do it."""
    raise NotImplementedError


async def takes_lax(asked: Lax, call: Call) -> Answer:
    """Do it."""
    raise NotImplementedError


async def takes_choice(asked: Choice, call: Call) -> Answer:
    """Do it."""
    raise NotImplementedError


async def takes_tree(asked: Tree, call: Call) -> Answer:
    """Do it."""
    raise NotImplementedError


async def takes_loose_part(asked: WithLoosePart, call: Call) -> Answer:
    """Do it."""
    raise NotImplementedError


async def takes_odd(asked: Odd, call: Call) -> Answer:
    """Do it."""
    raise NotImplementedError


async def takes_text(asked: str, call: Call) -> Answer:
    """Do it."""
    raise NotImplementedError


async def takes_whatever(asked: Any, call: Call) -> Answer:
    """Do it."""
    raise NotImplementedError


async def silent(asked: Pay, call: Call) -> Answer:
    raise NotImplementedError


async def misnamed(asked: Pay, call: Call) -> Answer:
    """Do it."""
    raise NotImplementedError


misnamed.__name__ = "gr\u00f6\u00dfe"


@pytest.mark.parametrize(
    ("handler", "fault"),
    [
        (takes_loose, "the schema of Loose must forbid extra fields; make it a subclass of Arguments"),
        (takes_lax, "the schema of Lax must forbid extra fields; make it a subclass of Arguments"),
        (takes_loose_part, "the schema of Loose must forbid extra fields; make it a subclass of Arguments"),
        (takes_tree, "the schema of Tree must be a plain object at its top"),
        (takes_odd, "the schema of Odd can't be told to the model: "),
        (takes_text, "the first parameter must be annotated with a pydantic model"),
        (takes_whatever, "the first parameter must be annotated with a pydantic model"),
        (silent, "no docstring; say what it does"),
        (misnamed, "the name must be letters, digits, _ and -"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_r33_a_tool_that_the_model_cannot_be_told_of_refuses_the_start(handler: Handler, fault: str) -> None:
    (line,) = refusal(family(reading(handler)))
    assert line.startswith(f"tool {handler.__name__} ({HERE}): {fault}")


def test_b24_a_schema_that_is_no_plain_object_refuses_the_start() -> None:
    """B24: one such schema would be refused by the provider with every request, whichever tool is meant."""
    faults = faults_of(reading(takes_choice))
    assert "the schema of Choice must be a plain object at its top" in faults


def test_a_name_that_is_too_long_refuses_the_start() -> None:
    async def handler(asked: Pay, call: Call) -> Answer:
        """Do it."""
        raise NotImplementedError

    handler.__name__ = "n" * 64
    assert faults_of(reading(handler)) == []
    handler.__name__ = "n" * 65
    (fault,) = faults_of(reading(handler))
    assert fault.startswith("the name must be letters, digits, _ and -, at most 64")


def test_two_tools_of_one_name_refuse_the_start() -> None:
    (line,) = refusal(family(paying()), family(paying(), name="other"))
    assert line == f"tool pay ({HERE}): the name is taken by {HERE}; rename one of them"


def test_one_tool_that_two_families_show_is_one_tool() -> None:
    """An import of a neighbour's tool makes no second one, and no second line where it has a fault."""
    shared = paying()
    assert list(register([family(shared), family(shared, shared, name="other")]).tools) == ["pay"]
    assert len(refusal(family(paying(key=()))) * 2) == 2
    faulty = paying(key=())
    assert len(refusal(family(faulty, faulty), family(faulty, name="other"))) == 1


def test_r33_all_faults_of_all_tools_are_listed_at_once() -> None:
    lines = refusal(family(write(scope=Scope.TASK)(pay), reading(silent)), family(reading(takes_loose), name="other"))
    assert [line.split(" ")[1] for line in lines] == ["pay"] * 4 + ["silent", "takes_loose"]
    assert all(HERE in line and ": " in line for line in lines)


def test_what_is_no_tool_in_a_family_is_passed_over() -> None:
    module = family(paying())
    vars(module).update(answer=42, helper=pay, Pay=Pay, kind=WriteTool)
    assert list(register([module]).tools) == ["pay"]


def test_r33_the_model_is_told_name_description_and_schema() -> None:
    assert tool_schema(paying()) == {
        "name": "pay",
        "description": "Pay an order.",
        "input_schema": {
            "title": "Pay",
            "description": "A payment.",
            "type": "object",
            "properties": {
                "order": {"title": "Order", "type": "string"},
                "amount": {"title": "Amount", "type": "integer", "default": 1},
            },
            "required": ["order"],
            "additionalProperties": False,
        },
    }


def test_a_write_is_found_by_name_and_a_read_is_no_write() -> None:
    tools = register([family(paying(), reading(balance))])
    assert tools.write("pay") is tools.tools["pay"]
    for name in ("balance", "nothing"):
        with pytest.raises(KeyError):
            tools.write(name)
    assert [tool.name for tool in tools.writes] == ["pay"]


# Functions that would fail with their first call


def plain(asked: Pay, call: Call) -> Answer:
    """Do it."""
    raise NotImplementedError


async def lonely(asked: Pay) -> Answer:
    """Do it."""
    raise NotImplementedError


async def crowded(asked: Pay, call: Call, more: str) -> Answer:
    """Do it."""
    raise NotImplementedError


class Payer:
    """Do it."""

    __name__ = "payer"

    async def __call__(self, asked: Pay, call: Call) -> Any:
        raise NotImplementedError


ASYNC = "must be an async function; write async def"
TWO = "must take two parameters, the arguments and the call"


@pytest.mark.parametrize(("function", "fault"), [(plain, ASYNC), (lonely, TWO), (crowded, TWO)])
def test_a_function_that_cannot_be_called_as_a_tool_refuses_the_start(function: Any, fault: str) -> None:
    assert [line.startswith(f"the tool {fault}") for line in faults_of(reading(function))] == [True]
    (line,) = refusal(family(paying(lookup=function)))
    assert line.startswith(f"tool pay ({HERE}): lookup {fault}")


def test_an_object_with_an_async_call_is_a_function_like_any_other() -> None:
    assert faults_of(reading(Payer())) == []
    assert faults_of(paying(lookup=Payer())) == []


@pytest.mark.parametrize("odd", [len, dict, partial(pay), lambda: None, 7], ids=lambda odd: type(odd).__name__)
def test_a_decorator_makes_no_fuss_and_the_registry_says_what_is_wrong(odd: Any) -> None:
    lines = refusal(family(reading(odd)))
    assert lines
    assert all(f"({HERE})" in line for line in lines)


def test_resources_that_are_no_function_refuse_the_start() -> None:
    (line,) = refusal(family(paying(resources=["order"])))
    assert line.startswith(f"tool pay ({HERE}): resources must be a function of the arguments, e.g. lambda")


# What is sent must survive the ledger


class Colour(Enum):
    RED = "red"


class Pair(Enum):
    BOTH = (1, 2)


class Line(Arguments):
    sku: str = Field(alias="article")


class Rich(Arguments):
    """All that may be in a write's input."""

    text: Annotated[str, Field(min_length=1)] = "x"
    number: PositiveInt | None = None
    share: float = 0.5
    price: Decimal = Decimal("1.50")
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    day: date = date(2026, 1, 1)
    moment: AwareDatetime | None = None
    which: UUID | Literal["none"] = "none"
    colour: Colour = Colour.RED
    parts: list[Pay] = Field(default_factory=list)
    by_name: dict[Annotated[str, Field(max_length=9)], tuple[int, ...]] = Field(default_factory=dict)
    whatever: JsonValue = None
    loose: Any = None


class Computed(Arguments):
    order: str

    @computed_field  # type: ignore[prop-decorator]
    @property
    def shouted(self) -> str:
        return self.order.upper()


class Serialized(Arguments):
    order: str

    @field_serializer("order")
    def shout(self, order: str) -> str:
        return order.upper()


def with_field(annotation: Any, default: Any = ...) -> type[BaseModel]:
    return create_model("Made", __base__=Arguments, order=(str, ...), field=(annotation, default))


def writing(model: type[BaseModel], **changes: Any) -> WriteTool:
    return replace(paying(**changes), arguments=model)


def test_a_model_of_all_that_can_be_stored_is_accepted_and_comes_back_as_it_was() -> None:
    assert faults_of(writing(Rich, key=("text", "number", "price", "at", "day", "which", "colour"))) == []
    assert Rich.model_validate_json(canonical(Rich()), strict=True) == Rich()


@pytest.mark.filterwarnings("ignore::pydantic.json_schema.PydanticJsonSchemaWarning")
@pytest.mark.parametrize(
    ("model", "fault"),
    [
        (with_field(str, Field(alias="other")), "Made.field has an alias"),
        (with_field(str, Field(validation_alias="other")), "Made.field has an alias"),
        (with_field(str, Field(serialization_alias="other")), "Made.field has an alias"),
        (with_field(list[Line]), "Line.sku has an alias"),
        (with_field(str, Field(exclude=True)), "Made.field is excluded"),
        (with_field(Json[int]), "Made.field is stored in another form"),
        (with_field(Annotated[int, PlainSerializer(str)]), "Made.field is stored in another form"),
        (with_field(HttpUrl), "Made.field is a HttpUrl, which can't be stored"),
        (with_field(HttpUrl | None, HttpUrl("http://x")), "Made.field is a HttpUrl, which can't be stored"),
        (with_field(list[Path]), "Made.field is a Path, which can't be stored"),
        (with_field(bytes), "Made.field is a bytes, which can't be stored"),
        (with_field(SecretStr), "Made.field is a SecretStr, which can't be stored"),
        (with_field(timedelta), "Made.field is a timedelta, which can't be stored"),
        (with_field(dict[int, str]), "Made.field is a dict[int, str], which can't be stored"),
        (with_field(Pair), "Made.field is a Pair, which can't be stored"),
        (with_field(Any, len), "Made.field has a default that can't be stored"),
        (with_field(int, None), "Made.field has a default that can't be stored"),
        (with_field(float, float("inf")), "Made.field has a default that can't be stored"),
        (with_field(UUID, Field(default_factory=uuid4)), "Made.field has a default that is another one each time"),
        (Computed, "Computed.shouted is computed"),
        (Serialized, "Serialized has a serializer"),
    ],
    ids=range(21),
)
def test_an_input_that_the_ledger_would_lose_refuses_the_start(model: type[BaseModel], fault: str) -> None:
    (line,) = refusal(family(writing(model)))
    assert line.startswith(f"tool pay ({HERE}): {fault}")


@pytest.mark.parametrize("kind", [float, list[str], Pay, Any, float | str])
def test_what_names_no_business_action_for_certain_is_no_key(kind: Any) -> None:
    (line,) = faults_of(writing(with_field(kind), key=("order", "field")))
    assert line.startswith("key names 'field', which must be text, a whole number")


def test_a_read_may_be_asked_in_whatever_form() -> None:
    assert faults_of(replace(reading(balance), arguments=with_field(HttpUrl))) == []


# Where tools are found


def test_r15_the_shipped_families_are_found_and_accepted() -> None:
    """R15: a family is a file; nothing else is edited."""
    tools = discover().tools
    # Whoever runs this may have installed families of others, too.
    ours = [tools["lookup_stock"], tools["reserve_stock"], tools["release_stock"]]
    assert [effect_of(tool) for tool in ours] == [Effect.READ, Effect.WRITE, Effect.WRITE]
    for tool in ours:
        assert tool_schema(tool)["input_schema"]["additionalProperties"] is False
        assert len(tool.description) > 100


def entry_point(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """Another distribution is installed that names this as a tool family."""
    point = EntryPoint(name="acme", value=value, group=registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "entry_points", lambda group: EntryPoints([point]).select(group=group))


def test_a_family_of_another_distribution_joins_by_its_entry_point(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = (
        "from settled.activities.toolkit import Answer, Arguments, Call, read\n"
        "class Ask(Arguments):\n    place: str\n"
        "@read()\n"
        "async def weather(asked: Ask, call: Call) -> Answer:\n"
        "    '''Look up the weather.'''\n"
        "    return Answer(data='rain', source='acme')\n"
    )
    (tmp_path / "acme_tools_one.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    entry_point(monkeypatch, "acme_tools_one")
    assert set(discover().tools) == {"lookup_stock", "reserve_stock", "release_stock", "read_output", "weather"}


def test_two_tools_of_one_name_in_one_module_refuse_the_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The second replaces the first in the module, so that only the source still shows both."""
    tool = "@read()\nasync def weather(asked: Arguments, call: Call) -> Answer:\n    'Look up the weather.'\n"
    source = "from settled.activities.toolkit import Answer, Arguments, Call, read\n"
    (tmp_path / "acme_tools_three.py").write_text(source + 2 * tool)
    monkeypatch.syspath_prepend(tmp_path)
    entry_point(monkeypatch, "acme_tools_three")
    with pytest.raises(ConfigurationError, match=r"^tool weather \(.*acme_tools_three.py\): is defined twice in its"):
        discover()


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("acme_tools_missing", "can't be imported: No module named 'acme_tools_missing'"),
        ("acme_tools_two", "can't be imported: the licence; ran out"),
        ("json:dumps", "must name a module"),
    ],
)
def test_a_foreign_family_that_cannot_be_used_is_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str, fault: str
) -> None:
    (tmp_path / "acme_tools_two.py").write_text("raise RuntimeError('the licence;\\nran out')\n")
    monkeypatch.syspath_prepend(tmp_path)
    entry_point(monkeypatch, value)
    with pytest.raises(ConfigurationError) as refused:
        discover()
    assert str(refused.value) == f"tool family acme ({value}): {fault}"
