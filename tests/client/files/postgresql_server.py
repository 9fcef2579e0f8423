"""A PostgreSQL server of a test's own: in a temporary folder, on a socket there and on no port."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from time import monotonic, sleep
from typing import Any
from urllib.parse import quote

import pytest

REQUIRED = "FEDHIST_POSTGRESQL_REQUIRED"
PASSWORD = "p@ss:word/${x} %41"  # noqa: S105 - of a server that ends with the test
_SECONDS = 60


def programs() -> Path | None:
    """The folder of initdb and postgres. Debian has it on nobody's path."""
    on_path = shutil.which("initdb")
    found = [Path(on_path).resolve()] if on_path else sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


@contextmanager
def running_server() -> Iterator[str]:
    """A server, and the address of its database for a user `reader`, without PASSWORD, which is theirs."""
    binaries = programs()
    if binaries is None:
        if os.environ.get(REQUIRED):
            pytest.fail(f"{REQUIRED} is set and there is no PostgreSQL: install Debian's package postgresql")
        pytest.skip("there is no PostgreSQL on this machine")
    # Short, and open to the server's user: a socket's path has at most 107 bytes.
    folder = Path(mkdtemp(prefix="fedhist-pg-"))
    process = None
    try:
        who = _unprivileged(folder)
        (folder / "password").write_text(PASSWORD)
        subprocess.run(
            [binaries / "initdb", "-D", folder / "data", "-U", "reader", "-A", "scram-sha-256", "--no-sync",
             "--pwfile", folder / "password", "-E", "UTF8", "--locale=C"],
            check=True, capture_output=True, timeout=_SECONDS, cwd=folder, **who,
        )  # fmt: skip
        process = subprocess.Popen(
            [binaries / "postgres", "-D", folder / "data", "-k", folder, "-c", "listen_addresses=", "-F"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder, **who,
        )  # fmt: skip
        _wait_for(binaries, folder, process)
        yield f"postgresql://reader@/postgres?host={quote(str(folder), safe='')}"
    finally:
        if process is not None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_SECONDS)
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _unprivileged(folder: Path) -> dict[str, Any]:
    """For a subprocess: not root, which PostgreSQL refuses to run as."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name for entry in pwd.getpwall()}
    account = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
    os.chown(folder, account.pw_uid, account.pw_gid)
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _wait_for(binaries: Path, folder: Path, process: subprocess.Popen[bytes]) -> None:
    end = monotonic() + _SECONDS
    ready = [binaries / "pg_isready", "-q", "-h", folder]
    while subprocess.run(ready, check=False, cwd=folder).returncode != 0:
        assert process.poll() is None, "PostgreSQL has ended"
        assert monotonic() < end, "PostgreSQL does not answer"
        sleep(0.05)  # between two looks at a process
