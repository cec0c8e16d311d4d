#!/usr/bin/env python3
"""One of many programs that write and read one file on several hosts at once, and know what they may find in it.

    churn.py BOARD JOURNAL PATH RANK RANKS SIZE BLOCK SEED OUTLASTS

A program owns every RANKS-th block of the file. It writes bytes of its blocks and compares what it reads with what blocks.py says is possible. Blocks up
to SIZE are always there; the TAILS blocks of each program behind that make the file longer, until a truncation cuts them off again.

The *board* is memory that all programs share with whoever runs the test. JOURNAL has the program's blocks, and the write under way, whenever the program
is killed: another one goes on with them, whose OUTLASTS is 1 if the host was not killed with it. An operation may fail where the board says that the host is silent, which may shut it out of pools; the program opens the
file again then. Everything else that is wrong ends it with a message.
"""

import contextlib
import mmap
import os
import pathlib
import pickle
import random
import struct
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import blocks  # noqa: E402

HOSTS, RANKS, TAILS = 4, 64, 8
WORD = struct.Struct("<Q")
PATIENCE_SECONDS = 240
PAUSE_SECONDS = 0.002
# Of a block in the journal.
SLOT = 1 << 20


class Board:
    """Words of 8 bytes in a file that all map. One program alone changes each."""

    COMMAND, BEGUN, ENDED, MAY_FAIL = range(4)
    # Of each rank.
    DONE, PAUSED, SYNCED_TO, SYNCED_AFTER, LOSSES, PID = range(6)
    TABLE, ROWS = 1024, 1 << 14
    STOP = (1 << 63) - 1

    def __init__(self, path):
        if not os.path.exists(path):
            with open(path, "wb") as board:
                board.truncate((self.TABLE + 3 * self.ROWS) * WORD.size)
        with open(path, "r+b") as board:
            self.memory = mmap.mmap(board.fileno(), 0)

    def __getitem__(self, word):
        return WORD.unpack_from(self.memory, word * WORD.size)[0]

    def __setitem__(self, word, value):
        WORD.pack_into(self.memory, word * WORD.size, value)

    @staticmethod
    def of_rank(rank, what):
        return 64 + rank * 8 + what

    def may_fail(self, host):
        return bool(self[self.MAY_FAIL] >> host & 1)

    def begin_truncation(self, length):
        self[self.TABLE + 3 * self[self.BEGUN]] = length
        self[self.BEGUN] += 1

    def end_truncation(self, outcome, without):
        row = self.TABLE + 3 * self[self.ENDED]
        self[row + 1], self[row + 2] = outcome, sum(1 << host for host in without)
        self[self.ENDED] += 1

    def truncations(self, known):
        """All that have begun; `known` are those from before, the ended ones of which stay as they are."""
        del known[next((number for number, truncation in enumerate(known) if truncation.outcome == 0), len(known)) :]
        for number in range(len(known), self[self.BEGUN]):
            length, outcome, without = (self[self.TABLE + 3 * number + column] for column in range(3))
            if number >= self[self.ENDED]:
                outcome, without = 0, 0
            hosts = frozenset(host for host in range(RANKS) if without >> host & 1)
            known.append(blocks.Truncation(length, outcome, hosts))
        return known


class Journal:
    """The blocks of one program, as they were after its last operation, and the write that is under way. A kill between any two stores to memory leaves both readable."""

    def __init__(self, path, count):
        self.is_new = not os.path.exists(path)
        if self.is_new:
            with open(path, "wb") as journal:
                journal.truncate(SLOT * (1 + 2 * count))
        with open(path, "r+b") as journal:
            self.memory = mmap.mmap(journal.fileno(), 0)

    def _store(self, at, value):
        content = pickle.dumps(value)
        assert len(content) + WORD.size <= SLOT, f"{len(content)} bytes of a block"
        self.memory[at + WORD.size : at + WORD.size + len(content)] = content
        WORD.pack_into(self.memory, at, len(content))

    def _load(self, at):
        length = WORD.unpack_from(self.memory, at)[0]
        return pickle.loads(self.memory[at + WORD.size : at + WORD.size + length])

    def save(self, index, block):
        # The slot that does not count, which then does.
        turn = 1 - self.memory[64 + index]
        self._store(SLOT * (1 + 2 * index + turn), block)
        self.memory[64 + index] = turn

    def load(self, index):
        return self._load(SLOT * (1 + 2 * index + self.memory[64 + index]))

    def begin(self, index, start, data, ended):
        self._store(1024, (index, start, data, ended))
        self.memory[0] = 1

    def end(self):
        self.memory[0] = 0

    def under_way(self):
        return self._load(1024) if self.memory[0] else None


class Program:
    def __init__(self, board, journal, path, rank, ranks, size, block, seed, host_outlasts):
        self.host_outlasts = bool(host_outlasts)
        self.board, self.path, self.rank, self.host, self.size, self.block = Board(board), path, rank, rank % HOSTS, size, block
        self.ranks, self.known = ranks, []
        self.dice = random.Random(f"{seed} {rank} {self.board[self.word(Board.LOSSES)]}")
        body = -(-size // block)
        tail = -(-body // ranks) * ranks
        numbers = [*range(rank, body, ranks), *range(tail + rank, tail + ranks * TAILS, ranks)]
        self.journal = Journal(journal, len(numbers))
        if self.journal.is_new:
            lengths = [block if number >= body else min(block, size - number * block) for number in numbers]
            self.blocks = [blocks.Block(number * block, length) for number, length in zip(numbers, lengths)]
            for index, own in enumerate(self.blocks):
                self.journal.save(index, own)
        else:
            self.blocks = [self.journal.load(index) for index in range(len(numbers))]
        self.descriptor = None

    def word(self, what):
        return Board.of_rank(self.rank, what)

    def truncations(self):
        self.known = self.board.truncations(self.known)
        return self.known

    def open(self):
        """Also after the host was shut out, which takes until its agent has come back."""
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                self.descriptor = os.open(self.path, os.O_RDWR)
                os.pread(self.descriptor, 1, 0)
                return
            except OSError as error:
                self.close()
                if time.monotonic() > end:
                    sys.exit(f"rank {self.rank} cannot open the file again: {error}")
                time.sleep(0.05)

    def close(self):
        if self.descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self.descriptor)
        self.descriptor = None

    def was_lost(self, keeps_size=False):
        """An operation failed, since the host was shut out or could not ask anybody, or the program's host died: what is there now stays."""
        under_way = self.journal.under_way()
        if under_way is not None:
            index, start, data, ended = under_way
            self.blocks[index].failed(start, data, ended)
        for index, own in enumerate(self.blocks):
            if not keeps_size:
                own.host_was_lost()
            self.journal.save(index, own)
        self.journal.end()
        self.board[self.word(Board.LOSSES)] += 1

    def run(self):
        self.board[self.word(Board.PID)] = os.getpid()
        if self.journal.under_way() is not None or not self.journal.is_new:
            # The size is in memory of the host, which outlasts its programs.
            self.was_lost(keeps_size=self.host_outlasts)
        self.open()
        is_lost = True
        while (command := self.board[Board.COMMAND]) != Board.STOP:
            try:
                if is_lost:
                    self.read_all()
                    is_lost = False
                if command % 2 and self.board[self.word(Board.PAUSED)] != command:
                    self.read_all()
                    self.board[self.word(Board.PAUSED)] = command
                elif command % 2 == 0:
                    self.operate()
                    self.board[self.word(Board.DONE)] += 1
            except OSError as error:
                if not self.board.may_fail(self.host):
                    raise
                print(f"rank {self.rank}: {error}", file=sys.stderr, flush=True)
                self.was_lost(keeps_size=True)
                self.close()
                self.open()
                is_lost = True
            time.sleep(PAUSE_SECONDS)
        os.close(self.descriptor)

    def operate(self):
        index = self.dice.randrange(len(self.blocks))
        own = self.blocks[index]
        length = len(own.states[0][1])
        start = self.dice.randrange(length)
        what = self.dice.random()
        if what < 0.5:
            self.write(index, start, self.dice.randbytes(self.dice.randint(1, length - start)))
        elif what < 0.9:
            self.read(index, start, self.dice.randint(1, length - start))
        elif what < 0.97:
            os.pread(self.descriptor, 70_000, self.dice.randrange(self.size))
        else:
            self.sync()

    def write(self, index, start, data):
        own, ended = self.blocks[index], self.board[Board.ENDED]
        self.journal.begin(index, start, data, ended)
        written = os.pwrite(self.descriptor, data, own.at + start)
        assert written == len(data), f"{written} of {len(data)} bytes"
        begun = self.board[Board.BEGUN]
        own.wrote(start, data, ended, begun, self.truncations(), self.known_bytes(ended, begun))
        self.journal.save(index, own)
        self.journal.end()

    def known_bytes(self, ended, begun):
        """A file of this length is known to the master, and what is below it is lost with no host."""
        under_way = self.truncations()[ended:begun]
        done = [truncation for truncation in self.known[:ended] if truncation.outcome != blocks.REFUSED][-1:]
        known = min([self.size, *(truncation.length for truncation in done + under_way)])
        for rank in range(self.ranks):
            if not under_way and ended == self.board[Board.of_rank(rank, Board.SYNCED_AFTER)]:
                known = max(known, self.board[Board.of_rank(rank, Board.SYNCED_TO)])
        return known

    def read(self, index, start, length):
        own, ended = self.blocks[index], self.board[Board.ENDED]
        found = os.pread(self.descriptor, length, own.at + start)
        own.found(start, length, found, ended, self.board[Board.BEGUN], self.truncations(), self.host)
        self.journal.save(index, own)

    def read_all(self):
        for index, own in enumerate(self.blocks):
            self.read(index, 0, len(own.states[0][1]))

    def sync(self):
        ended = self.board[Board.ENDED]
        os.fsync(self.descriptor)
        ends = [own.at + end for own in self.blocks for _, end in own.risky]
        for index, own in enumerate(self.blocks):
            if own.risky:
                own.synced()
                self.journal.save(index, own)
        if ends and ended == self.board[Board.BEGUN]:
            # The end first: with the old number it says less.
            if self.board[self.word(Board.SYNCED_AFTER)] != ended:
                self.board[self.word(Board.SYNCED_TO)] = 0
            self.board[self.word(Board.SYNCED_TO)] = max(*ends, self.board[self.word(Board.SYNCED_TO)])
            self.board[self.word(Board.SYNCED_AFTER)] = ended


def main():
    board, journal, path, *numbers = sys.argv[1:]
    program = Program(board, journal, path, *map(int, numbers))
    try:
        program.run()
    except blocks.Wrong as wrong:
        sys.exit(f"rank {program.rank} on host {program.host}, operation {program.board[program.word(Board.DONE)]}: {wrong}")


if __name__ == "__main__":
    main()
