"""The house stands: which room knows which, what is packed, and what no file may name."""

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
ROOMS = {
    "workflows": ROOT / "workflows",
    "activities": ROOT / "activities",
    "worker": ROOT / "worker",
    "local": ROOT / "deploy" / "local",
}
# Whom a room may know, itself included.
ARROWS = {
    "workflows": {"workflows"},
    "activities": {"activities", "workflows"},
    "worker": {"worker", "activities", "workflows", "local"},
    "local": {"local", "worker", "activities", "workflows"},
}
# What the drivers' room is made of. It runs again and again from history, where an SDK or a clock gives another answer.
DRIVERS_PACKAGES = {"annotated_types", "pydantic", "pydantic_core", "temporalio", "typing_extensions"}
CLOSED_TO_DRIVERS = {
    *("concurrent", "ctypes", "dbm", "getpass", "glob", "http", "importlib", "multiprocessing", "os", "pathlib"),
    *("platform", "random", "secrets", "select", "selectors", "shutil", "signal", "smtplib", "socket", "sqlite3"),
    *("ssl", "subprocess", "tempfile", "threading", "time", "urllib.request"),
    *("temporalio.bridge", "temporalio.client", "temporalio.runtime", "temporalio.service"),
    *("temporalio.testing", "temporalio.worker"),
}
# Loaded by nothing that the drivers' room imports, at any distance.
HEAVY = {"aiohttp", "aiosqlite", "alembic", "anthropic", "asyncpg", "httpx2", "rich", "sqlalchemy", "typer"}


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command to its end; what it said is shown where it failed."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout


def project_files(*folders: Path, new: bool = False) -> list[Path]:
    """The files that git knows of, and not what else a person keeps in the checkout; `new`: those to be added, too."""
    which = ("--cached", "--deduplicate", *(("--others", "--exclude-standard") if new else ()))
    names = run("git", "ls-files", "-z", *which, "--", *folders, cwd=ROOT).split("\0")
    return sorted(ROOT / name for name in names if name and (ROOT / name).exists())


def modules() -> dict[str, Path]:
    """Every module of the rooms, by the name that it is imported by."""
    found = {}
    for room, folder in ROOMS.items():
        for path in project_files(folder):
            if path.suffix == ".py":
                parts = path.relative_to(folder).with_suffix("").parts
                found[".".join(("settled", room, *parts)).removesuffix(".__init__")] = path
    return found


def imported(module: str, path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that a module imports, anywhere in it; relative names are resolved."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=source, names=names, level=level):
                above = package[: len(package) - level + 1] if level else []
                start = [*above, *([source] if source else [])]
                # `from settled import worker` names a room in its last word, so that word belongs to the name.
                yield from ((node.lineno, ".".join([*start, alias.name])) for alias in names)
            case ast.Call(
                func=ast.Name(id="__import__" | "import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name


def is_or_is_in(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


# --- The arrows -------------------------------------------------------------------------------------------------------


def test_there_are_modules_to_look_at() -> None:
    assert {name.split(".")[1] for name in modules()} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_the_rooms_it_may_know(room: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for module, path in modules().items()
        if is_or_is_in(module, f"settled.{room}")
        for line, name in imported(module, path)
        if is_or_is_in(name, "settled") and not any(is_or_is_in(name, f"settled.{known}") for known in ARROWS[room])
    ]
    assert not wrong


def test_a_room_is_imported_by_its_name_in_settled_and_no_other() -> None:
    """The folders lie on the path while tests run: `import workflows` would load a second copy of each class."""
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in project_files()
        if path.suffix == ".py"
        for line, name in imported(".".join((ROOT.name, *path.relative_to(ROOT).with_suffix("").parts)), path)
        if any(is_or_is_in(name, folder) for folder in ("workflows", "activities", "worker", "deploy", "src"))
    ]
    assert not wrong


def test_workflows_import_no_io_and_no_sdk() -> None:
    def refused(name: str) -> bool:
        top = name.split(".", maxsplit=1)[0]
        known = top == "settled" or top in DRIVERS_PACKAGES or top in sys.stdlib_module_names
        return not known or any(is_or_is_in(name, closed) for closed in CLOSED_TO_DRIVERS)

    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for module, path in modules().items()
        if is_or_is_in(module, "settled.workflows")
        for line, name in imported(module, path)
        if refused(name)
    ]
    assert not wrong


def test_importing_workflows_loads_no_sdk_and_no_other_room(tmp_path: Path) -> None:
    """What the file of a workflow doesn't name can still come in by way of something it does name."""
    names = [name for name in modules() if is_or_is_in(name, "settled.workflows")]
    unwanted = HEAVY | {f"settled.{room}" for room in ROOMS if room != "workflows"}
    program = f"""
import importlib, sys
for name in {names!r}:
    importlib.import_module(name)
print(*sorted(sys.modules.keys() & {unwanted!r}))
"""
    assert run(sys.executable, "-c", program, cwd=tmp_path).split() == []


def test_every_init_is_inert() -> None:
    """Importing a module imports its parents, inside the workflow sandbox too."""
    wrong = []
    for path in project_files():
        if path.name == "__init__.py":
            match ast.parse(path.read_text()).body:
                case [ast.Expr(value=ast.Constant(value=str()))]:
                    pass
                case _:
                    wrong.append(path.relative_to(ROOT))
    assert not wrong


# --- What is packed ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Packed:
    sdist: Path
    wheel_from_sdist: Path
    wheel_from_tree: Path

    def content(self, kind: str) -> set[str]:
        """The files in it, by their path below the folder that holds the package settled."""
        path: Path = getattr(self, kind)
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as archive:
                return set(archive.namelist())
        with tarfile.open(path) as archive:
            below = f"{path.name.removesuffix('.tar.gz')}/src/"
            return {member.name.removeprefix(below) for member in archive if member.isfile()}


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    """Both ways to a wheel, from copies: a build writes into its tree, and reads what an earlier one left there."""
    room = tmp_path_factory.mktemp("packed")
    trees = room / "for_sdist", room / "for_wheel"
    # A room's new module may be imported by an old one already.
    for source in {*project_files(), *project_files(*ROOMS.values(), new=True)}:
        for tree in trees:
            target = tree / source.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target, follow_symlinks=False)
    build = (sys.executable, "-m", "build", "--no-isolation", "--outdir")
    run(*build, room / "both", trees[0], cwd=room)
    run(*build, room / "wheel", "--wheel", trees[1], cwd=room)
    (sdist,) = (room / "both").glob("*.tar.gz")
    (wheel_from_sdist,) = (room / "both").glob("*.whl")
    (wheel_from_tree,) = (room / "wheel").glob("*.whl")
    return Packed(sdist, wheel_from_sdist, wheel_from_tree)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sdist", "wheel_from_sdist", "wheel_from_tree"])
def test_every_file_of_every_room_is_packed(packed: Packed, kind: str) -> None:
    """Data too: a migration or a table of prices that is left out is missed on the first start, not before."""
    wanted = {"settled/__init__.py", "settled/py.typed"} | {
        f"settled/{room}/{path.relative_to(folder).as_posix()}"
        for room, folder in ROOMS.items()
        for path in project_files(folder)
        if path.suffix != ".md"
    }
    assert not wanted - packed.content(kind)


@pytest.mark.parametrize("kind", ["wheel_from_sdist", "wheel_from_tree"])
def test_a_wheel_installs_nothing_but_settled(packed: Packed, kind: str) -> None:
    assert {re.sub(r"-[\d.]+\.", ".", name.split("/")[0]) for name in packed.content(kind)} == {
        "settled",
        "settled.dist-info",
    }


@pytest.mark.long
def test_every_module_imports_from_the_installed_wheel(packed: Packed, tmp_path: Path) -> None:
    target = tmp_path / "installed"
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target")
    run(*pip, target, packed.wheel_from_sdist, cwd=tmp_path)

    def is_run_by_alembic(path: Path) -> bool:
        return any((folder / "versions").is_dir() for folder in path.parents if folder.is_relative_to(ROOT))

    names = [name for name, path in modules().items() if path.name != "__main__.py" and not is_run_by_alembic(path)]
    program = f"""
import importlib, sys
sys.path.insert(0, {os.fspath(target)!r})
for name in {names!r}:
    try:
        origin = importlib.import_module(name).__file__
    except Exception as error:
        print(f"{{name}}: {{error!r}}")
    else:
        if not origin.startswith({os.fspath(target)!r}):
            print(f"{{name}}: comes from {{origin}}")
"""
    assert run(sys.executable, "-c", program, cwd=tmp_path) == ""


def test_constraints_pin_everything_that_is_asked_for_and_hold_nothing_but_pins() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert not [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.!+]+", line)]

    def plain(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    pins = {plain(name): version for name, _, version in (line.partition("==") for line in lines)}
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = pyproject["project"]
    groups = [
        pyproject["build-system"]["requires"],
        project["dependencies"],
        *project["optional-dependencies"].values(),
    ]
    asked = [Requirement(text) for text in chain.from_iterable(groups)]
    assert not [
        str(wish)
        for wish in asked
        if wish.name != "settled" and not wish.specifier.contains(pins.get(plain(wish.name), "0"))
    ]


# --- The container ----------------------------------------------------------------------------------------------------


def test_the_dockerfile_passes_hadolint() -> None:
    hadolint = Path(sysconfig.get_path("scripts")) / "hadolint"
    assert run(hadolint, "--no-color", "deploy/Dockerfile", cwd=ROOT) == ""


@pytest.mark.parametrize("folder", ["src", *(folder.relative_to(ROOT).as_posix() for folder in ROOMS.values())])
def test_the_container_is_given_every_room(folder: str) -> None:
    assert f"COPY {folder} {folder}" in (ROOT / "deploy" / "Dockerfile").read_text().splitlines()
    assert f"!{folder}" in (ROOT / ".dockerignore").read_text().splitlines()


# --- What no file may name --------------------------------------------------------------------------------------------


def lines_with(pattern: str, *, prose: bool) -> list[str]:
    found = []
    for path in project_files():
        if path.is_file() and (prose or path.suffix != ".md"):
            for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1):
                if re.search(pattern, line):
                    found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    return found


def test_no_file_names_a_package_registry() -> None:
    """Each place has its own index; a host in a file would bypass it, and fail where only that index is reached."""
    hosts = [("pypi", "org"), ("python" + "hosted", "org"), ("npmjs", "org"), ("npmjs", "com"), ("debian", "org")]
    hosts += [("crates", "io"), ("golang", "org"), ("rubygems", "org"), ("maven", "org")]
    assert not lines_with("|".join(rf"\b{re.escape('.'.join(host))}\b" for host in hosts), prose=True)


def test_no_code_names_a_home_or_a_temporary_folder() -> None:
    """Such a path is right on one machine only. Tests take `tmp_path`, code asks `tempfile` or its settings."""
    folders = "|".join(("home", "root", "tmp"))
    assert not lines_with(rf"(?<![\w.)}}\]])/(?:{folders})/", prose=False)
