/* Names that change under a call: a stream is on the file that its open found, whoever made it, and what cuts a file by
 * its name cuts the file that stands there. No managed file loses its name unnoted. */
#include "transcript.h"
#include <sched.h>
#include <sys/mman.h>

#define ROUNDS 60
#define WRITERS 3

/* How many have come to the gate; all go on together. And whether the one that is disturbed has done its rounds. */
static volatile int *gate, *over;

static void pass(int round, int everybody)
{
    __atomic_add_fetch(gate, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(gate, __ATOMIC_ACQUIRE) < (round + 1) * everybody)
        sched_yield();
}

static void name(char *path, const char *kind, int round)
{
    sprintf(path, "%s%d", kind, round);
}

/* Several processes append a line each to a file that the first of them makes, while one reads. */
static int append(void)
{
    char path[32];
    int wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        name(path, "lines", round);
        pass(round, WRITERS + 1);
        FILE *stream = fopen(path, "a");
        wrong += stream == NULL || fputs("appended\n", stream) < 0;
        wrong += stream == NULL || fclose(stream) != 0;
    }
    return wrong;
}

static int read_lines(void)
{
    char path[32], line[128];
    int wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        name(path, "lines", round);
        pass(round, WRITERS + 1);
        FILE *stream;
        while ((stream = fopen(path, "r")) == NULL)
            sched_yield();
        while (fgets(line, sizeof line, stream) != NULL)
            wrong += strcmp(line, "appended\n") != 0;
        fclose(stream);
    }
    return wrong;
}

static void appended(void)
{
    *gate = 0;
    for (int i = 0; i <= WRITERS; i++)
        if (fork() == 0)
            _exit(i < WRITERS ? append() : read_lines());
    int status;
    for (int i = 0; i <= WRITERS; i++) {
        wait(&status);
        show_child(status);
    }
    int missing = 0;
    char path[32], line[128];
    for (int round = 0; round < ROUNDS; round++) {
        name(path, "lines", round);
        FILE *stream = fopen(path, "r");
        int lines = 0;
        while (stream != NULL && fgets(line, sizeof line, stream) != NULL)
            lines += strcmp(line, "appended\n") == 0;
        if (stream != NULL)
            fclose(stream);
        missing += WRITERS - lines;
    }
    say("lines missing %d", missing);
}

enum way { BY_NAME, BY_READER, BY_STREAM };

/* One gives ten bytes the name, the other changes what stands there as soon as it finds it. */
static void changed(enum way way, const char *what, const char *expected)
{
    *gate = 0;
    const char *kind = way == BY_NAME ? "name" : way == BY_READER ? "reader" : "stream";
    pid_t child = fork();
    if (child == 0) {
        char path[32];
        for (int round = 0; round < ROUNDS; round++) {
            name(path, kind, round);
            int fd = open("unnamed", O_WRONLY | O_CREAT | O_TRUNC, 0644);
            if (write(fd, "0123456789", 10) != 10 || close(fd) != 0)
                _exit(1);
            pass(round, 2);
            if (rename("unnamed", path) != 0)
                _exit(2);
        }
        _exit(0);
    }
    int wrong = 0;
    char path[32], found[32];
    for (int round = 0; round < ROUNDS; round++) {
        name(path, kind, round);
        pass(round, 2);
        int fd = -1;
        switch (way) {
        case BY_NAME:
            while (truncate(path, 3) != 0)
                wrong += errno != ENOENT;
            break;
        case BY_READER:
            while ((fd = open(path, O_RDONLY | O_TRUNC)) < 0)
                wrong += errno != ENOENT;
            wrong += read(fd, found, sizeof found) != 0;
            close(fd);
            break;
        case BY_STREAM:
            while (freopen(path, "r+", stdin) == NULL)
                wrong += errno != ENOENT;
            wrong += fputs("ab", stdin) < 0 || fflush(stdin) != 0;
            break;
        }
        struct stat status;
        wrong += stat(path, &status) != 0 || status.st_size != (off_t)strlen(expected);
        fd = open(path, O_RDONLY);
        ssize_t bytes = read(fd, found, sizeof found);
        wrong += bytes != (ssize_t)strlen(expected) || memcmp(found, expected, strlen(expected)) != 0;
        close(fd);
    }
    int status;
    waitpid(child, &status, 0);
    show_child(status);
    say("%s: wrong %d", what, wrong);
}

/* One makes a file and takes its name away, over and over, while the other does something to the same name. Whatever comes
 * first, no data is left without a name: the runner looks by `stripewise check`. */
static void taken(const char *what, void (*other)(void), const char *last)
{
    *gate = *over = 0;
    pid_t child = fork();
    if (child == 0) {
        pass(0, 2);
        while (!*over)
            other();
        _exit(0);
    }
    int wrong = 0;
    pass(0, 2);
    for (int round = 0; round < 2 * ROUNDS; round++) {
        int fd = open("taken", O_RDWR | O_CREAT, 0644);
        wrong += pwrite(fd, "0123456789", 10, 0) != 10;
        wrong += close(fd) != 0;
        wrong += unlink(last) != 0 && errno != ENOENT;
    }
    *over = 1;
    int status;
    waitpid(child, &status, 0);
    show_child(status);
    unlink("taken");
    unlink("over");
    say("%s: wrong %d", what, wrong);
}

/* Files that one makes while the other makes and removes the same name: those that stay are managed, as the runner sees by their
 * data. */
static void made(void)
{
    *gate = *over = 0;
    pid_t child = fork();
    if (child == 0) {
        pass(0, 2);
        while (!*over) {
            close(open("made", O_RDWR | O_CREAT, 0644));
            unlink("made");
        }
        _exit(0);
    }
    int wrong = 0;
    pass(0, 2);
    for (int round = 0; round < ROUNDS / 3; round++) {
        char path[32];
        name(path, "kept", round);
        struct stat status = {.st_size = 0};
        while (status.st_size == 0) {
            int fd = open("made", O_RDWR | O_CREAT, 0644);
            wrong += pwrite(fd, "0123456789", 10, 0) != 10;
            wrong += close(fd) != 0;
            if (rename("made", path) == 0)
                wrong += stat(path, &status) != 0;
        }
        wrong += status.st_size != 10;
    }
    *over = 1;
    int status;
    waitpid(child, &status, 0);
    show_child(status);
    unlink("made");
    say("made: wrong %d", wrong);
}

static void remove_it(void)
{
    unlink("taken");
}

static void move_it(void)
{
    rename("taken", "over");
}

static void move_over_it(void)
{
    int fd = open("over", O_WRONLY | O_CREAT, 0644);
    close(fd);
    rename("over", "taken");
}

int main(void)
{
    gate = mmap(NULL, 2 * sizeof *gate, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    over = gate + 1;
    appended();
    changed(BY_NAME, "truncate", "012");
    changed(BY_READER, "O_RDONLY | O_TRUNC", "");
    changed(BY_STREAM, "freopen", "ab23456789");
    made();
    taken("both remove it", remove_it, "taken");
    taken("the other moves it", move_it, "taken");
    taken("the other moves it, and where to is removed", move_it, "over");
    taken("the other moves one over it", move_over_it, "taken");
    /* The directory is not to be cut. */
    CALL(mkdir("d", 0755));
    CALL(open("d", O_RDONLY | O_TRUNC));
    CALL(truncate("d", 0));
    CALL(truncate("missing", 0));
    CALL(truncate("missing", -1));
    CALL(truncate("/dev/null", 0));
    /* At the end, so that no inode is used twice. */
    const char *kinds[] = {"lines", "name", "reader", "stream"};
    char path[32];
    for (int i = 0; i < 4; i++)
        for (int round = 1; round < ROUNDS; round++) {
            name(path, kinds[i], round);
            unlink(path);
        }
    return 0;
}
