"""A server of PostgreSQL on loopback, in a folder of its own, for as long as tests need one."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

PASSWORD = "s3cret/with@letters"
QUOTED = "s3cret%2Fwith%40letters"
_DEBIAN = Path("/usr/lib/postgresql")


def programs() -> Path | None:
    """The folder of ``initdb`` and ``pg_ctl``; None where PostgreSQL is not installed."""
    versions = sorted(_DEBIAN.glob("*/bin/initdb"), key=lambda path: float(path.parent.parent.name))
    found = str(versions[-1]) if versions else shutil.which("initdb")
    return Path(found).resolve().parent if found else None


class PostgresqlServer:
    """Each ``url`` leads to a schema of its own."""

    def __init__(self, bin_: Path) -> None:
        self._bin, self._numbers = bin_, count()
        self.folder = Path(tempfile.mkdtemp(prefix="postgresql-"))
        self._user: dict[str, object] = {}
        if os.geteuid() == 0:  # the server refuses to run as root
            nobody = pwd.getpwnam("nobody")
            os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
            self._user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        password = self.folder / "password"
        password.write_text(PASSWORD)
        if os.geteuid() == 0:
            os.chown(password, nobody.pw_uid, nobody.pw_gid)
        data = str(self.folder / "data")
        self._run(
            "initdb", "--pgdata", data, "--username", "ada", "--pwfile", str(password), "--auth", "scram-sha-256",
            "--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions",
        )  # fmt: skip
        (self.folder / "data" / "postgresql.conf").open("a").write(
            f"port = {self.port}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = ''\n"
            "fsync = off\nshared_buffers = 16MB\nmax_connections = 40\n"
        )
        self.start()

    def start(self) -> None:
        self._control("start", "--log", str(self.folder / "log"))

    @contextmanager
    def stopped(self, how: str = "fast") -> Iterator[None]:
        """Inside, nobody is served."""
        self.stop(how)
        try:
            yield
        finally:
            self.start()

    def stop(self, how: str = "fast") -> None:
        """ "fast" ends all connections; "immediate" is as if the power had failed."""
        self._control("stop", "--mode", how)

    def close(self) -> None:
        with suppress(subprocess.CalledProcessError):
            self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, password: str = QUOTED) -> str:
        """A new schema, in which there is nothing."""
        schema = f"store_{next(self._numbers)}"
        self.execute(f"CREATE SCHEMA {schema}")
        return f"postgresql://ada:{password}@127.0.0.1:{self.port}/postgres?options=-csearch_path%3D{schema}"

    def execute(self, sql: str, url: str | None = None) -> list[tuple[object, ...]]:
        """Run a statement as its owner, who is not a store."""
        import psycopg

        url = url or f"postgresql://ada:{QUOTED}@127.0.0.1:{self.port}/postgres"
        with psycopg.connect(url, autocommit=True) as connection:
            answer = connection.execute(sql)
            return answer.fetchall() if answer.description else []

    def _control(self, *arguments: str) -> None:
        self._run("pg_ctl", "--pgdata", str(self.folder / "data"), "--wait", "--silent", *arguments)

    def _run(self, program: str, *arguments: str) -> None:
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
        # Its output goes to a file: a server that inherits a pipe keeps it open.
        with (self.folder / "output").open("a") as output:
            done = subprocess.run(
                [str(self._bin / program), *arguments], cwd="/", env=environment, stdout=output, stderr=output,
                check=False, **self._user,
            )  # type: ignore[call-overload]  # fmt: skip
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, program, (self.folder / "output").read_text())
