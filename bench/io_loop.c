/* One process that repeats one system call, for the benchmarks of bench/run.py: it knows nothing of Stripewise.
 *
 *   io_loop read|write FILE FILE_BYTES REQUEST_BYTES COUNT   sequential pread or pwrite, wrapping at FILE_BYTES
 *   io_loop mixed FILE FILE_BYTES REQUEST_BYTES COUNT        pwrite and pread in turn
 *   io_loop open FILE - - COUNT                              open and close
 *
 * Prints the time of the loop alone, in ns. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "timing.h"

static void move(int writing, int file, char *buffer, long long bytes, long long offset)
{
    ssize_t done = writing ? pwrite(file, buffer, (size_t)bytes, offset) : pread(file, buffer, (size_t)bytes, offset);
    demand(done == bytes, writing ? "pwrite" : "pread");
}

int main(int argc, char **argv)
{
    demand(argc == 6, "usage: io_loop read|write|mixed|open FILE FILE_BYTES REQUEST_BYTES COUNT");
    const char *kind = argv[1], *path = argv[2];
    long long file_bytes = atoll(argv[3]), bytes = atoll(argv[4]), count = atoll(argv[5]);
    if (!strcmp(kind, "open")) {
        long long start = now_ns();
        for (long long i = 0; i < count; i++) {
            int file = open(path, O_RDONLY);
            demand(file >= 0, path);
            close(file);
        }
        printf("%lld\n", now_ns() - start);
        return 0;
    }
    int mixed = !strcmp(kind, "mixed"), writing = mixed || !strcmp(kind, "write");
    int file = open(path, writing ? O_RDWR : O_RDONLY);
    demand(file >= 0, path);
    char *buffer = NULL;
    demand(posix_memalign((void **)&buffer, 4096, (size_t)bytes) == 0, "memory");
    memset(buffer, 'x', (size_t)bytes);
    long long offset = 0, start = now_ns();
    for (long long i = 0; i < count; i++) {
        move(writing && !(mixed && i % 2), file, buffer, bytes, offset);
        if (!mixed || i % 2)
            offset = offset + 2 * bytes <= file_bytes ? offset + bytes : 0;
    }
    printf("%lld\n", now_ns() - start);
    return close(file);
}
