#!/usr/bin/env python3
"""Traces, counts, plans, simulations and advice from Python: they are those of the command. The notebooks and the reference.

    STRIPEWISE=target/debug/stripewise tests/python/test_answers.py
"""

import contextlib
import html
import importlib
import importlib.util
import io
import json
import math
import multiprocessing
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from package import HAS_OTHERS, MIB, PYTHON, ROOT, WORK, main, needs_others, run  # noqa: E402

import stripewise  # noqa: E402


class Traces(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.trace = WORK / "run.trace"
        code = f"""
with open({str(WORK / "traced.bin")!r}, "wb", 0) as file:
    for _ in range(50):
        file.write(bytes(100_000))
with open({str(WORK / "traced.bin")!r}, "rb", 0) as file:
    while file.read(30_000):
        pass
"""
        run("trace", "-o", cls.trace, "--", sys.executable, "-c", code)

    def test_a_trace_says_what_was_traced(self):
        trace = stripewise.Trace(self.trace)
        self.assertEqual((trace.processes, len(trace.nodes)), (1, 1))
        self.assertIn(str(WORK / "traced.bin"), trace.files)
        self.assertIn("-c", trace.command)
        self.assertIn("traced.bin", "".join(trace.files))
        self.assertIn("run.trace", repr(trace))
        self.assertIn("<table>", trace._repr_html_())

    def test_what_is_no_trace_is_refused_by_name(self):
        with self.assertRaisesRegex(stripewise.StripewiseError, "no-trace"):
            stripewise.Trace(WORK / "no-trace")

    @needs_others
    def test_calls_are_rows_as_the_command_exports_them(self):
        trace = stripewise.Trace(self.trace)
        table = trace.to_arrow()
        exported = WORK / "calls.csv"
        run("trace", "export", self.trace, "--csv", exported)
        import pandas

        expected = pandas.read_csv(exported)
        found = trace.to_pandas()
        self.assertEqual((list(found.columns), len(trace), table.num_rows), (list(expected.columns), len(expected), len(expected)))
        for column in ("call", "path", "offset", "bytes", "start_ns", "end_ns"):
            left, right = found[column].astype(object), expected[column].astype(object)
            self.assertTrue(((left == right) | (left.isna() & right.isna())).all(), column)
        self.assertEqual(trace.to_polars().shape, (len(expected), len(expected.columns)))

    @needs_others
    def test_counts_are_those_of_the_calls(self):
        counts = stripewise.Trace(self.trace).counts(region_bytes=MIB).to_pandas()
        counts = counts[counts.path.astype(str).str.endswith("traced.bin")]
        moved = (counts.request_bytes * counts.requests).groupby(counts.direction.astype(str)).sum()
        self.assertEqual(moved.to_dict(), {"read": 5_000_000, "write": 5_000_000})

    @needs_others
    def test_whoever_takes_counts_gets_the_same_memory(self):
        import pandas
        import polars

        counts = stripewise.counts(self.trace, region_bytes=MIB)

        def address(column):
            return column.chunk(0).buffers()[1].address

        found = address(counts.to_arrow()["requests"])
        self.assertEqual(address(counts.to_arrow()["requests"]), found)
        self.assertEqual(counts.to_polars()["requests"].to_arrow().buffers()[1].address, found)
        self.assertEqual(polars.DataFrame(counts)["requests"].to_arrow().buffers()[1].address, found)
        frame = counts.to_pandas(types_mapper=pandas.ArrowDtype)
        self.assertEqual(address(frame["requests"].array.__arrow_array__()), found)
        self.assertEqual(frame.requests.sum(), counts.to_pandas().requests.sum())

    def test_counts_and_policies_are_shown_as_tables(self):
        shown = stripewise.counts(self.trace)._repr_html_()
        self.assertIn(f"<tr><th>{WORK / 'traced.bin'}</th><td>write</td><td>50</td><td>5,000,000</td></tr>", shown)
        policies = stripewise.policies()
        self.assertEqual(policies._repr_html_().count("<tr>"), len(policies) + 1)
        self.assertIn(policies[0].summary, policies[0]._repr_html_())


SITE = """\
version = 1
fs = "lustre"
[[targets]]
class = "hdd"
names = ["OST0000..OST0003"]
device = "hdd-7200"
[[targets]]
class = "ssd"
names = ["OST0004"]
device = "nvme"
"""
WORKLOAD = "ior:pattern=random,size=16MiB,transfer=64KiB,processes=4,op=read"
SERVERS = "3xhdd-7200,1xnvme"


def answers(trace, cluster):
    """One of each call that works with several threads, as text."""
    plans = stripewise.plan(trace, ["opt", "h2dp"], cluster=cluster, files=[trace.parent])
    site = trace.with_name("forking.toml")
    if not site.exists():
        site.write_text(SITE)
    found = [plan.to_dict() for plan in plans]
    found.append(stripewise.simulate(WORKLOAD, ["h2dp"], servers=SERVERS, region="1MiB").to_dict())
    found.append(stripewise.advise(trace, site, files=[trace.parent], least_size="0").to_dict())
    found.append(len(stripewise.counts(trace, region_bytes=MIB)))
    found.append(len(stripewise.report(trace).html))
    return json.dumps(found)


class Answers(unittest.TestCase):
    """Policies, plans, simulations, advice and reports: what the command says, as objects."""

    @classmethod
    def setUpClass(cls):
        cls.place = WORK / "answers"
        cls.place.mkdir()
        cls.trace = cls.place / "run.trace"
        code = f"""
import os
file = os.open({str(cls.place / "planned.bin")!r}, os.O_RDWR | os.O_CREAT)
for number in range(64):
    os.pwrite(file, bytes(65536), number * 7 % 64 * 65536)
"""
        run("trace", "-o", cls.trace, "--", sys.executable, "-c", code)
        cls.cluster = cls.place / "cluster.toml"
        run("init", "--region", "1MiB", "--emulated", "2xhdd-7200:1GiB,1xnvme:64MiB", "--emulated-dir", cls.place / "servers", cluster=cls.cluster)
        run("calibrate", "--quick", "--seconds", "1", cluster=cls.cluster)

    def test_policies_are_those_of_the_command(self):
        named = [policy.name for policy in stripewise.policies()]
        text = run("plan", "--help")
        self.assertTrue(all(name in text for name in named))
        self.assertGreaterEqual(len(named), 11)

    def test_plans_are_those_of_the_command(self):
        file = self.place / "planned.bin"
        plans = stripewise.plan(self.trace, ["def", "h2dp"], cluster=self.cluster, files=[file], seed=5)
        self.assertEqual([plan.policy for plan in plans], ["def", "h2dp"])
        for plan in plans:
            saved = self.place / f"{plan.policy}.json"
            plan.save(saved)
            run("plan", self.trace, "--policy", plan.policy, "--file", file, "--seed", "5", "-o", self.place / "command.json", cluster=self.cluster)
            self.assertEqual(json.loads(saved.read_text()), json.loads((self.place / "command.json").read_text()))
            self.assertEqual(stripewise.Plan(saved).to_dict(), plan.to_dict())
            self.assertIn(plan.policy, repr(plan))
            self.assertIn("predicted gain", plan._repr_html_())
        self.assertIn("<table>", plans._repr_html_())
        profile = stripewise.Profile(self.place / "profile.json")
        self.assertEqual([server["name"] for server in profile.servers], ["hdd0", "hdd1", "ssd0"])
        self.assertIn("ssd0", profile._repr_html_())
        with self.assertRaisesRegex(stripewise.StripewiseError, "h3dp"):
            stripewise.plan(self.trace, "h3dp", cluster=self.cluster)
        with self.assertRaisesRegex(stripewise.StripewiseError, "sead"):
            stripewise.plan(self.trace, "def", cluster=self.cluster, sead=5)
        if HAS_OTHERS:
            regions = plans[1].to_pandas()
            self.assertEqual(set(regions.path), {str(file)})
            self.assertEqual(regions.regions.sum() * MIB, 4 * MIB)
            self.assertTrue(regions.layout.str.fullmatch(r"(hdd[01]|ssd0) [0-9]+KiB(, (hdd[01]|ssd0) [0-9]+KiB)*").all())

    def test_simulations_are_those_of_the_command(self):
        found = stripewise.simulate(WORKLOAD, ["def", "h2dp"], servers=SERVERS, link="gigabit", region="1MiB", seed=7)
        output = self.place / "sim.json"
        run("simulate", WORKLOAD, "--policy", "def,h2dp", "--servers", SERVERS, "--link", "gigabit", "--region", "1MiB", "--seed", "7", "-o", output)
        self.assertEqual(found.to_dict(), json.loads(output.read_text()))
        found.save(self.place / "own.json")
        self.assertEqual(stripewise.Simulation.load(self.place / "own.json").mb_per_s(), found.mb_per_s())
        self.assertIn("simulated", found._repr_html_())
        page = stripewise.report(found)
        run("report", output, "-o", self.place / "report.html")
        self.assertEqual(page.html, (self.place / "report.html").read_text())
        self.assertIn("srcdoc", page._repr_html_())

    def test_advice_is_that_of_the_command(self):
        site = self.place / "site.toml"
        site.write_text(SITE)
        advice = stripewise.advise(self.trace, site, files=[self.place], least_size="0")
        printed = json.loads(run("--json", "advise", self.trace, "--site", site, "--file", self.place, "--least-size", "0"))
        self.assertEqual((advice.answer, advice.change, advice.why), (printed["answer"], printed["change"], printed["why"]))
        self.assertEqual(advice.to_dict()["export"], printed["export"])
        self.assertIn("<b>", advice._repr_html_())
        self.assertTrue(advice.script is None or advice.script.startswith("#!"))

    def test_children_of_fork_plan_and_simulate_as_their_parent_did(self):
        expected = answers(self.trace, self.cluster)
        receiving, sending = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(sending, b"same" if answers(self.trace, self.cluster) == expected else b"other")
            finally:
                os._exit(0)
        os.close(sending)
        with open(receiving, "rb") as pipe:
            answered = select.select([pipe], [], [], 300)[0]
            if not answered:
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            self.assertTrue(answered, "the child waits for ever")
            self.assertEqual(pipe.read(), b"same")
        with multiprocessing.get_context("fork").Pool(2) as pool:
            self.assertEqual(pool.starmap_async(answers, [(self.trace, self.cluster)] * 2).get(300), [expected] * 2)

    def test_ctrl_c_ends_the_wait_for_an_answer(self):
        """The answer never comes: the pipe that it is made of stays open, and nothing is written to it."""
        code = """
import os, stripewise, sys
receiving, sending = os.pipe()
print("begun", flush=True)
stripewise.plan(sys.argv[1], "def", cluster=sys.argv[2], profile=f"/dev/fd/{receiving}")
"""
        words = list(map(str, [sys.executable, "-c", code, self.trace, self.cluster]))
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
            self.assertEqual(program.stdout.readline(), "begun\n")
            time.sleep(0.5)
            program.send_signal(signal.SIGINT)
            try:
                said = program.communicate(timeout=30)[1]
            finally:
                program.kill()
        self.assertIn("KeyboardInterrupt", said)

    def test_other_threads_go_on_while_files_are_read(self):
        """The thread that writes the pipe can do so only while the one that reads it does not keep the interpreter."""
        plan = self.place / "read-plan.json"
        stripewise.plan(self.trace, "def", cluster=self.cluster, files=[self.place / "planned.bin"])[0].save(plan)
        code = """
import os, stripewise, sys, threading, time
for kind, source in ((stripewise.Plan, sys.argv[1]), (stripewise.Profile, sys.argv[2])):
    receiving, sending = os.pipe()
    reader = threading.Thread(target=lambda: print(kind(f"/dev/fd/{receiving}")._repr_html_() != ""))
    reader.start()
    # The other thread waits for the pipe by now.
    time.sleep(0.2)
    with open(source, "rb") as text, open(sending, "wb") as pipe:
        pipe.write(text.read())
    reader.join()
"""
        words = [sys.executable, "-c", code, plan, self.place / "profile.json"]
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (0, "True\nTrue\n"), done.stderr)

    @needs_others
    def test_plots_show_the_numbers_of_the_report(self):
        import matplotlib

        matplotlib.use("Agg")
        import numpy
        from stripewise import plots

        heat = plots.heat_data(self.trace)
        calls = stripewise.Trace(self.trace).to_pandas()
        written = calls[(calls.operation == "write") & calls.path.astype(str).str.endswith("planned.bin")]
        self.assertEqual(sum(map(sum, heat[0]["write"])), written.bytes.sum())
        drawn = plots.heat(self.trace, "write").images[0].get_array()
        self.assertEqual(numpy.nansum(drawn.filled(0)), written.bytes.sum())
        # The picture's own words say how much of the file its cells touch.
        page = stripewise.report(self.trace).html
        touched = round(100 * sum(any(row) for row in heat[0]["write"]) / len(heat[0]["write"]))
        self.assertIn(f"{touched} % of the file are touched", page)
        found = stripewise.simulate(WORKLOAD, ["def", "h2dp"], servers=SERVERS, region="1MiB")
        bars = [bar.get_width() for bar in plots.bandwidth(found).patches]
        self.assertEqual(bars, list(found.mb_per_s().values()))
        for run_ in found.runs:
            moved = sum((end - begin) * rate * 1e6 for begin, end, rate in plots.timeline_data(run_))
            self.assertAlmostEqual(moved, 16 * MIB, delta=1)
        self.assertEqual(len(plots.timeline(found).patches), 2)
        p50 = plots.latency(found).lines[0].get_xdata()[0]
        self.assertAlmostEqual(p50, found["def"]["outcome"]["read"]["latency"]["p50_s"] * 1e3)


    @needs_others
    def test_plots_of_plans_and_profiles_show_the_numbers_of_the_report(self):
        import matplotlib

        matplotlib.use("Agg")
        from stripewise import plots

        plans = stripewise.plan(self.trace, ["h2dp", "opt"], cluster=self.cluster, files=[self.place / "planned.bin"])
        profile = stripewise.Profile(self.place / "profile.json")
        page = html.unescape(stripewise.report(self.trace, profile, *plans).html)
        loads = plots.load_data(*plans)
        self.assertEqual(list(loads), ["def", "h2dp", "opt"])
        for policy, seconds in loads.items():
            for name, busy in seconds.items():
                self.assertIn(f"{name} under {policy}: {duration(busy)}<", page)
        drawn = [bar.get_width() for bar in plots.load(*plans).patches]
        self.assertEqual(drawn, [busy for seconds in loads.values() for busy in seconds.values()])

        for plan in plans:
            spans = plots.regions_data(plan)
            rows = plan.to_pandas()
            expected = {(row.offset, stripe) for row in rows.itertuples() for stripe in row.layout.split(", ")}
            self.assertEqual({(span["offset"], f"{span['server']} {span['stripe_bytes'] // 1024}KiB") for span in spans}, expected)
            self.assertEqual(len(plots.regions(plan).patches), len(spans))

        prices = plots.prices_data(plans[1])
        self.assertEqual([bar.get_width() for bar in plots.prices(plans[1]).patches], list(prices.values()))
        shown = set(re.findall("Device of [^:<]*: ([^<]*)<", page))
        self.assertTrue(shown and shown <= {number(round(price * 1000) / 1000) for price in prices.values()}, (shown, prices))
        with self.assertRaisesRegex(ValueError, "h2dp has no prices"):
            plots.prices(plans[0])

        for server, line in zip(profile.servers, plots.fits(profile, "write", "sequential").lines, strict=True):
            (first, last), (short, long) = line.get_xdata()[[0, -1]], line.get_ydata()[[0, -1]]
            per_byte = (long - short) / (last - first)
            self.assertEqual(line.get_label(), server["name"])
            if server["write_sequential"]["beta_s_per_byte"] > 0:
                self.assertAlmostEqual(per_byte / server["write_sequential"]["beta_s_per_byte"], 1, places=6)
                self.assertIn(number(1e-6 / server["write_sequential"]["beta_s_per_byte"]), page)

    @needs_others
    def test_the_pictures_of_the_page_on_plots_are_made_by_its_code(self):
        gallery = beside_the_package("gallery")
        place = self.place / "gallery"
        (place / "made").mkdir(parents=True)
        for name in ("cluster.toml", "profile.json"):
            shutil.copy(self.place / name, place)
        run_ = {"policy": "def", "op": "read", "request_bytes": 65536, "ranks": 4, "bytes": 1 << 30, "verified": True, "bandwidth_mb_s": 123.0}
        (place / "results.json").write_text(json.dumps({"version": 2, "emulated": True, "runs": [run_], "profile": {}, "cluster": {}}))
        names = {}
        with contextlib.chdir(place):
            gallery.trace()
            made = gallery.make(place / "made", names)
        self.assertEqual(sorted(os.listdir(place / "made")), sorted(made))
        plots = names["plots"]
        drawn = {f"plot-{name}.png" for name in plots.__all__ if not name.endswith("_data")}
        self.assertEqual(set(made), drawn, "a plot has no picture")
        for picture in made:
            stored = ROOT / "docs/gallery" / picture
            self.assertLess(stored.stat().st_size, 60_000, picture)
        # What was simulated is the same on every machine.
        from matplotlib.image import imread

        for name in ("bandwidth", "latency", "timeline"):
            new, stored = (imread(folder / f"plot-{name}.png") for folder in (place / "made", ROOT / "docs/gallery"))
            self.assertEqual(new.shape, stored.shape, name)
            self.assertLess(abs(new - stored).mean(), 0.002, f"{name}: crates/python/gallery.py makes it again")

    @needs_others
    def test_plots_of_measured_runs_show_the_numbers_of_the_report(self):
        import matplotlib

        matplotlib.use("Agg")
        from stripewise import plots

        run_ = {"op": "read", "request_bytes": 65536, "ranks": 4, "bytes": 1 << 30, "verified": True, "predicted_spread": 0.25}
        runs = [run_ | {"policy": "def", "bandwidth_mb_s": 123.0, "predicted_mb_s": 111.0}, run_ | {"policy": "opt", "bandwidth_mb_s": 456.0}]
        results = self.place / "results.json"
        results.write_text(json.dumps({"version": 2, "emulated": True, "runs": runs, "profile": {}, "cluster": {}}))
        axes = plots.measured(results)
        widths = [bar.get_width() for bar in axes.patches]
        page = stripewise.report(results).html
        self.assertEqual(widths, [123, 456])
        self.assertTrue(all(f"{width:.0f}" in page for width in widths))
        self.assertEqual([label.get_text() for label in axes.get_yticklabels()], ["def, 64 KiB", "opt, 64 KiB"])
        with self.assertRaisesRegex(stripewise.StripewiseError, "not what `stripewise demo` writes"):
            plots.measured(self.place / "profile.json")


def beside_the_package(name):
    """A program that lies in crates/python, as a module."""
    specification = importlib.util.spec_from_file_location(name, ROOT / f"crates/python/{name}.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def number(value):
    """As the report writes it: three digits."""
    size = abs(value)
    if size >= 100 or size == 0:
        return f"{round(value):,}"
    decimals = 1 if size >= 10 else 2 if size >= 1 else min(2 - math.floor(math.log10(size)), 9)
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def duration(seconds):
    """As the report writes it."""
    if seconds == 0:
        return "0 s"
    unit, name = next(((unit, name) for least, unit, name in ((7200, 3600, "h"), (120, 60, "min"), (1, 1, "s"), (1e-3, 1e-3, "ms")) if seconds >= least), (1e-6, "µs"))
    return f"{number(seconds / unit)} {name}"


@needs_others
class Documents(unittest.TestCase):
    def execute(self, name):
        """Runs the cells of a notebook, one after the other, and shows what each one ends with as a notebook would."""
        import ast

        import matplotlib

        matplotlib.use("Agg")
        os.environ["PATH"] = f"{PYTHON.parent}:{os.environ['PATH']}"
        names, shown = {"__name__": "__main__"}, []
        for cell in json.loads((ROOT / "docs/notebooks" / name).read_text())["cells"]:
            if cell["cell_type"] != "code":
                continue
            code = ast.parse("".join(cell["source"]))
            last = code.body.pop() if code.body and isinstance(code.body[-1], ast.Expr) else None
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(code, name, "exec"), names)
                value = eval(compile(ast.Expression(last.value), name, "eval"), names) if last else None
            shown.append(value._repr_html_() if hasattr(value, "_repr_html_") else repr(value))
            shown.append(printed.getvalue())
        return names, "\n".join(shown)

    def test_the_notebook_on_policies_runs(self):
        names, shown = self.execute("comparing-policies.ipynb")
        self.assertGreater(names["simulation"].mb_per_s()["opt"], names["simulation"].mb_per_s()["def"])
        self.assertIn("<iframe", shown)

    def test_the_notebook_on_a_log_runs(self):
        try:
            importlib.import_module("darshan")
        except ImportError:
            self.skipTest("no PyDarshan in .venv; setup/darshan installs it")
        names, shown = self.execute("from-a-log-to-a-layout.ipynb")
        self.assertIs(names["advice"].change, True)
        self.assertTrue("lay out 1 file again on Lustre" in shown and "lfs setstripe" in shown)

    def test_the_reference_is_that_of_the_docstrings(self):
        page, path = beside_the_package("reference").page(), ROOT / "docs/python-reference.md"
        if os.environ.get("STRIPEWISE_UPDATE_REFERENCE"):
            path.write_text(page)
        self.assertEqual(page, path.read_text(), "STRIPEWISE_UPDATE_REFERENCE=1 tests/python/test_answers.py writes it again")


if __name__ == "__main__":
    main()
