/* The stat family, statx, statfs, access, modes, owners and times. */
#include "transcript.h"
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/vfs.h>
#include <utime.h>

static void times(const char *path)
{
    struct stat s;
    if (stat(path, &s) == 0)
        say("%s: atime %lld.%09ld mtime %lld.%09ld", path, (long long)s.st_atim.tv_sec, s.st_atim.tv_nsec,
            (long long)s.st_mtim.tv_sec, s.st_mtim.tv_nsec);
}

int main(void)
{
    struct stat s, t;
    struct statx x;
    umask(027);
    int fd = (int)CALL(open("f", O_RDWR | O_CREAT | O_TRUNC, 0666));
    CALL(fstat(fd, &s));
    show_stat("empty", &s);
    static char buffer[100000];
    CALL(write(fd, buffer, sizeof buffer));
    CALL(fsync(fd));
    CALL(fstat(fd, &s));
    show_stat("fstat", &s);
    CALL(stat("f", &t));
    show_stat("stat", &t);
    say("same file: %d", s.st_ino == t.st_ino && s.st_dev == t.st_dev && s.st_uid == geteuid());
    CALL(symlink("f", "l"));
    CALL(lstat("f", &t));
    show_stat("lstat", &t);
    CALL(stat("l", &t));
    show_stat("stat of the link", &t);
    CALL(lstat("l", &t));
    say("lstat of the link: type %o size %lld", t.st_mode & S_IFMT, (long long)t.st_size);
    CALL(fstatat(AT_FDCWD, "l", &t, AT_SYMLINK_NOFOLLOW));
    CALL(fstatat(AT_FDCWD, "f", &t, 0));
    show_stat("fstatat", &t);
    CALL(fstatat(fd, "", &t, AT_EMPTY_PATH));
    show_stat("fstatat of nothing", &t);
    CALL(statx(AT_FDCWD, "f", 0, STATX_BASIC_STATS, &x));
    say("statx: mode %o links %u size %llu", x.stx_mode, x.stx_nlink, (unsigned long long)x.stx_size);
    CALL(statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &x));
    say("statx by descriptor: size %llu", (unsigned long long)x.stx_size);
    CALL(stat("none", &t));
    CALL(fstat(99, &t));
    CALL(stat("f/below", &t));

    struct statfs fs;
    struct statvfs vfs;
    CALL(statfs("f", &fs));
    CALL(fstatfs(fd, &fs));
    CALL(statvfs("f", &vfs));
    CALL(fstatvfs(fd, &vfs));
    say("names up to %ld", (long)fs.f_namelen);
    CALL(access("f", R_OK | W_OK));
    CALL(access("none", F_OK));
    CALL(faccessat(AT_FDCWD, "f", F_OK, 0));
    CALL(euidaccess("f", R_OK));

    CALL(fchmod(fd, 0604));
    CALL(stat("f", &t));
    show_stat("after fchmod", &t);
    CALL(chmod("f", 0640));
    CALL(fchmodat(AT_FDCWD, "f", 0600, 0));
    CALL(fstat(fd, &t));
    show_stat("after fchmodat", &t);
    CALL(chown("f", (uid_t)-1, (gid_t)-1));
    CALL(fchown(fd, getuid(), getgid()));

    struct timespec when[2] = {{1000000000, 5}, {1100000000, 123456789}};
    CALL(utimensat(AT_FDCWD, "f", when, 0));
    times("f");
    when[0].tv_nsec = UTIME_OMIT;
    when[1].tv_sec = 1200000000;
    CALL(futimens(fd, when));
    times("f");
    struct timeval then[2] = {{900000000, 1}, {900000001, 2}};
    CALL(utimes("f", then));
    times("f");
    CALL(futimes(fd, then));
    struct utimbuf old = {800000000, 800000001};
    CALL(utime("f", &old));
    times("f");
    CALL(pread(fd, buffer, 10, 0));
    CALL(fstat(fd, &t));
    say("a read leaves mtime: %d", t.st_mtim.tv_sec == 800000001);
    CALL(pwrite(fd, "x", 1, 0));
    CALL(fstat(fd, &t));
    say("a write moves mtime and ctime: %d", t.st_mtim.tv_sec > 1500000000 && t.st_ctim.tv_sec > 1500000000);
    CALL(utime("f", &old));
    CALL(pwrite(fd, "x", 1, 200000));
    CALL(stat("f", &t));
    say("so does an extension: %d size %lld", t.st_mtim.tv_sec > 1500000000, (long long)t.st_size);
    CALL(utime("f", &old));
    CALL(ftruncate(fd, 1000));
    CALL(stat("f", &t));
    say("and a truncation: %d size %lld", t.st_mtim.tv_sec > 1500000000, (long long)t.st_size);
    CALL(utime("f", &old)); /* the runner compares the times that are left */
    return 0;
}
