/* fcntl record locks, open file description locks, flock and lockf between processes: a lock excludes, is released at
 * the holder's close and death, and the data written under it adds up. */
#include "transcript.h"
#include <sys/file.h>

static int lock(int fd, int command, short type, off_t start, off_t length)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
    return fcntl(fd, command, &lock);
}

static void ask(int fd, off_t start)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = 1};
    int result = fcntl(fd, F_GETLK, &lock);
    say("F_GETLK at %lld = %d, type %d", (long long)start, result, lock.l_type);
}

static int in_child(int (*job)(void))
{
    int status;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        _exit(job());
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int try_range(void)
{
    int fd = open("f", O_RDWR);
    ask(fd, 5);
    ask(fd, 50);
    CALL(lock(fd, F_SETLK, F_WRLCK, 0, 10));
    CALL(lock(fd, F_SETLK, F_WRLCK, 20, 10));
    CALL(lock(fd, F_SETLK, F_RDLCK, 40, 1));
    CALL(lock(fd, F_OFD_SETLK, F_WRLCK, 0, 0));
    CALL(flock(fd, LOCK_EX | LOCK_NB));
    CALL(lseek(fd, 0, SEEK_SET));
    CALL(lockf(fd, F_TEST, 10));
    CALL(lockf(fd, F_TLOCK, 10));
    return 0;
}

static int count(void)
{
    int fd = open("counter", O_RDWR);
    for (int i = 0; i < 300; i++) {
        uint64_t value = 0;
        if (lock(fd, F_SETLKW, F_WRLCK, 0, 8) != 0 || pread(fd, &value, 8, 0) != 8)
            return 1;
        value++;
        if (pwrite(fd, &value, 8, 0) != 8 || lock(fd, F_SETLKW, F_UNLCK, 0, 8) != 0)
            return 1;
    }
    return 0;
}

int main(void)
{
    int fd = (int)CALL(open("f", O_RDWR | O_CREAT | O_TRUNC, 0644));
    CALL(write(fd, "0123456789", 10));
    CALL(lock(fd, F_SETLK, F_WRLCK, 0, 10));
    CALL(lock(fd, F_SETLK, F_RDLCK, 40, 5));
    CALL(flock(fd, LOCK_EX));
    say("child %d", in_child(try_range));
    CALL(flock(fd, LOCK_UN));
    CALL(lock(fd, F_SETLK, F_UNLCK, 0, 0));
    say("child %d", in_child(try_range));
    CALL(lseek(fd, 0, SEEK_SET));
    CALL(lockf(fd, F_LOCK, 10));
    say("child %d", in_child(try_range));
    /* Closing any descriptor of the file drops this process's record locks; reading it by others must not. */
    show_file("f");
    say("child %d", in_child(try_range));
    CALL(lock(fd, F_OFD_SETLK, F_WRLCK, 0, 3));
    show_file("f");
    say("child %d", in_child(try_range));
    CALL(lock(fd, F_SETLK, 77, 0, 1));
    CALL(lock(fd, F_OFD_SETLK, F_UNLCK, 0, 3));
    /* An open alone drops none, not even one that only writes: the library once read the stub beside it, and closed. */
    CALL(lock(fd, F_SETLK, F_WRLCK, 0, 10));
    int writer = (int)CALL(open("f", O_WRONLY));
    say("child %d", in_child(try_range));
    CALL(lock(writer, F_SETLK, F_WRLCK, 20, 10));
    say("child %d", in_child(try_range));
    CALL(lock(writer, F_SETLK, F_RDLCK, 20, 10));
    int reader = (int)CALL(open("f", O_RDONLY));
    CALL(lock(reader, F_SETLK, F_WRLCK, 30, 1));
    say("child %d", in_child(try_range));
    CALL(close(reader));
    say("child %d", in_child(try_range));
    CALL(close(writer));

    uint64_t zero = 0;
    int counter = (int)CALL(open("counter", O_RDWR | O_CREAT | O_TRUNC, 0644));
    CALL(write(counter, &zero, 8));
    for (int i = 0; i < 4; i++)
        if (fork() == 0)
            _exit(count());
    for (int i = 0, status; i < 4; i++) {
        wait(&status);
        show_child(status);
    }
    CALL(pread(counter, &zero, 8, 0));
    say("counter %llu", (unsigned long long)zero);
    return 0;
}
