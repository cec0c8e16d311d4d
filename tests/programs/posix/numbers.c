/* System calls by number, through libc's syscall(): each means on a managed file what the function of its name means.
 * A descriptor that came, went or moved by number is known to the functions, too. */
#include "transcript.h"
#include <linux/openat2.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/vfs.h>
#include <utime.h>

#define BYTES 10000
static char data[BYTES], other[BYTES];

static void opens(void)
{
    int fd = (int)CALL(syscall(SYS_open, "f", O_RDWR | O_CREAT | O_EXCL, 0640));
    CALL(write(fd, data, BYTES));
    CALL(syscall(SYS_close, fd));
    CALL(write(fd, data, 1));
    fd = (int)CALL(syscall(SYS_openat, AT_FDCWD, "f", O_RDONLY));
    memset(other, 0, BYTES);
    CALL(syscall(SYS_read, fd, other, (size_t)BYTES));
    say("same %d", memcmp(data, other, BYTES) == 0);
    CALL(syscall(SYS_close, fd));
    fd = (int)CALL(syscall(SYS_creat, "g", 0600));
    CALL(syscall(SYS_write, fd, "created", 7UL));
    CALL(syscall(SYS_close, fd));
    show_file("g");
    /* The cut is the data's. */
    fd = (int)CALL(syscall(SYS_open, "g", O_WRONLY | O_TRUNC, 0));
    CALL(syscall(SYS_close, fd));
    show_file("g");

    struct open_how how = {.flags = O_RDWR | O_CREAT, .mode = 0604};
    fd = (int)CALL(syscall(SYS_openat2, AT_FDCWD, "h", &how, sizeof how));
    CALL(syscall(SYS_write, fd, "how", 3UL));
    CALL(syscall(SYS_close, fd));
    how = (struct open_how){.flags = O_RDWR | O_TRUNC, .resolve = RESOLVE_NO_SYMLINKS};
    fd = (int)CALL(syscall(SYS_openat2, AT_FDCWD, "h", &how, sizeof how));
    CALL(syscall(SYS_write, fd, "cut", 3UL));
    CALL(syscall(SYS_close, fd));
    show_file("h");
    how = (struct open_how){.flags = O_RDWR, .mode = 0600};
    CALL(syscall(SYS_openat2, AT_FDCWD, "h", &how, sizeof how));
    how = (struct open_how){.flags = O_RDWR | O_CREAT, .mode = 0600, .resolve = RESOLVE_BENEATH};
    fd = (int)TAGGED("openat2_new_below", syscall(SYS_openat2, AT_FDCWD, "h2", &how, sizeof how));
    if (fd >= 0)
        close(fd);
    unlink("h2");
}

static void moves(void)
{
    int fd = open("f", O_RDWR);
    CALL(syscall(SYS_pwrite64, fd, "at 5000", 7UL, 5000L));
    memcpy(data + 5000, "at 5000", 7);
    CALL(syscall(SYS_pread64, fd, other, 100UL, 4990L));
    say("same %d", memcmp(data + 4990, other, 100) == 0);
    struct iovec parts[2] = {{other, 10}, {other + 10, 20}};
    CALL(syscall(SYS_lseek, fd, 4995L, SEEK_SET));
    CALL(syscall(SYS_readv, fd, parts, 2));
    CALL(syscall(SYS_lseek, fd, 0L, SEEK_CUR));
    say("same %d", memcmp(data + 4995, other, 30) == 0);
    CALL(syscall(SYS_preadv, fd, parts, 2, 1000L, 0L));
    say("same %d", memcmp(data + 1000, other, 30) == 0);
    CALL(syscall(SYS_preadv2, fd, parts, 2, -1L, -1L, 0));
    CALL(lseek(fd, 0, SEEK_CUR));
    CALL(syscall(SYS_preadv2, fd, parts, 2, 2000L, 0L, 0));
    say("same %d", memcmp(data + 2000, other, 30) == 0);
    CALL(syscall(SYS_writev, fd, parts, 2));
    CALL(syscall(SYS_pwritev, fd, parts, 2, 7000L, 0L));
    CALL(syscall(SYS_pwritev2, fd, parts, 2, 1L, 0L, RWF_APPEND));
    CALL(syscall(SYS_lseek, fd, 0L, SEEK_END));
    CALL(syscall(SYS_lseek, fd, -1L, SEEK_SET));
    CALL(syscall(SYS_pread64, fd, other, 1UL, -1L));
    CALL(syscall(SYS_readv, fd, parts, -1));
    CALL(close(fd));
    show_file("f");
}

static void sizes(void)
{
    int fd = open("f", O_RDWR);
    CALL(syscall(SYS_ftruncate, fd, 20000L));
    CALL(syscall(SYS_fallocate, fd, 0, 0L, 30000L));
    CALL(syscall(SYS_fsync, fd));
    CALL(syscall(SYS_fdatasync, fd));
    CALL(syscall(SYS_sync_file_range, fd, 0L, 0L, 2));
    CALL(syscall(SYS_syncfs, fd));
    CALL(syscall(SYS_sync));
    CALL(syscall(SYS_readahead, fd, 0L, 4096UL));
    CALL(syscall(SYS_fadvise64, fd, 0L, 0L, POSIX_FADV_DONTNEED));
    struct stat status;
    CALL(syscall(SYS_fstat, fd, &status));
    show_stat("fstat", &status);
    CALL(syscall(SYS_truncate, "f", 12345L));
    CALL(syscall(SYS_stat, "f", &status));
    show_stat("stat", &status);
    CALL(symlink("f", "link"));
    CALL(syscall(SYS_lstat, "link", &status));
    say("a link %d", S_ISLNK(status.st_mode));
    CALL(syscall(SYS_newfstatat, AT_FDCWD, "link", &status, 0));
    show_stat("newfstatat", &status);
    struct statx extended;
    CALL(syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_SIZE, &extended));
    say("size %llu", (unsigned long long)extended.stx_size);
    struct statfs system;
    CALL(syscall(SYS_statfs, "f", &system));
    CALL(syscall(SYS_fstatfs, fd, &system));
    CALL(unlink("link"));
    CALL(close(fd));
    show_file("f");
}

static void descriptors(void)
{
    char byte;
    int fd = open("f", O_RDWR);
    int twin = (int)CALL(syscall(SYS_dup, fd));
    CALL(syscall(SYS_lseek, fd, 777L, SEEK_SET));
    CALL(lseek(twin, 0, SEEK_CUR));
    /* Over a descriptor of something else, and something else over it. */
    int pipes[2];
    if (pipe(pipes) != 0)
        return;
    CALL(syscall(SYS_dup2, fd, pipes[0]) == pipes[0]);
    CALL(lseek(pipes[0], 0, SEEK_CUR));
    CALL(read(pipes[0], &byte, 1));
    CALL(syscall(SYS_dup3, pipes[1], twin, O_CLOEXEC) == twin);
    CALL(lseek(twin, 0, SEEK_CUR));
    int third = (int)CALL(syscall(SYS_fcntl, fd, F_DUPFD, 50));
    CALL(read(third, &byte, 1));
    CALL(lseek(fd, 0, SEEK_CUR));
    CALL(syscall(SYS_fcntl, fd, F_GETFL) & (O_ACCMODE | O_APPEND));
    CALL(syscall(SYS_fcntl, fd, F_SETFL, O_APPEND));
    CALL(write(third, "appended", 8));
    int left = 0;
    CALL(syscall(SYS_lseek, fd, 12000L, SEEK_SET));
    CALL(syscall(SYS_ioctl, fd, 0x541b /* FIONREAD */, &left));
    say("left %d", left);
    CALL(syscall(SYS_close_range, third, third, 0));
    CALL(read(third, &byte, 1));
    close(pipes[0]);
    close(pipes[1]);
    close(twin);
    CALL(close(fd));
    /* The numbers lead to new files. */
    fd = (int)CALL(open("g", O_RDWR));
    CALL(write(fd, "g again", 7));
    CALL(close(fd));
    show_file("f");
    show_file("g");
}

static void names(void)
{
    struct stat status;
    CALL(syscall(SYS_rename, "g", "g1"));
    CALL(syscall(SYS_renameat, AT_FDCWD, "g1", AT_FDCWD, "g2"));
    CALL(syscall(SYS_renameat2, AT_FDCWD, "g2", AT_FDCWD, "h", 1 /* RENAME_NOREPLACE */));
    CALL(syscall(SYS_renameat2, AT_FDCWD, "g2", AT_FDCWD, "h", 0));
    show_file("h");
    CALL(syscall(SYS_link, "h", "h1"));
    CALL(syscall(SYS_linkat, AT_FDCWD, "h", AT_FDCWD, "h2", 0));
    CALL(stat("h", &status));
    show_stat("linked", &status);
    CALL(syscall(SYS_unlink, "h1"));
    CALL(syscall(SYS_unlinkat, AT_FDCWD, "h2", 0));
    CALL(syscall(SYS_chmod, "h", 0640));
    CALL(syscall(SYS_fchmodat, AT_FDCWD, "h", 0644));
    int fd = open("h", O_RDWR);
    CALL(syscall(SYS_fchmod, fd, 0604));
    CALL(syscall(SYS_fchown, fd, -1, -1));
    CALL(syscall(SYS_chown, "h", -1, -1));
    CALL(syscall(SYS_lchown, "h", -1, -1));
    CALL(syscall(SYS_fchownat, AT_FDCWD, "h", -1, -1, 0));
    struct utimbuf seconds = {1000000, 2000000};
    CALL(syscall(SYS_utime, "h", &seconds));
    CALL(stat("h", &status));
    say("modified %ld", (long)status.st_mtime);
    struct timeval times[2] = {{3000000, 0}, {4000000, 0}};
    CALL(syscall(SYS_utimes, "h", times));
    times[1].tv_sec = 5000000;
    CALL(syscall(SYS_futimesat, AT_FDCWD, "h", times));
    CALL(stat("h", &status));
    say("modified %ld", (long)status.st_mtime);
    struct timespec fine[2] = {{6000000, 0}, {7000000, 0}};
    CALL(syscall(SYS_utimensat, fd, NULL, fine, 0));
    CALL(fstat(fd, &status));
    say("modified %ld", (long)status.st_mtime);
    show_stat("at last", &status);
    CALL(close(fd));
}

static void refused(void)
{
    int from = open("f", O_RDWR), to = open("h", O_RDWR | O_TRUNC);
    loff_t at = 100;
    long moved = TAGGED("copy_file_range", syscall(SYS_copy_file_range, from, &at, to, NULL, 1000UL, 0));
    if (moved < 0 && (pread(from, other, 1000, 100) != 1000 || write(to, other, 1000) != 1000))
        say("WRONG: no copy by hand");
    at = 0;
    if (TAGGED("sendfile", syscall(SYS_sendfile, to, from, &at, 500UL)) < 0 &&
        (pread(from, other, 500, 0) != 500 || write(to, other, 500) != 500))
        say("WRONG: no copy by hand");
    int pipes[2];
    if (pipe(pipes) != 0)
        return;
    at = 0;
    TAGGED("splice_from", syscall(SYS_splice, from, &at, pipes[1], NULL, 100UL, 0));
    char *map = (char *)syscall(SYS_mmap, NULL, 8192UL, PROT_READ, MAP_PRIVATE, from, 0L);
    if (tagged_after("mmap_private_read", map == MAP_FAILED ? -1 : 0) == 0) {
        show("map", map, 8192);
        munmap(map, 8192);
    }
    map = (char *)syscall(SYS_mmap, NULL, 8192UL, PROT_READ | PROT_WRITE, MAP_SHARED, from, 0L);
    if (tagged_after("mmap_shared_write", map == MAP_FAILED ? -1 : 0) == 0) {
        memcpy(map, "by the map", 10);
        munmap(map, 8192);
    } else if (pwrite(from, "by the map", 10, 0) != 10) {
        say("WRONG: no write by hand");
    }
    close(from);
    close(to);
    show_file("f");
    show_file("h");
}

static void process(void)
{
    /* A child by number uses its parent's files, and ends by number. */
    int fd = open("f", O_RDWR);
    pid_t child = (pid_t)syscall(SYS_fork);
    if (child == 0) {
        int written = syscall(SYS_pwrite64, fd, "child", 5UL, 42L) == 5;
        syscall(SYS_exit_group, written ? 7 : 8);
    }
    int status;
    if (waitpid(child, &status, 0) != child)
        return;
    show_child(status);
    CALL(pread(fd, other, 5, 42));
    say("%.5s", other);
    close(fd);
    fflush(stdout);
    char *const arguments[] = {"cat", "g", NULL}, *const environment[] = {NULL};
    CALL(open("g", O_WRONLY | O_CREAT, 0644));
    syscall(SYS_execve, "/bin/echo", arguments, environment);
    say("WRONG: exec");
}

int main(void)
{
    umask(022);
    fill(data, BYTES, 11);
    opens();
    moves();
    sizes();
    descriptors();
    names();
    refused();
    process();
    return 1;
}
