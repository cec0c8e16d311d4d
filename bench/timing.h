/* What the programs of bench/run.py share: a clock, and an end at the first failure. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void demand(int good, const char *what)
{
    if (!good) {
        perror(what);
        exit(2);
    }
}
