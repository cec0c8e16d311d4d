#!/usr/bin/env python3
"""OrangeFS for tests: some servers, each with storage in a temporary directory; the first one also keeps the metadata.

    tests/engines/orangefs.py [--servers N] [--address ADDRESS] [--library-directory PATH] [--credential-seconds N]

Where $ORANGEFS names a directory into which a real one was installed with its shared libraries (`sbin/pvfs2-server`,
`lib/libpvfs2.so.2`), its servers run on loopback, or at the address. Otherwise it is the stand-in of standin.py, whose library checks how
it is called; the last two options are for that one: where the library lies, and how long credentials live.

Once every server answers, one line of JSON says what there is:

    {"fs": "tcp://HOST:PORT/NAME", "servers": ["HOST:PORT", ...], "library": PATH, "directory": PATH, "is_real": BOOLEAN}

Commands are read from standard input, one a line, each answered by one line (`ok`, or what is wrong): `kill N` ends server N by
SIGKILL, `start N` starts it again and waits until it listens, `stop N` sends it SIGSTOP, `continue N` lets it go on. The stand-in
has it do the like, and takes `control N WORD...` besides (pvfs2/servers.c lists the words).

The servers live as long as standard input is open, so they end with the test that started them; the directory is removed then.

Exit status 3, with the reason on standard error, where no OrangeFS can be had; tests skip then.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from daemons import Started, end_all, end_with_parent  # noqa: E402
import standin  # noqa: E402

MISSING = 3
WAIT_SECONDS = 60
NAME = "orangefs"


class Unavailable(Exception):
    """No OrangeFS can be had here."""


def start(servers=4, address="127.0.0.1", **options):
    """A real one at this address where $ORANGEFS names it, else a stand-in with these options; use it in a `with` statement."""
    if os.environ.get("ORANGEFS"):
        return OrangeFS(servers, address)
    if shutil.which("cc") is None:
        raise Unavailable("there is no C compiler to build the stand-in with: setup/install installs one")
    return standin.StandIn(servers, **options)


def prefix():
    """Where OrangeFS is installed."""
    place = pathlib.Path(os.environ["ORANGEFS"])
    for needed in ("sbin/pvfs2-server", "lib/libpvfs2.so.2"):
        if not (place / needed).exists():
            raise Unavailable(f"{place / needed} is missing: configure OrangeFS with --enable-shared (docs/orangefs.md)")
    return place


def stored_bytes_in(directory, number):
    """What the data on a server of a real one occupies, in the files that it keeps datafiles in."""
    total = 0
    for place, _, names in os.walk(os.path.join(directory, f"s{number}")):
        if "bstreams" in place:
            total += sum(os.stat(os.path.join(place, name)).st_size for name in names)
    return total


class OrangeFS(Started):
    """Running servers of a real one. Use it in a `with` statement: that ends them and removes their directory."""

    def __init__(self, servers=4, address="127.0.0.1"):
        self.prefix = prefix()
        self.address = address
        self.library = self.prefix / "lib" / "libpvfs2.so.2"
        self.directory = tempfile.mkdtemp(prefix="stripewise-orangefs-")
        self.ports = self._free_ports(servers, address)
        self.servers = [f"{address}:{port}" for port in self.ports]
        self.fs = f"tcp://{self.servers[0]}/{NAME}"
        self.processes = {}

    @staticmethod
    def _free_ports(count, address):
        listeners = [socket.socket() for _ in range(count)]
        for listener in listeners:
            listener.bind((address, 0))
        ports = [listener.getsockname()[1] for listener in listeners]
        for listener in listeners:
            listener.close()
        return ports

    def __exit__(self, *_):
        end_all(self.processes.values())
        shutil.rmtree(self.directory, ignore_errors=True)

    def environment(self):
        """With which programs find the library."""
        return {**os.environ, "LD_LIBRARY_PATH": str(self.library.parent)}

    def _conf(self):
        numbers = range(len(self.ports))
        share = (1 << 63) // (len(self.ports) + 2)

        def handles(part):
            return f"{part * share + 3}-{(part + 1) * share + 2}"

        lines = [
            "<Defaults>",
            "UnexpectedRequests 50", "EventLogging none", "LogStamp datetime", "BMIModules bmi_tcp",
            # Listens on the address of its alias alone.
            "TCPBindSpecific yes",
            "FlowModules flowproto_multiqueue", "PerfUpdateInterval 1000",
            "ServerJobBMITimeoutSecs 30", "ServerJobFlowTimeoutSecs 30",
            "ClientJobBMITimeoutSecs 30", "ClientJobFlowTimeoutSecs 30",
            "ClientRetryLimit 2", "ClientRetryDelayMilliSecs 200",
            "PrecreateBatchSize 0,32,512,32,32,32,0", "PrecreateLowThreshold 0,16,256,16,16,16,0",
            f"LogFile {self.directory}/log",
            "</Defaults>",
            "<Aliases>", *(f"Alias s{n} tcp://{self.servers[n]}" for n in numbers), "</Aliases>",
            "<FileSystem>",
            f"Name {NAME}", f"ID {random.randrange(1, 1 << 30)}", "RootHandle 1048576", "FileStuffing yes",
            "DistrDirServersInitial 1", "DistrDirServersMax 1", "DistrDirSplitSize 100",
            "<MetaHandleRanges>", f"Range s0 {handles(0)}", "</MetaHandleRanges>",
            "<DataHandleRanges>", *(f"Range s{n} {handles(n + 1)}" for n in numbers), "</DataHandleRanges>",
            "<StorageHints>", "TroveSyncMeta yes", "TroveSyncData no", "TroveMethod alt-aio", "</StorageHints>",
            "</FileSystem>",
        ]
        for n in numbers:
            storage = os.path.join(self.directory, f"s{n}")
            lines += [
                "<ServerOptions>", f"Server s{n}", f"DataStorageSpace {storage}", f"MetadataStorageSpace {storage}",
                f"LogFile {self.directory}/s{n}.log", "</ServerOptions>",
            ]
        path = os.path.join(self.directory, "fs.conf")
        with open(path, "w") as conf:
            conf.write("\n".join(lines) + "\n")
        return path

    def _run(self, *words):
        result = subprocess.run(
            [self.prefix / "sbin" / "pvfs2-server", *words], env=self.environment(), capture_output=True, text=True,
            timeout=WAIT_SECONDS,
        )
        if result.returncode:
            raise RuntimeError(f"pvfs2-server {' '.join(words)}: status {result.returncode}: {result.stderr[-2000:]}")

    def _daemon(self, number):
        with open(os.path.join(self.directory, f"s{number}.err"), "ab") as log:
            self.processes[number] = subprocess.Popen(
                [self.prefix / "sbin" / "pvfs2-server", "-d", self.conf, "-a", f"s{number}"], env=self.environment(),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=end_with_parent,
            )

    def _wait_until_it_listens(self, number):
        end = time.monotonic() + WAIT_SECONDS
        while True:
            if self.processes[number].poll() is not None:
                with open(os.path.join(self.directory, f"s{number}.err")) as log:
                    raise RuntimeError(f"server {number} ended: {log.read()[-2000:]}")
            try:
                socket.create_connection((self.address, self.ports[number]), timeout=1).close()
                return
            except OSError:
                if time.monotonic() > end:
                    raise RuntimeError(f"server {number} does not listen within {WAIT_SECONDS} s")
                time.sleep(0.02)

    def _start(self):
        self.conf = self._conf()
        for number in range(len(self.ports)):
            self._run("-f", self.conf, "-a", f"s{number}")
        for number in range(len(self.ports)):
            self._daemon(number)
        for number in range(len(self.ports)):
            self._wait_until_it_listens(number)

    def stored_bytes(self, number):
        """What the data on a server occupies."""
        return stored_bytes_in(self.directory, number)

    def describe(self):
        return {
            "fs": self.fs,
            "servers": self.servers,
            "library": str(self.library),
            "directory": self.directory,
            "is_real": True,
        }

    def violations(self):
        """None are looked for."""
        return ""

    def obey(self, line):
        verb, number = line.split()
        number = int(number)
        if verb == "kill":
            process = self.processes.pop(number)
            process.kill()
            process.wait()
        elif verb == "start":
            self._daemon(number)
            self._wait_until_it_listens(number)
        elif verb in ("stop", "continue"):
            self.processes[number].send_signal(signal.SIGSTOP if verb == "stop" else signal.SIGCONT)
        else:
            raise ValueError(f"unknown command {line!r}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--library-directory", type=pathlib.Path)
    parser.add_argument("--credential-seconds", type=int)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        given = {"library_directory": options.library_directory, "credential_s": options.credential_seconds}
        with start(options.servers, options.address, **given) as orangefs:
            print(json.dumps(orangefs.describe()), flush=True)
            for line in sys.stdin:
                try:
                    orangefs.obey(line)
                    print("ok", flush=True)
                except (ValueError, KeyError, RuntimeError) as error:
                    print(f"{type(error).__name__}: {error}", flush=True)
    except Unavailable as reason:
        print(f"no OrangeFS for tests: {reason}", file=sys.stderr)
        sys.exit(MISSING)


if __name__ == "__main__":
    main()
