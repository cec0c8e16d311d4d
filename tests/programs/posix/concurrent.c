/* Several processes on one file: writes of neighbours do not disturb each other, a reader sees what a writer's write
 * returned for, sizes grow to the largest extent, truncation is seen by all. */
#include "transcript.h"

#define PROCESSES 5
#define PIECE 30011

static int work(int self)
{
    int fd = open("f", O_RDWR);
    static char out[PIECE], in[PIECE];
    for (unsigned round = 0; round < 60; round++) {
        off_t place = ((off_t)round * PROCESSES + self) * PIECE;
        fill(out, PIECE, round * PROCESSES + (unsigned)self);
        if (pwrite(fd, out, PIECE, place) != PIECE || pread(fd, in, PIECE, place) != PIECE ||
            memcmp(in, out, PIECE) != 0)
            return 1;
        struct stat status;
        if (fstat(fd, &status) != 0 || status.st_size < place + PIECE)
            return 2;
    }
    return 0;
}

int main(void)
{
    CALL(open("f", O_RDWR | O_CREAT | O_TRUNC, 0644));
    for (int i = 0; i < PROCESSES; i++)
        if (fork() == 0)
            _exit(work(i));
    int status;
    for (int i = 0; i < PROCESSES; i++) {
        wait(&status);
        show_child(status);
    }
    show_file("f");

    int there[2], back[2];
    if (pipe(there) != 0 || pipe(back) != 0)
        return 1;
    fflush(stdout);
    if (fork() == 0) {
        char token;
        int fd = open("talk", O_RDWR | O_CREAT, 0644);
        for (int i = 0; i < 100; i++) {
            if (read(there[0], &token, 1) != 1)
                _exit(1);
            int value = 0;
            struct stat now;
            if (pread(fd, &value, sizeof value, (off_t)i * 5000) != sizeof value || value != i)
                _exit(2);
            if (fstat(fd, &now) != 0 || now.st_size != (off_t)i * 5000 + (off_t)sizeof value)
                _exit(3);
            if (i % 10 == 9 && ftruncate(fd, 100) != 0)
                _exit(4);
            if (write(back[1], &token, 1) != 1)
                _exit(5);
        }
        _exit(0);
    }
    int fd = open("talk", O_RDWR | O_CREAT, 0644);
    int wrong = 0;
    for (int i = 0; i < 100; i++) {
        struct stat now;
        char token = 'x';
        wrong += fstat(fd, &now) != 0 || (i > 0 && i % 10 == 0 && now.st_size != 100);
        wrong += pwrite(fd, &i, sizeof i, (off_t)i * 5000) != sizeof i;
        wrong += write(there[1], &token, 1) != 1 || read(back[0], &token, 1) != 1;
    }
    wait(&status);
    show_child(status);
    say("wrong %d", wrong);
    show_file("talk");
    return 0;
}
