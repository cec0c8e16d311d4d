/* Writes twice to a file opened the way the argument says, or to any and syncs all files after each write, and waits for a line of input after that. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int count, char **arguments)
{
    static char bytes[1000];
    const char *how = count > 1 ? arguments[1] : "none";
    int flags = O_WRONLY | O_CREAT;
    flags |= !strcmp(how, "sync") ? O_SYNC : 0;
    flags |= !strcmp(how, "dsync") ? O_DSYNC : 0;
    flags |= !strcmp(how, "append") ? O_SYNC | O_APPEND : 0;
    int fd = open("file", flags, 0644);
    for (size_t length = 1000; length >= 500; length -= 500) {
        if (write(fd, bytes, length) != (ssize_t)length)
            return 1;
        if (!strcmp(how, "all"))
            sync();
        if (!strcmp(how, "all by number"))
            syscall(SYS_sync);
        puts("written");
        fflush(stdout);
        if (getchar() != '\n')
            return 1;
    }
    return 0;
}
