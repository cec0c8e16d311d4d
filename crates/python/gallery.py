"""Makes the pictures of docs/plots.md with the code that stands above each.

    PYTHONPATH=... crates/python/gallery.py

The page's code runs block after block, in a directory with a trace, an emulated cluster with its profile, and results of a small demonstration. tests/python does
so too, and compares the numbers of these plots with those of the report.
"""

import ast
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap

import matplotlib

matplotlib.use("Agg")

import stripewise  # noqa: E402

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
DOTS_PER_INCH = 80
PROGRAM = """
import os, random
file = os.open("field.bin", os.O_RDWR | os.O_CREAT)
for number in range(256):
    os.pwrite(file, bytes(65536), number * 65536)
for rank in range(16):
    if os.fork() == 0:
        own = os.open("field.bin", os.O_RDONLY)
        draw = random.Random(rank)
        for _ in range(60):
            os.pread(own, 65536, min(int(draw.paretovariate(0.5) - 1), 255) * 65536)
        os._exit(0)
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
"""


def blocks(page):
    """The code of each picture of the page, and the picture's name."""
    for part in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        code = textwrap.dedent("\n".join(line for line in part.splitlines() if line.startswith("    ") or not line.strip()))
        yield code.strip(), re.search(r"^!\[.*\]\(gallery/(.*)\)$", part, re.MULTILINE)[1]


def make(out, names=None):
    """Runs the page's code in the working directory and saves what each block ends with; returns the names of the pictures."""
    from matplotlib import pyplot

    made, names = [], {} if names is None else names
    for code, picture in blocks((DOCS / "plots.md").read_text()):
        tree = ast.parse(code)
        last = tree.body.pop()
        exec(compile(tree, picture, "exec"), names)
        axes = eval(compile(ast.Expression(last.value), picture, "eval"), names)
        axes.figure.savefig(out / picture, dpi=DOTS_PER_INCH)
        pyplot.close("all")
        made.append(picture)
    return made


def run(*words):
    subprocess.run([stripewise.command(), *map(str, words)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def trace():
    """A trace of 16 processes, some regions much read, in the working directory."""
    run("trace", "-o", "run.trace", "--", sys.executable, "-c", PROGRAM)


def prepare():
    """What the page's code reads, in the working directory."""
    trace()
    run("-C", "cluster.toml", "init", "--region", "1MiB", "--emulated", "4xhdd-7200:1GiB,2xnvme:4MiB", "--emulated-dir", "servers")
    run("-C", "cluster.toml", "calibrate", "--quick", "--seconds", "1")
    small = ("--size", "64MiB", "--region", "1MiB", "--ranks", "4", "--seconds", "1", "--live", "0")
    run("demo", "--emulated", "4xhdd-7200,2xsata-ssd-2012", *small, "--request", "64KiB,256KiB", "--policy", "def,h2dp,opt", "--out", ".")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="stripewise-gallery-") as place:
        os.chdir(place)
        prepare()
        for name in make(DOCS / "gallery"):
            print(name)
