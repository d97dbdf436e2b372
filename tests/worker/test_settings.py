"""The worker's settings: what the environment says, and a line for each variable that says nonsense."""

import os
from pathlib import Path

import pytest

from settled.activities.settling import Patience
from settled.worker.settings import Settings, load_settings, unknown_variables
from settled.workflows.contract.task import Conduct
from settled.workflows.errors import ConfigurationError


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("SETTLED_")]:
        monkeypatch.delenv(name)


def faults() -> list[str]:
    """The lines with which the worker refuses to start."""
    with pytest.raises(ConfigurationError) as refused:
        load_settings()
    return str(refused.value).splitlines()


def test_a_worker_starts_without_any_setting() -> None:
    assert load_settings() == Settings()
    assert (Settings().database_url, Settings().agents) == ("sqlite+aiosqlite:///settled.db", Path("agents"))


GIVEN = {
    "DATABASE_URL": "postgresql+asyncpg://db/settled",
    "AGENTS": "profiles",
    "PRICES": "prices.toml",
    "DEFAULT_AGENT": "clerk",
    "TASK_QUEUE": "night",
    "MODEL_URL": "http://127.0.0.1:9",
    "HEALTH_PORT": "0",
    "HEALTH_HOST": "127.0.0.1",
    "DRAIN_SECONDS": "5",
    "MODEL_SECONDS": "30.5",
    "MODEL_ATTEMPTS": "2",
    "READ_ATTEMPTS": "3",
    "RECHECK_SECONDS": "1",
    "CUT_EVENTS": "50",
    "LOOKUP_FIRST_SECONDS": "0.5",
    "LOOKUP_MOST_SECONDS": "10",
    "SWEEP_SECONDS": "0.5",
    "PATIENCE_SECONDS": "60",
}


def test_r104_every_setting_is_a_variable_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {name.lower() for name in GIVEN} == set(Settings.model_fields)
    for name, value in GIVEN.items():
        monkeypatch.setenv(f"SETTLED_{name}", value)
    loaded = load_settings()
    assert all(getattr(loaded, name) != field.default for name, field in Settings.model_fields.items())
    assert loaded.agents == Path("profiles")
    assert loaded.conduct == Conduct(
        model_seconds=30.5, model_attempts=2, read_attempts=3, recheck_seconds=1.0, cut_events=50
    )
    assert loaded.patience == Patience(first=0.5, most=10.0, total=60.0)


def test_variables_of_others_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SETTLED_OF_A_LATER_RELEASE", "1")
    monkeypatch.setenv("AGENTS", "elsewhere")
    assert load_settings() == Settings()


def test_a_variable_that_is_no_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SETTLED_AGENT", "clerk")
    monkeypatch.setenv("SETTLED_AGENTS", "agents")
    assert unknown_variables() == ["SETTLED_AGENT"]


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is how a compose file says "nothing"."""
    for name in GIVEN:
        monkeypatch.setenv(f"SETTLED_{name}", "")
    assert load_settings() == Settings()
    assert load_settings().model_url is None


IN_MEMORY = (
    "sqlite+aiosqlite://",
    "sqlite+aiosqlite:///:memory:",
    "sqlite+aiosqlite:///file::memory:?uri=true",
    "sqlite+aiosqlite:///file:x?mode=memory&uri=true",
)


def test_a_ledger_is_named_by_its_path_and_not_by_a_uri(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file is watched: a ledger that is moved away must not be written to."""
    monkeypatch.setenv("SETTLED_DATABASE_URL", "sqlite+aiosqlite:///file:settled.db?uri=true")
    (line,) = faults()
    assert line.startswith("SETTLED_DATABASE_URL: name the ledger's file by its path")


@pytest.mark.parametrize("url", IN_MEMORY)
def test_a_ledger_that_would_die_with_the_process_is_refused(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("SETTLED_DATABASE_URL", url)
    (line,) = faults()
    assert line.endswith("would be lost with the process; name a file, like sqlite+aiosqlite:///settled.db")


def test_a_wrong_address_of_a_model_is_answered_with_a_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SETTLED_MODEL_URL", "localhost:8000")
    (line,) = faults()
    assert line == "SETTLED_MODEL_URL: not an address of a server; write it like http://127.0.0.1:8000"


SECONDS = [name for name in GIVEN if name.endswith("_SECONDS")]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in SECONDS for value in ("soon", "-1", "nan", "inf", "1e300")),
        *((name, value) for name in SECONDS if name != "SWEEP_SECONDS" for value in ("0", "1e-9")),
        *((f"{kind}_ATTEMPTS", value) for kind in ("MODEL", "READ") for value in ("0", "-1", "1.5", "many")),
        *((f"{kind}_ATTEMPTS", value) for kind in ("MODEL", "READ") for value in ("1001", "3000000000")),
        *(("CUT_EVENTS", value) for value in ("49", "40001", "x")),
        *(("HEALTH_PORT", value) for value in ("-1", "65536", "http")),
        *(("MODEL_URL", value) for value in ("localhost:8080", "ftp://model", "http://", "http:// x")),
        *(("DATABASE_URL", value) for value in IN_MEMORY),
    ],
)
def test_r104_a_wrong_setting_is_one_line_that_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"SETTLED_{name}", value)
    (line,) = faults()
    assert line.startswith(f"SETTLED_{name}: ")
    assert len(line) > len(f"SETTLED_{name}: ") + 10


def test_r104_all_wrong_settings_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEALTH_PORT", "DRAIN_SECONDS", "MODEL_ATTEMPTS"):
        monkeypatch.setenv(f"SETTLED_{name}", "x")
    assert [line.split(":")[0] for line in faults()] == [
        "SETTLED_HEALTH_PORT",
        "SETTLED_DRAIN_SECONDS",
        "SETTLED_MODEL_ATTEMPTS",
    ]


def test_r104_a_wrong_value_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """R104: a password in the wrong variable must not end up in a log."""
    monkeypatch.setenv("SETTLED_MODEL_URL", "hunter2")
    monkeypatch.setenv("SETTLED_HEALTH_PORT", "hunter2")
    assert "hunter2" not in "\n".join(faults())


@pytest.mark.parametrize(("name", "field"), [("HEALTH_PORT", "health_port"), ("MODEL_ATTEMPTS", "model_attempts")])
def test_the_edges_of_what_is_allowed_are_allowed(monkeypatch: pytest.MonkeyPatch, name: str, field: str) -> None:
    monkeypatch.setenv(f"SETTLED_{name}", "1")
    assert getattr(load_settings(), field) == 1
    monkeypatch.setenv("SETTLED_READ_ATTEMPTS", "1000")
    assert load_settings().conduct.read_attempts == 1_000
    for edge in ("50", "40000"):
        monkeypatch.setenv("SETTLED_CUT_EVENTS", edge)
        assert load_settings().cut_events == int(edge)
    monkeypatch.setenv("SETTLED_SWEEP_SECONDS", "0")
    assert load_settings().sweep_seconds == 0
    monkeypatch.setenv("SETTLED_PATIENCE_SECONDS", str(366 * 86_400))
    assert load_settings().patience.total == 366 * 86_400
