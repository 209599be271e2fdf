"""What can go wrong with a server: it stops, is not there, refuses, is another program's. Passwords are never said."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import convwright as cw
from convwright.cli.main import main
from convwright.errors import BadInput, StoreError
from convwright.settings import settings
from convwright.store.schema import SCHEMA_VERSION
from convwright.store.store import Store
from convwright.store_url import StoreUrl
from convwright.tuning.session import session
from forked import Program
from store.observed import DEVICE, observation
from store.postgresql_server import PASSWORD, QUOTED, PostgresqlServer

OPENER = """
import sys
from convwright.store.store import Store
print("ready", flush=True)
sys.stdin.readline()
with Store.open(sys.argv[1]) as store:
    store.record("problem", "device", sys.argv[2], "1", None, "failed")
"""
WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None
from convwright.store.store import Store
Store.open(None).close()
try:
    Store.open("postgresql://host/findings")
except Exception as error:
    print(type(error).__name__, error)
"""
ABSENT = "postgresql://ada:s3cret@127.0.0.1:1/findings?connect_timeout=2"


@pytest.fixture
def url(server: PostgresqlServer) -> str:
    return server.url()


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with Store.open(url) as made:
        yield made


def sentence(place: str) -> str:
    """What is said where a store cannot be opened."""
    with pytest.raises(StoreError) as raised:
        Store.open(place)
    said = str(raised.value)
    assert "\n" not in said
    for secret in (PASSWORD, QUOTED, "s3cret", "letters"):
        assert secret not in said
    return said


def terminate_others(server: PostgresqlServer) -> None:
    server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")


def test_nothing_is_lost_or_double_where_the_server_stops_in_the_middle(server: PostgresqlServer, store: Store) -> None:
    assert store.observe(map(observation, range(50))) == 50
    reading = store.observations()
    first = next(reading)
    failed = rf"^the store of findings at postgresql://ada@127.0.0.1:{server.port}/postgres failed: "
    with server.stopped("immediate"), pytest.raises(StoreError, match=failed):
        store.observe(map(observation, range(25, 75)))
    assert store.observe(map(observation, range(25, 75))) == 25
    assert [first, *reading] == list(store.observations()) == list(map(observation, range(75)))


def test_a_server_that_was_started_anew_is_met_without_an_error(server: PostgresqlServer, store: Store) -> None:
    store.observe([observation(1)])
    with server.stopped():
        pass
    assert store.observe([observation(1), observation(2)]) == 1
    assert store.observed(DEVICE) == 2


def test_what_a_lost_connection_interrupts_is_tried_once_more(server: PostgresqlServer, store: Store, url: str) -> None:
    attempts = 0

    def insert(connection: object, *, losses: int) -> None:
        nonlocal attempts
        attempts += 1
        connection.execute("INSERT INTO fact VALUES (?, 'name', 'body', 1.0)", (f"{attempts}",))  # type: ignore[attr-defined]
        if attempts <= losses:
            terminate_others(server)
        connection.execute("SELECT 1")  # type: ignore[attr-defined]

    store.transaction(lambda connection: insert(connection, losses=1))
    assert attempts == 2
    assert server.execute("SELECT device FROM fact", url) == [("2",)]
    attempts = 0
    with pytest.raises(StoreError, match="failed: "):
        store.transaction(lambda connection: insert(connection, losses=2))
    assert attempts == 2


def test_what_is_known_of_a_machine_is_no_other_machines(server: PostgresqlServer, store: Store, url: str) -> None:
    store.record_fact(DEVICE, "host costs", "mine")
    server.execute("UPDATE fact SET name = name || ' the other'", url)
    assert store.fact(DEVICE, "host costs") is None
    store.record_fact(DEVICE, "host costs", "mine")
    assert store.fact(DEVICE, "host costs") == "mine"
    assert server.execute("SELECT count(*) FROM fact", url) == [(2,)]


def test_a_candidate_that_was_tried_while_the_server_stopped_is_not_quarantined(
    server: PostgresqlServer, store: Store, url: str
) -> None:
    marks = "SELECT count(*) FROM trying"
    with ExitStack() as while_stopped, store.trying("problem", DEVICE, "cudnn/fft", "cudnn 9.19"):
        while_stopped.enter_context(server.stopped())
    assert server.execute(marks, url) == [(1,)]
    store.record_search("problem", DEVICE, "quick", [])
    assert server.execute(marks, url) == [(0,)]


def test_processes_that_make_the_tables_at_once_all_succeed(url: str) -> None:
    openers = [Program(OPENER, url, f"candidate {number}") for number in range(2)]
    for process in openers:
        assert process.stdout.readline() == "ready\n"
    for process in openers:
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [(process.communicate(), process.returncode) for process in openers] == [("", 0)] * 2
    with Store.open(url) as store:
        assert len(store.findings("problem", "device")) == 2


def test_a_server_that_is_not_there_is_one_sentence_or_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    said = sentence(ABSENT)
    assert said.startswith("the store of findings at postgresql://ada@127.0.0.1:1/findings failed: connection ")
    told = list[str]()
    with Store.open(ABSENT, tell=told.append) as store:
        assert not store.in_file
        assert store.observe([observation(1)]) == 1
        assert list(store.observations()) == [observation(1)]
        assert store.summary().place is None
        assert told == [store.note] == [f"findings are kept in memory only, since {said}"]
    monkeypatch.setenv("CONVWRIGHT_STORE", ABSENT)
    settings.cache_clear()
    with pytest.warns(
        cw.StoreWarning, match="^findings are kept in memory only, since .*postgresql://ada@127.0.0.1:1/"
    ):
        assert session().store.findings("problem", DEVICE) == {}


def test_a_server_that_stops_for_good_makes_way_for_memory(server: PostgresqlServer, url: str) -> None:
    told = list[str]()
    with Store.open(url, tell=told.append) as store:
        assert store.observe([observation(1)]) == 1
        with server.stopped():
            assert store.observe([observation(1), observation(2)]) == 2
            assert store.unkept == store.note
        assert [each.partition(", since ")[0] for each in told] == ["findings are kept in memory only"]


def test_a_wrong_password_is_refused_and_no_password_is_said(server: PostgresqlServer) -> None:
    assert "password authentication failed" in sentence(server.url().replace(QUOTED, "wr0ng-s3cret"))
    assert "does not exist" in sentence(server.url().replace("/postgres?", "/absent?"))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            "mysql://ada:s3cret@host/findings",
            "the store at mysql://… cannot be used: expected a path, or postgresql://",
        ),
        ("postgresql://ada:s3cret/x@host/findings", "postgresql://… cannot be used: special characters of a password"),
        ("postgresql://ada:x@s3cret@host/findings", "postgresql://… cannot be used: special characters of a password"),
        ("postgresql://ada:s3cret?x@host/findings", "postgresql://… cannot be used: special characters of a password"),
        ("postgresql://ada:s3cret%x@host/findings", "postgresql://… cannot be used: a % must be written %25 in a URL"),
        ("postgresql://ada:s3cret@host/findings?colour=red", "postgresql://ada@host/findings failed: invalid"),
        ("postgresql://ada@host:port/x?password=s3cret", "postgresql://ada@host:port/x failed: "),
    ],
)
def test_a_wrong_url_is_one_sentence(wrong: str, said: str) -> None:
    if "failed" in said:
        pytest.importorskip("psycopg")
        pytest.importorskip("sqlalchemy")
    assert said in sentence(wrong)


def test_a_url_shows_no_password_wherever_it_is_printed() -> None:
    given = StoreUrl("postgresql://ada:s3cret@host:5432/findings?password=s3cret")
    assert f"{given} {given!r}" == "postgresql://ada@host:5432/findings postgresql://ada@host:5432/findings"
    with pytest.raises(BadInput, match="must be given as text"):
        Store.open(Path("postgresql://ada:s3cret@host/findings"))


def test_the_database_of_another_program_is_refused_and_left_alone(server: PostgresqlServer, url: str) -> None:
    server.execute("CREATE TABLE customer (id INTEGER); CREATE VIEW finding AS SELECT 1 AS problem", url)
    said = sentence(url)
    assert "is another program's database (its tables are customer, finding); name another database" in said
    assert server.execute("SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()", url) == [(1,)]


def test_a_newer_schema_is_refused_and_left_alone(server: PostgresqlServer, url: str) -> None:
    Store.open(url).close()
    server.execute(f"UPDATE convwright_store SET version = {SCHEMA_VERSION + 1}", url)
    assert f"was written by a newer convwright (schema {SCHEMA_VERSION + 1}, this one knows {SCHEMA_VERSION})" in (
        sentence(url)
    )


def test_tables_that_are_missing_are_one_sentence(server: PostgresqlServer, store: Store, url: str) -> None:
    server.execute("DROP TABLE observation", url)
    with pytest.raises(StoreError, match='relation "observation" does not exist') as raised:
        store.observe([observation(1)])
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("module", ["sqlalchemy", "psycopg"])
def test_without_the_libraries_only_a_server_is_refused(module: str) -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT, module], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("StoreError a store on a server needs SQLAlchemy and psycopg (")
    assert done.stdout.endswith("): pip install 'convwright[shared]'\n")


def test_commands_and_functions_take_a_url(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["convwright", *words])
        with pytest.raises(SystemExit) as done:
            main()
        said = capsys.readouterr()
        assert (done.value.code or 0, said.err) == (0, "")
        assert "s3cret" not in said.out
        return said.out

    found = cw.find("ic8ih9oc8kh3", device="cpu", mode="heuristic", store=url)
    assert found.verdicts
    with Store.open(url) as store:
        store.record(found.problem.key, DEVICE, "torch/default", "torch 2.13", None, "it failed")
        store.observe(map(observation, range(3)))
    summary = json.loads(run("store", "--store", url, "--json"))
    assert (summary["path"], summary["schema"]) == (str(StoreUrl(url)), SCHEMA_VERSION)
    (device,) = summary["devices"]
    assert (device["findings"], device["observations"]) == (1, 3)
    file = tmp_path / "findings.jsonl"
    assert "4 lines of findings, searches and observations" in run("store", "export", str(file), "--store", url)
    assert run("store", "clear", "--yes", "--store", url) == "forgot 1 finding and 3 observations\n"
    assert "1 finding, 0 finished searches, 3 observations" in run("store", "import", str(file), "--store", url)
    assert str(StoreUrl(url)) in run("store", "show", "--store", url)
    assert "it failed" in run("store", "list", "ic8ih9oc8kh3", "--store", url)
    pruned = run("store", "prune", "--observations", "1", "--store", url)
    assert pruned == "removed 0 findings and 3 observations\n"
    monkeypatch.setenv("CONVWRIGHT_STORE", url)
    settings.cache_clear()
    assert f'"store": "{StoreUrl(url)}"' in run("show-env", "--json")


def test_no_model_can_be_put_beside_it(server: PostgresqlServer) -> None:
    with pytest.raises(BadInput, match=r"^no model can be put beside a store on a server: name its file with `out`"):
        cw.learn(device="h200", store=server.url())
