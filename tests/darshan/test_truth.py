#!/usr/bin/env python3
"""One run that Darshan and Stripewise watched at once: the advice is the same from both. Of layouts that are as good as each other either may be advised,
so what is compared is the predicted times and what lies on which class.

    STRIPEWISE=target/debug/stripewise tests/darshan/test_truth.py
    STRIPEWISE=target/debug/stripewise STRIPEWISE_DARSHAN_RUNTIME=libdarshan.so tests/darshan/test_truth.py [--record]

The runs in truth/ were recorded with darshan-runtime 3.4.7 under MPICH: each is Darshan's log and the requests of our trace as CSV. With a darshan-runtime at
hand (built with MPICH), they are made again and compared; --record keeps them. Needs PyDarshan in .venv, where `setup/darshan` puts it; skipped otherwise.
"""

import contextlib
import csv
import datetime
import gzip
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PYTHON = ROOT / ".venv/bin/python"
STRIPEWISE = os.environ.get("STRIPEWISE", str(ROOT / "target/debug/stripewise"))
RUNTIME = os.environ.get("STRIPEWISE_DARSHAN_RUNTIME")
RUNS = {
    "zipf": "ior:pattern=zipf,size=16MiB,transfer=16KiB,region=512KiB,op=both",
    "random": "ior:pattern=random,size=16MiB,transfer=64KiB,op=both",
    "alternating": "ior:pattern=random,size=16MiB,transfer=32KiB,op=mixed",
}

if not (ROOT / ".venv/darshan-requirements.txt").exists():
    print("SKIPPED: no PyDarshan in .venv; setup/darshan installs it", file=sys.stderr)
    sys.exit(0)

sys.path.insert(0, str(HERE))
import sites  # noqa: E402

SITE = sites.lustre(("hdd", "OST0000..OST0007", "1GB/s", 8.0), ("ssd", "OST0008..OST000b", "5GB/s", 0.1), region="1MiB")


def advice(*words, place):
    """The interpreter that has PyDarshan is the first python3, as in an activated environment."""
    environment = dict(os.environ, PATH=f"{PYTHON.parent}:{os.environ['PATH']}")
    done = subprocess.run([STRIPEWISE, "advise", *map(str, words), "--json"], cwd=place, env=environment, capture_output=True, text=True, timeout=120)
    if done.returncode not in (0, 1):
        raise AssertionError(done.stdout + done.stderr)
    return json.loads(done.stdout)


def fast_share(advised):
    """Of the bytes of the files, what lies on SSDs: the last four OSTs."""
    targets = [target for file in advised["export"]["files"] for target in file["targets"]]
    fast = sum(target["bytes"] for target in targets if int(target["name"].removeprefix("OST"), 16) >= 8)
    return fast / sum(target["bytes"] for target in targets)


def watched(workload, place):
    """Runs the workload under Darshan and under our tracer; returns what each has left."""
    logs = place / "logs"
    today = datetime.date.today()
    # Of yesterday, today and tomorrow: the run may be over midnight.
    for day in (today + datetime.timedelta(days=days) for days in (-1, 0, 1)):
        (logs / f"{day.year}/{day.month}/{day.day}").mkdir(parents=True, exist_ok=True)
    data = place / "field"
    data.mkdir()
    environment = dict(os.environ, LD_PRELOAD=RUNTIME, DARSHAN_LOGPATH=str(logs), DXT_ENABLE_IO_TRACE="1", DARSHAN_MODMEM="64")
    command = [STRIPEWISE, "trace", "-o", "own.trace", "--", STRIPEWISE, "replay", workload, "--processes", "4", "--directory", str(data)]
    subprocess.run(command, cwd=place, env=environment, check=True, capture_output=True, timeout=120)
    log, = logs.rglob("*_replay_io_*.darshan")
    return log, place / "own.trace"


class Truth(unittest.TestCase):
    def setUp(self):
        self.place = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="stripewise-truth-")))
        (self.place / "site.toml").write_text(SITE)

    def compare(self, log, own, data):
        words = ("--site", "site.toml", "--file", data)
        darshan, ours = (advice(read, *words, place=self.place) for read in (log, own))
        self.assertTrue(ours["export"]["files"], ours)
        self.assertEqual(darshan["moving"]["bytes"], ours["moving"]["bytes"])
        # Not "now": on one disk it counts which requests of different ranks overlap, and each of the two sees other microseconds of that.
        for what in ("ideal", "advised"):
            self.assertAlmostEqual(darshan[what]["time_s"] / ours[what]["time_s"], 1, delta=0.02, msg=what)
        self.assertAlmostEqual(fast_share(darshan), fast_share(ours), delta=0.05)

    def test_of_recorded_runs_the_advice_is_the_same(self):
        for name in RUNS:
            with self.subTest(name), gzip.open(HERE / f"truth/{name}.csv.gz", "rb") as packed:
                own = self.place / f"{name}.csv"
                own.write_bytes(packed.read())
                with own.open(newline="") as rows:
                    data = pathlib.Path(next(csv.DictReader(rows))["path"]).parent
                self.compare(HERE / f"truth/{name}.darshan", own, data)

    @unittest.skipUnless(RUNTIME, "STRIPEWISE_DARSHAN_RUNTIME names no libdarshan.so: nothing is run under Darshan")
    def test_of_a_run_the_advice_is_the_same(self):
        for name, workload in RUNS.items():
            with self.subTest(name), contextlib.ExitStack() as stack:
                place = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stripewise-truth-")))
                log, own = watched(workload, place)
                self.compare(log, own, place / "field")
                if RECORD:
                    rows = subprocess.run([STRIPEWISE, "trace", "export", str(own), "--csv", "-"], check=True, capture_output=True).stdout
                    lines = rows.splitlines(keepends=True)
                    kept = [line for line in lines if line.startswith(b"#") or line == lines[0] or bytes(place / "field") in line]
                    (HERE / f"truth/{name}.csv.gz").write_bytes(gzip.compress(b"".join(kept), mtime=0))
                    shutil.copyfile(log, HERE / f"truth/{name}.darshan")


RECORD = "--record" in sys.argv
if RECORD:
    sys.argv.remove("--record")

if __name__ == "__main__":
    unittest.main()
