/* fcntl record locks, open file description locks, flock and lockf between processes: a lock excludes, is released at
 * the holder's close and death, outlives its exec, and the data written under it adds up. */
#include "transcript.h"
#include <dirent.h>
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

/* Nothing but the close of a descriptor drops the process's locks: the library once opened the file beside it, to read
 * its stub's text or to write, and the close of that dropped them. */
static void look_by_name(const char *path)
{
    struct stat status;
    struct timespec times[2] = {{.tv_sec = 5}, {.tv_sec = 6}};
    CALL(stat(path, &status));
    CALL(access(path, R_OK));
    CALL(utimensat(AT_FDCWD, path, times, 0));
    CALL(chmod(path, 0640));
    /* By way of another size: XFS leaves the time of a file alone that has the size already. */
    CALL(truncate(path, 12));
    CALL(truncate(path, 10));
    CALL(rename(path, "elsewhere"));
    CALL(rename("elsewhere", path));
    CALL(execl(path, path, (char *)NULL));
}

static int reading_holder(void)
{
    struct timespec times[2] = {{.tv_sec = 7}, {.tv_sec = 8}};
    int fd = (int)CALL(open("f", O_RDONLY));
    CALL(lock(fd, F_SETLK, F_RDLCK, 0, 10));
    CALL(futimens(fd, times));
    look_by_name("f");
    CALL(open("f", O_RDONLY | O_TRUNC));
    CALL(open("f", O_WRONLY));
    say("child %d", in_child(try_range));
    return 0;
}

/* An ordinary file of just a stub's size, beside the managed directory: the library looks at its text. */
static char ordinary[] = "/tmp/stripewise-locks-XXXXXX";

static int try_ordinary(void)
{
    int fd = open(ordinary, O_RDWR);
    CALL(lock(fd, F_SETLK, F_WRLCK, 0, 1));
    return 0;
}

static int ordinary_holder(void)
{
    static const char text[1021] = "stripes of another kind";
    int fd = mkstemp(ordinary);
    CALL(write(fd, text, sizeof text));
    CALL(fchmod(fd, 0755));
    CALL(lock(fd, F_SETLK, F_RDLCK, 0, 10));
    struct stat status;
    CALL(stat(ordinary, &status));
    CALL(execl(ordinary, ordinary, (char *)NULL));
    CALL(open(ordinary, O_WRONLY));
    say("child %d", in_child(try_ordinary));
    CALL(open(ordinary, O_RDONLY | O_TRUNC));
    say("child %d", in_child(try_ordinary));
    return unlink(ordinary);
}

static int low_descriptors(void)
{
    int count = 0;
    DIR *all = opendir("/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(all));)
        count += entry->d_name[0] != '.' && atoi(entry->d_name) < 900;
    closedir(all);
    return count;
}

static char *own_name;

static void become(const char *what, const char *descriptor)
{
    char *arguments[] = {own_name, (char *)what, (char *)descriptor, NULL};
    execv("/proc/self/exe", arguments);
}

/* What the program that another one became finds: its locks, without having used the descriptor before. */
static int after_exec(const char *what, int fd)
{
    say("%s: %d descriptors", what, low_descriptors());
    say("child %d", in_child(try_range));
    look_by_name("f");
    say("child %d", in_child(try_range));
    if (!strcmp(what, "once")) {
        static char number[16];
        snprintf(number, sizeof number, "%d", fd);
        become("twice", number);
    }
    char bytes[4];
    CALL(pread(fd, bytes, 4, 0));
    CALL(close(fd));
    say("child %d", in_child(try_range));
    return 0;
}

static int exec_holder(const char *what, int flags_of_other)
{
    char number[16];
    int fd = (int)CALL(open("f", O_RDWR));
    snprintf(number, sizeof number, "%d", fd);
    CALL(lock(fd, F_SETLK, F_WRLCK, 0, 10));
    CALL(lock(fd, F_SETLK, F_RDLCK, 40, 5));
    CALL(open("f", O_RDONLY | flags_of_other));
    CALL(pwrite(fd, "held", 4, 0));
    CALL(fsync(fd));
    CALL(execl("/nowhere", "/nowhere", (char *)NULL));
    say("child %d", in_child(try_range));
    become(what, number);
    return 1;
}

static int kept_by_exec(void) { return exec_holder("once", 0); }
static int dropped_by_exec(void) { return exec_holder("dropped", O_CLOEXEC); }

int main(int argc, char **argv)
{
    own_name = argv[0];
    if (argc > 2)
        return after_exec(argv[1], atoi(argv[2]));
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
    CALL(close(fd));
    say("child %d", in_child(reading_holder));
    say("child %d", in_child(ordinary_holder));
    say("child %d", in_child(kept_by_exec));
    say("child %d", in_child(dropped_by_exec));

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
