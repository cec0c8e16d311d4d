/* Errors that need another user or a limit: EACCES and EPERM as nobody, EFBIG and SIGXFSZ by RLIMIT_FSIZE. */
#include "transcript.h"
#include <grp.h>
#include <sys/resource.h>

static void as_nobody(void)
{
    int inherited = 3;
    char buffer[8];
    CALL(open("secret", O_RDONLY));
    CALL(open("secret", O_WRONLY));
    CALL(access("secret", R_OK));
    CALL(truncate("secret", 0));
    CALL(chmod("secret", 0777));
    CALL(open("shown", O_RDWR));
    CALL(open("fresh", O_RDWR | O_CREAT, 0644));
    int shown = (int)CALL(open("shown", O_RDONLY));
    CALL(read(shown, buffer, 5));
    CALL(utimensat(AT_FDCWD, "shown", NULL, 0));
    /* A descriptor opened before the change of user keeps its rights. */
    CALL(pread(inherited, buffer, 6, 0));
    CALL(pwrite(inherited, "SECRET", 6, 0));
    CALL(unlink("shown"));
    CALL(rename("shown", "secret"));
    CALL(open("sub/below", O_RDONLY));
    /* May be written but not read, and shows only by its bytes what it is. */
    struct stat status;
    CALL(stat("secret", &status));
    say("size %lld", (long long)status.st_size);
    CALL(lstat("box", &status));
    say("size %lld", (long long)status.st_size);
    CALL(open("box", O_RDONLY));
    CALL(open("box", O_RDWR));
    int box = (int)CALL(open("box", O_WRONLY | O_APPEND));
    CALL(write(box, "more", 4));
    CALL(pread(box, buffer, 4, 0));
    CALL(close(box));
    box = (int)CALL(open("emptied", O_WRONLY | O_TRUNC));
    CALL(pwrite(box, "new", 3, 2));
    CALL(truncate("cut", 3));
}

static volatile sig_atomic_t too_big;

static void on_size(int number)
{
    (void)number;
    too_big = too_big + 1;
}

int main(void)
{
    umask(0);
    static char buffer[100000];
    int secret = (int)CALL(open("secret", O_RDWR | O_CREAT | O_TRUNC, 0600));
    CALL(write(secret, "secret", 6));
    int shown = (int)CALL(open("shown", O_RDWR | O_CREAT | O_TRUNC, 0644));
    CALL(write(shown, "shown", 5));
    CALL(close(shown));
    CALL(mkdir("sub", 0700));
    CALL(close((int)CALL(open("sub/below", O_RDWR | O_CREAT, 0666))));
    const char *boxes[] = {"box", "emptied", "cut"};
    for (int i = 0; i < 3; i++) {
        int box = (int)CALL(open(boxes[i], O_WRONLY | O_CREAT, 0602));
        CALL(write(box, "first", 5));
        CALL(close(box));
    }
    fflush(stdout);
    int status;
    if (geteuid() == 0) {
        if (fork() == 0) {
            if (setgroups(0, NULL) != 0 || setgid(65534) != 0 || setuid(65534) != 0)
                _exit(9);
            as_nobody();
            _exit(0);
        }
        wait(&status);
        show_child(status);
    } else {
        say("SKIP: only root can become nobody");
    }
    show_file("secret");
    for (int i = 0; i < 3; i++)
        show_file(boxes[i]);

    signal(SIGXFSZ, on_size);
    if (fork() == 0) {
        struct rlimit limit = {70000, 70000};
        setrlimit(RLIMIT_FSIZE, &limit);
        int fd = (int)CALL(open("limited", O_RDWR | O_CREAT | O_TRUNC, 0644));
        CALL(write(fd, buffer, sizeof buffer)); /* short: as far as the limit */
        CALL(write(fd, buffer, 1));
        CALL(pwrite(fd, buffer, 10, 69995));
        CALL(pwrite(fd, buffer, 10, 200000));
        CALL(ftruncate(fd, 70001));
        CALL(truncate("limited", 80000));
        say("signals %d", (int)too_big);
        CALL(ftruncate(fd, 65000));
        CALL(write(fd, "x", 0));
        _exit(0);
    }
    wait(&status);
    show_child(status);
    show_file("limited");

    /* A daemon lowers its limits, closes all that it finds and opens its own: under the numbers that it expects. */
    if (fork() == 0) {
        struct rlimit few = {64, 256};
        CALL(setrlimit(RLIMIT_NOFILE, &few));
        int first = (int)CALL(open("first", O_RDWR | O_CREAT, 0644));
        CALL(write(first, "first", 5));
        fflush(stdout);
        if (fork() == 0) {
            for (int fd = 3; fd < 64; fd++)
                close(fd);
            int second = (int)CALL(open("second", O_RDWR | O_CREAT, 0644));
            int third = (int)CALL(open("third", O_RDWR | O_CREAT, 0644));
            CALL(write(second, "second", 6));
            CALL(write(third, "third", 5));
            _exit(0);
        }
        wait(&status);
        show_child(status);
        _exit(0);
    }
    wait(&status);
    show_child(status);
    show_file("second");
    show_file("third");
    return 0;
}
