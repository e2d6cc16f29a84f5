"""A private PostgreSQL server for tests."""

import functools
import glob
import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

INITDB = shutil.which("initdb") or next(iter(sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), reverse=True)), None)
NEEDS = "needs PostgreSQL: apt-get install postgresql, pip install 'psycopg[binary]'"


def can_run():
    """Return whether there is a PostgreSQL with a driver, and a user that it runs as."""
    users = Path("/etc/passwd")
    is_root = getattr(os, "geteuid", lambda: 1)() == 0
    return (
        INITDB is not None
        and find_spec("psycopg") is not None
        and (not is_root or (shutil.which("runuser") and users.read_text(encoding="utf-8").count("\npostgres:")))
    )


@contextmanager
def postgres():
    """Yield the folder of the socket of a server, and functions that stop and start it."""
    # PostgreSQL does not run as root, and the path of a socket has at most a hundred characters.
    owner = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        data = Path(folder) / "data"
        if owner:
            shutil.chown(folder, "postgres")
        run = functools.partial(subprocess.run, check=True, capture_output=True, cwd="/", text=True)
        run([*owner, INITDB, "-D", data, "-U", "qacal", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"])
        control = [*owner, str(Path(INITDB).with_name("pg_ctl")), "-D", str(data), "-w"]
        start = [*control, "-l", f"{folder}/log", "-o", f"-c listen_addresses= -k {folder}", "start"]
        stop = [*control, "-m", "immediate", "stop"]
        run(start)
        try:
            yield folder, functools.partial(run, stop), functools.partial(run, start)
        finally:
            subprocess.run(stop, check=False, capture_output=True, cwd="/")
