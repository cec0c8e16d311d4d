"""A cluster on the hosts of bed.py: what their tests share."""

import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
STRIPEWISE = os.path.abspath(os.environ.get("STRIPEWISE", HERE.parents[1] / "target/debug/stripewise"))
REGION = 1 << 20
WAIT_SECONDS = 180
UNHURRIED_SECONDS = 20

# Prints how many bytes the objects of a namespace hold, in these pools: conf, namespace, pool...
POOL_BYTES = r"""
import rados, sys
with rados.Rados(conffile=sys.argv[1], rados_id="admin") as ceph:
    total = 0
    for pool in sys.argv[3:]:
        with ceph.open_ioctx(pool) as ioctx:
            ioctx.set_namespace(sys.argv[2])
            for found in ioctx.list_objects():
                try:
                    total += ioctx.stat(found.key)[0]
                except rados.ObjectNotFound:
                    pass  # It was removed meanwhile.
print(total)
"""


def bytes_of(file):
    """None of a file that is freed meanwhile."""
    try:
        return os.stat(file).st_size
    except FileNotFoundError:
        return 0


class ToldByLogs:
    """Tests that say, when one has failed, what the agents noted. `bed`: their hosts."""

    def tearDown(self):
        # Of what this test has failed by so far; its own `success` is reset before this.
        result = self._outcome.result
        if all(test is not self for test, _ in result.failures + result.errors):
            return
        for host in range(len(self.bed.names)):
            try:
                done = self.bed.run(host, ["sh", "-c", "tail -n 60 /dev/shm/stripewise-*/log"], timeout=WAIT_SECONDS)
                print(f"log of host {host}:\n{done.stdout}", file=sys.stderr)
            except (OSError, subprocess.SubprocessError) as why:
                print(f"host {host} has no log: {why}", file=sys.stderr)


class Cluster:
    """A cluster of three servers: directories that all hosts have, pools of a Ceph, or I/O servers of OrangeFS."""

    def __init__(self, bed, *engine, ceph=None, orangefs=None, host_timeout_s=None):
        """`engine`: the words of `init` that say where the mapping table is; an etcd of the bed without them. `ceph`: what the Ceph says of itself whose
        first three pools are the servers. `orangefs`: that whose first three I/O servers they are. `host_timeout_s`: `UNHURRIED_SECONDS` where silence is not
        what is tested, since on a Ceph a host that a busy machine keeps still for longer is shut out."""
        self.bed, common = bed, pathlib.Path(bed.common)
        self.directory = pathlib.Path(bed.shared) / "data"
        (pathlib.Path(bed.store) / "data").mkdir()
        self.env = dict(os.environ, STRIPEWISE_CLUSTER=str(common / "cluster.toml"))
        if orangefs is not None:
            self.env |= {"LD_LIBRARY_PATH": orangefs.environment()["LD_LIBRARY_PATH"]}
        self.orangefs = orangefs
        self.ceph, self.servers, servers = ceph, [common / name for name in "abc"], []
        for number, (name, kind) in enumerate((("a", "hdd"), ("b", "hdd"), ("c", "ssd"))):
            where = common / name
            if orangefs is not None:
                where = f"orangefs://{orangefs.servers[number]}?fs={orangefs.fs}"
            elif ceph is None:
                where.mkdir()
            else:
                where = f"rados://{ceph['pools'][number]}?conf={ceph['conf']}"
            servers += ["--server", f"{name}={kind}:{where}"]
        # The etcd answers on the network of the hosts alone.
        engine = engine or ("--etcd", bed.etcd())
        self.stripewise(0, "init", *engine, *servers, "--region", "1MiB")
        if host_timeout_s is not None:
            path = common / "cluster.toml"
            path.write_text(re.sub(r"(?m)^host_timeout_s = .*$", f"host_timeout_s = {host_timeout_s}", path.read_text()))
        self.stripewise(0, "manage", str(self.directory))

    def stripewise(self, host, *words):
        done = self.bed.run(host, [STRIPEWISE, *words], env=self.env, timeout=WAIT_SECONDS)
        if done.returncode != 0:
            raise AssertionError(f"stripewise {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def run(self, host, *words):
        return self.stripewise(host, "run", "--", *words)

    def start_agent(self, host, add_cleanup):
        """Starts an agent that stays; returns its process number on the host."""
        command = f"echo $$; exec '{STRIPEWISE}' broker 2>&1"
        process = self.bed.start(host, ["sh", "-c", command], env=self.env, stdout=subprocess.PIPE, text=True)
        add_cleanup(process.stdout.close)
        add_cleanup(process.kill)
        pid = int(process.stdout.readline())
        # It says so when it serves.
        process.stdout.readline()
        return pid

    def agent_of(self, host):
        """The process on the host that is its agent, as the host numbers it; empty if there is none. One that was killed may be in the table for a while."""
        script = 'pid=$(cat /dev/shm/stripewise-*/broker.lock) && ! grep -q "^State:.*Z" /proc/$pid/status && kill -0 $pid && echo $pid'
        return self.bed.run(host, ["sh", "-c", script], timeout=WAIT_SECONDS).stdout.strip()

    def log_of(self, host):
        """What agents of the host have noted; it is gone with a host that is killed."""
        return self.bed.run(host, ["sh", "-c", "cat /dev/shm/stripewise-*/log"], timeout=WAIT_SECONDS).stdout

    def object_bytes(self):
        if self.ceph is not None:
            text = pathlib.Path(self.env["STRIPEWISE_CLUSTER"]).read_text()
            namespace = "stripewise-" + re.search(r'^id = "(.*)"', text, re.MULTILINE)[1]
            words = ["/usr/bin/python3", "-c", POOL_BYTES, self.ceph["conf"], namespace, *self.ceph["pools"][:3]]
            return int(self.bed.run(None, words, timeout=WAIT_SECONDS).stdout)
        if self.orangefs is not None:
            return sum(self.orangefs.stored_bytes(number) for number in range(3))
        files = (os.path.join(directory, name) for server in self.servers for directory, _, names in os.walk(server) for name in names)
        return sum(map(bytes_of, files))
