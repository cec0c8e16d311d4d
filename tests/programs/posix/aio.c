/* POSIX asynchronous I/O: aio_read, aio_write, aio_fsync, aio_suspend, aio_cancel, lio_listio, signal notification. */
#include "transcript.h"
#include <aio.h>

#define BLOCK 100003
#define BLOCKS 12
static char blocks[BLOCKS][BLOCK], back[BLOCKS][BLOCK];

static void settle(const char *what, struct aiocb *block)
{
    const struct aiocb *list[] = {block};
    while (aio_error(block) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
    int error = aio_error(block);
    ssize_t result = aio_return(block);
    say("%s: %s %zd", what, error ? errno_name(error) : "ok", result);
}

static struct aiocb request(int fd, void *buffer, size_t bytes, off_t offset, int opcode)
{
    struct aiocb block = {.aio_fildes = fd, .aio_buf = buffer, .aio_nbytes = bytes, .aio_offset = offset,
                          .aio_lio_opcode = opcode};
    block.aio_sigevent.sigev_notify = SIGEV_NONE;
    return block;
}

static volatile sig_atomic_t signalled;

static void on_signal(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    signalled = info->si_value.sival_int;
}

int main(void)
{
    int fd = (int)CALL(open("f", O_RDWR | O_CREAT | O_TRUNC, 0644));
    struct aiocb one[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        fill(blocks[i], BLOCK, (unsigned)i + 10);
        one[i] = request(fd, blocks[i], BLOCK, (off_t)i * BLOCK, LIO_WRITE);
        if (aio_write(&one[i]) != 0)
            say("aio_write %d: %s", i, errno_name(errno));
    }
    for (int i = 0; i < BLOCKS; i++)
        settle("write", &one[i]);
    struct aiocb sync = request(fd, NULL, 0, 0, 0);
    CALL(aio_fsync(O_SYNC, &sync));
    settle("fsync", &sync);
    CALL(aio_fsync(77, &sync));
    show_file("f");

    struct aiocb *list[BLOCKS + 1];
    for (int i = 0; i < BLOCKS; i++) {
        one[i] = request(fd, back[i], BLOCK, (off_t)i * BLOCK, i % 4 == 3 ? LIO_NOP : LIO_READ);
        list[i] = &one[i];
    }
    list[BLOCKS] = NULL;
    CALL(lio_listio(LIO_WAIT, list, BLOCKS + 1, NULL));
    for (int i = 0; i < BLOCKS; i++)
        if (i % 4 != 3)
            say("block %d: %zd same %d", i, aio_return(&one[i]), memcmp(blocks[i], back[i], BLOCK) == 0);
    for (int i = 0; i < BLOCKS; i++)
        one[i] = request(fd, blocks[BLOCKS - 1 - i], BLOCK, (off_t)i * BLOCK + 5, LIO_WRITE);
    CALL(lio_listio(LIO_NOWAIT, list, 1, NULL));
    settle("list of one", &one[0]);
    CALL(lio_listio(99, list, 1, NULL));

    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    one[0] = request(fd, back[0], 1000, 70000, LIO_READ);
    one[0].aio_sigevent.sigev_notify = SIGEV_SIGNAL;
    one[0].aio_sigevent.sigev_signo = SIGUSR1;
    one[0].aio_sigevent.sigev_value.sival_int = 42;
    CALL(aio_read(&one[0]));
    settle("with a signal", &one[0]);
    while (!signalled)
        usleep(1000);
    say("signal brought %d", (int)signalled);
    show("read", back[0], 1000);

    one[0] = request(fd, back[0], 1000, 5000000, LIO_READ);
    CALL(aio_read(&one[0]));
    settle("past the end", &one[0]);
    int reader = (int)CALL(open("f", O_RDONLY));
    one[0] = request(reader, back[0], 10, 0, LIO_WRITE);
    CALL(aio_write(&one[0]));
    settle("write by a reader", &one[0]);
    one[0] = request(99, back[0], 10, 0, LIO_READ);
    if (aio_read(&one[0]) == 0)
        settle("no descriptor", &one[0]);
    one[0] = request(fd, back[0], 10, 0, LIO_READ);
    CALL(aio_read(&one[0]));
    settle("before cancel", &one[0]);
    int cancelled = aio_cancel(fd, &one[0]);
    say("aio_cancel of a finished one: %s", cancelled == AIO_ALLDONE ? "all done" : "?");
    int appender = (int)CALL(open("f", O_WRONLY | O_APPEND));
    one[0] = request(appender, blocks[0], 100, 0, LIO_WRITE);
    CALL(aio_write(&one[0]));
    settle("append", &one[0]);
    CALL(lseek(fd, 0, SEEK_CUR));
    CALL(lseek(fd, 0, SEEK_END));
    show_file("f");
    return 0;
}
