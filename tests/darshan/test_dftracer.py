#!/usr/bin/env python3
"""Traces of other tools: what DFTracer records of a program is what `stripewise trace` records, and one recording leads to one layout in whatever form it stands.

    STRIPEWISE=target/debug/stripewise tests/darshan/test_dftracer.py

It needs DFTracer and PyDarshan in .venv (`setup/darshan` installs them); without them it says so and is skipped.
"""

import csv
import gzip
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv" / "bin" / "python"
STRIPEWISE = os.environ.get("STRIPEWISE", str(ROOT / "target/debug/stripewise"))
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import log_writer  # noqa: E402
import sites  # noqa: E402

PRELOAD = next(ROOT.glob(".venv/lib/python3*/site-packages/dftracer/lib64/libdftracer_preload.so"), None)
if PRELOAD is None:
    print("SKIPPED: no DFTracer in .venv; setup/darshan installs it", file=sys.stderr)
    sys.exit(0)

PROCESSES, MIB = 4, 1 << 20
# A process reads small pieces anywhere, by position and by seeking, and, where it is told so, writes in order.
PROGRAM = f"""
import os, random, sys
path, rank = sys.argv[1], int(sys.argv[2])
source = random.Random(rank)
descriptor = os.open(path, os.O_RDWR)
for number in range(150):
    offset = source.randrange(4096) << 16
    if number % 2:
        os.pread(descriptor, 65536, offset)
    else:
        os.lseek(descriptor, offset, os.SEEK_SET)
        os.read(descriptor, 65536)
if sys.argv[3] == "writes":
    os.lseek(descriptor, rank * {MIB}, os.SEEK_SET)
    for _ in range(16):
        os.write(descriptor, bytes(65536))
    os.lseek(descriptor, -65536, os.SEEK_CUR)
    os.write(descriptor, bytes(100))
    os.pwrite(descriptor, bytes(4096), 200 * {MIB} + rank * 4096)
    os.fsync(descriptor)
os.close(descriptor)
"""
ALL_RANKS = 'for rank in 0 1 2 3; do "$0" -c "$1" "$2" $rank "$3" & done; wait'
COLUMNS = "node pid mpi_rank mpi_size level operation call communicator path renamed_to offset bytes errno start_ns end_ns".split()
SITE = sites.lustre(("hdd", "OST0000..OST0003", "150MB/s", 8.0), ("ssd", "OST0004..OST0005", "2GB/s", 0.1))


class Recorder:
    """Writes a trace as Recorder 2.3 does, but for the compression of its grammars: a call is a signature of its own where its arguments are."""

    FUNCTIONS = ("lseek", "read", "pread")

    def __init__(self, place, ranks):
        self.place, self.calls = place, []
        place.mkdir()
        (place / "VERSION").write_text("2.3.3")
        head = struct.pack("<i4xddii", ranks, 0.0, 1e-7, 1 << 18, 0)
        (place / "recorder.mt").write_bytes(head + "".join(f"{name}\n" for name in self.FUNCTIONS).encode())

    def call(self, start_ms, end_ms, name, *arguments):
        text = "".join(f"{argument} " for argument in arguments).encode()
        key = struct.pack("<QBBBi", 0, self.FUNCTIONS.index(name), 0, len(arguments), len(text)) + text
        self.calls.append((key, start_ms * 10_000, end_ms * 10_000))

    def end_of_rank(self, rank):
        keys = {key: number for number, key in enumerate(dict.fromkeys(key for key, _, _ in self.calls))}
        table = struct.pack("<i", len(keys)) + b"".join(struct.pack("<ii", number, len(key)) + key for key, number in keys.items())
        rule = struct.pack("<iii", 1, -1, len(self.calls)) + b"".join(struct.pack("<ii", keys[key], 1) for key, _, _ in self.calls)
        times, before = b"", 0
        for _, start, end in self.calls:
            times, before = times + struct.pack("<II", start - before, end - before), start
        for kind, contents in (("cst", table), ("cfg", rule), ("ts", times)):
            (self.place / f"{rank}.{kind}").write_bytes(contents)
        self.calls = []


class Traces(unittest.TestCase):
    def setUp(self):
        self.place = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="stripewise-dftracer-")))
        self.file = self.place / "data" / "field"
        self.file.parent.mkdir()
        with open(self.file, "wb") as file:
            file.truncate(256 * MIB)
        (self.place / "site.toml").write_text(SITE)

    def run_in(self, *command, expected=(0,), **environment):
        path = f"{PYTHON.parent}:{os.environ['PATH']}"
        done = subprocess.run(
            list(map(str, command)), cwd=self.place, env=os.environ | {"PATH": path} | environment, capture_output=True, text=True, timeout=120
        )
        self.assertIn(done.returncode, expected, done.stderr)
        return done

    def program(self, kind):
        return ["/bin/sh", "-c", ALL_RANKS, os.path.realpath(PYTHON), PROGRAM, self.file, kind]

    def requests(self, trace):
        """Call, offset and bytes of what each process did with the file, in the order of its calls."""
        self.run_in(STRIPEWISE, "trace", "export", trace, "--csv", "table.csv")
        of_processes = {}
        for row in csv.DictReader((self.place / "table.csv").read_text().splitlines()):
            if row["path"] == str(self.file) and row["operation"] in ("read", "write"):
                of_processes.setdefault(row["pid"], []).append(row)
        return list(of_processes.values())

    def advice(self, *logs):
        done = self.run_in(STRIPEWISE, "--json", "advise", *logs, "--site", "site.toml", "--file", self.file, expected=(0, 1))
        return json.loads(done.stdout)

    def test_dftracer_records_what_our_tracer_records(self):
        self.run_in(STRIPEWISE, "trace", "-o", "own.trace", "--", *self.program("writes"))
        (self.place / "dftracer").mkdir()
        self.run_in(
            *self.program("writes"),
            LD_PRELOAD=str(PRELOAD),
            DFTRACER_ENABLE="1",
            DFTRACER_INIT="PRELOAD",
            DFTRACER_INC_METADATA="1",
            DFTRACER_LOG_FILE=str(self.place / "dftracer" / "app"),
            DFTRACER_DATA_DIR=str(self.file.parent),
        )

        def moved(trace):
            requests = [[(row["call"], row["offset"], row["bytes"], row["write_class"]) for row in rows] for rows in self.requests(trace)]
            return sorted(requests)

        own, other = moved("own.trace"), moved("dftracer")
        self.assertEqual(len(own), PROCESSES)
        self.assertEqual(sum(map(len, own)), PROCESSES * (150 + 18))
        self.assertEqual(other, own)
        self.assertEqual(self.advice("dftracer")["totals"]["writes"], PROCESSES * 18)

    def test_one_recording_is_one_plan_in_every_form(self):
        """What a program did, at times that every form can say exactly, as CSV of ours, as DFTracer's lines, as Recorder's tables and as a Darshan log."""
        self.run_in(STRIPEWISE, "trace", "-o", "own.trace", "--", *self.program("reads"))
        rows, records = [",".join(COLUMNS)], b""
        (self.place / "dftracer").mkdir()
        recorder = Recorder(self.place / "recorder", ranks=PROCESSES)
        for rank, requests in enumerate(self.requests("own.trace")):
            lines, segments, who = ["["], [], {"cat": "dftracer", "pid": 100 + rank, "ph": "M"}
            for name, kind, value in (("FH", str(self.file), 77), ("HH", "n0", 5), ("PR", "rank", str(rank))):
                lines.append(json.dumps(who | {"name": name, "args": {"name": kind, "value": value}}))
            for number, row in enumerate(requests):
                start_ms, offset, size = number * 10 + rank, int(row["offset"]), int(row["bytes"])
                end_ms = start_ms + 8
                start_ns, end_ns = start_ms * 1_000_000, end_ms * 1_000_000
                rows.append(f"n0,{100 + rank},{rank},{PROCESSES},posix,read,{row['call']},,{self.file},,{offset},{size},,{start_ns},{end_ns}")
                call = {"cat": "POSIX", "pid": 100 + rank, "ph": "X", "ts": start_ms * 1000}
                arguments = {"fhash": 77, "hhash": 5, "fd": 3, "ret": size}
                if row["call"] == "read":
                    # Where a read begins the seek before it says alone.
                    seek = {"name": "lseek64", "dur": 0, "args": arguments | {"ret": offset, "offset": offset, "whence": 0}}
                    lines.append(json.dumps(call | seek))
                    lines.append(json.dumps(call | {"name": "read", "dur": 8000, "args": arguments}))
                    recorder.call(start_ms, start_ms, "lseek", self.file, offset, 0)
                    recorder.call(start_ms, end_ms, "read", self.file, "%p", size)
                else:
                    lines.append(json.dumps(call | {"name": "pread64", "dur": 8000, "args": arguments | {"offset": offset}}))
                    recorder.call(start_ms, end_ms, "pread", self.file, "%p", size, offset)
                segments.append((offset, size, start_ms / 1000, end_ms / 1000))
            records += log_writer.dxt(7, rank=rank, reads=segments)
            recorder.end_of_rank(rank)
            with gzip.open(self.place / "dftracer" / f"app-{rank}.pfw.gz", "wt") as file:
                file.write("\n".join([*lines, "]"]))
        (self.place / "own.csv").write_text("\n".join(rows) + "\n")
        log_writer.write(
            self.place / "job.darshan", names={7: str(self.file)}, modules={"DXT_POSIX": records}, processes=PROCESSES, run_s=2
        )
        own, dftracer, recorded, darshan = (self.advice(log) for log in ("own.csv", "dftracer", "recorder", "job.darshan"))
        self.assertTrue(own["change"], own["answer"])
        for other in (dftracer, recorded, darshan):
            self.assertEqual(other["export"], own["export"])
            self.assertEqual(other["totals"]["read_bytes"], PROCESSES * 150 * 65536)
        for other in (dftracer, recorded):
            self.assertEqual(other["gain"], own["gain"])


if __name__ == "__main__":
    unittest.main()
