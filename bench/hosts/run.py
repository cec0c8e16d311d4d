#!/usr/bin/env python3
"""The benchmarks of `make bench-hosts`: prints a table, a verdict for each goal, and writes bench-out/hosts.json.

    bench/hosts/run.py [--stripewise target/release/stripewise] [--only PART,...] [--quick] [--json FILE]

The parts, each a module here that says what it measures: `rados` (on_rados), `opens`, `master` (master_change), `moves`. They run on a real Ceph on
loopback (tests/engines/ceph.py), an etcd, and hosts of tests/hosts/bed.py, as root. All of them, hosts and program share this machine's
processors: its load is in the figures, and is printed.
"""
import argparse
import json
import os
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tests/engines"), str(ROOT / "tests/hosts")]
import bed as beds  # noqa: E402
import ceph  # noqa: E402
import master_change  # noqa: E402
import moves  # noqa: E402
import on_rados  # noqa: E402
import opens  # noqa: E402
from report import Report  # noqa: E402

# Of the requests of `rados`, one of so many is made with --quick.
QUICK_SHARE = 8
# Seconds for which an OSD may stand still: nothing fails here, and the machine may be busy.
GRACE = 60
# Neighbours' programs take so much of the processors when nothing of this runs.
BUSY_LOAD = 0.5


def rados(report, options):
    with tempfile.TemporaryDirectory(prefix="stripewise-bench-") as work, ceph.Ceph(osds=4, store=options.store, grace=GRACE) as engine:
        on_rados.run(report, engine, options.stripewise, pathlib.Path(work), QUICK_SHARE if options.quick else 1)


def opened(report, options):
    with beds.Bed(hosts=2) as bed:
        opens.run(report, bed, options.stripewise)


def master(report, options):
    master_change.run(report, beds, options.stripewise, options.rounds)


def moved(report, options):
    with beds.Bed(hosts=moves.HOSTS) as bed, bed.ceph("--osds", "4", "--grace", str(GRACE)) as engine:
        moves.run(report, bed, engine, options.stripewise)


PARTS = {"rados": rados, "opens": opened, "moves": moved, "master": master}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stripewise", type=pathlib.Path, default=ROOT / "target/release/stripewise")
    parser.add_argument("--store", choices=("memstore", "bluestore"), default="memstore", help="of the OSDs of `rados`")
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts of {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="fewer requests and one round: figures that are less certain")
    parser.add_argument("--rounds", type=int, default=2, help="of each loss of a master")
    parser.add_argument("--json", type=pathlib.Path, default=ROOT / "bench-out/hosts.json")
    options = parser.parse_args()
    options.stripewise = options.stripewise.resolve()
    options.rounds = 1 if options.quick else options.rounds
    unknown = set(options.only.split(",")) - PARTS.keys()
    if unknown:
        parser.error(f"unknown part {', '.join(sorted(unknown))} (known: {', '.join(PARTS)})")
    report, load, missing = Report(), os.getloadavg()[0] / os.cpu_count(), []
    print(f"{os.cpu_count()} processors, load of each {load:.2f} before the start{': the machine is busy' if load > BUSY_LOAD else ''}", flush=True)
    for name in options.only.split(","):
        try:
            PARTS[name](report, options)
        except (ceph.Unavailable, beds.Unavailable) as reason:
            missing.append(name)
            print(f"{name} was not measured: {reason}", flush=True)
    report.print_verdicts()
    options.json.parent.mkdir(exist_ok=True)
    found = {"store": options.store, "processors": os.cpu_count(), "load_before": load, "not_measured": missing, "results": report.results}
    options.json.write_text(json.dumps(found, indent=2) + "\n")
    print(f"wrote {options.json}")
    return 1 if len(missing) == len(options.only.split(",")) else 0


if __name__ == "__main__":
    sys.exit(main())
