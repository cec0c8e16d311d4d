#!/usr/bin/env python3
"""What `pip install` gives: the wheel that packaging/wheel makes, in an environment of its own, and the types of the package.

    STRIPEWISE=target/debug/stripewise tests/python/test_wheel.py

The module is the one that cargo has built already: a program in the place of cargo hands it to maturin.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from package import HAS_OTHERS, MODULE, PACKAGE, PYTHON, ROOT, STRIPEWISE, WORK, main  # noqa: E402

CRATE = ROOT / "crates" / "python"
MATURIN = PYTHON.with_name("maturin")
CARGO = """\
#!/bin/sh
case " $* " in
*" rustc "* | *" build "*) echo "$@" > {log}; cat {artifact} ;;
*) exec {cargo} "$@" ;;
esac
"""


def call(*words, **options):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=120, **options)
    if done.returncode:
        raise AssertionError(f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def has_debug_information(path):
    return re.search(r" \.debug_(info|line) ", call("readelf", "--section-headers", "--wide", path)) is not None


@unittest.skipUnless(HAS_OTHERS and MATURIN.exists(), "no maturin in .venv; setup/python installs it")
@unittest.skipUnless(shutil.which("cargo") and shutil.which("strip") and shutil.which("readelf"), "no cargo, or no binutils")
class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = WORK / "wheel"
        (cls.place / "bin").mkdir(parents=True)
        module, cls.log = cls.place / MODULE.name, cls.place / "cargo.log"
        call("strip", "-o", module, MODULE)
        metadata = json.loads(call("cargo", "metadata", "--no-deps", "--offline", "--format-version", "1", cwd=CRATE))
        built = next(package for package in metadata["packages"] if package["name"] == "stripewise-python")
        profile = {"opt_level": "0", "debuginfo": 0, "debug_assertions": False, "overflow_checks": False, "test": False}
        artifact = {"reason": "compiler-artifact", "package_id": built["id"], "manifest_path": built["manifest_path"], "target": built["targets"][0]}
        artifact |= {"profile": profile, "features": [], "filenames": [str(module)], "executable": None, "fresh": True}
        (cls.place / "artifact.json").write_text(json.dumps(artifact) + "\n")
        cargo = cls.place / "bin" / "cargo"
        cargo.write_text(CARGO.format(log=cls.log, artifact=cls.place / "artifact.json", cargo=shutil.which("cargo")))
        cargo.chmod(0o755)
        environment = {name: value for name, value in os.environ.items() if name not in ("CARGO", "PYTHONPATH")}
        environment["PATH"] = f"{cls.place / 'bin'}:{MATURIN.parent}:{os.environ['PATH']}"
        cls.environment = environment
        printed = call(ROOT / "packaging/wheel", STRIPEWISE.parent, cls.place / "out", env=environment)
        cls.wheel = pathlib.Path(printed.strip())
        cls.installed = cls.place / "installed"
        call(PYTHON, "-m", "venv", "--without-pip", cls.installed)
        cls.pip("install", "--no-deps", "--no-index", "--no-compile", cls.wheel)

    @classmethod
    def pip(cls, command, *words):
        pip = [PYTHON, "-m", "pip", "--python", cls.installed, "--disable-pip-version-check", command]
        return call(*pip, *words, env=cls.environment)

    def python(self, *words, **options):
        return call(self.installed / "bin/python", *words, env=self.environment, cwd=self.place, **options)

    def test_it_is_for_every_python_from_3_11_and_has_all_of_the_package(self):
        name = self.wheel.name
        # `make wheel` builds with zig for an older glibc, and names that.
        self.assertRegex(name, r"^stripewise-[0-9.]+-cp311-abi3-linux_x86_64\.whl$")
        with zipfile.ZipFile(self.wheel) as wheel:
            names = set(wheel.namelist())
            metadata = next(name for name in names if name.endswith(".dist-info/METADATA"))
            text = wheel.read(metadata).decode()
        self.assertIn("Requires-Python: >=3.11", text)
        self.assertIn("Provides-Extra: arrow", text)
        sources = {f"stripewise/{file.name}" for file in PACKAGE.iterdir() if file.suffix in (".py", ".pyi", ".typed")}
        self.assertLessEqual(sources | {"stripewise/_stripewise.abi3.so", "stripewise/bin/libstripewise_preload.so"}, names)
        self.assertFalse([name for name in names if "__pycache__" in name])

    def test_an_older_glibc_and_an_older_python_are_refused_by_name(self):
        named = self.place / "stripewise-0.1.0-cp311-abi3-manylinux_2_28_x86_64.whl"
        shutil.copy(self.wheel, named)
        self.addCleanup(named.unlink)
        wanted = ("--dry-run", "--no-deps", "--no-index", "--only-binary=:all:", "--target", self.place / "nowhere", named)
        self.assertIn("Would install stripewise", self.pip("install", "--platform", "manylinux_2_28_x86_64", *wanted))
        for words in (("--platform", "manylinux_2_17_x86_64"), ("--platform", "manylinux_2_28_x86_64", "--python-version", "3.10")):
            with self.assertRaisesRegex(AssertionError, f"{named.name} is not a supported wheel on this platform"):
                self.pip("install", *words, *wanted)

    def test_nothing_in_it_holds_debug_information_and_programs_may_be_run(self):
        package = pathlib.Path(self.python("-c", "import stripewise; print(stripewise.__path__[0])").strip())
        self.assertTrue(package.is_relative_to(self.installed), package)
        self.assertTrue((package / "py.typed").exists())
        # The module is stripped by cargo, which stood aside here.
        self.assertIn("strip=symbols", self.log.read_text())
        for file in ("bin/stripewise", "bin/libstripewise_preload.so"):
            self.assertFalse(has_debug_information(package / file), file)
        self.assertTrue(has_debug_information(STRIPEWISE), "what it was made of")
        self.assertTrue(os.access(package / "bin/stripewise", os.X_OK))

    def test_the_command_is_installed_by_both_its_names(self):
        version = call(STRIPEWISE, "--version")
        for command in ([self.installed / "bin/stripewise"], [self.installed / "bin/python", "-m", "stripewise"]):
            self.assertEqual(call(*command, "--version", env=self.environment), version)
        # It finds the library that it preloads.
        code = "import os; print('libstripewise_preload' in open('/proc/self/maps').read())"
        trace = self.place / "wheel.trace"
        self.assertIn("True", call(self.installed / "bin/stripewise", "trace", "-o", trace, "--", sys.executable, "-c", code, env=self.environment))
        print_all = "import stripewise; print(stripewise.__version__, len(stripewise.Trace('wheel.trace')) > 0)"
        self.assertEqual(self.python("-c", print_all).split(), [version.split()[1], "True"])
        entry = "from importlib.metadata import entry_points; print(*(point.value for point in entry_points(group='fsspec.specs')))"
        self.assertEqual(self.python("-c", entry).strip(), "stripewise.fsspec.StripewiseFileSystem")

    def test_its_import_is_quick(self):
        # Bytes of the debug module are many; the time of the processor is what a release has in common with it, the best of some.
        code = "import resource, stripewise; print(resource.getrusage(resource.RUSAGE_SELF).ru_utime)"
        bare = "import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_utime)"
        best = [min(float(self.python("-c", each)) for _ in range(4)) for each in (code, bare)]
        self.assertLess(best[0] - best[1], 0.2)


PROGRAM = """\
import io
from typing import IO, Any, assert_type

import stripewise
from stripewise import plots


def files(mode: str) -> int:
    assert_type(stripewise.open("f"), io.TextIOWrapper)
    assert_type(stripewise.open("f", "w", encoding="utf-8"), io.TextIOWrapper)
    assert_type(stripewise.open("f", "wb"), io.BufferedWriter)
    assert_type(stripewise.open(b"f", "r+b"), io.BufferedRandom)
    assert_type(stripewise.open("f", mode), IO[Any] | stripewise.ManagedFile)
    raw = stripewise.open("f", "rb", 0, cluster="cluster.toml")
    assert_type(raw, stripewise.ManagedFile | io.FileIO)
    with stripewise.open("f", "rb") as file:
        assert_type(file, io.BufferedReader)
        return file.readinto(bytearray(16))


def answers() -> str:
    trace = stripewise.Trace("run.trace")
    plans = stripewise.plan(trace.path, ["def", "opt"], cluster="cluster.toml", seed=5)
    for plan in plans:
        assert_type(plan, stripewise.Plan)
    simulation = stripewise.simulate(trace, "opt", plans=plans[:1], servers="2xhdd-7200")
    assert_type(simulation.mb_per_s(), dict[str, float])
    assert_type(stripewise.policies()[0].name, str)
    plots.timeline(simulation).set_title("over time")
    return stripewise.report(trace, *plans, simulation).html
"""


@unittest.skipUnless(HAS_OTHERS and PYTHON.with_name("mypy").exists(), "no mypy in .venv; setup/python installs it")
class Types(unittest.TestCase):
    def test_the_package_and_a_program_that_uses_it_are_typed_strictly(self):
        program = WORK / "program.py"
        program.write_text(PROGRAM)
        check = [PYTHON, "-m", "mypy", "--config-file", CRATE / "pyproject.toml", "--cache-dir", WORK / "mypy"]
        call(*check, PACKAGE, program, env={**os.environ, "MYPYPATH": str(PACKAGE.parent)})
        program.write_text(PROGRAM + '\n\nfiles(5)\nassert_type(stripewise.policies(), int)\n')
        with self.assertRaises(AssertionError) as caught:
            call(*check, PACKAGE, program, env={**os.environ, "MYPYPATH": str(PACKAGE.parent)})
        self.assertIn("Found 2 errors in 1 file", str(caught.exception))

    def test_the_stub_of_the_module_is_that_of_the_module(self):
        call(PYTHON, "-m", "mypy.stubtest", "stripewise._stripewise", "--mypy-config-file", CRATE / "pyproject.toml", env={**os.environ, "MYPYPATH": str(PACKAGE.parent)})


if __name__ == "__main__":
    main()
