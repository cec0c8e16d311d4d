"""What opening a managed file costs on a host that follows: round trips to the master, and time.

A program on one host opens files that another host has made, each for the first time there. Each message between agents is one segment of TCP with data or
more, so segments bound the messages from above. What the hosts tell each other anyway is measured in as much time without opens.
"""
import json
import pathlib
import statistics
import subprocess
import sys
import time

from cluster import Cluster, end

FILES, MAX_ROUND_TRIPS = 200, 3
MAKER = r"""
import os, sys
for number in range(int(sys.argv[2])):
    file = os.open(f"{sys.argv[1]}-{number}", os.O_RDWR | os.O_CREAT, 0o644)
    os.pwrite(file, b"x" * 1000, 0)
    os.close(file)
print("ready", flush=True)
sys.stdin.read()
"""
OPENER = r"""
import json, os, sys, time
path, count = sys.argv[1], int(sys.argv[2])
first = os.open(f"{path}-0", os.O_RDWR)
print("ready", flush=True)
sys.stdin.readline()
times = []
for number in range(1, count):
    begun = time.monotonic()
    os.open(f"{path}-{number}", os.O_RDWR)
    times.append(time.monotonic() - begun)
print(json.dumps(times), flush=True)
sys.stdin.read()
"""


def segments(bed, host, of):
    """(sent, received): segments with data on all connections of the host with another's address."""
    listed = bed.run(host, ["ss", "-tinH", "dst", bed.addresses[of]]).stdout
    counts = [0, 0]
    for word in listed.split():
        for number, name in enumerate(("data_segs_out:", "data_segs_in:")):
            if word.startswith(name):
                counts[number] += int(word[len(name):])
    return counts


def measure(bed, cluster):
    path = str(cluster.directory / "opened")
    maker = cluster.start(0, sys.executable, "-c", MAKER, path, str(FILES))
    opener = cluster.start(1, sys.executable, "-c", OPENER, path, str(FILES))
    try:
        before = segments(bed, 1, 0)
        begun = time.monotonic()
        print(file=opener.stdin, flush=True)
        times = json.loads(opener.stdout.readline())
        seconds, after = time.monotonic() - begun, segments(bed, 1, 0)
        time.sleep(max(seconds, 2))
        idle_seconds, idle = max(seconds, 2), segments(bed, 1, 0)
    finally:
        end([opener, maker])
    per_open = []
    for number in range(2):
        noise = (idle[number] - after[number]) * seconds / idle_seconds
        per_open.append((after[number] - before[number] - noise) / (FILES - 1))
    if after[0] == before[0]:
        raise RuntimeError("no message of the opens was seen: is host 0 the master?")
    return {"sent": per_open[0], "received": per_open[1], "ms": statistics.median(times) * 1e3}


def run(report, bed, stripewise):
    servers = []
    for name in ("a", "b", "c"):
        where = pathlib.Path(bed.common) / name
        where.mkdir()
        servers.append(f"{name}=hdd:{where}")
    cluster = Cluster(bed, stripewise, ("--etcd", bed.etcd()), servers, "1MiB")
    found = measure(bed, cluster)
    trips = max(found["sent"], found["received"])
    report.add("hosts.open.round_trips", trips, "", goal=("at most", MAX_ROUND_TRIPS),
               note=f"to the master, for each first open of a file on a host; {found['ms']:.2f} ms an open")
    report.add("hosts.open.time", found["ms"], "ms")
