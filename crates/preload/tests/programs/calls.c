/* One call of each kind on files in the current directory, at known places and lengths; tests/capture.rs knows them. */
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(call) do { if (!(call)) { perror(#call); exit(1); } } while (0)
static char bytes[1 << 16];

static void data_calls(void)
{
    struct iovec two[2] = {{bytes, 100}, {bytes + 200, 200}};
    int fd = open("data", O_RDWR | O_CREAT | O_EXCL, 0644);
    CHECK(fd >= 0);
    CHECK(write(fd, bytes, 1000) == 1000);
    CHECK(write(fd, bytes, 500) == 500);
    CHECK(pwrite(fd, bytes, 4096, 8192) == 4096);
    CHECK(writev(fd, two, 2) == 300);
    CHECK(pwritev(fd, two, 2, 20000) == 300);
    CHECK(pwritev2(fd, two, 2, 30000, 0) == 300);
    CHECK(lseek(fd, 100, SEEK_SET) == 100);
    CHECK(read(fd, bytes, 50) == 50);
    CHECK(pread(fd, bytes, 64, 8192) == 64);
    CHECK(readv(fd, two, 2) == 300);
    CHECK(preadv(fd, two, 2, 1000) == 300);
    CHECK(preadv2(fd, two, 2, 2000, 0) == 300);
    CHECK(pread(fd, bytes, 1000, 30200) == 100);
    CHECK(pread(fd, bytes, 10, 1 << 20) == 0);
    CHECK(pread(fd, bytes, 10, -5) == -1 && errno == EINVAL);
    CHECK(fsync(fd) == 0 && fdatasync(fd) == 0);
    CHECK(ftruncate(fd, 12345) == 0);
    CHECK(posix_fallocate(fd, 100, 200) == 0);
    CHECK(close(fd) == 0);
    CHECK(pwrite(fd, bytes, 1, 0) == -1 && errno == EBADF);
}

static void descriptor_calls(void)
{
    int fd = open("data", O_RDWR | O_APPEND), twin = dup(fd), high = fcntl(fd, F_DUPFD, 50), other = dup2(fd, 60);
    CHECK(write(fd, bytes, 11) == 11);
    CHECK(write(twin, bytes, 12) == 12);
    CHECK(write(high, bytes, 13) == 13);
    CHECK(write(other, bytes, 14) == 14);
    CHECK(close_range(50, 60, 0) == 0 && close(fd) == 0);
    CHECK(write(twin, bytes, 15) == 15);
    /* The number of the closed descriptor goes to something that is not recorded. */
    int pair[2], pipes[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && pipe(pipes) == 0);
    CHECK(write(pair[0], bytes, 16) == 16 && read(pair[1], bytes, 16) == 16);
    CHECK(write(pipes[1], bytes, 17) == 17 && read(pipes[0], bytes, 17) == 17);
    close(twin);
    pid_t child = fork();
    if (child == 0) {
        int own = open("of-child", O_WRONLY | O_CREAT, 0600);
        _exit(write(own, bytes, 21) == 21 ? 0 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void streams(void)
{
    FILE *stream = fopen("stream", "w+");
    CHECK(stream && fwrite(bytes, 10, 300, stream) == 300);
    for (int i = 0; i < 77; i++)
        putc('c', stream);
    CHECK(fseek(stream, 1000, SEEK_SET) == 0 && fread(bytes, 1, 400, stream) == 400);
    CHECK(fclose(stream) == 0);
}

static void others(void)
{
    int fd = open("data", O_RDWR), copy = open("copy", O_RDWR | O_CREAT, 0644);
    struct aiocb request = {.aio_fildes = fd, .aio_buf = bytes, .aio_nbytes = 333, .aio_offset = 444};
    const struct aiocb *list[] = {&request};
    CHECK(aio_write(&request) == 0);
    while (aio_error(&request) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
    CHECK(aio_return(&request) == 333);
    aio_context_t context = 0;
    struct iovec parts[] = {{bytes, 70}, {bytes + 70, 7}};
    struct iocb write = {.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = (unsigned)fd, .aio_buf = (uintptr_t)bytes, .aio_nbytes = 222, .aio_offset = 555};
    struct iocb read = {.aio_lio_opcode = IOCB_CMD_PREADV, .aio_fildes = (unsigned)fd, .aio_buf = (uintptr_t)parts, .aio_nbytes = 2, .aio_offset = 666};
    struct iocb nowhere = {.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = 999};
    struct iocb refused = write;
    struct iocb *submitted[] = {&write, &read, &nowhere, &refused};
    struct io_event events[2];
    CHECK(syscall(SYS_io_setup, 4, &context) == 0 && syscall(SYS_io_submit, context, 4L, submitted) == 2);
    CHECK(syscall(SYS_io_getevents, context, 2L, 2L, events, NULL) == 2 && syscall(SYS_io_destroy, context) == 0);
    void *map = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, fd, 4096);
    CHECK(map != MAP_FAILED && munmap(map, 8192) == 0);
    off_t from = 10;
    CHECK(sendfile(copy, fd, &from, 99) == 99);
    close(copy);
    close(fd);
    CHECK(rename("copy", "renamed") == 0);
    CHECK(truncate("renamed", 5) == 0);
    CHECK(unlink("renamed") == 0);
    CHECK(unlink("absent") == -1 && errno == ENOENT);
}

int main(void)
{
    umask(022);
    data_calls();
    descriptor_calls();
    streams();
    others();
    return 0;
}
