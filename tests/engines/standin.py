"""A file system of the stand-in for libpvfs2 (pvfs2/calls.c), with the orders that a real one takes and more.

No server runs: what a server has to do stands in a file that the library reads before each operation.
"""

import fcntl
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from daemons import Started  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
SOURCES = HERE / "pvfs2"
LIBRARY = "libpvfs2.so.2"
NAME = "orangefs"
BUILD_SECONDS = 60
# For how long a server that stands still is waited for, as ClientJobBMITimeoutSecs says it of a real one.
HUNG_MS = 30_000
ROOT_HANDLE = 1 << 20


def build(directory):
    """Builds the library there, unless it is there already; returns its path."""
    library = directory / LIBRARY
    sources = sorted(SOURCES.iterdir())
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "servers").mkdir(exist_ok=True)
    with open(directory / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if library.exists() and library.stat().st_mtime > max(source.stat().st_mtime for source in sources):
            return library
        fresh = directory / "fresh.so"
        command = [
            "cc", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-format-truncation", "-shared", "-fPIC", "-fvisibility=hidden",
            f"-Wl,-soname,{LIBRARY}", "-o", fresh, *(source for source in sources if source.suffix == ".c"),
        ]
        result = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS)
        if result.returncode:
            raise RuntimeError(f"{' '.join(map(str, command))}: status {result.returncode}: {result.stderr}")
        fresh.rename(library)
    return library


class StandIn(Started):
    """Use it in a `with` statement, which removes its directory.

    The library is built in `library_directory`, where several of these and several processes can share it; by default in a directory
    of its own. `credential_s` is how long a credential lives."""

    def __init__(self, servers=4, library_directory=None, credential_s=None):
        if library_directory is not None:
            pathlib.Path(library_directory).mkdir(parents=True, exist_ok=True)
        self.own = pathlib.Path(tempfile.mkdtemp(prefix="stripewise-pvfs2-", dir=library_directory))
        self.beside = self.own if library_directory is None else pathlib.Path(library_directory)
        self.directory = self.own / "file-system"
        self.count = servers
        self.credential_s = credential_s
        self.servers = []

    def __exit__(self, *_):
        for server in self.servers:
            (self.beside / "servers" / server).unlink(missing_ok=True)
        shutil.rmtree(self.own, ignore_errors=True)

    def _start(self):
        self.library = build(self.beside)
        if self.credential_s is not None:
            self.credential(self.credential_s)
        (self.directory / "meta" / f"{ROOT_HANDLE:x}").mkdir(parents=True)
        for number in range(self.count):
            (self.directory / f"s{number}").mkdir()
            self.servers.append(self._address())
        (self.directory / "id").write_text(f"{random.randrange(1, 1 << 30)} {NAME}")
        (self.directory / "servers").write_text("".join(f"tcp://{server}\n" for server in self.servers))
        self.fs = f"tcp://{self.servers[0]}/{NAME}"

    def _address(self):
        """One that no other file system beside the library has."""
        while True:
            server = f"127.0.0.1:{random.randrange(1024, 1 << 16)}"
            try:
                (self.beside / "servers" / server).symlink_to(self.directory)
                return server
            except FileExistsError:
                pass

    def environment(self):
        """With which programs find the library."""
        return {**os.environ, "LD_LIBRARY_PATH": str(self.beside)}

    def stored_bytes(self, number):
        """Of all objects on a server."""
        return sum(file.stat().st_size for file in (self.directory / f"s{number}").iterdir())

    def objects(self, number):
        """What a server holds."""
        return {file.name for file in (self.directory / f"s{number}").iterdir()}

    def control(self, number, *words):
        """What a server does from now on, see pvfs2/servers.c; nothing: as usual."""
        self._write(self.directory / f"control.{number}", " ".join(words))

    def credential(self, seconds):
        """How long credentials live that are made from now on; 0: none is made; None: as usual."""
        self._write(self.beside / "credential", "3600" if seconds is None else str(seconds))

    @staticmethod
    def _write(path, text):
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        fresh.write_text(text)
        fresh.rename(path)

    def violations(self):
        """What callers of the library did wrong, a line each."""
        path = self.beside / "violations"
        return path.read_text() if path.exists() else ""

    def describe(self):
        return {
            "fs": self.fs, "servers": self.servers, "library": str(self.library), "directory": str(self.directory),
            "is_real": False,
        }

    def obey(self, line):
        verb, number, *words = line.split()
        words = {"kill": ["down"], "start": [], "stop": [f"hung={HUNG_MS}"], "continue": [], "control": words}.get(verb)
        if words is None:
            raise ValueError(f"unknown command {line!r}")
        self.control(int(number), *words)


if __name__ == "__main__":
    print(build(pathlib.Path(sys.argv[1])))
