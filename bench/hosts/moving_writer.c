/* Writes blocks of a file at random places, with pauses, until there is input, and says which writes took long.
 *
 *   moving_writer FILE FILE_BYTES BLOCK_BYTES SEED PAUSE_US SHORTEST_NS
 *
 * Prints `ready` after the first write, and at the end a line `START_NS DURATION_NS` (CLOCK_MONOTONIC) for each write that took SHORTEST_NS or
 * longer, then `writes N`. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "../timing.h"

enum { MAX_LINES = 1 << 20 };

int main(int argc, char **argv)
{
    demand(argc == 7, "usage: moving_writer FILE FILE_BYTES BLOCK_BYTES SEED PAUSE_US SHORTEST_NS");
    long long file_bytes = atoll(argv[2]), block = atoll(argv[3]), shortest_ns = atoll(argv[6]);
    unsigned long long draw = (unsigned long long)atoll(argv[4]) * 2 + 1;
    int file = open(argv[1], O_RDWR);
    demand(file >= 0, argv[1]);
    char *data = malloc((size_t)block);
    long long (*lines)[2] = malloc(MAX_LINES * sizeof *lines);
    demand(data && lines, "memory");
    memset(data, 'y', (size_t)block);
    long count = 0, kept = 0;
    struct pollfd input = {.fd = 0, .events = POLLIN};
    for (;; count++) {
        draw = draw * 6364136223846793005ULL + 1442695040888963407ULL;
        long long place = (long long)((draw >> 33) % (unsigned long long)(file_bytes / block)) * block, start = now_ns();
        demand(pwrite(file, data, (size_t)block, place) == block, "pwrite");
        long long taken = now_ns() - start;
        if (taken >= shortest_ns && kept < MAX_LINES) {
            lines[kept][0] = start;
            lines[kept++][1] = taken;
        }
        if (count == 0) {
            puts("ready");
            fflush(stdout);
        }
        if (poll(&input, 1, 0) > 0)
            break;
        usleep((useconds_t)atoi(argv[5]));
    }
    for (long line = 0; line < kept; line++)
        printf("%lld %lld\n", lines[line][0], lines[line][1]);
    printf("writes %ld\n", count);
    return close(file);
}
