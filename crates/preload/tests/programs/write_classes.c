/* Writes of every class; tests/capture.rs knows them. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#define CHECK(call) do { if (!(call)) { perror(#call); exit(1); } } while (0)
#define BLOCK 4096

static char bytes[BLOCK] __attribute__((aligned(BLOCK)));

static int made(const char *name, int flags)
{
    return open(name, O_RDWR | O_CREAT | O_EXCL | flags, 0644);
}

static void plain(void)
{
    int fd = made("plain", 0);
    CHECK(write(fd, bytes, BLOCK) == BLOCK && pwrite(fd, bytes, BLOCK, 0) == BLOCK);
    CHECK(pread(fd, bytes, BLOCK, 0) == BLOCK);
    CHECK(close(fd) == 0);
    FILE *stream = fopen("stream", "w");
    CHECK(stream && fwrite(bytes, 1, BLOCK, stream) == BLOCK && fclose(stream) == 0);
}

static void of_call(void)
{
    struct iovec one = {bytes, BLOCK};
    int fd = made("of-call", 0);
    CHECK(pwritev2(fd, &one, 1, 0, 0) == BLOCK);
    CHECK(pwritev2(fd, &one, 1, 0, RWF_DSYNC) == BLOCK);
    CHECK(pwritev2(fd, &one, 1, 0, RWF_SYNC) == BLOCK);
    CHECK(close(fd) == 0);
}

static void synchronous(void)
{
    int fd = made("dsync", O_DSYNC);
    CHECK(pwrite(fd, bytes, BLOCK, 0) == BLOCK);
    struct aiocb request = {.aio_fildes = fd, .aio_buf = bytes, .aio_nbytes = BLOCK, .aio_offset = BLOCK};
    const struct aiocb *list[1] = {&request};
    CHECK(aio_write(&request) == 0);
    while (aio_error(&request) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
    CHECK(aio_return(&request) == BLOCK && close(fd) == 0);
    fd = made("sync", O_SYNC);
    CHECK(pwrite(fd, bytes, BLOCK, 0) == BLOCK && close(fd) == 0);
}

static void direct(void)
{
    int fd = made("changed", 0), twin = dup(fd);
    CHECK(pwrite(fd, bytes, BLOCK, 0) == BLOCK);
    CHECK(fcntl(fd, F_SETFL, O_APPEND) == 0 && fcntl(fd, F_SETFL, 0) == 0);
    if (fcntl(fd, F_SETFL, O_DIRECT) != 0)
        return;
    CHECK(pwrite(fd, bytes, BLOCK, 0) == BLOCK && pwrite(twin, bytes, BLOCK, 0) == BLOCK);
    CHECK(fcntl(twin, F_SETFL, 0) == 0);
    CHECK(pwrite(fd, bytes, BLOCK, 0) == BLOCK);
    CHECK(close(fd) == 0 && close(twin) == 0);
    fd = made("direct", O_DIRECT);
    CHECK(fd >= 0 && pwrite(fd, bytes, BLOCK, 0) == BLOCK && close(fd) == 0);
}

int main(void)
{
    plain();
    of_call();
    synchronous();
    direct();
    return 0;
}
