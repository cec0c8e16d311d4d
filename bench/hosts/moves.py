"""For how long writers of a region stand still while it moves: one region of 64 MiB, written by four hosts, between pools of a Ceph.

On each host a program writes 4 KiB at random places of the region, 200 times a second at most, and notes every write that took long (moving_writer.c). The region moves
to other pools again and again. A move stops its writers while the region is sealed, so the longest write that lies in a move is the stop. As long times without a
move show what a busy machine does by itself.
"""
import pathlib
import statistics
import subprocess
import time

from cluster import Cluster

HOSTS, MIB = 4, 1 << 20
REGION, BLOCK, PAUSE_US, SHORTEST_NS = 64 * MIB, 4096, 5000, 1_000_000
MOVES = 7
LAYOUTS = ("s1 64KiB", "s0 64KiB")
MAX_STOP_MS = 50
HERE = pathlib.Path(__file__).resolve().parent


def longest_ms(lines, begin, end):
    """Of the writes that were under way at some time between."""
    inside = [duration for start, duration in lines if start + duration > begin and start < end]
    return max(inside, default=SHORTEST_NS) / 1e6


def round_trip_ms(bed):
    """Between two hosts, as busy as they are now."""
    done = bed.run(1, ["ping", "-q", "-c", "40", "-i", "0.02", bed.addresses[0]])
    if done.returncode:
        return 0.0
    return float(done.stdout.rsplit(" = ", 1)[1].split("/")[1])


def measure(bed, cluster):
    program, path = pathlib.Path(bed.common) / "moving_writer", str(cluster.directory / "moved")
    subprocess.run(["cc", "-O2", "-o", program, HERE / "moving_writer.c"], check=True)
    cluster.stripewise(0, "run", "--", "dd", "if=/dev/urandom", f"of={path}", "bs=1M", f"count={REGION // MIB}", "status=none")
    cluster.stripewise(0, "restripe", path, "--layout", LAYOUTS[1])
    writers = [cluster.start(host, program, path, str(REGION), str(BLOCK), str(host + 1), str(PAUSE_US), str(SHORTEST_NS)) for host in range(HOSTS)]
    windows = []
    try:
        for number in range(MOVES):
            begin = time.monotonic_ns()
            cluster.stripewise(number % HOSTS, "restripe", path, "--layout", LAYOUTS[number % 2])
            moved = time.monotonic_ns()
            time.sleep((moved - begin) / 1e9)
            windows.append((begin, moved, time.monotonic_ns()))
        round_trip = round_trip_ms(bed)
    finally:
        said = [writer.communicate(input="\n", timeout=60)[0].splitlines() for writer in writers]
    writes = sum(int(lines[-1].split()[1]) for lines in said)
    lines = [tuple(map(int, line.split())) for one in said for line in one[:-1]]
    stops = [longest_ms(lines, begin, moved) for begin, moved, _ in windows]
    still = [longest_ms(lines, moved, later) for _, moved, later in windows]
    seconds = [(moved - begin) / 1e9 for begin, moved, _ in windows]
    return {"stops_ms": stops, "without_ms": still, "seconds": seconds, "writes": writes, "round_trip_ms": round_trip}


def run(report, bed, ceph, stripewise):
    servers = [f"s{number}=hdd:rados://{pool}?conf={ceph['conf']}" for number, pool in enumerate(ceph["pools"][:3])]
    cluster = Cluster(bed, stripewise, ("--rados", ceph["pools"][3], "--conf", ceph["conf"]), servers, "64MiB")
    found = measure(bed, cluster)
    without = statistics.median(found["without_ms"])
    report.add(
        "hosts.move.stop", statistics.median(found["stops_ms"]), "ms", goal=("at most", MAX_STOP_MS),
        note=f"longest write of any host in a move, median of {MOVES} (most {max(found['stops_ms']):.0f}); as long without a move {without:.0f}; "
             f"a move takes {statistics.median(found['seconds']):.1f} s; a round trip {found['round_trip_ms']:.2f} ms", details=found,
    )
