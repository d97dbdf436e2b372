"""What model requests cost, by a table; and what has no cost, which is said."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from settled.activities.agents import AgentProfile, ProfileLimits
from settled.activities.asking import counted
from settled.activities.prices import SHIPPED, Prices, faults_of_profiles, load_prices, no_price
from settled.workflows.contract.turn import Usage
from settled.workflows.errors import ConfigurationError

TABLE = Prices.model_validate(
    {
        "models": {
            "claude-a": {"input": "3", "output": "15", "cache_read": "0.30", "cache_write": "3.75"},
            "claude-a-5": {"input": "4", "output": "20", "cache_read": "0.20", "cache_write": "5"},
            "claude-long": {
                "input": "0.1",
                "output": "0.5",
                "cache_read": "0.01",
                "cache_write": "0.125",
                "above": {"tokens": 100, "input": "1", "output": "5", "cache_read": "0.1", "cache_write": "1.25"},
            },
        }
    }
)
MILLIONS = Usage(
    input_tokens=1_000_000, output_tokens=2_000_000, cache_read_tokens=10_000_000, cache_write_tokens=4_000_000
)


# What a request costs


def test_each_kind_of_token_has_its_price_per_million() -> None:
    assert TABLE.priced(MILLIONS, "claude-a").cost == Decimal("3") + 2 * 15 + 3 + 4 * Decimal("3.75")


def test_r52_cost_is_exact_to_the_last_token() -> None:
    """As a float, a million such requests would not add up."""
    one = TABLE.priced(Usage(cache_read_tokens=1), "claude-a")
    assert one.cost == Decimal("0.0000003")
    total = Usage()
    for _ in range(1_000):
        total = total.plus(one)
    assert total.cost == Decimal("0.0003")
    assert Usage.model_validate_json(total.model_dump_json()) == total


@pytest.mark.parametrize(
    ("read", "rate"),
    [(Usage(input_tokens=100), "0.00001"), (Usage(input_tokens=101), "0.000101")],
    ids=["short", "long"],
)
def test_a_long_request_has_its_own_rates(read: Usage, rate: str) -> None:
    assert TABLE.priced(read, "claude-long").cost == Decimal(rate)


def test_the_cached_tokens_make_a_request_long_too() -> None:
    usage = Usage(input_tokens=1, cache_read_tokens=99, cache_write_tokens=1, output_tokens=10)
    millionths = 1 + 99 * Decimal("0.1") + Decimal("1.25") + 10 * 5
    assert TABLE.priced(usage, "claude-long").cost * 1_000_000 == millionths


# Which price


@pytest.mark.parametrize(
    ("model", "found"),
    [
        ("claude-a", "claude-a"),
        ("claude-a-20260801", "claude-a"),
        ("claude-a@20260801", "claude-a"),
        ("claude-a-20260801-v1:0", "claude-a"),
        ("claude-a-latest", "claude-a"),
        ("claude-a-5", "claude-a-5"),
        ("claude-a-5-20260801", "claude-a-5"),
        ("claude-a-6", None),
        ("claude-a-5-5", None),
        ("claude-a-mini", None),
        ("claude-ab", None),
        ("claude", None),
        ("anthropic.claude-a", None),
        ("", None),
    ],
)
def test_a_name_stands_for_its_dated_ones_and_for_no_other_model(model: str, found: str | None) -> None:
    """`claude-a-6` begins like `claude-a`, and is another model with another price."""
    assert TABLE.of(model) == (TABLE.models[found] if found else None)


def test_r52_an_unknown_model_has_no_cost_and_is_counted() -> None:
    """It is never guessed, and never free without a word."""
    assert TABLE.priced(MILLIONS, "gpt") == MILLIONS.model_copy(update={"unpriced": 1})
    assert TABLE.priced(MILLIONS) == MILLIONS.model_copy(update={"unpriced": 1})


def test_the_name_that_the_provider_answers_with_comes_first() -> None:
    assert TABLE.priced(Usage(input_tokens=1_000_000), "claude-a-5-20260801", "claude-a").cost == 4
    assert TABLE.priced(Usage(input_tokens=1_000_000), "an-alias", "claude-a").cost == 3
    assert TABLE.priced(Usage(input_tokens=1_000_000), None, "claude-a").cost == 3


def test_r52_a_task_keeps_the_prices_of_its_models_whatever_a_later_table_says() -> None:
    """Those of their dated names too, which the provider may answer with; the later table fills in what was unknown."""
    dear = {name: price.model_copy(update={"input": Decimal(100)}) for name, price in TABLE.models.items()}
    later = Prices(models=dear | {"new": dear["claude-a"]})
    frozen = TABLE.for_task(profile("claude-a", "claude-a-5-20260801", "new"))
    assert set(frozen) == {"claude-a", "claude-a-5"}
    read = Usage(input_tokens=1_000_000)
    assert later.priced(read, "claude-a-20260801", "claude-a", frozen=frozen).cost == 3
    assert later.priced(read, "new", frozen=frozen).cost == 100
    assert later.priced(read, "claude-a", frozen={}).cost == 100, "a task of an earlier release"


def test_r52_the_price_of_the_model_that_answered_comes_before_that_of_the_one_that_was_asked() -> None:
    """Whichever table has it: the task's own has the models that it may ask only."""
    frozen, read = TABLE.for_task(profile("claude-a")), Usage(input_tokens=1_000_000)
    assert set(frozen) == {"claude-a"}
    assert TABLE.priced(read, "claude-a-5-20260801", "claude-a", frozen=frozen).cost == 4
    assert TABLE.priced(read, "an-alias", "claude-a", frozen=frozen).cost == 3


SAID = {"input_tokens": 7, "output_tokens": 5}


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"usage": None},
        {"usage": [7, 5]},
        {"usage": {}},
        {"usage": {"input_tokens": 7}},
        {"usage": {"output_tokens": 5}},
        *({"usage": SAID | {"input_tokens": value}} for value in (None, "7", True, -1, 1e300, float("nan"))),
        {"usage": SAID | {"output_tokens": "many"}},
        {"usage": SAID | {"cache_read_input_tokens": "many"}},
    ],
    ids=str,
)
def test_r52_a_response_that_does_not_say_its_tokens_has_no_cost_and_is_counted(message: dict[str, Any]) -> None:
    """It is no free one: what can be read of it is counted, and the rest is said to be unknown."""
    priced = TABLE.priced(counted(message), "claude-a")
    assert (priced.cost, priced.unpriced) == (Decimal(0), 1)


@pytest.mark.parametrize("cached", [None, 0], ids=str)
def test_a_response_needs_to_say_nothing_of_a_cache_that_it_did_not_use(cached: int | None) -> None:
    said = SAID | {"cache_read_input_tokens": cached, "cache_creation_input_tokens": cached}
    assert counted({"usage": said}) == counted({"usage": SAID}) == Usage(input_tokens=7, output_tokens=5)


@given(st.lists(st.builds(Usage, input_tokens=st.integers(0, 10**9), output_tokens=st.integers(0, 10**6)), max_size=40))
def test_the_cost_of_all_is_the_sum_of_the_costs(usages: list[Usage]) -> None:
    priced = [TABLE.priced(usage, "claude-a") for usage in usages]
    total = Usage()
    for usage in priced:
        total = total.plus(usage)
    assert total.cost == sum(usage.cost for usage in priced)
    assert total.cost * 1_000_000 == 3 * total.input_tokens + 15 * total.output_tokens


# The table that is shipped


def test_the_shipped_table_knows_the_models_of_today_and_the_demos() -> None:
    shipped = load_prices()
    assert len(shipped.models) >= 10
    for model in ("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5"):
        assert shipped.of(model) is not None


@pytest.mark.parametrize("name", load_prices().models)
def test_each_shipped_price_is_plausible(name: str) -> None:
    """A slip of a decimal point would be seen: what is kept costs a quarter more, what is read from there far less."""
    price = load_prices().models[name]
    for rates in (price, *([price.above] if price.above else [])):
        assert rates.output == 5 * rates.input
        assert rates.cache_write == rates.input * Decimal("1.25")
        assert rates.input / 50 < rates.cache_read <= rates.input / 10


def test_the_shipped_table_says_when_it_was_read_and_that_it_must_be_checked() -> None:
    head = SHIPPED.read_text(encoding="utf-8").partition("[models")[0]
    assert "2026" in head
    assert "check them" in head


# A table of one's own

ROW = "input = 1\noutput = 2\ncache_read = 0.1\ncache_write = 1.25\n"


def test_prices_are_read_as_they_are_written(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f"[models.mine]\n{ROW}")
    assert load_prices(file).models["mine"].cache_read == Decimal("0.1")
    assert list(load_prices(file).models) == ["mine"], "it takes the place of the shipped one"


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("[models", ["not TOML: "]),
        ("", ["models: Field required"]),
        (
            "[models.m]\ninput = 1\n",
            [f"models.m.{name}: Field" for name in ("output", "cache_read", "cache_write")],
        ),
        (f"[models.m]\n{ROW}cache = 1\n", ["models.m.cache: unknown field"]),
        (f"[models.m]\n{ROW.replace('= 2', '= -2')}", ["models.m.output: Input should be greater than or equal to 0"]),
        (f"[models.m]\n{ROW.replace('= 2', '= nan')}", ["models.m.output: Input should be a finite number"]),
        (f"[models.m]\n{ROW}above = {{tokens = 0}}\n", ["models.m.above.input: Field"]),
        (f"[models.m]\n{ROW.replace('= 2', '= ' + '9' * 5000)}", ["not TOML that can be read: it holds a number"]),
        (f"models = {'[' * 5000}{']' * 5000}", ["not TOML that can be read: nested too deeply"]),
    ],
    ids=range(9),
)
def test_a_table_with_faults_refuses_the_start_with_a_line_for_each(
    tmp_path: Path, text: str, faults: list[str]
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as refused:
        load_prices(file)
    lines = str(refused.value).splitlines()
    for line, fault in zip(lines, faults, strict=False):
        assert line.startswith(f"SETTLED_PRICES (mine.toml): {fault}")
    assert len(lines) >= len(faults)


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        (
            f"[models.claude-3.5-sonnet]\n{ROW}",
            ['models.claude-3: a name with a dot needs quotes, like [models."claude-3.5-sonnet"]'],
        ),
        (
            f"[models.a]\n{ROW}[models.a.1]\n{ROW}[models.a.1.above]\ntokens = 9\n{ROW}[models.a.2.5]\n{ROW}",
            [f'models.a: a name with a dot needs quotes, like [models."{name}"]' for name in ("a.1", "a.2.5")],
        ),
        (
            f"[models.a.1]\n{ROW}[models.b]\ninput = 0\noutput = 0\ncache_read = 0\n",
            ['models.a: a name with a dot needs quotes, like [models."a.1"]', "models.b.cache_write: Field required"],
        ),
        (f"[models.m]\n{ROW}[models.m.abov]\ntokens = 9\n{ROW}", ["models.m.abov: unknown field"]),
    ],
    ids=["one", "several", "and another fault", "no name"],
)
def test_a_name_with_a_dot_that_is_not_quoted_is_one_line(tmp_path: Path, text: str, faults: list[str]) -> None:
    """TOML takes the dot for a table within a table."""
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as refused:
        load_prices(file)
    assert str(refused.value).splitlines() == [f"SETTLED_PRICES (mine.toml): {fault}" for fault in faults]


def test_a_table_that_an_editor_saved_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f'[models."claude-3.5-sonnet"]\n{ROW}', encoding="utf-8-sig")
    assert list(load_prices(file).models) == ["claude-3.5-sonnet"]


def test_a_table_that_is_not_there_refuses_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^SETTLED_PRICES \(gone.toml\): can't be read: No such file"):
        load_prices(tmp_path / "gone.toml")


# A limit of cost needs prices


def profile(model: str, *fallback: str, cost: str | None = "1") -> AgentProfile:
    limits = ProfileLimits(cost=Decimal(cost) if cost else None)
    return AgentProfile(model=model, system="s", fallback=fallback, limits=limits)


def test_a_profile_with_a_limit_of_cost_needs_the_price_of_each_of_its_models() -> None:
    """The fallback models' too: which one will answer, nobody knows before."""
    profiles = {
        "good": profile("claude-a", "claude-a-5"),
        "free": profile("unknown", cost=None),
        "bad": profile("claude-a", "llama", "claude-a-5", "mistral"),
    }
    assert faults_of_profiles(profiles, TABLE) == [f"agent bad: limits.{no_price(['llama', 'mistral'])}"]
    assert no_price(["llama"]) == (
        "cost: no price is known of 'llama'; add it to a table of your own (SETTLED_PRICES), or leave this limit out"
    )
