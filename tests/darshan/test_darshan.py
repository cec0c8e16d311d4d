#!/usr/bin/env python3
"""Darshan's logs: what `stripewise` reads of PyDarshan's samples is what PyDarshan reads, and damaged logs are refused by name.

    STRIPEWISE=target/debug/stripewise tests/darshan/test_darshan.py

Needs PyDarshan in .venv, where `setup/darshan` puts it; skipped otherwise.
"""

import csv
import gzip
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv" / "bin" / "python"
STRIPEWISE = os.environ.get("STRIPEWISE", str(ROOT / "target/debug/stripewise"))
COUNTED = ("POSIX", "MPI-IO", "STDIO", "H5F", "H5D", "PNETCDF_FILE", "PNETCDF_VAR")
SEED = int(os.environ.get("SEED", random.SystemRandom().randrange(1 << 32)))

if not (PYTHON.exists() and (ROOT / ".venv" / "darshan-requirements.txt").exists()):
    print("SKIPPED: no PyDarshan in .venv; setup/darshan installs it", file=sys.stderr)
    sys.exit(0)
if pathlib.Path(sys.prefix) != ROOT / ".venv":
    os.execv(PYTHON, [str(PYTHON), *sys.orig_argv[1:]])

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import darshan  # noqa: E402
import log_writer  # noqa: E402
import sites  # noqa: E402
import numpy  # noqa: E402

PACKAGE = pathlib.Path(darshan.__file__).parent
SAMPLES = sorted({path.name: path for path in PACKAGE.rglob("*.darshan")}.values())

SITE = sites.lustre(("hdd", "OST0000..OST0007", "1GB/s", 8.0), ("ssd", "OST0008..OST000b", "5GB/s", 0.1), region="64MiB")


def run(*arguments):
    """The interpreter that has PyDarshan is the first python3, as in an activated environment."""
    path = f"{PYTHON.parent}:{os.environ['PATH']}"
    environment = {key: value for key, value in os.environ.items() if key != "STRIPEWISE_DARSHAN_UTIL"} | {"PATH": path}
    return subprocess.run([STRIPEWISE, *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=120)


def signed(total):
    """As 64 bits with a sign."""
    return (int(total) + (1 << 63)) % (1 << 64) - (1 << 63)


class Logs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="stripewise-darshan-")
        cls.place = pathlib.Path(cls.directory.name)
        cls.site = cls.place / "site.toml"
        cls.site.write_text(SITE)

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def advice(self, *logs, site=None):
        # Nothing is that large, so nothing is planned, which takes longest.
        done = run("--json", "advise", *logs, "--site", site or self.site, "--least-size", "1024TiB")
        self.assertIn(done.returncode, (0, 1), done.stderr)
        return json.loads(done.stdout)

    def test_every_counter_of_every_sample_is_as_pydarshan_reads_it(self):
        self.assertGreaterEqual(len(SAMPLES), 13)
        for path in SAMPLES:
            with self.subTest(path.name):
                (log,) = self.advice(path)["logs"]
                report = darshan.DarshanReport(str(path), read_all=False, dtype="numpy")
                found = {module["name"]: module for module in log["modules"]}
                self.assertEqual(set(found), set(report.modules))
                self.assertEqual(log["processes"], report.metadata["job"]["nprocs"])
                self.assertAlmostEqual(log["run_s"], report.metadata["job"]["run_time"], places=6)
                for name in found:
                    self.compare(report, name, found[name])

    def compare(self, report, name, module):
        if name in COUNTED:
            report.mod_read_all_records(name, dtype="numpy")
            records = list(report.records[name])
            self.assertEqual(module["records"], len(records))
            sums = numpy.sum([record["counters"] for record in records], axis=0)
            names = report.counters[name]["counters"]
            self.assertEqual(module["counters"], {key: signed(value) for key, value in zip(names, sums)}, name)
            real = numpy.sum([record["fcounters"] for record in records], axis=0)
            for key, value in zip(report.counters[name]["fcounters"], real):
                self.assertTrue(numpy.isclose(module["real_counters"][key], value, rtol=1e-9), key)
        elif name.startswith("DXT_"):
            report.mod_read_all_dxt_records(name, dtype="numpy")
            records = list(report.records[name])
            self.assertEqual(module["records"], len(records))
            self.assertEqual(module["segments_written"], sum(record["write_count"] for record in records))
            self.assertEqual(module["segments_read"], sum(record["read_count"] for record in records))
        elif name == "LUSTRE":
            report.mod_read_all_lustre_records(dtype="numpy")
            records = list(report.records[name])
            self.assertEqual(module["records"], len(records))
            sums = numpy.sum([part["counters"] for record in records for part in record["components"]], axis=0)
            names = report.counters[name]["counters"]
            self.assertEqual(module["counters"], {key: signed(value) for key, value in zip(names, sums)})

    def exported(self, path):
        """Rank, call, offset, bytes, start and end in microseconds of every request, or the error."""
        table = self.place / "table.csv"
        done = run("trace", "export", path, "--csv", table)
        if done.returncode != 0:
            self.assertEqual((done.returncode, len(done.stderr.strip().splitlines())), (2, 1), done.stderr)
            self.assertIn(pathlib.Path(path).name, done.stderr)
            return done.stderr
        lines = list(csv.DictReader(table.read_text().splitlines()))
        times = lambda line: tuple(int(line[end]) / 1000 for end in ("start_ns", "end_ns"))  # noqa: E731
        return sorted((int(line["mpi_rank"] or 0), line["call"], line["offset"], int(line["bytes"]), *times(line)) for line in lines)

    def test_the_segments_of_every_sample_are_as_pydarshan_reads_them(self):
        self.assertGreaterEqual(len(SAMPLES), 13)
        with_segments = 0
        for path in SAMPLES:
            with self.subTest(path.name):
                report = darshan.DarshanReport(str(path), read_all=False, dtype="numpy")
                expected = []
                for module, calls in (("DXT_POSIX", ("pwrite", "pread")), ("DXT_MPIIO", ("MPI_File_write_at", "MPI_File_read_at"))):
                    if module not in report.modules:
                        continue
                    report.mod_read_all_dxt_records(module, dtype="dict")
                    for record in report.records[module]:
                        for call, segments in zip(calls, (record["write_segments"], record["read_segments"])):
                            expected += [
                                (record["rank"], call, str(one["offset"]), one["length"], one["start_time"] * 1e6, one["end_time"] * 1e6)
                                for one in segments
                            ]
                got = self.exported(path)
                if not expected:
                    self.assertIn("without DXT segments", got)
                else:
                    expected.sort()
                    self.assertEqual([request[:4] for request in got], [request[:4] for request in expected])
                    # Equal requests are in the order of their times; these are whole nanoseconds in traces.
                    times = [[request[place] for request in requests] for requests in (got, expected) for place in (4, 5)]
                    self.assertTrue(numpy.allclose(times[:2], times[2:], rtol=0, atol=1e-3), path.name)
                    with_segments += 1
        self.assertGreaterEqual(with_segments, 3)

    def test_a_plan_is_made_from_counters_alone_and_says_what_they_leave_open(self):
        words = ["init", "--region", "64MiB"]
        for name, kind in (("h0", "hdd"), ("h1", "hdd"), ("s0", "ssd"), ("s1", "ssd")):
            (self.place / name).mkdir()
            words += ["--server", f"{name}={kind}:{self.place / name}:10TiB"]
        cluster = self.place / "cluster.toml"
        self.assertEqual(run("-C", cluster, *words).returncode, 0)

        def server(name, kind):
            startup, rate = (0.012, 120.0) if kind == "hdd" else (0.0001, 500.0)
            line = {"beta_s_per_byte": 1e-6 / rate, "r2": 0.99, "spread": 0.02, "samples": 40}
            lines = {"sequential": {"alpha_s": 1e-4} | line, "random": {"alpha_s": startup} | line}
            return {"name": name, "class": kind} | {
                f"{way}_{order}": lines[order] for way in ("read", "write") for order in lines
            }

        servers = [server("h0", "hdd"), server("h1", "hdd"), server("s0", "ssd"), server("s1", "ssd")]
        identity = next(line for line in cluster.read_text().splitlines() if line.startswith("id = ")).split('"')[1]
        network = {"e_s": 0.0, "t_s_per_byte": 0.0, "source": "local"}
        profile = {"version": 3, "cluster": identity, "emulated": False, "measured_at": "2024-02-29T12:00:00Z"}
        (self.place / "profile.json").write_text(json.dumps(profile | {"servers": servers, "network": network}))
        shared = next(path for path in SAMPLES if path.name.startswith("shane_macsio"))
        done = run("-C", cluster, "--json", "plan", shared, "--policy", "h2dp")
        self.assertEqual(done.returncode, 0, done.stderr)
        plan = json.loads(done.stdout)["plan"]
        self.assertEqual([pathlib.Path(file["path"]).name for file in plan["files"]], ["macsio_hdf5_000.h5"])
        self.assertEqual((plan["key"]["application"], plan["key"]["processes"]), ("macsio", 16))
        # 94,396,376 bytes moved by POSIX calls, as PyDarshan says.
        moved = sum(plan["predicted"][way]["bytes"] for way in ("read", "write") if plan["predicted"][way])
        report = darshan.DarshanReport(str(shared), read_all=False, dtype="numpy")
        report.mod_read_all_records("POSIX", dtype="numpy")
        names = report.counters["POSIX"]["counters"]
        most = max(
            int(record["counters"][names.index("POSIX_BYTES_READ")] + record["counters"][names.index("POSIX_BYTES_WRITTEN")])
            for record in report.records["POSIX"]
        )
        self.assertLess(abs(moved / most - 1), 0.02)
        self.assertIn("of 1 of 1 file only counters are known", done.stderr)
        self.assertIn("if all go through them side by side", done.stderr)

        own = next(path for path in SAMPLES if path.name == "sample-goodost.darshan")
        done = run("-C", cluster, "--json", "plan", own, "--policy", "def")
        self.assertEqual(len(json.loads(done.stdout)["plan"]["files"]), 48, done.stderr)
        self.assertNotIn("side by side", done.stderr, "a file of one rank leaves nothing open")

        # DXT has some of the requests of its file.
        path = self.place / "partly.darshan"
        own = log_writer.counters("POSIX", 7, rank=0, READS=600, BYTES_READ=600 << 16, MAX_BYTE_READ=(1 << 30) - 1, SIZE_READ_10K_100K=600)
        some = log_writer.dxt(7, reads=[(at << 16, 65536, 0.01 * at, 0.01 * at + 0.009) for at in range(60)])
        log_writer.write(path, {7: "/lustre/field"}, {"POSIX": own, "DXT_POSIX": some})
        done = run("-C", cluster, "--json", "plan", path, "--policy", "def")
        plan = json.loads(done.stdout)["plan"]
        self.assertEqual((plan["predicted"]["read"]["requests"], plan["files"][0]["size_bytes"]), (600, 1 << 30))
        self.assertIn("DXT kept 60 of the 600 requests on /lustre/field", done.stderr)

    def test_advice_from_a_log_names_a_layout_or_says_to_leave_it(self):
        own = next(path for path in SAMPLES if path.name == "sample-goodost.darshan")
        done = run("--json", "advise", own, "--site", self.site, "--max-files", 2)
        advice = json.loads(done.stdout)
        self.assertEqual((done.returncode, advice["change"]), (0, True), advice["answer"])
        self.assertIn("testFile.00000000", advice["export"]["script"])
        self.assertEqual((advice["coarse"]["files"], advice["coarse"]["orders"]), (2, 1))
        idle = next(path for path in SAMPLES if path.name == "noposix.darshan")
        done = run("advise", idle, "--site", self.site, "--max-files", 1)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("of the run in reads and writes", done.stdout.splitlines()[0])
        # 24 minutes of metadata calls, in which a layout saves nothing.
        calls = next(path for path in SAMPLES if path.name == "dxt.darshan")
        done = run("advise", calls, "--site", self.site)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("of the run in reads and writes", done.stdout.splitlines()[0])
        self.assertIn("!! Metadata calls take 100 % of the run and 100 % of the time in I/O", done.stdout)

    def found(self, advice, name):
        return next((finding for finding in advice["findings"] if finding["name"] == name), None)

    def test_the_busiest_rank_of_a_shared_file_is_the_slowest_that_the_log_names(self):
        shared = next(path for path in SAMPLES if path.name == "example.darshan")
        report = darshan.DarshanReport(str(shared), read_all=False, dtype="numpy")
        report.mod_read_all_records("POSIX", dtype="numpy")
        names = report.counters["POSIX"]["fcounters"]
        slowest = max(record["fcounters"][names.index("POSIX_F_SLOWEST_RANK_TIME")] for record in report.records["POSIX"])
        advice = self.advice(shared)
        self.assertLess(abs(advice["totals"]["busiest_s"] / slowest - 1), 0.01)
        self.assertGreater(self.found(advice, "imbalance")["value"], 1.7)

    def test_mpi_io_without_posix_is_io_though_little_goes_through_streams(self):
        path = self.place / "mpi.darshan"
        mpi = log_writer.counters(
            "MPI-IO", 7, INDEP_OPENS=4, INDEP_WRITES=1000, BYTES_WRITTEN=1000 << 20, SIZE_WRITE_AGG_100K_1M=1000,
            F_WRITE_TIME=200, F_WRITE_START_TIMESTAMP=5, F_WRITE_END_TIMESTAMP=95, F_SLOWEST_RANK_TIME=50,
        )  # fmt: skip
        said = log_writer.counters("STDIO", 8, rank=0, WRITES=1, BYTES_WRITTEN=80, F_WRITE_TIME=0.001)
        log_writer.write(path, {7: "/lustre/field", 8: "<STDOUT>"}, {"MPI-IO": mpi, "STDIO": said}, processes=4, run_s=100)
        done = run("--json", "advise", path, "--site", self.site)
        advice = json.loads(done.stdout)
        self.assertTrue(advice["change"], advice["answer"])
        self.assertIn("no process spends more than 50.0 % of the run", advice["why"][0])
        self.assertAlmostEqual(self.found(advice, "io-share")["value"], 0.5, places=2)
        self.assertAlmostEqual(sum(written for _, written in advice["timeline"]), 1000 << 20, delta=100)
        self.assertIsNotNone(self.found(advice, "independent-mpi-io"))

        # One file for each process: nothing collective can be done.
        of_rank = [
            log_writer.counters("MPI-IO", 7 + rank, rank, INDEP_WRITES=1000, BYTES_WRITTEN=1000 << 20, F_WRITE_TIME=50) for rank in range(4)
        ]
        names = {7 + rank: f"/lustre/field.{rank}" for rank in range(4)}
        log_writer.write(path, names, {"MPI-IO": b"".join(of_rank)}, processes=4, run_s=100)
        self.assertIsNone(self.found(self.advice(path), "independent-mpi-io"))

    def test_what_counters_leave_open_widens_the_range_and_is_said_in_numbers(self):
        path = self.place / "counters.darshan"
        own = log_writer.counters(
            "POSIX", 7, rank=0, READS=60_000, BYTES_READ=60_000 << 16, MAX_BYTE_READ=(4 << 30) - 1, SEQ_READS=100, SIZE_READ_10K_100K=60_000,
            F_READ_TIME=90, F_READ_END_TIMESTAMP=95,
        )  # fmt: skip
        log_writer.write(path, {7: "/lustre/field"}, {"POSIX": own}, run_s=100)
        done = run("--json", "advise", path, "--site", self.site)
        advice = json.loads(done.stdout)
        coarse, gain = advice["coarse"], advice["gain"]
        self.assertEqual(coarse["orders"], 1)
        self.assertRegex(coarse["text"], r"they decide the order, and the gain is \+[0-9,.]+ %.* in one half, it is \+[0-9,.]+ % to \+[0-9,.]+ %")
        self.assertLessEqual(gain["low"], coarse["least_gain"])
        self.assertGreaterEqual(gain["high"], coarse["most_gain"])
        self.assertLessEqual(coarse["least_gain"], gain["expected"])
        self.assertGreaterEqual(coarse["most_gain"], gain["expected"])

    def test_of_a_file_of_which_dxt_has_some_requests_the_counters_are_planned(self):
        own = log_writer.counters(
            "POSIX", 7, rank=0, READS=60_000, BYTES_READ=60_000 << 16, MAX_BYTE_READ=(4 << 30) - 1, SEQ_READS=100, SIZE_READ_10K_100K=60_000,
            F_READ_TIME=90, F_READ_END_TIMESTAMP=95,
        )  # fmt: skip
        some = log_writer.dxt(7, reads=[((at * 7919 % 1000) << 16, 65536, 0.0015 * at, 0.0015 * at + 0.0014) for at in range(600)])
        found = {}
        for name, modules in (("counters", {"POSIX": own}), ("some", {"POSIX": own, "DXT_POSIX": some})):
            path = self.place / f"{name}.darshan"
            log_writer.write(path, {7: "/lustre/field"}, modules, run_s=100)
            done = run("--json", "advise", path, "--site", self.site)
            found[name] = json.loads(done.stdout)
        for what in ("now", "advised", "gain", "moving"):
            self.assertEqual(found["some"][what], found["counters"][what], what)
        self.assertEqual([found[name]["coarse"]["partly"] for name in found], [0, 1])
        self.assertIn("DXT has only some of the requests of 1 of 1 file", found["some"]["coarse"]["text"])
        self.assertIn("DXT kept 600 of the 60000 requests on /lustre/field; ", found["some"]["logs"][0]["missing"][0])
        # What is measured limits what is won, in both.
        self.assertEqual(found["some"]["measured"], {"busiest_s": 90.0, "most_s": 90.0})

    def test_the_run_of_a_log_without_counters_is_as_long_as_its_job(self):
        path = self.place / "requests-only.darshan"
        reads = [(at << 16, 65536, 0.01 * at, 0.01 * at + 0.009) for at in range(800)]
        for job_s, run_s in ((10, 10.0), (2, 7.999)):
            log_writer.write(path, {7: "/lustre/field"}, {"DXT_POSIX": log_writer.dxt(7, reads=reads)}, run_s=job_s)
            advice = self.advice(path)
            self.assertAlmostEqual(advice["totals"]["run_s"], run_s, places=6)
            self.assertAlmostEqual(advice["logs"][0]["run_s"], run_s, places=6)

    def test_counters_and_requests_of_one_run_have_the_same_findings(self):
        """Four ranks write 1 MiB in every 4 MiB of a file and read it back; the last of them takes three times as long."""
        names, segments, requests = {7: "/lustre/field"}, [], 250
        for rank in range(4):
            took = 0.003 if rank == 3 else 0.001
            at = [((4 * number + rank) << 20, 1 << 20, 0.02 * number, 0.02 * number + took) for number in range(requests)]
            back = [(offset, count, begin + 0.01, end + 0.01) for offset, count, begin, end in at]
            segments.append(log_writer.dxt(7, rank=rank, writes=at, reads=back))
        each, slow = 2 * requests * 0.001, 2 * requests * 0.003
        both = {"BYTES_{}": 4 * requests << 20, "MAX_BYTE_{}": (4 * requests << 20) - 1}
        values = {name.format(word): value for name, value in both.items() for word in ("READ", "WRITTEN")}
        values |= {f"{word}S": 4 * requests for word in ("READ", "WRITE")} | {f"SEQ_{word}S": 4 * requests - 1 for word in ("READ", "WRITE")}
        values |= {f"SIZE_{word}_100K_1M": 4 * requests for word in ("READ", "WRITE")}
        values |= {f"F_{word}_TIME": (3 * each + slow) / 2 for word in ("READ", "WRITE")}
        values |= {"F_READ_START_TIMESTAMP": 0.01, "F_READ_END_TIMESTAMP": 5, "F_WRITE_END_TIMESTAMP": 5}
        values |= {"F_SLOWEST_RANK_TIME": slow, "SLOWEST_RANK": 3, "SLOWEST_RANK_BYTES": 2 * requests << 20}
        values |= {"F_FASTEST_RANK_TIME": each, "FASTEST_RANK_BYTES": 2 * requests << 20, "FILE_ALIGNMENT": 1 << 20}
        counted = log_writer.counters("POSIX", 7, **values)
        forms = {
            "counters": {"POSIX": counted},
            "both": {"POSIX": counted, "DXT_POSIX": b"".join(segments)},
            "requests": {"DXT_POSIX": b"".join(segments)},
        }
        found, site = {}, self.place / "narrow.toml"
        site.write_text(SITE + '[default]\nstripe_size = "1MiB"\n')
        for form, modules in forms.items():
            path = self.place / f"{form}.darshan"
            log_writer.write(path, names, modules, processes=4, run_s=5)
            found[form] = self.advice(path, site=site)
        table = self.place / "requests.csv"
        self.assertEqual(run("trace", "export", self.place / "requests.darshan", "--csv", table).returncode, 0)
        found["trace"] = self.advice(table, site=site)
        for form, advice in found.items():
            with self.subTest(form):
                values = {finding["name"]: finding["value"] for finding in advice["findings"]}
                self.assertEqual(set(values), {"io-share", "imbalance"}, advice["findings"])
                self.assertAlmostEqual(values["imbalance"], 2.0, delta=0.01)
                self.assertAlmostEqual(values["io-share"], (3 * each + slow) / 20, delta=0.002)
                self.assertAlmostEqual(advice["totals"]["busiest_s"], slow, delta=0.01)
                self.assertEqual([advice["totals"][word] for word in ("reads", "writes", "files")], [1000, 1000, 1])
                self.assertEqual([file["path"] for file in advice["files"]], ["/lustre/field"])

    def test_several_logs_of_one_program_count_together(self):
        one = next(path for path in SAMPLES if path.name == "sample-goodost.darshan")
        two = next(path for path in SAMPLES if path.name == "shane_macsio_id29959_5-22-32552-7035573431850780836_1590156158.darshan")
        apart, together = [self.advice(path)["totals"] for path in (one, two)], self.advice(one, two)
        for name in ("reads", "writes", "read_bytes", "write_bytes", "files", "processes"):
            self.assertEqual(together["totals"][name], sum(totals[name] for totals in apart), name)
        self.assertAlmostEqual(together["totals"]["data_s"], sum(totals["data_s"] for totals in apart))
        for name in ("run_s", "busiest_s"):
            self.assertEqual(together["totals"][name], max(totals[name] for totals in apart), name)
        self.assertEqual([log["path"] for log in together["logs"]], [str(one), str(two)])
        page = self.place / "together.html"
        done = run("--json", "advise", one, two, "--site", self.site, "--max-files", 2, "--html", page)
        planned = json.loads(done.stdout)
        # The files with the most bytes of both, in one script.
        self.assertEqual(len(planned["export"]["files"]), 2, planned["answer"])
        self.assertIn("Bytes read and written over the time of the run", page.read_text())

    def measured(self, *arguments):
        """What the command prints, and the memory of the larger of it and its child, in KiB."""
        program = "import resource, subprocess, sys\nstatus = subprocess.run(sys.argv[2:], stdout=open(sys.argv[1], 'w')).returncode\nassert status in (0, 1)\nprint(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
        environment = os.environ | {"PATH": f"{PYTHON.parent}:{os.environ['PATH']}"}
        printed = self.place / "printed"
        command = [str(PYTHON), "-c", program, printed, STRIPEWISE, *map(str, arguments)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return printed.read_text(), int(done.stdout)

    def test_requests_by_the_hundred_thousand_stay_within_the_goals_memory(self):
        source = random.Random(5)
        path = self.place / "many.darshan"
        records = b"".join(
            log_writer.dxt(7, rank=rank, reads=[(source.randrange(1 << 16) << 16, 65536, 1e-3 * at, 1e-3 * at + 9e-4) for at in range(35_000)])
            for rank in range(6)
        )
        log_writer.write(path, {7: "/lustre/field"}, {"DXT_POSIX": records}, processes=6, run_s=40)
        answer, kib = self.measured("advise", path, "--site", self.site)
        self.assertIn("(210000 of 210000)", answer)
        self.assertLessEqual(kib, 300 << 10)

    def test_files_by_the_hundred_thousand_all_count_and_those_with_most_bytes_are_kept(self):
        # More than are kept. Ten million take longer: docs/advise.md says what they took.
        count, path, large = 210_000, self.place / "files.darshan", 1000
        record = log_writer.counters("POSIX", 0, rank=0, OPENS=1, READS=1, BYTES_READ=4096)
        table = numpy.frombuffer(record * count, dtype="<u8").reshape(count, -1).copy()
        table[large] = numpy.frombuffer(log_writer.counters("POSIX", 0, rank=0, OPENS=1, READS=1, BYTES_READ=1 << 30), dtype="<u8")
        table[:, 0] = numpy.arange(count) + 1
        names = {number + 1: f"/lustre/step-{number // 1000:08d}/out.{number:08d}.dat" for number in range(count)}
        log_writer.write(path, names, {"POSIX": table.tobytes()})
        answer, kib = self.measured("--json", "advise", path, "--site", self.site, "--least-size", "1024TiB")
        advice = json.loads(answer)
        self.assertEqual(advice["logs"][0]["modules"][0]["records"], count)
        totals = advice["totals"]
        self.assertEqual((totals["files"], totals["reads"], totals["read_bytes"]), (count, count, (count - 1) * 4096 + (1 << 30)))
        self.assertEqual(advice["files"][0]["path"], names[large + 1])
        self.assertLessEqual(kib, 300 << 10)

    def test_what_is_no_log_is_refused_by_name_with_the_reason(self):
        whole = next(path for path in SAMPLES if path.name == "sample-goodost.darshan").read_bytes()
        trace = b'{"name":"read","cat":"POSIX","pid":7,"ts":1,"dur":1,"ph":"X","args":{}}\n'
        for name, data, reason in (
            ("text", b"hello\n", "shorter than the header"),
            ("empty", b"", "shorter than the header"),
            ("cut", whole[:600], f"the file has 600 bytes, but {len(whole)} by its header: it was truncated"),
            ("head", whole[:200], "the file has 200 bytes, but "),
            ("begun_partial", bytes(2000), "its header is empty"),
            ("newer", b"9.99" + whole[4:], "install a later PyDarshan"),
            ("older", b"2.06" + whole[4:], "formats from 3.00 on are read"),
            ("zipped", gzip.compress(trace), "compressed by gzip"),
            ("other", trace, "of another tool"),
        ):
            with self.subTest(name):
                path = self.place / f"{name}.darshan"
                path.write_bytes(data)
                done = run("advise", path, "--site", self.site)
                self.assertEqual(done.returncode, 2, done.stdout)
                self.assertIn(f"{name}.darshan", done.stderr)
                self.assertIn(reason, done.stderr)
                self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)

    def test_a_log_without_records_leaves_nothing_to_advise(self):
        path = self.place / "idle.darshan"
        log_writer.write(path)
        done = run("advise", path, "--site", self.site)
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        self.assertTrue(done.stdout.startswith("Leave it: the logs have no reads or writes\n"), done.stdout)

    def test_of_a_partial_log_with_other_names_what_is_missing_is_said_and_the_rest_advised_upon(self):
        source = random.Random(3)
        path = self.place / "partial.darshan"
        # As `darshan-convert --obfuscate` leaves names.
        names, records = {7: "3872016472"}, b""
        for rank in range(4):
            reads = [(source.randrange(1 << 14) << 16, 65536, 0.01 * number, 0.01 * number + 0.009) for number in range(200)]
            records += log_writer.dxt(7, rank=rank, reads=reads) + log_writer.dxt(8, rank=rank, reads=reads[:1])
        log_writer.write(path, names=names, modules={"DXT_POSIX": records}, processes=4, partial=("DXT_POSIX",), run_s=3)
        done = run("--json", "advise", path, "--site", self.site, "--html", self.place / "advice.html")
        advice = json.loads(done.stdout)
        self.assertEqual((done.returncode, advice["change"]), (0, True), advice["answer"])
        self.assertIn("\n# layout FILE -S ", advice["export"]["script"])
        self.assertNotIn("\nlayout ", advice["export"]["script"])
        self.assertTrue(any(remark.startswith("the logs have no path of 3872016472") for remark in advice["remarks"]), advice["remarks"])
        (log,) = advice["logs"]
        self.assertEqual((log["requests_traced"], log["modules"][0]["is_partial"]), (804, True))
        self.assertIn("module DXT_POSIX ran out of memory in the run: some of its records are missing", log["missing"])
        page = (self.place / "advice.html").read_text()
        self.assertIn("DXT_POSIX with 8 records", page)
        self.assertIn("ran out of memory in the run", page)

    def test_a_name_that_is_not_utf_8_comes_from_the_log_to_the_shell_byte_for_byte(self):
        source = random.Random(5)
        place = self.place / "shell"
        (place / "tools").mkdir(parents=True)
        name = os.fsencode(place) + b"/\xff\xfe it's \\x41\n$HOME"
        with open(name, "wb") as file:
            file.truncate(1 << 30)
        reads = [(source.randrange(1 << 14) << 16, 65536, 0.01 * number, 0.01 * number + 0.009) for number in range(200)]
        records = b"".join(log_writer.dxt(7, rank=rank, reads=reads) for rank in range(4))
        path = place / "log.darshan"
        log_writer.write(path, names={7: name}, modules={"DXT_POSIX": records}, processes=4, run_s=3)
        done = run("advise", path, "--site", self.site, "-o", place / "layouts", "--file", place)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lfs = place / "tools" / "lfs"
        lfs.write_text(f"#!/bin/sh\nprintf '%s\\0' \"$@\" >> {place}/called\n")
        lfs.chmod(0o755)
        environment = os.environ | {"PATH": f"{place}/tools:{os.environ['PATH']}"}
        done = subprocess.run(["/bin/sh", place / "layouts/layout.sh"], env=environment, capture_output=True)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        words = (place / "called").read_bytes().split(b"\0")
        self.assertIn(b"migrate", words, "the file that is there is found")
        self.assertEqual(words.count(name), 2, "asked for its copies, and migrated")

    def test_of_a_log_that_was_cut_the_rest_is_read_and_what_is_missing_said(self):
        whole = next(path for path in SAMPLES if path.name == "dxt.darshan").read_bytes()
        path = self.place / "half.darshan"
        path.write_bytes(whole[: len(whole) * 2 // 3])
        (log,) = self.advice(path)["logs"]
        self.assertTrue(any("DXT_POSIX" in what for what in log["missing"]), log["missing"])
        self.assertEqual([module["records"] for module in log["modules"] if module["name"] == "POSIX"], [214])
        self.assertTrue(any(f"the file has {len(whole) * 2 // 3} bytes, but {len(whole)} by its header" in what for what in log["missing"]), log["missing"])
        # Of an own one none of the records is there.
        own = self.place / "own.darshan"
        log_writer.write(own, names={7: "/lustre/field"}, modules={"DXT_POSIX": log_writer.dxt(7, reads=[(at * 8192, 4096, at, at + 1) for at in range(3000)])})
        size = own.stat().st_size
        os.truncate(own, size - 2000)
        done = run("advise", own, "--site", self.site)
        self.assertIn(f"the file has {size - 2000} bytes, but {size} by its header", done.stderr)
        self.assertNotIn("version", done.stderr)

    def test_a_log_is_known_under_any_name_and_a_partial_one_by_its_own(self):
        whole = next(path for path in SAMPLES if path.name == "dxt.darshan").read_bytes()
        for name in ("renamed.log", "run.darshan_partial"):
            path = self.place / name
            path.write_bytes(whole)
            (log,) = self.advice(path)["logs"]
            self.assertEqual([module["records"] for module in log["modules"] if module["name"] == "POSIX"], [214])

    def test_damage_anywhere_ends_in_an_answer_or_an_error_never_in_a_crash(self):
        print(f"SEED={SEED}")
        source = random.Random(SEED)
        for number in range(30):
            data = bytearray(source.choice(SAMPLES).read_bytes())
            for _ in range(source.choice((1, 4, 20))):
                data[source.randrange(min(len(data), source.choice((1500, 1 << 30))))] = source.randrange(256)
            path = self.place / f"damaged-{number}.darshan"
            path.write_bytes(data)
            done = run("advise", path, "--site", self.site, "--least-size", "1024TiB")
            self.assertIn(done.returncode, (0, 1, 2), f"{number}: {done.stderr}")
            self.assertNotIn("panicked", done.stderr)

    def test_without_the_library_the_error_says_how_to_get_it(self):
        environment = os.environ | {"STRIPEWISE_DARSHAN_UTIL": "/nowhere/libdarshan-util.so"}
        command = [STRIPEWISE, "advise", str(SAMPLES[0]), "--site", str(self.site)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn("pip install darshan", done.stderr)


if __name__ == "__main__":
    unittest.main()
