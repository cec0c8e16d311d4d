/* A program that may open few descriptors: it gets all of them, in order, then EMFILE, and goes on working with what
 * it has. */
#include "transcript.h"
#include <sys/resource.h>

int main(void)
{
    int first = (int)CALL(open("shown", O_RDWR | O_CREAT | O_TRUNC, 0644));
    CALL(write(first, "shown", 5));
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 16;
    CALL(setrlimit(RLIMIT_NOFILE, &limit));
    int opened = 0;
    while (open("shown", O_RDONLY) >= 0)
        opened++;
    say("%s after %d", errno_name(errno), opened);
    CALL(open("another", O_RDWR | O_CREAT | O_EXCL, 0644));
    CALL(access("another", F_OK));
    CALL(dup(first));
    CALL(close(10));
    CALL(open("another", O_RDWR | O_CREAT, 0644));
    CALL(write(10, "ten", 3));
    CALL(pwrite(10, "and far away", 12, 3000000));
    CALL(close(11));
    show_file("another");
    getrlimit(RLIMIT_NOFILE, &limit);
    say("limit %llu", (unsigned long long)limit.rlim_cur);
    return 0;
}
