"""The runner itself: that it fails when it should. Stand-ins for the stripewise command do each one thing wrong."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True
import run  # noqa: E402

STAND_IN = """#!/bin/sh
# Takes: -C CLUSTER COMMAND ...
shift 2
command=$1
shift
case $command in
    init | manage) exit 0 ;;
    cat) exec cat "$1" ;;
    run)
        shift
        {wrong}
        exec "$@" ;;
esac
"""


def outcome(wrong: str, *options: str) -> subprocess.CompletedProcess:
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "stripewise"
        path.write_text(STAND_IN.format(wrong=wrong))
        path.chmod(0o755)
        return subprocess.run([sys.executable, str(HERE / "run.py"), "--only", "posix/open_flags/plain", *options],
                              env={**os.environ, "STRIPEWISE": str(path)}, capture_output=True, text=True)


class Stages(unittest.TestCase):
    def failed(self, wrong: str, message: str) -> None:
        result = outcome(wrong)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertIn("0 passed, 1 failed, 0 skipped", result.stdout)
        self.assertIn(message, result.stdout)

    def test_a_run_that_redirects_nothing_fails(self):
        self.failed(":", "was not redirected")

    def test_a_changed_output_fails(self):
        self.failed('case $1 in *open_flags*) echo extra ;; esac', "transcript differs")

    def test_a_changed_status_fails(self):
        self.failed('case $1 in *open_flags*) "$@"; exit 3 ;; esac', "+exit status 3")

    def test_a_changed_file_fails(self):
        self.failed('case $1 in *open_flags*) "$@"; printf x >> b; exit 0 ;; esac', "files left differs")

    def test_an_added_file_fails(self):
        self.failed('case $1 in *open_flags*) "$@"; : > more; exit 0 ;; esac', "+more")

    def test_a_missing_command_is_an_error(self):
        result = subprocess.run([sys.executable, str(HERE / "run.py")], env={**os.environ, "STRIPEWISE": "/none/stripewise"},
                                capture_output=True, text=True)
        self.assertEqual(result.returncode, 2)
        self.assertIn("no such program", result.stderr)

    def test_two_bare_runs_pass(self):
        result = outcome(":", "--bare-twice")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("1 passed, 0 failed, 0 skipped", result.stdout)


class Comparison(unittest.TestCase):
    def test_only_documented_results_of_tagged_lines_may_differ(self):
        run.compare("t", "a\n~mmap_shared_write ok\n", "a\n~mmap_shared_write ENODEV\n")
        for other in ("a\n~mmap_shared_write EPERM\n", "a\n~sendfile EINVAL\n", "a\n~unknown ENODEV\n", "a\n", "b\n~mmap_shared_write ok\n"):
            with self.assertRaises(run.Failed):
                run.compare("t", "a\n~mmap_shared_write ok\n", other)

    def test_a_command_that_hangs_is_ended(self):
        with tempfile.TemporaryDirectory() as directory, self.assertRaisesRegex(run.Failed, "not done after"):
            run.execute(["sh", "-c", "sleep 600 & wait"], pathlib.Path(directory), {"PATH": os.environ["PATH"]}, 0.2)


if __name__ == "__main__":
    unittest.main()
