"""What a program may find in its blocks of a file that it alone writes, while others truncate the file and hosts fail.

A block is a plain vector of bytes, and whoever owns it knows its content but for three things:

- A truncation may be under way: what lies beyond its length is zeros then, whether the file ends there or was made longer again. The *board* says how many
  have ended before an operation began, and how many have begun when it returned; a block has a state for each order of the two that can be.
- A write that failed, or whose program was killed, may have landed or not, each byte for itself (`doubts`). A truncation for which the host was shut out
  came after it, so none of it is left beyond that.
- A size that a lost host had neither synced nor closed may be lost with it: what was acknowledged beyond the size that others knew may be zeros (`risky`, and
  `may_be_zeros` once that has happened). Of a host that is silent, or was shut out, nothing is lost.

The first read that tells two of these apart decides: from then on nothing but what it has found is right.
"""

DONE, REFUSED, UNKNOWN = 1, 2, 3


class Wrong(Exception):
    """Bytes that nobody can have left there."""


class Truncation:
    """`length`: what the file was cut to. `outcome`: 0 while it is under way. `without`: the hosts that were shut out before it was done."""

    def __init__(self, length, outcome=0, without=frozenset()):
        self.length, self.outcome, self.without = length, outcome, without

    def __repr__(self):
        return f"to {self.length}: {self.outcome}"


def cut(data, at, length):
    kept = min(max(length - at, 0), len(data))
    return data[:kept] + bytes(len(data) - kept)


def put(data, start, written):
    return data[:start] + written + data[start + len(written) :]


class Block:
    def __init__(self, at, length):
        self.at = at
        # After so many truncations, what it holds; and whether the last of them was still under way when that was found to be possible.
        self.states = [(0, bytes(length), False)]
        self.doubts, self.risky, self.may_be_zeros = [], [], []
        # The last writes, to say in a failure whose bytes were found.
        self.last_writes = []

    def _advance(self, ended, truncations):
        """After these truncations at least."""
        states = []
        for count, data, is_guess in self.states:
            if count > ended:
                states.append((count, data, is_guess))
                continue
            if is_guess and truncations[count - 1].outcome == REFUSED:
                continue
            possible = [data]
            for truncation in truncations[count:ended]:
                shorter = [cut(found, self.at, truncation.length) for found in possible]
                possible = {DONE: shorter, REFUSED: possible, UNKNOWN: possible + shorter}[truncation.outcome]
            states += [(ended, found, False) for found in possible]
        if not states:
            raise Wrong(f"block at {self.at}: a truncation that was refused took effect")
        self._keep(states)

    def _keep(self, states):
        found = {}
        for count, data, is_guess in states:
            # One that is certain cannot be refused any more.
            found[count, data] = found.get((count, data), True) and is_guess
        self.states = [(count, data, is_guess) for (count, data), is_guess in found.items()]

    def _with_those_under_way(self, begun, truncations):
        states = list(self.states)
        for count, data, _ in self.states:
            for number in range(count, begun):
                data = cut(data, self.at, truncations[number].length)
                states.append((number + 1, data, True))
        return states

    def wrote(self, start, written, ended, begun, truncations, known_bytes):
        """A write was acknowledged. `known_bytes`: how long the file is as others know for sure."""
        self._advance(ended, truncations)
        self.last_writes = [*self.last_writes[-4:], (start, written, ended, begun)]
        states = self._with_those_under_way(begun, truncations)
        self._keep([(count, put(data, start, written), is_guess) for count, data, is_guess in states])
        end = start + len(written)
        if self.at + end > known_bytes:
            self.risky.append((max(start, known_bytes - self.at), end))

    def failed(self, start, written, ended):
        """A write that began after so many truncations is not acknowledged."""
        self.doubts.append((start, written, ended))

    def synced(self):
        self.risky = []

    def host_was_lost(self):
        self.may_be_zeros += self.risky
        self.risky = []

    def is_doubtful(self):
        return bool(self.doubts or self.may_be_zeros)

    def found(self, start, length, found, ended, begun, truncations, host):
        """A read returned these bytes. One of a doubtful block is of the whole block."""
        self._advance(ended, truncations)
        # The file is shorter while a truncation is under way, and its owner may not have written what follows.
        found += bytes(length - len(found))
        states = self._with_those_under_way(begun, truncations)
        if self.is_doubtful():
            assert (start, length) == (0, len(self.states[0][1]))
            right = [(state[0], found, state[2]) for state in states if self._is_possible(found, state[1], truncations, host)]
        else:
            right = [state for state in states if state[1][start : start + length] == found]
        if not right:
            raise Wrong(f"{self._difference(start, found, states)}; {ended} to {begun} truncations, the last {truncations[-3:]}")
        self._keep(right)
        self.doubts, self.may_be_zeros = [], []

    def _is_possible(self, found, data, truncations, host):
        if found == data:
            return True
        maybe = []
        for start, written, ended in self.doubts:
            for truncation in truncations[ended:]:
                if truncation.outcome == DONE and host in truncation.without:
                    written = cut(written, self.at + start, truncation.length)
            maybe.append((start, written))
        for index, (byte, expected) in enumerate(zip(found, data)):
            if byte == expected:
                continue
            was_written = any(start <= index < start + len(written) and written[index - start] == byte for start, written in maybe)
            was_lost = byte == 0 and any(start <= index < end for start, end in self.may_be_zeros)
            if not was_written and not was_lost:
                return False
        return True

    def _difference(self, start, found, states):
        data = states[0][1]
        expected = data[start : start + len(found)]
        places = [index for index, (one, other) in enumerate(zip(found, expected)) if one != other]
        first, last = places[0], places[-1]
        what = "zeros" if not any(found[first : last + 1]) else found[first : min(last + 1, first + 16)].hex()
        wanted = "zeros" if not any(expected[first : last + 1]) else expected[first : min(last + 1, first + 16)].hex()
        for age, (at, written, ended, begun) in enumerate(reversed(self.last_writes)):
            if at <= start + first and found[first : last + 1] == written[start + first - at : start + last + 1 - at]:
                what += f", of the last write but {age}, which began after {ended} truncations and ended when {begun} had begun,"
                break
        writes = [
            f"{self.at + at} to {self.at + at + len(written) - 1} after {ended} truncations, with {begun} begun at its end"
            for at, written, ended, begun in self.last_writes
            if at <= start + last and start + first < at + len(written)
        ]
        return (
            f"{len(places)} of the bytes {self.at + start + first} to {self.at + start + last} are {what} rather than {wanted}"
            f" ({len(states)} states, {len(self.doubts)} writes in doubt; of the last {len(self.last_writes)} writes there: {'; '.join(writes) or 'none'})"
        )
