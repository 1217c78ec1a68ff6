"""A PostgreSQL server in a temporary folder, reachable through a socket in it."""

import atexit
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time


def programs():
    """The location of PostgreSQL's programs: on the path, or where Debian installs them."""
    initdb = shutil.which("initdb")
    folders = [pathlib.Path(initdb).parent] if initdb else []
    folders += sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in folders:
        if all((folder / name).is_file() for name in ("initdb", "postgres", "psql")):
            return folder
    sys.exit("PostgreSQL is not installed (Debian: apt-get install postgresql)")


class Database:
    """A server with PostgreSQL's default settings, so that a commit waits for the disk."""

    def __init__(self):
        self.programs = programs()
        # In the system's temporary folder: another user can reach it, and a socket's path must be
        # short.
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        self.user = self.server = None
        atexit.register(self.stop)
        if os.getuid() == 0:
            # PostgreSQL does not run as root.
            names = [user.pw_name for user in pwd.getpwall()]
            self.user = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
            shutil.chown(self.folder, self.user.pw_uid, self.user.pw_gid)
        init = ["initdb", "-A", "trust", "-U", "undertone", "-E", "UTF8", "-D", self.folder / "data"]
        done = self.start(init, stdout=subprocess.DEVNULL).wait()
        if done != 0:
            sys.exit("initdb failed")
        serve = ["postgres", "-D", self.folder / "data", "-k", self.folder, "-c", "listen_addresses="]
        log = open(self.folder / "log", "w")
        self.server = self.start(serve, stdout=log, stderr=log)
        ask = ["psql", "-q", "-h", self.folder, "-U", "undertone", "-d", "postgres", "-c"]
        for _ in range(200):
            make = self.start([*ask, "CREATE DATABASE releases"], stderr=subprocess.DEVNULL)
            if make.wait() == 0:
                return
            time.sleep(0.1)
        sys.exit("PostgreSQL does not start")

    def start(self, words, **more):
        command = [self.programs / words[0], *words[1:]]
        if self.user:
            more.update(user=self.user.pw_uid, group=self.user.pw_gid)
        return subprocess.Popen([str(word) for word in command], cwd=self.folder, **more)

    def url(self):
        return f"postgres://undertone@{str(self.folder).replace('/', '%2F')}/releases"

    def megabytes(self):
        """Disk space used by the database, without its log."""
        ask = "SELECT pg_database_size('releases')"
        command = [self.programs / "psql", "-At", "-h", self.folder, "-U", "undertone", "-d", "releases"]
        size = subprocess.run([*map(str, command), "-c", ask], capture_output=True, text=True)
        return int(size.stdout) / 1e6

    def stop(self):
        if self.server:
            self.server.send_signal(signal.SIGINT)
            self.server.wait()
            self.server = None
