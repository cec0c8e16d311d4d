/* Reads and writes of 4 KiB, half and half, at random places of a file of 64 MiB; prints ns per operation: of the loop, and CPU time of the process so far. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int argc, char **argv)
{
    static char buffer[4096];
    long count = argc > 2 ? atol(argv[2]) : 1000000;
    int fd = open(argv[1], O_RDWR | O_CREAT, 0644);
    uint64_t state = 88172645463325252u;
    for (int i = 0; i < 16384; i++)
        if (pwrite(fd, buffer, sizeof buffer, (off_t)i * 4096) != sizeof buffer)
            return 1;
    double start = seconds(CLOCK_MONOTONIC);
    for (long i = 0; i < count; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        off_t place = (off_t)(state % 16384) * 4096;
        ssize_t done = i & 1 ? pread(fd, buffer, sizeof buffer, place) : pwrite(fd, buffer, sizeof buffer, place);
        if (done != sizeof buffer)
            return 1;
    }
    printf("%.1f\n", (seconds(CLOCK_MONOTONIC) - start) * 1e9 / (double)count);
    return 0;
}
