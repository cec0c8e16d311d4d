/* What devices give a program that has one request in flight, for the benchmark of slow devices: no Stripewise, plain files.
 *
 *   bare MODE REQUESTS PATH BYTES [PATH BYTES]...
 *
 * Each request is BYTES of every file, behind those of the request before, all of them under way together by one ring; the
 * next begins when all are over. Files that are missing are written first, so writes are overwrites. Reads begin with a cold
 * cache. Modes: as of load.c; the kernel alone reads ahead in each file.
 *
 * Prints the seconds from the first request to the end of the last one. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { MAX_FILES = 64, BLOCK_BYTES = 4096 };

static const struct mode {
    const char *name;
    int flags, writes, durable;
} MODES[] = {
    {"read", O_RDONLY | O_DIRECT, 0, 0}, {"read-cached", O_RDONLY, 0, 0}, {"write-direct", O_RDWR | O_DIRECT, 1, 0},
    {"write-sync", O_RDWR, 1, 1},        {NULL, 0, 0, 0},
};

static struct file {
    int descriptor;
    struct iovec memory;
} files[MAX_FILES];

static struct {
    int descriptor;
    uint32_t *submission_tail, *submission_mask, *submissions, *completion_head, *completion_tail, *completion_mask;
    struct io_uring_sqe *entries;
    struct io_uring_cqe *completions;
} ring;

static void demand(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "bare: %s: %s\n", what, strerror(errno));
        exit(2);
    }
}

static char *map_ring(size_t bytes, off_t offset)
{
    char *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.descriptor, offset);
    demand(mapped != MAP_FAILED, "io_uring");
    return mapped;
}

static void make_ring(void)
{
    struct io_uring_params of = {0};
    ring.descriptor = (int)syscall(__NR_io_uring_setup, MAX_FILES, &of);
    demand(ring.descriptor >= 0, "io_uring");
    char *queue = map_ring(of.sq_off.array + of.sq_entries * sizeof(uint32_t), IORING_OFF_SQ_RING);
    char *done = map_ring(of.cq_off.cqes + of.cq_entries * sizeof(struct io_uring_cqe), IORING_OFF_CQ_RING);
    ring.entries = (void *)map_ring(of.sq_entries * sizeof(struct io_uring_sqe), IORING_OFF_SQES);
    ring.submission_tail = (void *)(queue + of.sq_off.tail);
    ring.submission_mask = (void *)(queue + of.sq_off.ring_mask);
    ring.submissions = (void *)(queue + of.sq_off.array);
    ring.completion_head = (void *)(done + of.cq_off.head);
    ring.completion_tail = (void *)(done + of.cq_off.tail);
    ring.completion_mask = (void *)(done + of.cq_off.ring_mask);
    ring.completions = (void *)(done + of.cq_off.cqes);
    /* A worker for each file. Older kernels keep to their own number. */
    unsigned workers[2] = {MAX_FILES, 0};
    syscall(__NR_io_uring_register, ring.descriptor, IORING_REGISTER_IOWQ_MAX_WORKERS, workers, 2);
}

/* One request: its part of every file. */
static void move(const struct mode *mode, unsigned count, uint64_t request)
{
    uint32_t tail = *ring.submission_tail;
    for (unsigned number = 0; number < count; number++, tail++) {
        uint32_t at = tail & *ring.submission_mask;
        ring.entries[at] = (struct io_uring_sqe){
            .opcode = mode->writes ? IORING_OP_WRITEV : IORING_OP_READV,
            .fd = files[number].descriptor,
            .addr = (uint64_t)(uintptr_t)&files[number].memory,
            .len = 1,
            .off = request * files[number].memory.iov_len,
            .rw_flags = mode->durable ? RWF_DSYNC : 0,
            /* Else writes that are not direct wait for each other on their way to the kernel's workers. */
            .flags = mode->durable ? IOSQE_ASYNC : 0,
            .user_data = number,
        };
        ring.submissions[at] = at;
    }
    __atomic_store_n(ring.submission_tail, tail, __ATOMIC_RELEASE);
    unsigned to_submit = count;
    uint32_t head = *ring.completion_head;
    for (unsigned ended = 0; ended < count;) {
        long submitted = syscall(__NR_io_uring_enter, ring.descriptor, to_submit, count - ended, IORING_ENTER_GETEVENTS, NULL, 0);
        demand(submitted >= 0 || errno == EINTR, "io_uring");
        to_submit -= submitted > 0 ? (unsigned)submitted : 0;
        for (; head != __atomic_load_n(ring.completion_tail, __ATOMIC_ACQUIRE); head++, ended++) {
            struct io_uring_cqe done = ring.completions[head & *ring.completion_mask];
            errno = done.res < 0 ? -done.res : EIO;
            demand(done.res == (int)files[done.user_data].memory.iov_len, "a part of a request");
        }
        __atomic_store_n(ring.completion_head, head, __ATOMIC_RELEASE);
    }
}

/* The file with all its bytes, of which none are cached. */
static void prepare(const char *path, uint64_t bytes, uint64_t part_bytes)
{
    int file = open(path, O_RDWR | O_CREAT, 0600);
    struct stat found;
    demand(file >= 0 && fstat(file, &found) == 0, path);
    char *part = calloc(1, part_bytes);
    for (uint64_t at = (uint64_t)found.st_size; at < bytes; at += part_bytes)
        demand(part && pwrite(file, part, part_bytes, (off_t)at) == (ssize_t)part_bytes, path);
    demand(fsync(file) == 0 && posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0, path);
    free(part);
    close(file);
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    unsigned count = argc < 5 || argc % 2 == 0 ? 0 : (unsigned)(argc - 3) / 2;
    const struct mode *mode = MODES;
    while (count > 0 && mode->name && strcmp(mode->name, argv[1]))
        mode++;
    if (count == 0 || count > MAX_FILES || !mode->name) {
        fprintf(stderr, "usage: as the begin of bare.c says\n");
        return 2;
    }
    uint64_t requests = strtoull(argv[2], NULL, 10);
    for (unsigned number = 0; number < count; number++) {
        const char *path = argv[3 + 2 * number];
        struct file *file = &files[number];
        file->memory.iov_len = strtoull(argv[4 + 2 * number], NULL, 10);
        errno = EINVAL;
        demand(file->memory.iov_len > 0 && file->memory.iov_len % BLOCK_BYTES == 0, path);
        prepare(path, requests * file->memory.iov_len, file->memory.iov_len);
        file->descriptor = open(path, mode->flags);
        demand(file->descriptor >= 0, path);
        demand(posix_memalign(&file->memory.iov_base, BLOCK_BYTES, file->memory.iov_len) == 0, "memory");
        memset(file->memory.iov_base, 'x', file->memory.iov_len);
    }
    make_ring();
    double start_s = now_s();
    for (uint64_t request = 0; request < requests; request++)
        move(mode, count, request);
    printf("%.6f\n", now_s() - start_s);
    return 0;
}
