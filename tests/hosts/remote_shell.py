#!/usr/bin/env python3
"""A remote shell between the hosts of a test bed, as rsh is one: what an MPI launcher starts its agents with.

    remote_shell.py serve ADDRESS        prints "listening", then serves whoever connects
    remote_shell.py run HOST WORD...     runs the words, joined by spaces, in a shell on the host

Both directions of one connection carry frames: a byte that says what follows, four bytes of length, the bytes. A
connection goes through the hosts' network, so that cutting that off cuts off the shell. A command whose connection ends
gets SIGHUP, and SIGKILL when it is still there after that. There is no check of who asks: the network is the bed's own.
"""

import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading

PORT = 514
COMMAND, INPUT, INPUT_END, OUTPUT, ERRORS, STATUS = range(6)
HEADER = struct.Struct("!BI")
CHUNK = 1 << 16
GRACE_SECONDS = 1
CANNOT_REACH = 255


def send(connection, kind, content=b""):
    connection.sendall(HEADER.pack(kind, len(content)) + content)


def receive(connection):
    """The next frame; None at the end of the connection."""
    def exactly(count):
        parts = []
        while count:
            part = connection.recv(count)
            if not part:
                return None
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    header = exactly(HEADER.size)
    if header is None:
        return None
    kind, length = HEADER.unpack(header)
    content = exactly(length)
    return None if content is None else (kind, content)


def feed(connection, process):
    """Gives the command its input; ends it when the connection ends first."""
    try:
        while (frame := receive(connection)) is not None:
            try:
                if frame[0] == INPUT:
                    process.stdin.write(frame[1])
                    process.stdin.flush()
                else:
                    process.stdin.close()
            except (BrokenPipeError, ValueError):
                pass
    except OSError:
        pass
    for number in (signal.SIGHUP, signal.SIGKILL):
        try:
            if process.poll() is None:
                os.killpg(process.pid, number)
                process.wait(GRACE_SECONDS)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


def serve_one(connection):
    with connection:
        frame = receive(connection)
        if frame is None or frame[0] != COMMAND:
            return
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(["/bin/sh", "-c", frame[1]], cwd="/", start_new_session=True, **pipes)
        feeder = threading.Thread(target=feed, args=(connection, process), daemon=True)
        feeder.start()
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(process.stdout, selectors.EVENT_READ, OUTPUT)
                selector.register(process.stderr, selectors.EVENT_READ, ERRORS)
                while selector.get_map():
                    for key, _ in selector.select():
                        content = os.read(key.fileobj.fileno(), CHUNK)
                        if content:
                            send(connection, key.data, content)
                        else:
                            selector.unregister(key.fileobj)
            send(connection, STATUS, struct.pack("!i", process.wait()))
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            connection.close()
        feeder.join()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def serve(address):
    with socket.create_server((address, PORT), backlog=64) as listener:
        print("listening", flush=True)
        while True:
            threading.Thread(target=serve_one, args=(listener.accept()[0],), daemon=True).start()


def send_input(connection):
    try:
        while content := os.read(0, CHUNK):
            send(connection, INPUT, content)
        send(connection, INPUT_END)
    except OSError:
        pass


def run(words):
    """As rsh is called: `-l USER` and other options, the host, the command."""
    while words and words[0].startswith("-"):
        words = words[2:] if words[0] == "-l" else words[1:]
    if len(words) < 2:
        print("usage: remote_shell.py run HOST WORD...", file=sys.stderr)
        return 2
    host, command = words[0], " ".join(words[1:])
    try:
        with socket.create_connection((host, PORT)) as connection:
            send(connection, COMMAND, command.encode())
            threading.Thread(target=send_input, args=(connection,), daemon=True).start()
            while (frame := receive(connection)) is not None:
                kind, content = frame
                if kind == STATUS:
                    status = struct.unpack("!i", content)[0]
                    return status if status >= 0 else 128 - status
                while content:
                    content = content[os.write(1 if kind == OUTPUT else 2, content):]
    except OSError as error:
        print(f"remote_shell.py: {host}: {error}", file=sys.stderr)
        return CANNOT_REACH
    print(f"remote_shell.py: {host} ended the connection", file=sys.stderr)
    return CANNOT_REACH


def main():
    words = sys.argv[1:]
    if words[:1] == ["serve"] and len(words) == 2:
        serve(words[1])
    if words[:1] == ["run"]:
        status = run(words[1:])
        # The thread that waits for input would be waited for.
        sys.stdout.flush()
        os._exit(status)
    print(__doc__, file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
