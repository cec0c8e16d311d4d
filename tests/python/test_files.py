#!/usr/bin/env python3
"""Managed files from Python without redirection: `stripewise.open`.

    STRIPEWISE=target/debug/stripewise tests/python/test_files.py
"""

import contextlib
import errno
import io
import multiprocessing
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from package import MIB, SEED, STRIPEWISE, WORK, Cluster, OnCluster, main, run  # noqa: E402

import stripewise  # noqa: E402


def serves(process, cluster_file):
    """Whether the process was started as the cluster's broker."""
    with contextlib.suppress(OSError):
        return os.fsencode(f"--cluster\0{cluster_file}\0broker\0") in pathlib.Path(f"/proc/{process}/cmdline").read_bytes()
    return False


def brokers_of(cluster_file):
    """The processes that serve the cluster."""
    brokers = [int(name) for name in os.listdir("/proc") if name.isdigit() and serves(name, cluster_file)]
    assert brokers, f"no broker of {cluster_file}"
    return brokers


def kill_broker_of(cluster_file):
    """Kills the process that serves the cluster, and returns when it is gone."""
    for broker in brokers_of(cluster_file):
        os.kill(broker, signal.SIGKILL)
        while serves(broker, cluster_file):
            time.sleep(0.001)


class Files(OnCluster):
    def path(self):
        return self.cluster.data / self._testMethodName

    def assert_managed(self, path):
        self.assertEqual(os.stat(path).st_size, 1021, "the stub")
        self.assertIsNotNone(stripewise._files.status(path))

    def test_a_new_file_is_managed_and_read_by_every_way_in(self):
        path, data = self.path(), random.Random(SEED).randbytes(3 * MIB + 17)
        with stripewise.open(path, "wb") as file:
            self.assertIsInstance(file, io.BufferedWriter)
            self.assertEqual(file.write(data), len(data))
        self.assert_managed(path)
        with stripewise.open(path, "rb") as file:
            self.assertEqual(file.read(), data)
        with stripewise.open(path, "rb", 0) as file:
            buffer = bytearray(len(data) + 5)
            self.assertEqual(file.readinto(buffer), len(data))
            self.assertEqual((buffer[: len(data)], file.readinto(buffer)), (data, 0))
            self.assertEqual(file.read_at(MIB - 3, 7), data[MIB - 3 : MIB + 4])
            self.assertEqual((file.tell(), file.size), (len(data), len(data)))
        self.assertEqual(subprocess.run([stripewise.command(), "cat", path], capture_output=True).stdout, data)

    def test_reading_all_of_a_file_of_which_a_part_is_lost_is_an_error(self):
        """A call ends before the fault with what came before it, which is not all that there is."""
        alone = Cluster(WORK / "lost")
        path, data = alone.data / "file", random.Random(SEED).randbytes(2 * MIB)
        code = f"""
import stripewise, sys
with stripewise.open(sys.argv[1], "r+b", 0, cluster=sys.argv[2]) as file:
    file.seek({MIB})
    file.write(sys.stdin.buffer.read())
"""

        def objects():
            return {found for found in alone.file.parent.glob("*/stripewise-objects/**/*") if found.is_file()}

        with stripewise.open(path, "wb", 0, cluster=alone.file) as file:
            self.assertEqual(file.write(data[:MIB]), MIB)
        before = objects()
        # By another process, and read by others: whoever has an object open keeps it.
        subprocess.run(list(map(str, [sys.executable, "-c", code, path, alone.file])), input=data[MIB:], check=True, timeout=60)
        of_second = objects() - before
        self.assertTrue(before and of_second)

        def read(buffering, call):
            code = f"""
import errno, stripewise, sys
file = stripewise.open(sys.argv[1], "rb", {buffering}, cluster=sys.argv[2])
try:
    print(len(file.{call}))
except OSError as error:
    print(errno.errorcode[error.errno], file.tell())
"""
            words = list(map(str, [sys.executable, "-c", code, path, alone.file]))
            return subprocess.run(words, capture_output=True, text=True, timeout=60).stdout.strip()

        calls = [(-1, "read()"), (0, "read()"), (0, "readall()"), (0, "read(None)")]
        self.assertEqual([read(*call) for call in calls], [str(2 * MIB)] * len(calls))
        hidden = WORK / "lost-objects"
        hidden.mkdir()
        moved = [(found, hidden / str(number)) for number, found in enumerate(sorted(of_second))]
        for found, aside in moved:
            found.rename(aside)
        self.assertEqual([read(*call) for call in calls], ["EIO 0"] * len(calls))
        # Of so many bytes there may be fewer, as from any file.
        self.assertEqual(read(0, f"read({MIB + 5})"), str(MIB))
        for found, aside in moved:
            aside.rename(found)
        alone.check()

    def test_an_object_of_python_and_a_file_of_the_system_behave_alike(self):
        """Random calls on a managed file and on an ordinary one have the same answers, errors too."""
        source = random.Random(SEED)
        print("seed", SEED)
        ordinary = WORK / "alike"
        for mode in ("r+b", "w+b", "a+b", "x+b", "rb", "wb", "ab"):
            path = self.path().with_name(f"alike-{mode}")
            if "r" in mode:
                for each, opened in ((path, stripewise.open), (ordinary, open)):
                    with opened(each, "wb") as file:
                        file.write(b"begin" * 40_000)
            else:
                with contextlib.suppress(FileNotFoundError):
                    ordinary.unlink()
            with stripewise.open(path, mode, 0) as ours, open(ordinary, mode, 0) as theirs:
                # Asked before the first seek: if that fails, Python's own file takes itself for one that cannot.
                self.assertEqual(ours.seekable(), theirs.seekable())
                for _ in range(120):
                    self.same_step(source, ours, theirs)
            self.assert_managed(path)
            with stripewise.open(path, "rb") as ours:
                self.assertEqual(ours.read(), ordinary.read_bytes(), mode)

    def same_step(self, source, ours, theirs):
        size = source.choice((0, 1, 100, 4096, 70_000, 300_000))
        position, whence = source.randrange(600_000), source.choice((0, 0, 1, 2))
        data = source.randbytes(size)
        step = source.choice(
            (
                lambda file: file.read(size),
                lambda file: file.readinto(bytearray(size)),
                lambda file: file.write(data),
                lambda file: file.write(memoryview(data).cast("H")) if size % 2 == 0 else None,
                lambda file: file.seek(position if whence == 0 else -position if source else 0, whence),
                lambda file: file.tell(),
                lambda file: file.truncate(position),
                lambda file: file.truncate(),
                lambda file: (file.readable(), file.writable(), file.closed),
                lambda file: file.seek(0, 2),
            )
        )
        answers = []
        for file in (ours, theirs):
            try:
                answers.append(step(file))
            except (OSError, ValueError) as error:
                answers.append((type(error), getattr(error, "errno", None)))
        self.assertEqual(*answers)

    def test_text_and_buffered_modes_are_those_of_python(self):
        path = self.path()
        with stripewise.open(path, "w", encoding="utf-8") as file:
            file.write("α line\n" * 30_000)
        self.assert_managed(path)
        with stripewise.open(path, encoding="utf-8") as file:
            self.assertEqual(sum(line == "α line\n" for line in file), 30_000)
        with stripewise.open(path, "r+b") as file:
            file.seek(-6, 2)
            self.assertEqual(file.read(3), b" li")
            file.write(b"NE")
        with stripewise.open(path, "a") as file:
            file.write("end")
        with stripewise.open(path) as file:
            self.assertTrue(file.read().endswith(" liNE\nend"))
        for mode in ("", "rw", "rbt", "q", "rr", "b"):
            with self.assertRaises(ValueError):
                stripewise.open(path, mode)

    def test_what_is_not_managed_is_opened_by_python(self):
        ordinary = WORK / "ordinary"
        with stripewise.open(ordinary, "w") as file:
            file.write("x" * 1021)
        with stripewise.open(ordinary) as file:
            self.assertEqual((file.read(), file.fileno() > 2), ("x" * 1021, True))
        with self.assertRaises(FileNotFoundError) as caught:
            stripewise.open(self.path())
        self.assertEqual((caught.exception.errno, caught.exception.filename), (errno.ENOENT, str(self.path())))
        with self.assertRaises(IsADirectoryError):
            stripewise.open(self.cluster.data, "wb")
        with stripewise.open(self.path(), "xb"):
            pass
        with self.assertRaises(FileExistsError):
            stripewise.open(self.path(), "xb")

    def test_a_closed_file_refuses_and_names_no_descriptor(self):
        with stripewise.open(self.path(), "w+b", 0) as file:
            self.assertRaises(io.UnsupportedOperation, file.fileno)
        calls = [file.read, file.readall, file.tell, file.readable, file.fileno, file.truncate, file.sync]
        calls += [lambda: file.write(b"x"), lambda: file.write_at(0, b"x"), lambda: file.seek(0), lambda: file.read_at(0, 1)]
        calls += [lambda: file.readinto(bytearray(1)), lambda: file.readinto_at(0, bytearray(1))]
        for call in calls:
            self.assertRaises(ValueError, call)
        self.assertIn("closed", repr(file))
        file.close()
        with stripewise.open(self.path(), "rb", 0) as file:
            self.assertRaises(io.UnsupportedOperation, file.write, b"x")
            self.assertRaises(BufferError, file.readinto, b"not writable")
            self.assertRaises(TypeError, file.readinto, 5)

    def test_the_locks_by_which_this_process_lives_outlast_a_look_at_the_state_directory(self):
        table = self.cluster.file.parent / "stripewise-state/run/processes"

        def held():
            with open("/proc/locks", encoding="ascii") as locks:
                return [line for line in locks if f" {os.getpid()} " in line and f":{table.stat().st_ino} " in line]

        with stripewise.open(self.path(), "w+b", 0) as file:
            file.write(b"x")
            before = held()
            self.assertTrue(before)
            self.assertIsNone(stripewise._files.status(table))
            for mode in ("rb", "r+b", "r"):
                self.assertRaises(PermissionError, stripewise.open, table, mode)
            self.assertEqual(held(), before)

    def test_a_class_of_its_own_has_its_own_calls(self):
        class Counted(stripewise.ManagedFile):
            reads = 0

            def readinto(self, buffer, /):
                self.reads += 1
                return super().readinto(buffer)

        with stripewise.open(self.path(), "w+b", 0) as file:
            file.write(b"0123456789")
            counted, buffer = Counted(file._file, "r+b"), bytearray(4)
            counted.seek(2)
            self.assertEqual((counted.readinto(buffer), bytes(buffer), counted.reads), (4, b"2345", 1))
            self.assertEqual((counted.read(2), counted.read(None), counted.read()), (b"67", b"89", b""))
            counted.close()

    def test_threads_share_a_file_and_one_may_close_it(self):
        path, blocks, size = self.path(), 64, 40_000
        with stripewise.open(path, "w+b", 0) as file:

            def write(first):
                for number in range(first, blocks, 4):
                    self.assertEqual(file.write_at(number * size, bytes([number]) * size), size)

            threads = [threading.Thread(target=write, args=(first,)) for first in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            # In turn: each block comes to one thread, whole.
            seen, lock = [], threading.Lock()

            def read():
                buffer = bytearray(size)
                while file.readinto(buffer):
                    with lock:
                        seen.append((buffer[0], len(set(buffer))))

            threads = [threading.Thread(target=read) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(sorted(seen), [(number, 1) for number in range(blocks)])
            ended = []

            def read_until_closed():
                try:
                    while True:
                        file.read_at(0, blocks * size)
                except ValueError:
                    ended.append(True)

            threads = [threading.Thread(target=read_until_closed) for _ in range(3)]
            for thread in threads:
                thread.start()
            file.close()
            for thread in threads:
                thread.join(30)
            self.assertEqual(ended, [True] * 3)

    def test_closing_waits_for_what_another_thread_has_under_way(self):
        alone = Cluster(WORK / "closing")
        file = stripewise.open(alone.data / "file", "wb", 0, cluster=alone.file)
        file.write(b"begin")
        begun, ended = threading.Event(), []

        def write():
            begun.set()
            # A new region: the broker, which is stopped, has to place it.
            ended.append(file.write_at(MIB, b"end"))

        def close():
            file.close()
            ended.append("closed")

        writer, closer = threading.Thread(target=write), threading.Thread(target=close)
        # The writer keeps the interpreter from the event to its request.
        self.addCleanup(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(10)
        brokers = brokers_of(alone.file)
        try:
            for broker in brokers:
                os.kill(broker, signal.SIGSTOP)
            writer.start()
            begun.wait()
            time.sleep(0.1)
            closer.start()
            closer.join(0.5)
            self.assertEqual((ended, closer.is_alive()), ([], True))
        finally:
            for broker in brokers:
                os.kill(broker, signal.SIGCONT)
        writer.join(60)
        closer.join(60)
        self.assertEqual(sorted(map(str, ended)), ["3", "closed"])
        self.assertRaises(ValueError, file.tell)
        with stripewise.open(alone.data / "file", "rb", cluster=alone.file) as again:
            self.assertEqual(again.read()[MIB:], b"end")
        alone.check()

    def test_children_of_fork_use_what_is_open_and_open_more(self):
        path = self.path()
        stop = threading.Event()
        with stripewise.open(path, "w+b", 0) as file:
            file.write(b"parent" * 1000)

            def busy():
                while not stop.is_set():
                    file.read_at(0, 6000)

            thread = threading.Thread(target=busy)
            thread.start()
            context = multiprocessing.get_context("fork")

            def child(number):
                assert file.read_at(0, 6) == b"parent"
                file.write_at(10_000 + number, bytes([number]))
                with stripewise.open(path.with_name(f"{path.name}-{number}"), "wb") as own:
                    own.write(b"child")

            children = [context.Process(target=child, args=(number,)) for number in range(1, 5)]
            for process in children:
                process.start()
            for process in children:
                process.join(60)
            stop.set()
            thread.join()
            self.assertEqual([process.exitcode for process in children], [0] * 4)
            self.assertEqual(file.read_at(10_001, 4), bytes([1, 2, 3, 4]))
        for number in range(1, 5):
            with stripewise.open(path.with_name(f"{path.name}-{number}"), "rb") as own:
                self.assertEqual(own.read(), b"child")

    def test_a_stub_is_enough_where_a_broker_serves_and_else_the_cluster_starts_one(self):
        alone = Cluster(WORK / "alone")
        path = alone.data / "file"
        run("run", "--", "sh", "-c", f"echo found > {path}", cluster=alone.file)
        code = "import stripewise, sys; print(stripewise.open(sys.argv[1], cluster=(sys.argv[2:] or [None])[0]).read())"
        environment = {name: value for name, value in os.environ.items() if name != "STRIPEWISE_CLUSTER"}

        def read(*words):
            command = [sys.executable, "-c", code, *map(str, words)]
            return subprocess.run(command, env=environment, capture_output=True, text=True, cwd="/", timeout=60)

        refused = read(path)
        self.assertIn("ConnectionRefusedError", refused.stderr)
        self.assertIn("name its cluster file", refused.stderr)
        served = read(path, alone.file)
        self.assertEqual((served.returncode, served.stdout), (0, "found\n\n"), served.stderr)
        with subprocess.Popen([stripewise.command(), "-C", alone.file, "run", "--", "cat"], stdin=subprocess.PIPE) as holder:
            # As soon as it is the broker.
            while (found := read(path)).returncode:
                self.assertIn("ConnectionRefusedError", found.stderr)
                self.assertIsNone(holder.poll())
            holder.stdin.close()

    def test_a_broker_that_is_killed_is_started_again(self):
        alone = Cluster(WORK / "killed")
        path = alone.data / "file"
        first, second = random.Random(SEED).randbytes(MIB), random.Random(SEED + 1).randbytes(MIB)

        with stripewise.open(path, "w+b", 0, cluster=alone.file) as file:
            self.assertEqual(file.write(first), MIB)
            file.sync()
            kill_broker_of(alone.file)
            # A new region: the broker has to place it.
            self.assertEqual(file.write_at(MIB, second), MIB)
            file.sync()
            self.assertEqual(file.read_at(0, 2 * MIB), first + second)
            kill_broker_of(alone.file)
            with stripewise.open(path, "rb", cluster=alone.file) as again:
                self.assertEqual(again.read(), first + second)
            kill_broker_of(alone.file)
            with stripewise.open(alone.data / "new", "wb", cluster=alone.file) as new:
                new.write(b"new")
            # A child starts one too, though its parent's is not its child.
            kill_broker_of(alone.file)
            child = multiprocessing.get_context("fork").Process(target=lambda: file.write_at(2 * MIB, b"child"))
            child.start()
            child.join(60)
            self.assertEqual((child.exitcode, file.read_at(2 * MIB, 5)), (0, b"child"))
        alone.check()

    def test_a_process_with_files_of_two_clusters_forks(self):
        second = Cluster(WORK / "second")
        with stripewise.open(self.path(), "w+b", 0) as one, stripewise.open(second.data / "file", "w+b", 0, cluster=second.file) as two:

            def child():
                for file in (one, two):
                    file.write_at(MIB, b"child")
                with stripewise.open(second.data / "more", "wb", cluster=second.file) as more:
                    more.write(b"more")

            # One that waits for ever in the fork is ended by the limit of tests/limited.py.
            process = multiprocessing.get_context("fork").Process(target=child)
            process.start()
            process.join(60)
            self.assertEqual((process.exitcode, one.read_at(MIB, 5), two.read_at(MIB, 5)), (0, b"child", b"child"))
        second.check()

    def test_files_that_are_left_open_are_closed_at_the_end_though_their_broker_was_killed(self):
        alone = Cluster(WORK / "left")
        path = alone.data / "file"
        code = """
import stripewise, sys
file = stripewise.open(sys.argv[1], "wb", 0, cluster=sys.argv[2])
file.write(b"begin")
print("open", flush=True)
sys.stdin.read()
file.write_at(1 << 20, b"end")
"""
        command = list(map(str, [sys.executable, "-X", "dev", "-c", code, path, alone.file]))
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
            self.assertEqual(program.stdout.readline(), "open\n", "see its errors")
            kill_broker_of(alone.file)
            said = program.communicate(timeout=60)[1]
        self.assertEqual(program.returncode, 0, said)
        self.assertIn("ResourceWarning: unclosed file", said)
        self.assertNotIn("ImportError", said)
        with stripewise.open(path, "rb", cluster=alone.file) as file:
            self.assertEqual((file.read(5), file.seek(1 << 20), file.read()), (b"begin", 1 << 20, b"end"))

    def test_where_no_broker_can_be_started_the_error_says_what_to_do(self):
        alone = Cluster(WORK / "unserved")
        code = "import stripewise, sys; stripewise.open(sys.argv[1], 'wb', cluster=sys.argv[2])"

        def refused(command):
            words = [sys.executable, "-c", code, str(alone.data / "file"), str(alone.file)]
            found = subprocess.run(words, env={**os.environ, "STRIPEWISE_COMMAND": command}, capture_output=True, text=True, timeout=60)
            self.assertIn("ConnectionRefusedError", found.stderr)
            return found.stderr

        self.assertRegex(refused("/nowhere/stripewise"), "cannot start /nowhere/stripewise as a broker: .*; name the command in STRIPEWISE_COMMAND")
        self.assertRegex(refused("/bin/false"), f"`stripewise -C {alone.file} broker` ended with exit status: 1; run it to see why")

    def test_ctrl_c_ends_the_wait_for_a_broker_that_does_not_come(self):
        alone = Cluster(WORK / "waiting")
        command, started = WORK / "sleeping", WORK / "sleeping-started"
        command.write_text(f"#!/bin/sh\necho $$ > {started}.new\nmv {started}.new {started}\nexec sleep 60\n")
        command.chmod(0o755)
        code = "import stripewise, sys; stripewise.open(sys.argv[1], 'wb', cluster=sys.argv[2])"
        words = [sys.executable, "-c", code, str(alone.data / "file"), str(alone.file)]
        with subprocess.Popen(words, env={**os.environ, "STRIPEWISE_COMMAND": str(command)}, stderr=subprocess.PIPE, text=True) as program:
            while not started.exists():
                self.assertIsNone(program.poll())
                time.sleep(0.01)
            begin = time.monotonic()
            program.send_signal(signal.SIGINT)
            said = program.communicate(timeout=60)[1]
        os.kill(int(started.read_text()), signal.SIGKILL)
        self.assertIn("KeyboardInterrupt", said)
        # Without it the broker is waited for for 30 seconds.
        self.assertLess(time.monotonic() - begin, 20)

    def test_a_path_may_be_of_bytes_and_a_damaged_stub_is_an_error_of_its_file(self):
        path, ordinary = self.path(), WORK / "of-bytes"
        for each in (path, ordinary):
            with stripewise.open(os.fsencode(each), "wb", 0) as file:
                file.write(b"bytes")
            with stripewise.open(os.fsencode(each), "rb") as file:
                self.assertEqual((os.fsdecode(file.name), file.read()), (str(each), b"bytes"))
        self.assert_managed(path)
        damaged = path.with_name("damaged")
        damaged.write_bytes(path.read_bytes().replace(b"\ncluster", b"\nclutter"))
        with self.assertRaisesRegex(OSError, "damaged stripewise stub .*stripewise check") as caught:
            stripewise.open(damaged, "rb")
        self.assertEqual((caught.exception.errno, caught.exception.filename), (errno.EIO, str(damaged)))
        damaged.unlink()

    def test_a_file_may_be_removed_and_renamed(self):
        path, other = self.path(), self.path().with_name("other")
        for each, text in ((path, b"one"), (other, b"other")):
            with stripewise.open(each, "wb") as file:
                file.write(text)
        stripewise._files.rename(path, other)
        self.assertFalse(path.exists())
        with stripewise.open(other, "rb") as file:
            self.assertEqual(file.read(), b"one")
        # The data of what a link takes the name of are freed all the same: the check at the end would find them.
        link = path.with_name("link")
        link.symlink_to("nowhere")
        stripewise._files.rename(link, other)
        self.assertTrue(other.is_symlink())
        stripewise._files.remove(other)
        self.assertFalse(other.is_symlink())
        with stripewise.open(path, "wb") as file:
            file.write(b"removed")
        stripewise._files.remove(path)
        self.assertFalse(path.exists())

    def test_under_redirection_pythons_own_open_is_used(self):
        path = self.path()
        with stripewise.open(path, "wb") as file:
            file.write(b"redirected")
        code = "import stripewise, sys, io; f = stripewise.open(sys.argv[1], 'rb'); print(type(f.raw) is io.FileIO, f.read())"
        self.assertEqual(run("run", "--", sys.executable, "-c", code, path, cluster=self.cluster.file).strip(), "True b'redirected'")

    def test_copies_of_the_code_in_one_process_keep_each_others_locks(self):
        """The module's beside that of redirection; and another library of redirection, which connects first and is not what libc's calls come to."""
        table = self.cluster.file.parent / "stripewise-state/run/processes"
        code = textwrap.dedent("""
            import ctypes, os, sys, stripewise
            kind, inode, path, copied = sys.argv[1:]
            def held():
                with open("/proc/locks", encoding="ascii") as locks:
                    ranges = [line.split()[-2:] for line in locks if f" {os.getpid()} " in line and f":{inode} " in line]
                return sum(int(end) - int(start) + 1 for start, end in ranges)
            stripewise._files._is_redirected = lambda: False
            with open(f"{path}-{kind}", "wb") if kind == "module" else open(os.devnull):
                other = ctypes.CDLL(copied).open(path.encode(), os.O_RDONLY) if kind == "library" else stripewise.open(path, "rb")
                assert other != -1
                before = held()
                with open(f"{path}-{kind}", "wb") as file:
                    file.write(b"x")
            low = [number for number in map(int, os.listdir("/proc/self/fd")) if number < 64]
            tables = [n for n in low if os.path.exists(f"/proc/self/fd/{n}") and os.stat(f"/proc/self/fd/{n}").st_ino == int(inode)]
            print(before, held(), tables)
        """)
        copied = WORK / "copied.so"
        shutil.copy(STRIPEWISE.parent / "libstripewise_preload.so", copied)
        with stripewise.open(self.path(), "wb"):
            for kind, before in (("module", 2), ("library", 1)):
                words = (kind, table.stat().st_ino, self.path(), copied)
                printed = run("run", "--", sys.executable, "-c", code, *words, cluster=self.cluster.file).strip()
                self.assertEqual(printed, f"{before} 2 []", kind)


if __name__ == "__main__":
    main()
