/* A storm of signals during reads and writes: regular files neither fail with EINTR nor come up short, and I/O from
 * inside a handler works. A process that is killed loses no acknowledged write. */
#include "transcript.h"
#include <sys/time.h>

#define PIECE (1 << 20)
static char data[PIECE], back[PIECE];
static int log_fd;
static volatile sig_atomic_t handled, handler_failed;

static void on_alarm(int number)
{
    (void)number;
    int kept = errno;
    if (handled < 100 && write(log_fd, "tick\n", 5) != 5)
        handler_failed = 1;
    handled = handled + 1;
    errno = kept;
}

int main(void)
{
    log_fd = (int)CALL(open("log", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644));
    int fd = (int)CALL(open("f", O_RDWR | O_CREAT | O_TRUNC, 0644));
    fill(data, PIECE, 8);
    struct sigaction action = {.sa_handler = on_alarm}; /* without SA_RESTART */
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    int wrong = 0;
    for (int i = 0; i < 40 || handled < 100; i++) {
        off_t place = (off_t)(i % 20) * PIECE;
        wrong += pwrite(fd, data, PIECE, place) != PIECE;
        wrong += pread(fd, back, PIECE, place) != PIECE || memcmp(data, back, PIECE) != 0;
    }
    setitimer(ITIMER_REAL, &never, NULL);
    say("wrong %d, handled enough %d, handler failed %d", wrong, handled >= 100, (int)handler_failed);
    show_file("log");
    show_file("f");

    int ready[2];
    if (pipe(ready) != 0)
        return 1;
    pid_t child = fork();
    if (child == 0) {
        int own = open("killed", O_WRONLY | O_CREAT | O_TRUNC, 0644);
        for (int i = 0; i < 10; i++)
            if (write(own, data + i * 1000, 1000) != 1000)
                _exit(1);
        if (write(ready[1], "x", 1) == 1)
            for (;;)
                pause();
    }
    CALL(read(ready[0], back, 1));
    kill(child, SIGKILL);
    int status;
    waitpid(child, &status, 0);
    show_child(status);
    show_file("killed");
    return 0;
}
