/* Kernel asynchronous I/O by number: io_submit and io_uring (both tagged) name descriptors where no wrapper sees them. */
#include "transcript.h"
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <sys/syscall.h>

static char data[10000];

int main(void)
{
    fill(data, sizeof data, 7);
    int fd = (int)CALL(open("f", O_RDWR | O_CREAT | O_TRUNC, 0644));
    CALL(write(fd, data, sizeof data));
    int fds[2];
    if (pipe(fds) != 0)
        return 1;

    aio_context_t context = 0;
    if (syscall(SYS_io_setup, 4, &context) != 0)
        return 2;
    struct iocb piped = {.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = (unsigned)fds[1], .aio_buf = (uintptr_t)"pipe",
                         .aio_nbytes = 4};
    struct iocb filed = {.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = (unsigned)fd, .aio_buf = (uintptr_t)"by the kernel",
                         .aio_nbytes = 13};
    struct iocb *list[] = {&piped, &filed};
    /* As many as can be taken, then the error of the first that cannot. */
    struct io_event events[2];
    CALL(syscall(SYS_io_submit, context, 1L, list));
    CALL(syscall(SYS_io_getevents, context, 1L, 2L, events, NULL));
    if (tagged_after("io_submit", (int)syscall(SYS_io_submit, context, 1L, list + 1)) == 1)
        CALL(syscall(SYS_io_getevents, context, 1L, 2L, events, NULL));
    else if (pwrite(fd, "by the kernel", 13, 0) == 13)
        say("syscall(SYS_io_getevents, context, 1L, 2L, events, NULL) = 1");
    CALL(syscall(SYS_io_submit, context, 1L, NULL));
    CALL(syscall(SYS_io_destroy, context));
    char buffer[5] = "";
    CALL(read(fds[0], buffer, 4));
    say("%s", buffer);

    struct io_uring_params parameters = {0};
    int ring = (int)syscall(SYS_io_uring_setup, 4, &parameters);
    if (tagged_after("io_uring_setup", ring < 0 ? -1 : 0) == 0)
        close(ring);
    CALL(syscall(SYS_getppid) == getppid());
    CALL(syscall(SYS_close, 99));
    show_file("f");
    return 0;
}
