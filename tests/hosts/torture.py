#!/usr/bin/env python3
"""Hosts, their agents, their links and OSDs fail, one after the other, while programs of all hosts use one file. Nothing is lost.

    STRIPEWISE=target/debug/stripewise tests/hosts/torture.py [pools|directories]...

On four hosts of bed.py sixteen programs (churn.py) write and read one file, every region of it moves all the time, and it is truncated now and then. Each round
is one fault, chosen by the seed. The file is compared with what blocks.py says is possible: by its writers all the time, and as a whole, from another
host, at the end of each round.

`pools`: the servers and the mapping table are pools of a Ceph whose OSDs (BlueStore) fail too. While a host is silent files are truncated and regions
move all the same, and what it sends late lands nowhere. `directories`: the servers are directories and the table is in an etcd. While a host is silent
truncations are refused and moves wait.

Environment: SEED; ROUNDS (300), shared by the two kinds of servers; FIRST, the round to begin with (0); SILENCE (30), for how many seconds
a host is silent; TIMEOUT (5), the cluster's host_timeout_s; FAULTS, the names of those to choose from. A round prints one line; the same seed and number make the
same choices.
"""

import contextlib
import json
import os
import pathlib
import random
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import bed as beds  # noqa: E402
import blocks  # noqa: E402
import churn  # noqa: E402
from clusters import REGION, STRIPEWISE, Cluster  # noqa: E402

HOSTS, RANKS, REGIONS, BLOCK = churn.HOSTS, 16, 4, 3001
SIZE = REGIONS * REGION - 777
LAYOUTS = ("a..c 64KiB", "c 256KiB", "a 96KiB, b 32KiB", "b 1MiB", "a 20KiB, c 20KiB")
# Whatever is waited for is there by then; a loaded machine is slow.
PATIENCE_SECONDS = 180
# What a program is told of a truncation that was refused because of a host that does not answer.
BUSY = "busy"
# Operations of each program before and after a fault, and of the others during one.
OPERATIONS = 20


class Lost(Exception):
    """What must not happen has happened."""


class Torture:
    """One cluster under torture. `ceph`: what has its servers and its table; directories and an etcd without it."""

    def __init__(self, bed, seed, silence_s, timeout_s, ceph=None):
        self.bed, self.seed, self.silence_s, self.timeout_s, self.ceph = bed, seed, silence_s, timeout_s, ceph
        engine = ("--rados", ceph["pools"][3], "--conf", ceph["conf"]) if ceph else ()
        self.cluster = Cluster(bed, *engine, ceph=ceph, host_timeout_s=timeout_s)
        self.common, self.path = pathlib.Path(bed.common), str(self.cluster.directory / "tortured")
        self.board = churn.Board(self.common / "board")
        self.agents, self.programs, self.away, self.moves = [[] for _ in range(HOSTS)], {}, set(), 0
        # Of the truncation under way.
        self.truncating = threading.Lock()

    def __enter__(self):
        self.stack = contextlib.ExitStack()
        try:
            for host in range(HOSTS):
                self.start_agent(host)
            self.stripewise(0, "run", "--", "truncate", "-s", SIZE, self.path)
            for host in range(HOSTS):
                self.start_programs(host)
            self.mover = threading.Thread(target=self.move_all, daemon=True)
            self.is_over = False
            self.mover.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.is_over = True
        for process in [*self.programs.values(), *(agent for agents in self.agents for agent in agents)]:
            process.kill()
            process.wait()
        self.stack.close()

    def stripewise(self, host, *words, timeout=PATIENCE_SECONDS):
        done = self.bed.run(host, [STRIPEWISE, *map(str, words)], env=self.cluster.env, timeout=timeout)
        if done.returncode != 0:
            raise Lost(f"stripewise {' '.join(map(str, words))} on host {host}: status {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def wait(self, what, condition, patience_s=PATIENCE_SECONDS):
        end = time.monotonic() + patience_s
        while not (value := condition()):
            self.look()
            if time.monotonic() > end:
                raise Lost(f"{what}: not within {patience_s} s")
            time.sleep(0.02)
        return value

    def look(self):
        """Whether a program has found what cannot be."""
        for rank, program in self.programs.items():
            if program.poll() is not None:
                raise Lost(f"rank {rank} has ended with {program.returncode}: {self.log(f'rank{rank}').read_text()[-2000:]}")

    # Processes.

    def log(self, name):
        return self.common / f"{name}.log"

    def start(self, host, name, words):
        with open(self.log(name), "ab") as log:
            return self.bed.start(host, words, env=self.cluster.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start_agent(self, host):
        name = f"agent{host}"
        before = self.log(name).stat().st_size if self.log(name).exists() else 0
        agent = self.start(host, name, [STRIPEWISE, "broker"])
        self.agents[host] = [other for other in self.agents[host] if other.poll() is None] + [agent]

        def serves():
            if agent.poll() is not None:
                raise Lost(f"the agent of host {host} has ended: {self.log(name).read_text()[before:]}")
            # It serves, or waits to.
            return self.log(name).stat().st_size > before

        self.wait(f"an agent of host {host}", serves)

    def start_programs(self, host, host_outlasts=False, ranks=None):
        for rank in range(host, RANKS, HOSTS) if ranks is None else ranks:
            words = [self.common / "board", self.common / f"journal{rank}", self.path, rank, RANKS, SIZE, BLOCK, self.seed, int(host_outlasts)]
            self.programs[rank] = self.start(host, f"rank{rank}", [STRIPEWISE, "run", "--", sys.executable, HERE / "churn.py", *words])

    def agent_of(self, host):
        """The process on the host that is its agent now."""
        return self.wait(f"the agent of host {host}", lambda: self.cluster.agent_of(host))

    def is_master(self, host):
        listed = json.loads(self.stripewise(host, "host", "list", "--json"))["hosts"]
        return any(found["is_master"] and found["name"] == self.bed.names[host] for found in listed)

    def all_answer(self, hosts=HOSTS):
        listed = json.loads(self.stripewise(self.there(random), "host", "list", "--json"))["hosts"]
        return sum(found["is_master"] or found["answers"] for found in listed) >= hosts

    def master(self):
        return self.wait("a master", lambda: next((host + 1 for host in range(HOSTS) if self.is_master(host)), 0)) - 1

    def there(self, dice):
        """A host that is there."""
        return dice.choice([host for host in range(HOSTS) if host not in self.away])

    # What goes on all the time.

    def move_all(self):
        dice, number = random.Random(self.seed), 0
        while not self.is_over:
            number += 1
            with contextlib.suppress(Lost, subprocess.TimeoutExpired, IndexError):
                layout, host = LAYOUTS[number % len(LAYOUTS)], self.there(dice)
                self.restripe(host, layout)
                self.note(f"moved to {layout} by host {host}")
                self.moves += 1

    def restripe(self, host, layout):
        """Raises Lost where the command fails, or its host falls silent: a stopped agent answers no command of its own host."""
        command = self.start(host, "mover", [STRIPEWISE, "restripe", self.path, "--layout", layout])
        end = time.monotonic() + PATIENCE_SECONDS
        try:
            while (status := command.poll()) is None and host not in self.away and time.monotonic() < end:
                time.sleep(0.02)
        finally:
            command.kill()
            command.wait()
        if status != 0:
            raise Lost(f"restripe to {layout} on host {host}: status {status}")

    def truncate(self, host, length):
        """Cuts the file and makes it as long as before. Returns what was said if that was refused."""
        with self.truncating:
            outcome, said = self.set_size(host, length)
        # What was cut has to be put right, or programs find the file too short.
        end = time.monotonic() + PATIENCE_SECONDS + self.silence_s
        while outcome != blocks.REFUSED:
            with self.truncating:
                if self.set_size(host, SIZE)[0] == blocks.DONE:
                    break
            if time.monotonic() > end:
                raise Lost("the file is not made longer again")
            # A host that cannot be shut out is back only when another truncation was refused because of it.
            time.sleep(0.1)
        return said

    def set_size(self, host, length):
        """The outcome, and what was said if that is not success."""
        number, without, outcome = self.board[churn.Board.BEGUN], set(self.away), blocks.UNKNOWN
        self.note(f"truncation {number} on host {host} to {length}")
        self.board.begin_truncation(length)
        try:
            words = [STRIPEWISE, "run", "--", "truncate", "-s", str(length), self.path]
            done = self.bed.run(host, words, env=self.cluster.env, timeout=PATIENCE_SECONDS)
            if done.returncode == 0:
                outcome = blocks.DONE
            elif BUSY in done.stderr:
                outcome = blocks.REFUSED
        finally:
            self.note(f"truncation {number} has ended: {outcome}")
            self.board.end_truncation(outcome, (without & self.away) if self.ceph else ())
        if done.returncode != 0:
            self.note(done.stderr)
        return outcome, done.stderr if done.returncode else None

    def note(self, text):
        """For whoever looks into a failure."""
        with open(self.log("events"), "a") as log:
            log.write(f"{time.time():.3f} {text.strip()}\n")

    def done(self, rank):
        return self.board[churn.Board.of_rank(rank, churn.Board.DONE)]

    def operations(self):
        return sum(map(self.done, range(RANKS)))

    def progress(self, what, hosts):
        """Waits until every program of these hosts has done so many operations more."""
        wanted = {rank: self.done(rank) + OPERATIONS for host in hosts for rank in range(host, RANKS, HOSTS)}

        def late():
            return [rank for rank, count in wanted.items() if self.done(rank) < count]

        try:
            self.wait(what, lambda: not late())
        except Lost as lost:
            raise Lost(f"{lost}; of ranks {late()} too few operations") from None

    # A round.

    def round(self, number, names=None):
        """One fault, and all that is asked while it lasts and after it. Returns a line that says what it was."""
        dice = random.Random(f"{self.seed} {number}")
        possible = [name for name in FAULTS if (self.ceph or name not in OF_OSDS) and (not names or name in names)]
        name = possible[number % len(possible)] if names else dice.choice(possible)
        begun, before = time.monotonic(), (self.operations(), self.moves, self.board[churn.Board.ENDED])
        self.progress("before the fault", range(HOSTS))
        master = self.master()
        host = master if name.endswith("master") else dice.choice([host for host in range(HOSTS) if host != master])
        # One of three silent hosts is the master.
        if name in SILENCES and dice.random() < 0.3:
            host = master
        # While an OSD is down truncations fail, one after the other, and what they may have done is more than a block keeps account of.
        if dice.random() < 0.5 and name != "osd-and-master":
            other = dice.choice([other for other in range(HOSTS) if other != host])
            early = threading.Thread(target=self.truncate, args=(other, dice.randrange(SIZE)), daemon=True)
            early.start()
        else:
            early = None
        self.note(f"round {number}: {name} of host {host}{', the master' if host == master else ''}")
        self.board[churn.Board.MAY_FAIL] = 1 << host if name in SILENCES or name in LOSSES else 0
        FAULTS[name](self, host, dice)
        if early is not None:
            self.wait("the end of a truncation", lambda: not early.is_alive())
        self.progress("after the fault", range(HOSTS))
        # Programs use what is placed before their host's agent follows the master again.
        self.wait("all hosts answer", self.all_answer)
        refused, end = 0, time.monotonic() + PATIENCE_SECONDS
        # An OSD may stand still for longer than a truncation waits for I/O.
        while (said := self.truncate(self.there(dice), dice.randrange(SIZE))) is not None:
            refused += 1
            if time.monotonic() > end:
                raise Lost(f"with all hosts there truncations are refused: {said}")
        moves = self.moves
        self.wait("a move after the fault", lambda: self.moves > moves + 1)
        self.compare(dice.randrange(HOSTS))
        after = (self.operations(), self.moves, self.board[churn.Board.ENDED])
        counts = [new - old for old, new in zip(before, after)]
        return (
            f"round {number}: {name} of h{host}{' (master)' if host == master else ''}: {counts[0]} operations, {counts[1]} restripes,"
            f" {counts[2]} truncations{f', {refused} refused' if refused else ''}, {time.monotonic() - begun:.1f} s"
        )

    def compare(self, host):
        """Everybody pauses; one host reads the whole file."""
        command = self.board[churn.Board.COMMAND] + 1
        self.board[churn.Board.COMMAND] = command
        paused = [churn.Board.of_rank(rank, churn.Board.PAUSED) for rank in range(RANKS)]
        self.wait("all programs pause", lambda: all(self.board[word] == command for word in paused))
        own = [own for rank in range(RANKS) for own in self.own(rank)]
        end = max(block.at + len(block.states[0][1]) for block in own)
        model = bytearray(end)
        for block in own:
            if len(block.states) != 1 or block.is_doubtful():
                raise Lost(f"block at {block.at} is not settled: {len(block.states)} states")
            model[block.at : block.at + len(block.states[0][1])] = block.states[0][1]
        done = self.bed.run(host, [STRIPEWISE, "run", "--", "cat", self.path], env=self.cluster.env, timeout=PATIENCE_SECONDS, text=False)
        if done.returncode != 0:
            raise Lost(f"cat on host {host}: {done.stderr.decode()}")
        found = done.stdout
        # The file may end before the last block that can be, where zeros are expected.
        if len(found) < SIZE or len(found) > end:
            raise Lost(f"the file has {len(found)} bytes on host {host}")
        if found.ljust(end, b"\0") != bytes(model):
            places = [index for index, (one, other) in enumerate(zip(found.ljust(end, b"\0"), model)) if one != other]
            raise Lost(f"{len(places)} bytes from {places[0]} to {places[-1]} are wrong on host {host}")
        self.board[churn.Board.COMMAND] = command + 1

    def own(self, rank):
        journal = churn.Journal(self.common / f"journal{rank}", 0)
        return [journal.load(index) for index in range(len(journal.memory) // churn.SLOT // 2)]

    def end(self):
        """Programs close the file, and a check finds nothing amiss."""
        self.is_over = True
        self.wait("the last move", lambda: not self.mover.is_alive())
        self.board[churn.Board.COMMAND] = churn.Board.STOP
        for rank, program in self.programs.items():
            if program.wait(PATIENCE_SECONDS) != 0:
                raise Lost(f"rank {rank} has ended with {program.returncode}: {self.log(f'rank{rank}').read_text()[-2000:]}")
        return self.stripewise(0, "check")

    # Faults.

    def kill_agent(self, host, _dice):
        agent = self.agent_of(host)
        # Any `stripewise` process of a host may be its agent, also the one that started a program. Then the program goes with it, and is started again.
        words = self.bed.run(host, ["cat", f"/proc/{agent}/cmdline"]).stdout.split("\0")
        ranks = [rank for rank in range(host, RANKS, HOSTS) if str(self.common / f"journal{rank}") in words]
        programs = [self.programs.pop(rank) for rank in ranks]
        pids = [str(self.board[churn.Board.of_rank(rank, churn.Board.PID)]) for rank in ranks]
        self.bed.run(host, ["kill", "-KILL", agent, *pids])
        for program in programs:
            program.wait()
        self.start_agent(host)
        self.start_programs(host, host_outlasts=True, ranks=ranks)

    def kill_job(self, host, _dice):
        """All processes that use the cluster on a host, as a scheduler kills a job. The host stays."""
        ranks = range(host, RANKS, HOSTS)
        programs = [self.programs.pop(rank) for rank in ranks]
        pids = [str(self.board[churn.Board.of_rank(rank, churn.Board.PID)]) for rank in ranks]
        for process in (*programs, *self.agents[host]):
            process.kill()
        self.bed.run(host, ["kill", "-KILL", *pids])
        for process in (*programs, *self.agents[host]):
            process.wait()
        self.start_agent(host)
        self.start_programs(host, host_outlasts=True)

    def kill_host(self, host, dice, meanwhile=lambda: None):
        self.away.add(host)
        ranks = range(host, RANKS, HOSTS)
        programs = [self.programs.pop(rank) for rank in ranks]
        self.bed.kill_host(host)
        for process in (*programs, *self.agents[host]):
            process.wait()
        try:
            meanwhile()
            self.others_go_on(host, dice)
        finally:
            self.bed.boot(host)
            self.away.discard(host)
        self.start_agent(host)
        self.start_programs(host)

    def silent(self, host, dice, silence, end_of_silence):
        # Silent from before the first truncation that counts on it to after the last.
        silence()
        self.away.add(host)
        try:
            self.others_go_on(host, dice)
        finally:
            self.away.discard(host)
            end_of_silence()

    def others_go_on(self, away, dice):
        begun = time.monotonic()
        others = [host for host in range(HOSTS) if host != away]
        moves = self.moves
        self.progress("while a host does not answer", others)
        said = self.truncate(dice.choice(others), dice.randrange(SIZE))
        if self.ceph:
            if said is not None:
                raise Lost(f"a truncation is refused for a host that can be shut out: {said}")
            # The first began before the host was silent.
            self.wait("moves without the silent host", lambda: self.moves > moves + 1)
        elif said is None or self.bed.names[away] not in said:
            raise Lost(f"a truncation is not refused because of host {away}, which may have the file open: {said}")
        self.progress("while a host does not answer", others)
        # Longer than anything waits for the host.
        time.sleep(max(0, self.silence_s - (time.monotonic() - begun)))

    def stop_agent(self, host, dice):
        pid = self.agent_of(host)

        def signal(name):
            self.bed.run(host, ["kill", f"-{name}", pid])

        self.silent(host, dice, lambda: signal("STOP"), lambda: signal("CONT"))

    def cut(self, host, dice, **directions):
        self.silent(host, dice, lambda: self.bed.cut(host, **directions), lambda: self.bed.restore(host))

    def part(self, host, dice):
        """The host and the others do not reach each other, but all of them reach the engine."""
        self.silent(host, dice, lambda: self.bed.part(host), lambda: self.bed.rejoin(host))

    def kill_osd(self, _host, dice):
        osd = dice.randrange(len(self.ceph["pools"]))
        self.ceph.order(f"kill {osd}")
        time.sleep(dice.random())
        self.ceph.order(f"start {osd}")

    def kill_osd_and_master(self, host, dice):
        """The master's host is lost while programs of all hosts wait for an OSD: the others have a master before it is back."""
        osd = dice.randrange(3)
        self.ceph.order(f"kill {osd}")

        def others_take_part():
            try:
                self.wait("the other hosts answer while an OSD is down", lambda: self.all_answer(HOSTS - 1))
            finally:
                self.ceph.order(f"start {osd}")

        self.kill_host(host, dice, others_take_part)


FAULTS = {
    "agent": Torture.kill_agent,
    "master": Torture.kill_agent,
    "job": Torture.kill_job,
    "host": Torture.kill_host,
    "stop": Torture.stop_agent,
    "cut": lambda torture, host, dice: torture.cut(host, dice),
    "cut-inbound": lambda torture, host, dice: torture.cut(host, dice, outbound=False),
    "cut-outbound": lambda torture, host, dice: torture.cut(host, dice, inbound=False),
    "part": Torture.part,
    "osd": Torture.kill_osd,
    "osd-and-master": Torture.kill_osd_and_master,
}
OF_OSDS = ("osd", "osd-and-master")
# Of these a host is lost with all that it alone knows.
LOSSES = ("host", "osd-and-master")
# Of these a host is silent. It may be shut out of pools, and where it reaches no engine, its programs' requests fail.
SILENCES = ("stop", "cut", "cut-inbound", "cut-outbound", "part")


@contextlib.contextmanager
def on(servers, seed, silence_s, timeout_s):
    """A cluster of that kind, on hosts of its own, under torture."""
    with contextlib.ExitStack() as stack:
        bed = stack.enter_context(beds.Bed(hosts=HOSTS))
        ceph = stack.enter_context(bed.ceph("--osds", "4", "--store", "bluestore")) if servers == "pools" else None
        yield stack.enter_context(Torture(bed, seed, silence_s, timeout_s, ceph))


def logs(torture):
    """What agents noted last."""
    for host in range(HOSTS):
        try:
            done = torture.bed.run(host, ["sh", "-c", "tail -n 60 /dev/shm/stripewise-*/log"])
            yield f"log of host {host}:\n{done.stdout}"
        except (OSError, subprocess.SubprocessError) as why:
            yield f"host {host} has no log: {why}"
    yield f"events:\n{torture.log('events').read_text()[-6000:]}"


def main():
    kinds = sys.argv[1:] or ["pools", "directories"]
    seed = int(os.environ.get("SEED", random.randrange(1 << 32)))
    rounds, first = int(os.environ.get("ROUNDS", "300")), int(os.environ.get("FIRST", "0"))
    silence_s, timeout_s = float(os.environ.get("SILENCE", "30")), int(os.environ.get("TIMEOUT", "5"))
    names = os.environ.get("FAULTS", "").split()
    share, total, begun = -(-rounds // len(kinds)), 0, time.monotonic()
    for turn, servers in enumerate(kinds):
        mine = range(max(first, turn * share), min(rounds, (turn + 1) * share))
        if not mine:
            continue
        print(f"SEED={seed} FIRST={mine[0]} on {servers}", flush=True)
        with on(servers, seed, silence_s, timeout_s) as torture:
            for number in mine:
                try:
                    print(f"{servers}: {torture.round(number, names)}", flush=True)
                    total += 1
                except Exception as lost:
                    print("\n".join(logs(torture)))
                    print(f"FAILED on {servers}, SEED={seed} FIRST={number}: {lost}", flush=True)
                    if os.environ.get("KEEP"):
                        print(f"kept at {torture.bed.description}; end it with Enter", flush=True)
                        sys.stdin.readline()
                    sys.exit(1)
            left = torture.end()
            print(f"{servers}: {torture.moves * REGIONS} moves, {torture.operations()} operations, nothing lost; check: {left.strip() or 'clean'}", flush=True)
    print(f"{total} rounds in {time.monotonic() - begun:.0f} s, nothing lost (SEED={seed})")


if __name__ == "__main__":
    main()
