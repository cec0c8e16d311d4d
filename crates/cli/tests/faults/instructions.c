/* Makes system calls by an instruction of its own, which no library sees, on the file named; argv[1] says what. What it
 * then sees by libc is still the data. Exits 0 if all was as expected, else says what was not. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static long raw(long number, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
    register long r10 asm("r10") = d, r8 asm("r8") = e, r9 asm("r9") = f;
    long result;
    asm volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                 : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 asm("x8") = number, x0 asm("x0") = a, x1 asm("x1") = b, x2 asm("x2") = c, x3 asm("x3") = d,
                  x4 asm("x4") = e, x5 asm("x5") = f;
    asm volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
#endif
}

static int wrong;
#define EXPECT(condition)                                                                                             \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            printf("not so: %s\n", #condition);                                                                       \
            wrong = 1;                                                                                                \
        }                                                                                                             \
    } while (0)

#define SIZE (3 << 20)
static char before[SIZE], after[SIZE];

static int raw_lock(int fd)
{
    struct flock lock = {.l_type = F_WRLCK};
    return (int)raw(SYS_fcntl, fd, F_SETLK, (long)&lock, 0, 0, 0);
}

static void reads_only(int fd)
{
    EXPECT(raw(SYS_pwrite64, fd, (long)"garbage", 7, 0, 0, 0) == -EBADF);
    EXPECT(raw(SYS_ftruncate, fd, 5, 0, 0, 0, 0) == -EINVAL);
    EXPECT(raw(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == -EACCES);
    EXPECT(raw(SYS_copy_file_range, fd, 0, fd, 0, 10, 0) == -EBADF);
    EXPECT(raw_lock(fd) == -EBADF);
}

static void writes(int fd)
{
    EXPECT(raw(SYS_pwrite64, fd, (long)"by an instruction", 17, 0, 0, 0) == 17);
    char *map = (char *)raw(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    EXPECT((long)map > 0);
    if ((long)map > 0)
        memcpy(map + 100, "by a map", 8);
}

static void copies(int fd)
{
    /* fsx did this, and looped as long as it got 0. */
    int from = open("data", O_RDONLY);
    loff_t at = 0, to = 0;
    EXPECT(raw(SYS_copy_file_range, from, (long)&at, fd, (long)&to, 4096, 0) == 4096);
    close(from);
}

static void cuts(int fd)
{
    EXPECT(raw(SYS_ftruncate, fd, 5, 0, 0, 0, 0) == 0);
}

int main(int count, char **words)
{
    if (count < 3)
        return 2;
    int only_reads = strcmp(words[1], "read") == 0;
    int fd = open(words[2], only_reads ? O_RDONLY : O_RDWR);
    EXPECT(fd >= 0);
    EXPECT(pread(fd, before, SIZE, 0) == SIZE);
    EXPECT(lseek(fd, 1000, SEEK_SET) == 1000);
    int flags = fcntl(fd, F_GETFL);
    if (only_reads) {
        reads_only(fd);
    } else {
        struct flock lock = {.l_type = F_WRLCK, .l_len = 10};
        EXPECT(fcntl(fd, F_SETLK, &lock) == 0);
        strcmp(words[1], "write") == 0 ? writes(fd) : strcmp(words[1], "copy") == 0 ? copies(fd) : cuts(fd);
    }
    EXPECT(pread(fd, after, SIZE, 0) == SIZE && memcmp(before, after, SIZE) == 0);
    EXPECT(lseek(fd, 0, SEEK_CUR) == 1000);
    EXPECT(lseek(fd, 0, SEEK_END) == SIZE);
    EXPECT(fcntl(fd, F_GETFL) == flags);
    /* Where the stub kept its size, another open finds the file as well. */
    if (only_reads || strcmp(words[1], "write") == 0) {
        int second = open(words[2], O_RDONLY);
        EXPECT(second >= 0 && pread(second, after, SIZE, 0) == SIZE && memcmp(before, after, SIZE) == 0);
        close(second);
    }
    if (!only_reads) {
        EXPECT(pwrite(fd, before, 100, 5000) == 100);
        EXPECT(pread(fd, after, 100, 5000) == 100 && memcmp(before, after, 100) == 0);
        EXPECT(pwrite(fd, before + 5000, 100, 5000) == 100);
    }
    close(fd);
    return wrong;
}
