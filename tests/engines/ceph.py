#!/usr/bin/env python3
"""A real Ceph on loopback (or another address) for tests: one monitor and some OSDs in a temporary directory, with one pool per OSD.

    tests/engines/ceph.py [--osds N] [--store memstore|bluestore] [--osd-bytes N] [--auth] [--address ADDRESS] [--grace SECONDS]

Once every OSD is up and every pool can be written, one line of JSON says what there is:

    {"conf": PATH, "directory": PATH, "pools": [NAME, ...], "osd_pids": [PID, ...], "mon_pid": PID}

Pool N lies on OSD N alone: each OSD sits in a host bucket of its own, and the pool's CRUSH rule takes that bucket.
With --auth users need keys, which are `$name.keyring` beside ceph.conf. There is also the pool `coded`, erasure-coded with k=2 and m=1, for what such a pool refuses (with 3 OSDs or more).

Commands are read from standard input, one a line, each answered by one line (`ok`, or what is wrong):

    kill N      ends OSD N by SIGKILL, or the monitor where N is `mon`
    start N     starts it again and waits until it serves
    stop N      SIGSTOP
    continue N  SIGCONT; an OSD is marked down as well, and answered for when it is up again

The cluster lives as long as standard input is open, so it ends with the test that started it, also after a panic
or a kill: every daemon is ended by its PID and the directory is removed. Daemons also end with this program.

Exit status 3, with the reason on standard error, where no Ceph can be had; tests skip then.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from daemons import Started, end_all, end_with_parent  # noqa: E402

PROGRAMS = ("ceph-mon", "ceph-osd", "monmaptool")
MISSING = 3
WAIT_SECONDS = 60
# What Ceph 16.2.15 says of an OSD that was killed between two maps under load. It says so at each start.
LOST_MAP = "Missing map in load_pgs"
# As many as a unit of ceph-osd allows in half an hour.
MOST_ABORTS = 3


class Unavailable(Exception):
    """No Ceph can be had here."""


class Broken(RuntimeError, unittest.SkipTest):
    """An OSD cannot start any more by a fault of Ceph's own, so that nothing can be said of what was to be tested with it."""


def free_port(address):
    with socket.socket() as listener:
        listener.bind((address, 0))
        return listener.getsockname()[1]


class Ceph(Started):
    """A running cluster. Use it in a `with` statement: that ends its daemons and removes its directory."""

    def __init__(self, osds=4, store="memstore", osd_bytes=1 << 30, auth=False, address="127.0.0.1", grace=20):
        missing = [program for program in PROGRAMS if shutil.which(program) is None]
        if missing:
            raise Unavailable(f"{', '.join(missing)} not found: setup/install --engines installs them")
        try:
            import rados
        except ImportError as error:
            raise Unavailable(f"{error}: setup/install --engines installs python3-rados") from error
        self.rados = rados
        self.osds, self.store, self.osd_bytes, self.auth, self.address, self.grace = osds, store, osd_bytes, auth, address, grace
        self.directory = tempfile.mkdtemp(prefix="stripewise-ceph-")
        self.conf = os.path.join(self.directory, "ceph.conf")
        self.fsid = str(uuid.uuid4())
        self.processes = {}
        self.aborts, self.is_broken = 0, False
        self.handle = None

    def __exit__(self, *_):
        if self.handle is not None:
            self.handle.shutdown()
        end_all(self.processes.values())
        shutil.rmtree(self.directory, ignore_errors=True)

    def _write_conf(self, port):
        def here(name):
            return os.path.join(self.directory, name)

        lines = [
            "[global]",
            f"fsid = {self.fsid}",
            f"mon host = [v2:{self.address}:{port}/0]",
            *(f"auth {of} required = {'cephx' if self.auth else 'none'}" for of in ("cluster", "service", "client")),
            f"keyring = {here('$name.keyring')}",
            f"public addr = {self.address}",
            "ms bind ipv6 = false",
            f"run dir = {self.directory}",
            "admin socket =",
            f"log file = {here('$name.log')}",
            f"crash dir = {here('crash')}",
            "log flush on exit = false",
            "debug default = 0",
            "osd pool default size = 1",
            "osd pool default min size = 1",
            "osd pool default pg num = 8",
            "osd pool default pg autoscale mode = off",
            "mon allow pool size one = true",
            "mon warn on pool no redundancy = false",
            "osd crush chooseleaf type = 0",
            "[mon]",
            f"mon data = {here('mon')}",
            # A lone monitor gains nothing by waiting for further changes before it proposes one.
            "paxos propose interval = 0.02",
            "paxos min wait = 0.01",
            "mon tick interval = 1",
            "mon data avail crit = 1",
            "mon data avail warn = 1",
            "mon cluster log to file = false",
            "[mon.a]",
            "host = localhost",
            "[osd]",
            # What `ceph tell` asks is answered by its thread.
            f"admin socket = {here('$name.asok')}",
            f"osd data = {here('osd$id')}",
            "osd journal =",
            f"osd objectstore = {self.store}",
            f"memstore device bytes = {self.osd_bytes}",
            f"bluestore block size = {self.osd_bytes}",
            "bluestore cache autotune = false",
            "bluestore cache size = 67108864",
            "osd op num shards = 2",
            "osd op num threads per shard = 1",
            "osd max pgs per osd hard ratio = 100",
            f"osd heartbeat grace = {self.grace}",
            "osd heartbeat interval = 1",
            "osd mon report interval = 1",
        ]
        lines += [line for osd in range(self.osds) for line in (f"[osd.{osd}]", f"crush location = root=default host=host{osd}")]
        with open(self.conf, "w") as conf:
            conf.write("\n".join(lines) + "\n")

    def _run(self, *command):
        result = subprocess.run([*command], capture_output=True, text=True, timeout=WAIT_SECONDS)
        if result.returncode:
            raise RuntimeError(f"{' '.join(command)}: status {result.returncode}: {result.stderr[-2000:]}")

    def _daemon(self, name, program, number):
        log = open(os.path.join(self.directory, f"{name}.err"), "ab")
        with log:
            self.processes[name] = subprocess.Popen(
                [program, "-f", "-i", number, "-c", self.conf],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=end_with_parent,
            )

    def _ended(self, name, status):
        """Starts an OSD that aborted again, as its systemd unit does: seldom one aborts on a loaded machine while it starts. Raises for all else."""
        with open(os.path.join(self.directory, f"{name}.err"), errors="replace") as log:
            said = f"{name} ended with {status}: {log.read()[-8000:]}"
        if LOST_MAP in said:
            self.is_broken = True
            raise Broken(f"{name} of this Ceph cannot start again: it was killed between two maps and aborts ({LOST_MAP})")
        aborted = status == -signal.SIGABRT and name.startswith("osd")
        if not aborted or self.aborts >= MOST_ABORTS:
            raise RuntimeError(said)
        self.aborts += 1
        print(f"{said}\n{name} is started again", file=sys.stderr)
        self._daemon(name, "ceph-osd", name.removeprefix("osd"))

    def _ask(self, prefix, **arguments):
        """Asks the monitor and returns the bytes of its answer."""
        command = json.dumps({"prefix": prefix, **arguments})
        status, output, message = self.handle.mon_command(command, b"", timeout=WAIT_SECONDS)
        if status:
            raise RuntimeError(f"{command}: {os.strerror(-status)}: {message}")
        return output

    def _command(self, prefix, **arguments):
        output = self._ask(prefix, format="json", **arguments)
        return json.loads(output) if output.strip() else None

    def _wait(self, what, condition):
        end = time.monotonic() + WAIT_SECONDS
        while not condition():
            for name, process in list(self.processes.items()):
                if process.poll() is not None:
                    self._ended(name, process.returncode)
            if time.monotonic() > end:
                raise RuntimeError(f"{what}: not within {WAIT_SECONDS} s")
            time.sleep(0.02)

    def _start(self):
        port = free_port(self.address)
        self._write_conf(port)
        os.mkdir(os.path.join(self.directory, "crash"))
        monmap = os.path.join(self.directory, "monmap")
        self._run("monmaptool", "--create", "--fsid", self.fsid, "--addv", "a", f"[v2:{self.address}:{port}]", monmap)
        keys = []
        if self.auth:
            # One ring for the monitor, which takes the administrator's key from it.
            ring = os.path.join(self.directory, "mon.keyring")
            self._run("ceph-authtool", ring, "--create-keyring", "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
            admin = os.path.join(self.directory, "client.admin.keyring")
            allow = [word for of in ("mon", "osd", "mgr") for word in ("--cap", of, "allow *")]
            self._run("ceph-authtool", admin, "--create-keyring", "--gen-key", "-n", "client.admin", *allow)
            self._run("ceph-authtool", ring, "--import-keyring", admin)
            keys = ["--keyring", ring]
        self._run("ceph-mon", "--mkfs", "-i", "a", "-c", self.conf, "--monmap", monmap, *keys)
        self._daemon("mon", "ceph-mon", "a")
        self.handle = self.rados.Rados(conffile=self.conf, rados_id="admin")
        self.handle.connect(timeout=WAIT_SECONDS)
        making = []
        for osd in range(self.osds):
            directory = os.path.join(self.directory, f"osd{osd}")
            os.mkdir(directory)
            identity = str(uuid.uuid4())
            assert self._command("osd new", uuid=identity)["osdid"] == osd
            if self.auth:
                with open(os.path.join(self.directory, f"osd.{osd}.keyring"), "w") as ring:
                    caps = ["mon", "allow profile osd", "osd", "allow *"]
                    ring.write(self._ask("auth get-or-create", entity=f"osd.{osd}", caps=caps).decode())
            making.append(subprocess.Popen(
                ["ceph-osd", "--mkfs", "-i", str(osd), "--osd-uuid", identity, "-c", self.conf],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                preexec_fn=end_with_parent,
            ))
        for osd, process in enumerate(making):
            _, error = process.communicate(timeout=WAIT_SECONDS)
            if process.returncode:
                raise RuntimeError(f"ceph-osd --mkfs -i {osd}: status {process.returncode}: {error[-2000:]}")
            self._daemon(f"osd{osd}", "ceph-osd", str(osd))
        self._wait("all OSDs up", lambda: all(self.up_from(osd) for osd in range(self.osds)))
        self.pools = [f"pool{osd}" for osd in range(self.osds)]
        for osd, pool in enumerate(self.pools):
            self._command("osd crush rule create-replicated", name=f"only{osd}", root=f"host{osd}", type="osd")
            self._command("osd pool create", pool=pool, pg_num=8, pool_type="replicated", rule=f"only{osd}")
        if self.osds >= 3:
            profile = ["k=2", "m=1", "crush-failure-domain=osd"]
            self._command("osd erasure-code-profile set", name="two-one", profile=profile)
            self._command("osd pool create", pool="coded", pg_num=1, pool_type="erasure", erasure_code_profile="two-one")
        for pool in self.pools:
            with self.handle.open_ioctx(pool) as ioctx:
                # Waits until the placement groups are active.
                ioctx.write_full("first", b"")
                ioctx.remove_object("first")

    def make_user(self, name, mon, osd):
        """A user with these rights, its key beside ceph.conf; returns the path of the key."""
        path = os.path.join(self.directory, f"client.{name}.keyring")
        with open(path, "wb") as ring:
            ring.write(self._ask("auth get-or-create", entity=f"client.{name}", caps=["mon", mon, "osd", osd]))
        return path

    def up_from(self, osd):
        """The number of the map in which the OSD came up last; 0 where it is not up."""
        found = [entry for entry in self._command("osd dump")["osds"] if entry["osd"] == osd]
        return found[0]["up_from"] if found and found[0]["up"] == 1 else 0

    def runs(self, daemon):
        """Whether an OSD, by its number, or `mon` has been started and has not ended."""
        process = self.processes.get("mon" if daemon == "mon" else f"osd{daemon}")
        return process is not None and process.poll() is None

    def describe(self):
        return {
            "conf": self.conf,
            "directory": self.directory,
            "pools": self.pools,
            "mon_pid": self.processes["mon"].pid,
            "osd_pids": [self.processes[f"osd{osd}"].pid for osd in range(self.osds)],
        }

    def _peer_again(self, osd):
        """Marks a running OSD down, so that it comes up by itself and its placement groups peer.

        One that stood still for longer than its read lease holds requests back ("waiting for readable") until it has
        the lease again. Other copies' acknowledgements bring it; a pool with one copy has none, so requests wait for ever.
        """
        before = self.up_from(osd)
        self._ask("osd down", ids=[str(osd)])
        self._wait(f"osd{osd} up", lambda: self.up_from(osd) > before)

    def obey(self, line):
        verb, osd = line.split()
        name = "mon" if osd == "mon" else f"osd{int(osd)}"
        if verb == "kill":
            process = self.processes.pop(name)
            process.kill()
            process.wait()
        elif verb == "start" and name == "mon":
            self._daemon("mon", "ceph-mon", "a")
            self._command("quorum_status")
        elif verb == "start":
            before = self.up_from(int(osd))
            self._daemon(name, "ceph-osd", osd)
            self._wait(f"{name} up", lambda: self.up_from(int(osd)) > before)
        elif verb == "stop":
            self.processes[name].send_signal(signal.SIGSTOP)
        elif verb == "continue":
            self.processes[name].send_signal(signal.SIGCONT)
            if name != "mon":
                self._peer_again(int(osd))
        else:
            raise ValueError(f"unknown command {line!r}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--osds", type=int, default=4)
    parser.add_argument("--store", choices=("memstore", "bluestore"), default="memstore")
    parser.add_argument("--osd-bytes", type=int, default=1 << 30)
    parser.add_argument("--auth", action="store_true")
    parser.add_argument("--address", default="127.0.0.1", help="of this machine: all daemons listen on it alone")
    parser.add_argument("--grace", type=int, default=20, help="for how long an OSD may stand still, as it does on a machine that is overloaded")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        with Ceph(options.osds, options.store, options.osd_bytes, options.auth, options.address, options.grace) as ceph:
            print(json.dumps(ceph.describe()), flush=True)
            for line in sys.stdin:
                try:
                    ceph.obey(line)
                    print("ok", flush=True)
                except (ValueError, KeyError, RuntimeError) as error:
                    print(f"{type(error).__name__}: {error}", flush=True)
    except Unavailable as reason:
        print(f"no Ceph for tests: {reason}", file=sys.stderr)
        sys.exit(MISSING)


if __name__ == "__main__":
    main()
