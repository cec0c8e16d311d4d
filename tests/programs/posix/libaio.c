/* The kernel's asynchronous I/O (io_submit), by number: every kind of request, how its end is told, and blocks that go round between threads. */
#include "transcript.h"
#include <linux/aio_abi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

enum { BYTES = 100000, PART = 5000, ROUNDS = 2000, BLOCKS = 8 };
static char data[BYTES], back[BYTES];
static aio_context_t context;

static long submit(long count, struct iocb **blocks)
{
    return syscall(SYS_io_submit, context, count, blocks);
}

static struct iocb block_of(int operation, int fd, void *buffer, size_t bytes, long offset)
{
    return (struct iocb){.aio_data = 77, .aio_lio_opcode = (unsigned short)operation, .aio_fildes = (unsigned)fd,
                         .aio_buf = (uintptr_t)buffer, .aio_nbytes = bytes, .aio_offset = offset};
}

/* Submits one request, waits for its end, and says what the event holds. */
static void one(const char *what, struct iocb block)
{
    struct iocb before = block, *list[] = {&block};
    long taken = submit(1, list);
    if (taken != 1) {
        say("%s: %s", what, errno_name(errno));
        return;
    }
    struct io_event event = {0};
    long got = syscall(SYS_io_getevents, context, 1L, 1L, &event, NULL);
    before.aio_key = block.aio_key; /* the kernel's to set */
    say("%s: %ld event, result %lld, own block %d and data %d, block as it was %d", what, got, (long long)event.res,
        event.obj == (uintptr_t)&block, event.data == 77, memcmp(&before, &block, sizeof block) == 0);
}

static int fd, reaped_fd;
static struct iocb blocks[BLOCKS];
static char parts[BLOCKS][64];
static atomic_int reaped;

/* Takes blocks as they end, looks for what they wrote, and submits them again at once, as they are, with other bytes where they point at. */
static void *go_round(void *unused)
{
    (void)unused;
    while (atomic_load(&reaped) < ROUNDS) {
        struct io_event event;
        struct timespec soon = {.tv_nsec = 1000000};
        if (syscall(SYS_io_getevents, context, 1L, 1L, &event, &soon) != 1)
            continue;
        struct iocb *block = (struct iocb *)(uintptr_t)event.obj;
        if (event.res != 64)
            say("WRONG RESULT %lld", (long long)event.res);
        char found[64], *part = parts[block - blocks];
        if (pread(reaped_fd, found, sizeof found, block->aio_offset) != 64 || memcmp(found, part, 64) != 0)
            say("LOST: what block %d wrote", (int)(block - blocks));
        int number = atomic_fetch_add(&reaped, 1);
        bool is_last = number >= ROUNDS - BLOCKS;
        memset(part, is_last ? 'l' : number, 64);
        if ((is_last ? pwrite(reaped_fd, part, 64, block->aio_offset) == 64 : submit(1, &block) == 1) == false)
            say("written again: %s", errno_name(errno));
    }
    return NULL;
}

int main(void)
{
    fill(data, BYTES, 11);
    fd = (int)CALL(open("f", O_RDWR | O_CREAT | O_TRUNC, 0644));
    CALL(syscall(SYS_io_setup, 32, &context));

    one("write", block_of(IOCB_CMD_PWRITE, fd, data, BYTES, 0));
    one("read", block_of(IOCB_CMD_PREAD, fd, back, BYTES, 0));
    say("as written: %d", memcmp(data, back, BYTES) == 0);
    struct iovec vectors[] = {{data + 10, 300}, {data + 20000, 70}, {data, 0}};
    one("write of vectors", block_of(IOCB_CMD_PWRITEV, fd, vectors, 3, 50000));
    memmove(data + 50000, data + 10, 300);
    memmove(data + 50300, data + 20000, 70);
    struct iovec into[] = {{back, 1000}, {back + 1000, PART}};
    one("read of vectors", block_of(IOCB_CMD_PREADV, fd, into, 2, 49000));
    say("as written: %d", memcmp(data + 49000, back, 1000 + PART) == 0);
    memset(back, 'x', sizeof back);
    one("read over the end", block_of(IOCB_CMD_PREAD, fd, back, PART, BYTES - 100));
    say("as written: %d, the rest untouched: %d", memcmp(data + BYTES - 100, back, 100) == 0, back[100] == 'x');
    into[0] = (struct iovec){back, 30};
    one("read of vectors over the end", block_of(IOCB_CMD_PREADV, fd, into, 2, BYTES - 100));
    say("as written: %d", memcmp(data + BYTES - 100, back, 30) == 0 && memcmp(data + BYTES - 70, back + 1000, 70) == 0);
    one("read at the end", block_of(IOCB_CMD_PREAD, fd, back, PART, BYTES));
    one("read of nothing", block_of(IOCB_CMD_PREAD, fd, back, 0, 0));
    one("fsync", block_of(IOCB_CMD_FSYNC, fd, NULL, 0, 0));
    one("fdatasync", block_of(IOCB_CMD_FDSYNC, fd, NULL, 0, 0));
    one("fsync of bytes", block_of(IOCB_CMD_FSYNC, fd, data, 1, 0));
    one("before the start", block_of(IOCB_CMD_PREAD, fd, back, 1, -1));
    one("unknown operation", block_of(99, fd, back, 1, 0));
    struct iocb flagged = block_of(IOCB_CMD_PWRITE, fd, data, PART, 0);
    flagged.aio_rw_flags = RWF_DSYNC;
    one("write with RWF_DSYNC", flagged);
    int reader = (int)CALL(open("f", O_RDONLY));
    one("write by a reader", block_of(IOCB_CMD_PWRITE, reader, data, 1, 0));
    one("read by a reader", block_of(IOCB_CMD_PREAD, reader, back, PART, 3));
    CALL(close(reader));
    int appending = (int)CALL(open("appended", O_WRONLY | O_CREAT | O_APPEND, 0644));
    struct iocb end = block_of(IOCB_CMD_PWRITE, appending, data, PART, 0), *ends_with[] = {&end};
    if (tagged_after("io_submit_append", submit(1, ends_with) == 1 ? 0 : -1) == 0) {
        struct io_event event;
        if (syscall(SYS_io_getevents, context, 1L, 1L, &event, NULL) != 1)
            return 1;
    } else if (write(appending, data, PART) != PART) {
        return 1;
    }
    CALL(close(appending));
    show_file("appended");
    one("closed descriptor", block_of(IOCB_CMD_PREAD, reader, back, 1, 0));

    /* An eventfd is told of each end. */
    int told = (int)CALL(eventfd(0, 0));
    struct iocb telling[2];
    struct iocb *list[] = {&telling[0], &telling[1], NULL, NULL};
    for (int i = 0; i < 2; i++) {
        telling[i] = block_of(IOCB_CMD_PWRITE, fd, data + i * PART, PART, BYTES + i * PART);
        telling[i].aio_flags = IOCB_FLAG_RESFD;
        telling[i].aio_resfd = (unsigned)told;
    }
    CALL(submit(2, list));
    uint64_t ends = 0;
    CALL(read(told, &ends, sizeof ends));
    say("%d ends", (int)ends);
    struct io_event events[8];
    CALL(syscall(SYS_io_getevents, context, 2L, 8L, events, NULL));

    /* Requests on a pipe and on the file in one call, and one that cannot be taken in their midst. */
    int pipes[2];
    CALL(pipe(pipes));
    struct iocb mixed[] = {block_of(IOCB_CMD_PWRITE, pipes[1], "pipe", 4, 0), block_of(IOCB_CMD_PWRITE, fd, "file", 4, 7),
                           block_of(IOCB_CMD_PREAD, 99, back, 1, 0), block_of(IOCB_CMD_PWRITE, fd, "never", 5, 20)};
    for (int i = 0; i < 4; i++)
        list[i] = &mixed[i];
    CALL(submit(4, list));
    CALL(syscall(SYS_io_getevents, context, 2L, 8L, events, NULL));
    CALL(submit(2, list + 2));
    CALL(submit(0, list));
    CALL(read(pipes[0], back, 4));

    /* Blocks go round between threads that submit them as they are. */
    reaped_fd = (int)CALL(open("rounds", O_RDWR | O_CREAT | O_TRUNC, 0644));
    struct iocb *all[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        fill(parts[i], sizeof parts[i], i);
        blocks[i] = block_of(IOCB_CMD_PWRITE, reaped_fd, parts[i], 64, i * 64);
        all[i] = &blocks[i];
    }
    pthread_t threads[4];
    CALL(submit(BLOCKS, all));
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, go_round, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    say("%d rounds", atomic_load(&reaped));
    CALL(syscall(SYS_io_destroy, context));
    show_file("rounds");
    show_file("f");
    return 0;
}
