#!/usr/bin/env python3
"""How fast a program reads and writes a managed file in four pools of Ceph, beside plain librados (`make bench-hosts`).

    bench/hosts/on_rados.py [--stripewise target/release/stripewise] [--store memstore|bluestore] [--json FILE]

The Ceph is a real one on loopback (tests/engines/ceph.py). Its OSDs share this machine's processors with the program. The floor
is librados_loop.c, which makes the same requests on objects of the same sizes by librados, with the same operations under way. Both
run in turn. Each figure is a median over pairs:

    hosts.rados.read|write.4KiB   microseconds of a request; what Stripewise adds is the difference
    hosts.rados.read|write.SIZE   MB/s

A request of 4 MiB of the floor ends with the slowest of its four sub-requests. The inverse of that ratio is therefore what a
request of Stripewise's takes over its slowest sub-request.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests/engines")]
import ceph  # noqa: E402
from run import KIB, MIB, PAIRS, Bench, Redirection, fill  # noqa: E402

FILE, REGION, STRIPE = 256 * MIB, 64 * MIB, 64 * KIB
# Bytes of a request, and how many are timed.
SIZES = (("4KiB", 4 * KIB, 4000), ("64KiB", 64 * KIB, 2000), ("256KiB", 256 * KIB, 1000), ("1MiB", MIB, 400), ("4MiB", 4 * MIB, 120))


def run(command, **options):
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    if result.returncode:
        sys.exit(f"{' '.join(map(str, command))}: status {result.returncode}\n{result.stderr}")
    return result.stdout


class OnCeph:
    """The two programs on one Ceph."""

    def __init__(self, bench, engine, work):
        self.bench, self.engine, self.cluster = bench, engine, work / "cluster"
        self.loop = work / "librados_loop"
        run(["cc", "-O2", "-o", self.loop, ROOT / "bench/hosts/librados_loop.c", "-l:librados.so.2"])
        self.cluster.mkdir()
        servers = [f"s{number}=hdd:rados://{pool}?conf={engine.conf}" for number, pool in enumerate(engine.pools)]
        bench.command("init", "--region", "64MiB", *(word for server in servers for word in ("--server", server)), cwd=self.cluster)
        data = self.cluster / "data"
        data.mkdir()
        bench.command("manage", data, cwd=self.cluster)
        source, self.file = work / "source", data / "file"
        fill(source, FILE)
        bench.command("cp", source, self.file, cwd=self.cluster)
        source.unlink()
        bench.command("restripe", self.file, "--layout", "s0..s3 64KiB", cwd=self.cluster)
        self.floor("write", 4 * MIB, FILE // (4 * MIB))

    def floor(self, kind, request, count):
        words = [self.loop, kind, self.engine.conf, FILE, REGION, STRIPE, request, count, *self.engine.pools]
        return int(run(words))

    def measure(self):
        with Redirection(self.bench, self.cluster) as environment:
            for kind in ("read", "write"):
                for name, request, count in SIZES:
                    self.measure_one(f"hosts.rados.{kind}.{name}", kind, request, count, environment)

    def measure_one(self, name, kind, request, count, environment):
        bare, ours = [], []
        for turn in range(PAIRS):
            for redirected in (False, True) if turn % 2 else (True, False):
                if redirected:
                    ours.append(self.bench.spin(kind, self.file, FILE, request, count, environment)[0] / count)
                else:
                    bare.append(self.floor(kind, request, count) / count)
        if request == 4 * KIB:
            # Neighbours in time share the machine's mood.
            floor, added = statistics.median(bare), statistics.median(one - other for one, other in zip(ours, bare))
            self.bench.add(name, (floor + added) / 1000, "us", floor / 1000)
        else:
            ratio = statistics.median(other / one for one, other in zip(ours, bare))
            speed = request * 1000 / statistics.median(bare)
            self.bench.add(name, ratio * speed, "MB/s", speed)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stripewise", type=pathlib.Path, default=ROOT / "target/release/stripewise")
    parser.add_argument("--store", choices=("memstore", "bluestore"), default="memstore")
    parser.add_argument("--json", type=pathlib.Path, default=ROOT / "bench-out/hosts.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stripewise-bench-") as directory:
        work = pathlib.Path(directory)
        bench = Bench(options.stripewise.resolve(), work)
        try:
            with ceph.Ceph(osds=4, store=options.store) as engine:
                OnCeph(bench, engine, work).measure()
        except ceph.Unavailable as reason:
            sys.exit(f"hosts.rados was not measured: no Ceph: {reason}")
    options.json.parent.mkdir(exist_ok=True)
    options.json.write_text(json.dumps({"store": options.store, "results": bench.results}, indent=2) + "\n")
    print(f"wrote {options.json}")


if __name__ == "__main__":
    main()
