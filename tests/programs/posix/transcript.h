/* What the programs of this directory share: every call prints its own text, its result and its errno, so that the
 * transcript of a run on ordinary files and that of a redirected run can be compared line by line. Never printed:
 * addresses, times, inode and device numbers, process ids. */
#ifndef TRANSCRIPT_H
#define TRANSCRIPT_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static inline const char *errno_name(int number)
{
    const char *name = strerrorname_np(number);
    return name ? name : "E?";
}

static inline long long told(const char *text, long long result, int number)
{
    if (result == -1)
        printf("%s = -1 %s\n", text, errno_name(number));
    else
        printf("%s = %lld\n", text, result);
    fflush(stdout);
    return result;
}

/* Makes the call, prints it, and is its result. */
#define CALL(call) (errno = 0, told_after(#call, (long long)(call)))
static inline long long told_after(const char *text, long long result)
{
    return told(text, result, errno);
}

/* A call whose result may differ under redirection in one documented way: run.py holds the list by tag. */
#define TAGGED(tag, call) (errno = 0, tagged_after(tag, (long long)(call)))
static inline long long tagged_after(const char *tag, long long result)
{
    int number = errno;
    printf("~%s %s\n", tag, result == -1 ? errno_name(number) : "ok");
    fflush(stdout);
    return result;
}

static inline void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline void say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout);
}

static inline void fill(void *buffer, size_t bytes, unsigned seed)
{
    unsigned char *at = buffer;
    uint64_t state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    for (size_t i = 0; i < bytes; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        at[i] = (unsigned char)(state >> 32);
    }
}

static inline void show(const char *what, const void *buffer, size_t bytes)
{
    const unsigned char *at = buffer;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    say("%s: %zu bytes, %016llx", what, bytes, (unsigned long long)hash);
}

/* The whole file by a descriptor of its own. */
static inline void show_file(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        say("%s: %s", path, errno_name(errno));
        return;
    }
    struct stat status;
    if (fstat(fd, &status) != 0) {
        say("%s: fstat %s", path, errno_name(errno));
        return;
    }
    size_t bytes = (size_t)status.st_size;
    char *buffer = malloc(bytes + 1);
    size_t done = 0;
    for (ssize_t n; done <= bytes && (n = read(fd, buffer + done, bytes + 1 - done)) > 0;)
        done += (size_t)n;
    say("%s: size %zu, read %zu", path, bytes, done);
    show(path, buffer, done);
    free(buffer);
    close(fd);
}

static inline void show_stat(const char *what, const struct stat *s)
{
    say("%s: type %o mode %o links %lu size %lld blocks %s", what, s->st_mode & S_IFMT, s->st_mode & 07777,
        (unsigned long)s->st_nlink, (long long)s->st_size, s->st_blocks > 0 ? "some" : "none");
}

static inline void show_child(int status)
{
    if (WIFEXITED(status))
        say("child exited %d", WEXITSTATUS(status));
    else
        say("child killed by signal %d", WTERMSIG(status));
}
#endif
