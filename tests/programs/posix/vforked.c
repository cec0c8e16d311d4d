/* Children of vfork, and of clone with their parent's memory, that use files before they end: all that they do to their descriptors and files is as in any other process, and
 * their parent's descriptors are what they were. */
#include "transcript.h"
#include <sched.h>

static int kept;

static void look(const char *what, int file)
{
    struct stat status;
    char text[100];
    int failed = fstat(file, &status);
    long long bytes = (long long)status.st_size;
    failed += stat(what, &status);
    int length = snprintf(text, sizeof text, "%s: %d, %lld and %lld bytes\n", what, failed, bytes, (long long)status.st_size);
    if (write(1, text, (size_t)length) != length)
        _exit(3);
}

/* By number, what a child does. */
static void act(int what)
{
    char buffer[100] = "";
    int file;
    switch (what) {
    case 0: /* its standard error is the parent's file */
        dup2(kept, 2);
        if (write(2, "by the child\n", 13) != 13 || dprintf(2, "and %s\n", "formatted") != 14)
            _exit(1);
        break;
    case 1: /* a file of its own, after a program that is not there */
        file = open("own", O_CREAT | O_WRONLY, 0644);
        dup2(file, 2);
        close(file);
        execl("/nonexistent/program", "x", (char *)NULL);
        dprintf(2, "no program: %s\n", errno_name(errno));
        look("own", 2);
        break;
    case 2: /* read and written */
        file = open("read", O_RDWR);
        if (read(file, buffer, 5) != 5 || write(1, buffer, 5) != 5 || write(1, "\n", 1) != 1)
            _exit(1);
        if (pwrite(file, "PWRITE", 6, 100) != 6 || lseek(file, 0, SEEK_END) != 106 || ftruncate(file, 103) != 0 || fsync(file) != 0)
            _exit(2);
        look("read", file);
        break;
    case 3: { /* into several buffers, of a file that the parent has open */
        struct iovec parts[2] = {{buffer, 3}, {buffer + 10, 4}};
        ssize_t moved = preadv(kept, parts, 2, 3);
        int length = snprintf(buffer + 20, 50, "%zd: %.3s %.4s\n", moved, buffer, buffer + 10);
        if (write(1, buffer + 20, (size_t)length) != length)
            _exit(1);
        break;
    }
    case 4: /* the number of one of the parent's files is another file here */
        file = open("other", O_CREAT | O_RDWR | O_TRUNC, 0644);
        dup2(file, kept);
        if (write(kept, "other", 5) != 5)
            _exit(1);
        close(file);
        break;
    }
    _exit(0);
}

static int act_as_clone(void *what)
{
    act((int)(intptr_t)what);
    return 0;
}

static void by_vfork(int what)
{
    pid_t child = vfork();
    if (child == 0)
        act(what);
    int status;
    waitpid(child, &status, 0);
    show_child(status);
}

static void by_clone(int what)
{
    static char stack[1 << 20];
    pid_t child = clone(act_as_clone, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, (void *)(intptr_t)what);
    int status;
    waitpid(child, &status, 0);
    show_child(status);
}

static void contents(const char *path)
{
    char buffer[200];
    int file = (int)CALL(open(path, O_RDONLY));
    ssize_t count = CALL(read(file, buffer, sizeof buffer));
    show(path, buffer, count > 0 ? (size_t)count : 0);
    CALL(close(file));
}

int main(void)
{
    umask(0);
    void (*made[])(int) = {by_vfork, by_clone};
    for (int how = 0; how < 2; how++) {
        kept = (int)CALL(open("kept", O_CREAT | O_RDWR | O_TRUNC, 0644));
        int file = (int)CALL(open("read", O_CREAT | O_WRONLY | O_TRUNC, 0644));
        CALL(write(file, "to be read", 10));
        CALL(close(file));
        for (int what = 0; what <= 4; what++) {
            say("child %d", what);
            made[how](what);
            CALL(lseek(kept, 0, SEEK_CUR));
            CALL(write(kept, "parent\n", 7));
        }
        CALL(close(kept));
        contents("kept");
        contents("own");
        contents("read");
        contents("other");
        CALL(unlink("own"));
    }
    return 0;
}
