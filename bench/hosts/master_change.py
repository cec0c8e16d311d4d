#!/usr/bin/env python3
"""How long requests wait when the cluster's master is lost, on hosts of tests/hosts/bed.py (as root).

    STRIPEWISE=target/debug/stripewise bench/hosts/master_change.py [--rounds N] [--json FILE]

Three hosts use one file. The master's host loses its power (`host`), or its agent is killed while another program runs there (`agent`).
From that moment on a program on another host does one thing again and again, and the longest time that it took is noted:

    placed   writes a region that is placed
    new      writes regions that nobody has written
    open     opens and closes another file
    size     asks for the size of a file of which other hosts may know more

Hosts and etcd share one machine, so its load is in the figures.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "hosts"))
import bed as beds  # noqa: E402
from test_sharing import REGION, STRIPEWISE, Cluster  # noqa: E402

WATCHED_SECONDS = 15
KINDS = ("placed", "new", "open", "size")
# Does one thing until its input ends; prints how often it was done, and the longest time that it took in seconds.
PROGRAM = r"""
import os, sys, threading, time
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


def program(cluster, host, *words):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started = cluster.bed.start(host, [STRIPEWISE, "run", "--", sys.executable, "-c", *words], env=cluster.env, **pipes)
    if started.stdout.readline() != "ready\n":
        raise RuntimeError(f"the program on host {host} did not start")
    return started


def master_of(cluster):
    listed = json.loads(cluster.stripewise(2, "--json", "host", "list"))
    return next(host["name"] for host in listed["hosts"] if host["is_master"])


def agent_of(bed, host):
    """The agent's process on its host."""
    state = bed.run(host, ["sh", "-c", "cat /dev/shm/stripewise-*/broker.lock"]).stdout
    return int(state.split()[0])


def measure(bed, what, round_number):
    """Seconds by kind."""
    cluster = Cluster(bed)
    path = str(cluster.directory / f"file-{round_number}")
    programs = [program(cluster, 0, SLEEPER, path), program(cluster, 0, SLEEPER, path)]
    try:
        name = master_of(cluster)
        if name != "h0":
            raise RuntimeError(f"{name} is master, not h0, whose agent came first")
        asked = {
            kind: program(cluster, 1 + number % 2, PROGRAM, kind, path if kind in ("placed", "size") else f"{path}-{kind}", str(REGION), str(WATCHED_SECONDS))
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
        for one in programs:
            one.stdin.close()
            one.wait(60)
            one.stdout.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    results = {}
    try:
        for what in ("host", "agent"):
            for number in range(options.rounds):
                with beds.Bed(hosts=3) as bed:
                    seconds, successor = measure(bed, what, number)
                print(f"{what} {number}: next master {successor}; longest wait in s: {seconds}", flush=True)
                for kind, value in seconds.items():
                    results.setdefault(what, {}).setdefault(kind, []).append(value)
    except beds.Unavailable as why:
        sys.exit(f"not measured: {why}")
    print(f"\n{'lost':8}" + "".join(f"{kind:>16}" for kind in KINDS) + "   median (most) of the longest waits, s")
    for what, by_kind in results.items():
        print(f"{what:8}" + "".join(f"{statistics.median(by_kind[kind]):9.2f} ({max(by_kind[kind]):4.2f})" for kind in KINDS))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
