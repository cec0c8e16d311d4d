"""How long requests wait when the cluster's master is lost, on hosts of tests/hosts/bed.py (as root).

Three hosts use one file. The master's host loses its power (`host`), or its agent is killed while another program runs there (`agent`).
From that moment on a program on another host does one thing again and again, and the longest time that it took is noted:

    placed   writes a region that is placed
    new      writes regions that nobody has written
    open     opens and closes another file
    size     asks for the size of a file of which other hosts may know more

Hosts and etcd share one machine, so its load is in the figures.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import time

from cluster import Cluster, end

MIB = 1 << 20
REGION = MIB
MAX_WAIT_S, MAX_PLACED_S = 5, 1
WATCHED_SECONDS = 12
KINDS = ("placed", "new", "open", "size")
# Does one thing until its input ends; prints how often it was done, and the longest time that it took in seconds.
PROGRAM = r"""
import os, sys, time
kind, path, region, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
os.pwrite(file, b"x" * 1000, 0)
next_region = [{"placed": 1, "new": 1, "open": 1, "size": 1}[kind]]
def once():
    if kind == "placed":
        os.pwrite(file, b"x" * 1000, 0)
    elif kind == "new":
        os.pwrite(file, b"x", next_region[0] * region)
        next_region[0] += 1
    elif kind == "open":
        os.close(os.open(path + "-other", os.O_RDWR | os.O_CREAT, 0o644))
    else:
        os.fstat(file)
once()
print("ready", flush=True)
sys.stdin.readline()
count, longest, end = 0, 0, time.monotonic() + seconds
while time.monotonic() < end:
    begun = time.monotonic()
    once()
    longest = max(longest, time.monotonic() - begun)
    count += 1
    time.sleep(0.02)
print(count, round(longest, 3), flush=True)
"""
SLEEPER = "import os, sys; os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644); print('ready', flush=True); sys.stdin.read()"


def master_of(cluster):
    listed = json.loads(cluster.stripewise(2, "--json", "host", "list"))
    return next(host["name"] for host in listed["hosts"] if host["is_master"])


def agent_of(bed, host):
    """The agent's process on its host."""
    state = bed.run(host, ["sh", "-c", "cat /dev/shm/stripewise-*/broker.lock"]).stdout
    return int(state.split()[0])


def measure(bed, cluster, what, round_number):
    """Seconds by kind."""
    path = str(cluster.directory / f"file-{round_number}")
    programs = [cluster.start(0, sys.executable, "-c", SLEEPER, path) for _ in range(2)]
    try:
        name = master_of(cluster)
        if name != "h0":
            raise RuntimeError(f"{name} is master, not h0, whose agent came first")
        asked = {
            kind: cluster.start(1 + number % 2, sys.executable, "-c", PROGRAM, kind, path if kind in ("placed", "size") else f"{path}-{kind}", str(REGION), str(WATCHED_SECONDS))
            for number, kind in enumerate(KINDS)
        }
        programs += asked.values()
        for one in asked.values():
            print(file=one.stdin, flush=True)
        time.sleep(1)
        if what == "host":
            bed.kill_host(0)
        else:
            bed.run(0, ["kill", "-KILL", str(agent_of(bed, 0))])
        found = {kind: one.stdout.readline().split() for kind, one in asked.items()}
        return {kind: float(words[1]) for kind, words in found.items()}, master_of(cluster)
    finally:
        end(programs)


def run_one(bed, engine, stripewise, what, number):
    servers = []
    for name in ("a", "b", "c"):
        where = pathlib.Path(bed.common) / name
        where.mkdir()
        servers.append(f"{name}=hdd:{where}")
    return measure(bed, Cluster(bed, stripewise, engine, servers, "1MiB"), what, number)


def run(report, beds, stripewise, rounds):
    """With the election in an etcd and in a pool of a Ceph."""
    results = {}
    for where in ("etcd", "rados"):
        for what in ("host", "agent"):
            for number in range(rounds):
                with beds.Bed(hosts=3) as bed:
                    if where == "etcd":
                        seconds, successor = run_one(bed, ("--etcd", bed.etcd()), stripewise, what, number)
                    else:
                        with bed.ceph("--osds", "1") as ceph:
                            engine = ("--rados", ceph["pools"][0], "--conf", ceph["conf"])
                            seconds, successor = run_one(bed, engine, stripewise, what, number)
                print(f"  {where}, {what} lost: next master {successor}; longest waits in s: {seconds}", flush=True)
                for kind, value in seconds.items():
                    results.setdefault(kind, {}).setdefault(where, {}).setdefault(what, []).append(value)
    for kind in KINDS:
        for where, found in results[kind].items():
            for what, values in found.items():
                bound = MAX_PLACED_S if kind == "placed" else MAX_WAIT_S
                report.add(f"hosts.master.{where}.{what}.{kind}", statistics.median(values), "s", goal=("at most", bound),
                           note=f"longest wait, median of {len(values)} (most {max(values):.2f})", details={"seconds": values})
