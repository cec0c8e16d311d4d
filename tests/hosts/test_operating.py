#!/usr/bin/env python3
"""Operating a cluster of several hosts: what `stat --cluster` and metrics say, and what opens, reads and writes cost in messages.

    STRIPEWISE=target/debug/stripewise tests/hosts/test_operating.py [NAME...]

Exit status 0 where hosts or an etcd cannot be had: the tests skip then, and say why.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
import bed as beds  # noqa: E402
from test_sharing import REGION, STRIPEWISE, WAIT_SECONDS, Cluster, Worker  # noqa: E402

# Reads commands from standard input and answers each by one line.
PROGRAM = r"""
import os, random, sys
path, descriptor = sys.argv[1], None
for line in sys.stdin:
    word, *numbers = line.split()
    numbers = [int(number) for number in numbers]
    try:
        answer = "ok"
        if word == "open":
            descriptor = os.open(path, os.O_RDWR)
        elif word == "create":
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        elif word == "close":
            os.close(descriptor)
        elif word == "write":
            offset, length = numbers
            assert os.pwrite(descriptor, bytes([length % 251]) * length, offset) == length
        elif word == "read":
            offset, length = numbers
            assert len(os.pread(descriptor, length, offset)) == length
        elif word == "many":
            # As many reads and as many writes, below a size that is known here.
            count, size, seed = numbers
            choose = random.Random(seed)
            for _ in range(count):
                length = choose.choice((1, 512, 4096, 65_537))
                offset = choose.randrange(size - length)
                assert os.pwrite(descriptor, bytes([seed]) * length, offset) == length
                assert len(os.pread(descriptor, length, choose.randrange(size - length))) == length
        elif word == "sync":
            os.fsync(descriptor)
        elif word == "sync_all":
            os.sync()
    except (OSError, AssertionError) as error:
        answer = f"error {error!r}"
    print(answer, flush=True)
"""

SAMPLE = re.compile(r"^(\w+?)(?:\{(.*)\})? ([0-9.e+-]+)$")


class Program(Worker):
    """As `Worker`, with words of its own."""

    def __init__(self, cluster, host, path):
        argv = [STRIPEWISE, "run", "--", sys.executable, "-c", PROGRAM, path]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        env = cluster.env_of(host) if isinstance(cluster, OwnFiles) else cluster.env
        self.host, self.process = host, cluster.bed.start(host, argv, env=env, **pipes)


def end(process):
    """Waits for the end of a program whose input has ended, and kills it if that does not come."""
    try:
        process.wait(WAIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Operating(unittest.TestCase):
    HOSTS = 2

    @classmethod
    def setUpClass(cls):
        try:
            cls.bed = cls.enterClassContext(beds.Bed(hosts=cls.HOSTS))
            cls.cluster = Cluster(cls.bed)
        except beds.Unavailable as why:
            raise unittest.SkipTest(str(why)) from None

    def program(self, host, name):
        program = Program(self.cluster, host, str(self.cluster.directory / name))
        # Until its agent has ended too, which the next test's may not meet.
        self.addCleanup(end, program.process)
        self.addCleanup(program.process.stdout.close)
        self.addCleanup(program.process.stdin.close)
        return program

    def does(self, program, *words):
        self.assertEqual(program.ask(*words), "ok", f"{words} on host {program.host}")

    def agents(self, *hosts):
        """A program on each host that does nothing: its agent lives as long, and the first is master."""
        programs = []
        for host in hosts:
            programs.append(self.program(host, "idle"))
            # Its agent serves when it has answered.
            self.does(programs[-1], "nothing")
        return programs

    def stat(self, host):
        return json.loads(self.cluster.stripewise(host, "stat", "--cluster", "--json"))

    def samples(self, host):
        """Metrics of a host's agent by name and labels."""
        text = self.cluster.stripewise(host, "host", "metrics")
        found = (SAMPLE.match(line) for line in text.splitlines() if not line.startswith("#"))
        return {(match[1], match[2] or ""): float(match[3]) for match in found}

    def questions(self, host):
        """How many questions the host's agent asked and heard, by direction and kind. `hello` is of programs that begin, such as the one that
        asks for this."""
        counted = {}
        for (name, labels), value in self.samples(host).items():
            if name == "stripewise_agent_questions_total":
                direction, kind = re.fullmatch(r'direction="(\w+)",kind="(\w+)"', labels).groups()
                counted[direction, kind] = int(value)
        return {key: value for key, value in counted.items() if key[1] != "hello"}

    def shows(self, samples):
        """The dashboard asks for metrics and labels that agents serve. Of I/O on pools and of failures there is nothing yet."""
        served = {}
        for name, labels in samples:
            served.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
        panels = json.loads((ROOT / "packaging/grafana/stripewise.json").read_text())["panels"]
        shown = set()
        for target in (target for panel in panels for target in panel["targets"]):
            grouped = {label for labels in re.findall(r"by \(([^)]*)\)", target["expr"]) for label in re.split(r",\s*", labels)}
            labels = grouped | set(re.findall(r"{{(\w+)}}", target.get("legendFormat", "")))
            for name in re.findall(r"stripewise_agent_\w+", target["expr"]):
                shown.add(name)
                if name in served:
                    self.assertLessEqual(labels, served[name] | {"instance"}, name)
        self.assertLessEqual(shown - set(served), {f"stripewise_agent_{name}_total" for name in ("io_bytes", "io_failures", "question_failures")})

    def asked(self, host, before):
        """What was asked or heard since, by direction and kind."""
        after = self.questions(host)
        return {key: value - before.get(key, 0) for key, value in after.items() if value > before.get(key, 0)}

    def test_the_whole_cluster_is_shown_with_its_hosts_and_who_is_master(self):
        programs = self.agents(0, 1)
        for host in (0, 1):
            found = self.stat(host)
            self.assertEqual((found["master"], found["coordinator"]["engine"]), ("h0", "etcd"))
            self.assertEqual(found["coordinator"]["endpoints"], [self.bed.etcd()])
            self.assertIsNone(found["coordinator"]["fault"])
            self.assertGreater(found["term"], 0)
            self.assertEqual([known["name"] for known in found["hosts"]], ["h0", "h1"])
            for known in found["hosts"]:
                self.assertTrue(known["answers"] and not known["is_silent"], known)
                self.assertEqual(known["files"], 0)
                self.assertGreater(known["admission"], 0)
                self.assertGreater(known["agent"]["process"], 0)
                self.assertRegex(known["agent"]["version"], r"^\d+\.\d+")
            self.assertEqual([server["name"] for server in found["servers"]], ["a", "b", "c"])
            self.assertEqual(found["moves_under_way"], [])
        text = self.cluster.stripewise(1, "stat", "--cluster")
        self.assertIn("master       h0, term ", text)
        self.assertRegex(text, r"(?m)^h1 +answers")
        # A host that is cut off is silent, and said to be.
        self.bed.cut(1)
        self.addCleanup(self.bed.restore, 1)
        self.until(lambda: [known["name"] for known in self.stat(0)["hosts"] if known["is_silent"]] == ["h1"])
        self.assertRegex(self.cluster.stripewise(0, "stat"), r"(?m)^silent       h1; .*host forget")
        self.bed.restore(1)
        self.until(lambda: all(known["answers"] for known in self.stat(0)["hosts"]))
        for program in programs:
            self.assertEqual(program.end(), 0)

    def until(self, holds):
        end = time.monotonic() + WAIT_SECONDS
        while not holds():
            self.assertLess(time.monotonic(), end, "it did not come to that")
            time.sleep(0.02)

    def test_reads_and_writes_in_placed_regions_send_no_message(self):
        size, times = 8 * REGION, 2000
        self.agents(0)
        programs = [self.program(host, "placed") for host in range(self.HOSTS)]
        self.does(programs[0], "create")
        self.does(programs[0], "write", 0, size)
        self.does(programs[0], "sync")
        for program in programs[1:]:
            self.does(program, "open")
        before = [self.questions(host) for host in range(self.HOSTS)]
        for program in programs:
            program.say("many", times, size, program.host + 1)
        for program in programs:
            self.assertEqual(program.hear(), "ok", f"on host {program.host}")
        for host in range(self.HOSTS):
            self.assertEqual(self.asked(host, before[host]), {}, f"{times} reads and as many writes, on host {host}")
        # Counters that never count would pass.
        self.does(programs[1], "sync")
        self.assertEqual(self.asked(1, before[1]), {("to_master", "sync"): 1})
        self.assertEqual(self.asked(0, before[0])[("from_agent", "sync")], 1)
        # A sync of all files tells the sizes of what is open here.
        before = self.questions(1)
        self.does(programs[1], "sync_all")
        self.assertEqual(self.asked(1, before), {("to_master", "sync"): 1, ("to_master", "sync_all"): 1})
        for program in programs:
            self.assertEqual(program.end(), 0)

    def test_an_open_on_another_host_takes_at_most_three_round_trips(self):
        self.agents(0)
        master, follower = self.program(0, "opened"), self.program(1, "opened")
        self.does(master, "create")
        self.does(master, "write", 0, 2 * REGION)
        self.does(master, "close")
        self.does(follower, "nothing")
        trips = {}
        steps = (
            ("open", "open"), ("first write", "write", 0, 4096), ("write at the end", "write", 2 * REGION - 1, 1),
            ("first read", "read", REGION, 4096), ("region beyond the end", "write", 3 * REGION, 1), ("close", "close"),
        )
        for step, *words in steps:
            before = self.questions(1)
            self.does(follower, *words)
            trips[step] = self.asked(1, before)
        created = self.program(1, "created")
        self.does(created, "nothing")
        for step, *words in (("create", "create"), ("its first write", "write", 0, 4096), ("its close", "close")):
            before = self.questions(1)
            self.does(created, *words)
            trips[step] = self.asked(1, before)
        print(json.dumps({step: {" ".join(key): value for key, value in asked.items()} for step, asked in trips.items()}), file=sys.stderr)
        count = {step: sum(value for (direction, _), value in asked.items() if direction == "to_master") for step, asked in trips.items()}
        self.assertLessEqual(count["open"] + count["first write"], 3, trips)
        self.assertLessEqual(count["create"] + count["its first write"], 2, trips)
        for step in ("first write", "write at the end", "first read"):
            self.assertEqual(trips[step], {}, step)
        # Another host may have made the file longer, and what lies between has to be zeros.
        self.assertLessEqual(count["region beyond the end"], 2, trips)
        # The size is told before the close: a program that is killed in between leaves it known.
        for step in ("close", "its close"):
            self.assertLessEqual(count[step], 2, trips)
        for program in (master, follower, created):
            self.assertEqual(program.end(), 0)

    def test_agents_that_end_together_leave_no_host_that_is_waited_for(self):
        environment = self.cluster.env
        for turn in range(8):
            agents = [self.bed.start(host, [STRIPEWISE, "broker"], env=environment, stderr=subprocess.DEVNULL) for host in range(self.HOSTS)]
            try:
                self.until(lambda: len([known for known in self.stat(0)["hosts"] if known["answers"]]) == self.HOSTS)
                for agent in agents if turn % 2 else reversed(agents):
                    agent.terminate()
                for agent in agents:
                    self.assertEqual(agent.wait(WAIT_SECONDS), 0)
            finally:
                for agent in agents:
                    agent.kill()
                    agent.wait(WAIT_SECONDS)
            self.assertEqual([known["name"] for known in self.stat(0)["hosts"]], ["h0"], f"turn {turn}")

    def test_commands_of_one_host_that_end_together_leave_nothing_open(self):
        """One of the commands is the host's agent, and the other waits to follow it."""
        for turn in range(8):
            master, = self.agents(0)
            programs = [self.program(1, "together") for _ in range(2)]
            self.does(programs[0], "create" if turn == 0 else "open")
            self.does(programs[1], "open")
            for program in programs:
                program.process.stdin.close()
            for program in programs:
                self.assertEqual(program.process.wait(WAIT_SECONDS), 0)
            self.assertEqual([known["name"] for known in self.stat(0)["hosts"]], ["h0"], f"turn {turn}")
            self.assertEqual(master.end(), 0)

    def test_metrics_of_an_agent_say_what_it_has_done(self):
        self.agents(0)
        program = self.program(1, "counted")
        self.does(program, "create")
        master, follower = self.samples(0), self.samples(1)
        self.assertEqual((master["stripewise_agent_master", ""], follower["stripewise_agent_master", ""]), (1, 0))
        self.assertEqual(follower["stripewise_agent_files", ""], 1)
        self.assertEqual(master["stripewise_agent_elections_total", 'outcome="won"'], 1)
        self.assertEqual(follower["stripewise_agent_elections_total", 'outcome="lost"'], 1)
        created = 'direction="to_master",kind="create"'
        self.assertEqual(follower["stripewise_agent_questions_total", created], 1)
        self.assertEqual(follower["stripewise_agent_question_seconds_count", created], 1)
        self.assertGreater(follower["stripewise_agent_question_seconds_sum", created], 0)
        self.assertEqual(master["stripewise_agent_questions_total", 'direction="from_agent",kind="create"'], 1)
        self.shows(master | follower)
        # A refusal is counted where the program is.
        before = follower["stripewise_agent_refusals_total", 'what="request"']
        refused = self.bed.run(1, [STRIPEWISE, "host", "forget", "h0"], env=self.cluster.env)
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertEqual(self.samples(1)["stripewise_agent_refusals_total", 'what="request"'], before + 1)
        self.assertEqual(program.end(), 0)


class OwnFiles(Cluster):
    """A cluster of which every host has files of its own: cluster.toml, and the key beside it."""

    def __init__(self, bed):
        super().__init__(bed)
        common = pathlib.Path(self.env["STRIPEWISE_CLUSTER"]).parent
        for host in range(len(bed.names)):
            for name in ("cluster.toml", "cluster.key"):
                shutil.copy(common / name, bed.local(host) / name)

    def env_of(self, host):
        return dict(self.env, STRIPEWISE_CLUSTER=str(self.bed.local(host) / "cluster.toml"))

    def attempt(self, host, *words):
        return self.bed.run(host, [STRIPEWISE, *words], env=self.env_of(host), timeout=WAIT_SECONDS)

    def stripewise(self, host, *words):
        if not (self.bed.local(host) / "cluster.key").exists():
            return super().stripewise(host, *words)
        done = self.attempt(host, *words)
        if done.returncode != 0:
            raise AssertionError(f"stripewise {' '.join(words)} on host {host}: {done.stdout}{done.stderr}")
        return done.stdout


class Rekeying(Operating):
    """Another key on all hosts."""

    HOSTS = 3

    @classmethod
    def setUpClass(cls):
        try:
            cls.bed = cls.enterClassContext(beds.Bed(hosts=cls.HOSTS))
            cls.cluster = OwnFiles(cls.bed)
        except beds.Unavailable as why:
            raise unittest.SkipTest(str(why)) from None

    def keys(self):
        """The key file of each host; others beside it are none of a finished change."""
        texts = []
        for host in range(self.HOSTS):
            found = sorted(path.name for path in self.bed.local(host).glob("*cluster.key*"))
            self.assertEqual(found, ["cluster.key"], f"on host {host}")
            path = self.bed.local(host) / "cluster.key"
            self.assertEqual(path.stat().st_mode & 0o777, 0o600)
            texts.append(path.read_text())
        return texts

    def test_all_hosts_get_another_key_while_programs_go_on(self):
        programs = self.agents(0, 1, 2)
        writer = self.program(1, "rekeyed")
        self.does(writer, "create")
        self.does(writer, "write", 0, REGION)
        old, fingerprint = self.keys(), self.stat(0)["key"]
        self.assertEqual(len(set(old)), 1)
        said = self.cluster.stripewise(2, "host", "rekey")
        new = self.keys()
        self.assertEqual(len(set(new)), 1)
        self.assertNotEqual(new[0], old[0])
        shown = self.stat(1)["key"]
        self.assertNotEqual(shown, fingerprint)
        self.assertIn(f"3 hosts have the key {shown}", said)
        # What needs the master goes over links that the new key made.
        self.does(writer, "write", 2 * REGION, REGION)
        self.does(writer, "sync")
        self.until(lambda: all(known["answers"] for known in self.stat(0)["hosts"]))
        self.assertGreaterEqual(self.samples(1)["stripewise_agent_reconnects_total", ""], 1)
        # A host that comes with the old key is told so by name, and takes part with the new one.
        self.assertEqual(programs.pop().end(), 0)
        key = self.bed.local(2) / "cluster.key"
        key.write_text(old[0])
        refused = self.cluster.attempt(2, "host", "list")
        self.assertEqual(refused.returncode, 2, refused.stdout)
        for part in (str(key), fingerprint, shown, "copy the file from another host", "mode 600"):
            self.assertIn(part, refused.stderr)
        key.write_text(new[0])
        self.assertIn("h2", self.cluster.stripewise(2, "host", "list"))
        for program in (*programs, writer):
            self.assertEqual(program.end(), 0)

    def test_no_key_is_replaced_while_a_host_is_not_there_unless_it_is_forgotten(self):
        programs = self.agents(0, 1, 2)
        before = self.keys()
        self.bed.cut(2)
        self.addCleanup(self.bed.restore, 2)
        self.until(lambda: [known["name"] for known in self.stat(0)["hosts"] if not known["answers"]] == ["h2"])
        refused = self.cluster.attempt(1, "host", "rekey")
        self.assertEqual(refused.returncode, 2, refused.stdout)
        self.assertIn("host h2", refused.stderr)
        self.assertIn("stripewise host forget h2", refused.stderr)
        self.assertEqual(self.keys(), before)
        self.cluster.stripewise(0, "host", "forget", "h2")
        said = json.loads(self.cluster.stripewise(1, "host", "rekey", "--json"))
        self.assertEqual((said["hosts"], said["was_begun"]), (2, False))
        after = self.keys()
        self.assertEqual(after[2], before[2])
        self.assertEqual(after[0], after[1])
        self.assertNotEqual(after[0], before[0])
        # It comes back, and its agent takes no role before a person has copied the key.
        self.bed.restore(2)
        shown = self.stat(0)["key"]
        self.until(lambda: shown in self.cluster.log_of(2))
        self.assertEqual([known["name"] for known in self.stat(0)["hosts"]], ["h0", "h1"])
        (self.bed.local(2) / "cluster.key").write_text(after[0])
        self.until(lambda: len(self.stat(0)["hosts"]) == 3)
        for program in programs:
            self.assertEqual(program.end(), 0)


# What a cluster of three does as well is tested on that of two.
for inherited in [name for name in vars(Operating) if name.startswith("test_")]:
    setattr(Rekeying, inherited, None)


if __name__ == "__main__":
    unittest.main(verbosity=2)
