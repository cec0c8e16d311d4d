/* Many small files, for the benchmarks of bench/run.py: it knows nothing of Stripewise.
 *
 *   small_files DIR COUNT        creates COUNT files of 100 bytes in DIR, then stats, opens and closes, and unlinks each
 *   small_files DIR COUNT keep   creates them and ends
 *
 * Prints the time of each of the four loops, in ns: create (with write and close), stat, open_close, unlink. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "timing.h"

enum { BYTES = 100 };

static const char *name(const char *directory, long number)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/small-%ld", directory, number);
    return path;
}

static void create(const char *path)
{
    char bytes[BYTES];
    memset(bytes, 'x', sizeof bytes);
    int file = open(path, O_CREAT | O_EXCL | O_WRONLY, 0644);
    demand(file >= 0, "creating");
    demand(write(file, bytes, sizeof bytes) == BYTES, "writing");
    demand(close(file) == 0, "closing");
}

int main(int count, char **words)
{
    if (count != 3 && !(count == 4 && strcmp(words[3], "keep") == 0)) {
        fprintf(stderr, "usage: small_files DIR COUNT [keep]\n");
        return 2;
    }
    const char *directory = words[1];
    long files = atol(words[2]);
    struct stat status;
    /* The first one pays for what a process does once. */
    create(name(directory, -1));
    demand(stat(name(directory, -1), &status) == 0, "stat");
    demand(unlink(name(directory, -1)) == 0, "unlink");
    long long times[5] = {now_ns()};
    for (long number = 0; number < files; number++)
        create(name(directory, number));
    times[1] = now_ns();
    if (count == 4)
        return 0;
    for (long number = 0; number < files; number++) {
        demand(stat(name(directory, number), &status) == 0, "stat");
        if (status.st_size != BYTES) {
            fprintf(stderr, "%s: %lld bytes\n", name(directory, number), (long long)status.st_size);
            return 2;
        }
    }
    times[2] = now_ns();
    for (long number = 0; number < files; number++) {
        int file = open(name(directory, number), O_RDONLY);
        demand(file >= 0, "open");
        demand(close(file) == 0, "close");
    }
    times[3] = now_ns();
    for (long number = 0; number < files; number++)
        demand(unlink(name(directory, number)) == 0, "unlink");
    times[4] = now_ns();
    for (int loop = 0; loop < 4; loop++)
        printf("%lld%c", times[loop + 1] - times[loop], loop < 3 ? ' ' : '\n');
    return 0;
}
