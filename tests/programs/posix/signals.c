/* A storm of signals during reads and writes: regular files neither fail with EINTR nor come up short, and I/O from
 * inside a handler works, also of files that the handler opens, and also where it leaves by a jump. A process that is
 * killed loses no acknowledged write. */
#include "transcript.h"
#include <setjmp.h>
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

static volatile sig_atomic_t opened, open_failed, jumps;
static sigjmp_buf before_storm;

/* The next signal comes at some time after this one is handled, however long that takes. */
static void arm(int turn)
{
    struct itimerval soon = {{0, 0}, {0, 20 + turn * 37 % 300}};
    setitimer(ITIMER_REAL, &soon, NULL);
}

static void on_alarm_open(int number)
{
    (void)number;
    int kept = errno;
    int fd = open("opened", O_WRONLY | O_APPEND | O_CREAT, 0644);
    open_failed |= fd < 0 || write(fd, "line\n", 5) != 5 || close(fd) != 0;
    opened = opened + 1;
    arm(opened);
    errno = kept;
}

static void on_alarm_jump(int number)
{
    (void)number;
    jumps = jumps + 1;
    arm(jumps);
    siglongjmp(before_storm, 1);
}

/* What a program does by names, all of which a handler may interrupt. */
static int use_names(void)
{
    struct stat status;
    int fd = open("names", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    int wrong = fd < 0 || close(fd) != 0;
    wrong += truncate("names", 10) != 0 || stat("names", &status) != 0 || status.st_size != 10;
    wrong += truncate("names", 4) != 0 || stat("names", &status) != 0 || status.st_size != 4;
    wrong += rename("names", "renamed") != 0 || unlink("renamed") != 0;
    return wrong;
}

static void storm_of_opens(const struct itimerval *never)
{
    struct sigaction action = {.sa_handler = on_alarm_open};
    sigaction(SIGALRM, &action, NULL);
    arm(0);
    int wrong = 0;
    while (opened < 300)
        wrong += use_names();
    setitimer(ITIMER_REAL, never, NULL);
    struct stat status;
    wrong += stat("opened", &status) != 0 || status.st_size != (off_t)opened * 5;
    say("wrong %d, a handler's open failed %d", wrong, (int)open_failed);
    unlink("opened");
}

static void storm_of_jumps(const struct itimerval *never)
{
    struct sigaction action = {.sa_handler = on_alarm_jump};
    sigaction(SIGALRM, &action, NULL);
    sigsetjmp(before_storm, 1);
    if (jumps == 0)
        arm(0);
    /* What is left in the middle is not looked at. */
    while (jumps < 300)
        use_names();
    setitimer(ITIMER_REAL, never, NULL);
    unlink("renamed");
    say("wrong after jumps %d", use_names());
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
    storm_of_opens(&never);
    storm_of_jumps(&never);

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
