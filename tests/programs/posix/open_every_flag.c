/* open with every combination of flags that goes together, on an existing file, on none, on a directory and on links:
 * result, errno, F_GETFL, FD_CLOEXEC, and what can then be read and written. O_DIRECT was once refused on stubs that lie
 * on ext4 and XFS: their texts were read unaligned. */
#include "transcript.h"

#define BLOCK 4096
#define SIZE (3 * BLOCK)

static const struct { int flag; const char *name; } NAMES[] = {
    {O_CREAT, "CREAT"}, {O_EXCL, "EXCL"}, {O_TRUNC, "TRUNC"}, {O_APPEND, "APPEND"}, {O_DIRECT, "DIRECT"},
    {O_NOFOLLOW, "NOFOLLOW"}, {O_NONBLOCK, "NONBLOCK"}, {O_NOATIME, "NOATIME"}, {O_PATH, "PATH"}, {O_CLOEXEC, "CLOEXEC"},
};
static const char *const TARGETS[] = {"file", "none", "directory", "link", "dangling"};
static char *content, *block, *found;
static int has_direct;

static const char *text_of(int flags)
{
    static char text[200];
    static const char *const ACCESS[] = {"RDONLY", "WRONLY", "RDWR", "3"};
    strcpy(text, ACCESS[flags & O_ACCMODE]);
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (flags & NAMES[i].flag)
            strcat(strcat(text, "|"), NAMES[i].name);
    strcat(text, (flags & O_SYNC) == O_SYNC ? "|SYNC" : flags & O_DSYNC ? "|DSYNC" : "");
    strcat(text, (flags & O_TMPFILE) == O_TMPFILE ? "|TMPFILE" : flags & O_DIRECTORY ? "|DIRECTORY" : "");
    return text;
}

/* The file is whole, and what else the last combination may have made is gone. */
static void prepare(void)
{
    struct stat status;
    int fd = open("file", O_RDWR | O_CREAT, 0644);
    if (fstat(fd, &status) != 0 || status.st_size != SIZE || pread(fd, found, SIZE, 0) != SIZE || memcmp(found, content, SIZE)) {
        if (ftruncate(fd, 0) != 0 || pwrite(fd, content, SIZE, 0) != SIZE)
            say("WRONG: cannot prepare");
    }
    close(fd);
    unlink("none");
    unlink("nowhere");
}

static const char *how(ssize_t result)
{
    static char texts[4][24];
    static int next;
    char *text = texts[next++ % 4];
    if (result < 0)
        snprintf(text, sizeof texts[0], "%s", errno_name(errno));
    else
        snprintf(text, sizeof texts[0], "%zd", result);
    return text;
}

static void attempt(const char *target, int flags)
{
    if (flags & O_DIRECT && !has_direct)
        return;
    prepare();
    int fd = open(target, flags, 0640);
    if (fd < 0) {
        say("%s %s: %s", target, text_of(flags), errno_name(errno));
    } else {
        struct stat status = {0};
        const char *read_as = how(pread(fd, found, BLOCK, BLOCK));
        int same = memcmp(found, content + BLOCK, BLOCK) == 0;
        const char *written = how(write(fd, block, BLOCK));
        const char *at = how(lseek(fd, 0, SEEK_CUR));
        fstat(fd, &status);
        say("%s %s: flags %o, cloexec %d, read %s same %d, write %s, at %s, mode %o, size %lld", target, text_of(flags),
            fcntl(fd, F_GETFL), fcntl(fd, F_GETFD), read_as, same, written, at, status.st_mode & 07777,
            S_ISREG(status.st_mode) ? (long long)status.st_size : -1LL);
        close(fd);
    }
    memset(found, 0, SIZE);
    struct stat after;
    if (stat(target, &after) == 0 && S_ISREG(after.st_mode))
        say("  then size %lld", (long long)after.st_size);
}

static void every(const char *target, const int *bits, int count, int fixed)
{
    for (int chosen = 0; chosen < 1 << count; chosen++) {
        int flags = fixed;
        for (int i = 0; i < count; i++)
            flags |= chosen & 1 << i ? bits[i] : 0;
        attempt(target, flags);
    }
}

int main(void)
{
    static const int ACCESS[] = {O_RDONLY, O_WRONLY, O_RDWR}, SYNCS[] = {O_DSYNC, O_SYNC};
    static const int DATA[] = {O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_DIRECT};
    static const int NAME[] = {O_CREAT, O_TRUNC, O_DIRECT, O_NOFOLLOW, O_PATH, O_DIRECTORY};
    static const int REST[] = {O_CREAT, O_NONBLOCK, O_NOATIME, O_CLOEXEC};
    static const int SYNCED[] = {O_CREAT, O_APPEND, O_DIRECT};
    static const int UNNAMED[] = {O_CREAT, O_EXCL, O_APPEND, O_DIRECT, O_CLOEXEC};
    umask(022);
    if (posix_memalign((void **)&content, BLOCK, SIZE) || posix_memalign((void **)&block, BLOCK, BLOCK) ||
        posix_memalign((void **)&found, BLOCK, SIZE))
        return 1;
    fill(content, SIZE, 3);
    fill(block, BLOCK, 4);
    int fd = open(".", O_RDWR | O_TMPFILE | O_DIRECT, 0600);
    has_direct = fd >= 0;
    close(fd);
    if (mkdir("directory", 0755) || symlink("file", "link") || symlink("nowhere", "dangling"))
        return 1;
    for (size_t t = 0; t < sizeof TARGETS / sizeof *TARGETS; t++) {
        for (int a = 0; a < 3; a++) {
            every(TARGETS[t], DATA, 5, ACCESS[a]);
            every(TARGETS[t], NAME, 6, ACCESS[a]);
            for (int s = 0; s < 2 && t < 2; s++)
                every(TARGETS[t], SYNCED, 3, ACCESS[a] | SYNCS[s]);
            every(TARGETS[t], REST, t < 2 ? 4 : 1, ACCESS[a]);
        }
    }
    for (int a = 0; a < 3; a++)
        every("directory", UNNAMED, 5, ACCESS[a] | O_TMPFILE);
    every("file", UNNAMED, 2, O_RDWR | O_TMPFILE);
    every("none", UNNAMED, 2, O_RDWR | O_TMPFILE);
    prepare();
    show_file("file");
    return 0;
}
