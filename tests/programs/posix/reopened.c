/* freopen of standard streams that are files: the same file once more, another one, an ordinary one, none; and files
 * opened under the number of a standard stream that was closed. The program calls itself with its streams on files. */
#include "transcript.h"

enum { SCREEN = 60 };
#define TELL(...) dprintf(SCREEN, __VA_ARGS__)

static void tell_rest(const char *what, FILE *stream)
{
    char line[64];
    int lines = 0;
    while (fgets(line, sizeof line, stream)) {
        if (lines == 0)
            TELL("%s begins: %s", what, line);
        lines++;
    }
    TELL("%s: %d lines, at %ld, eof %d, error %d\n", what, lines, ftell(stream), feof(stream) != 0, ferror(stream) != 0);
}

static int input(void)
{
    char line[64];
    tell_rest("at first", stdin);
    TELL("the same: %d\n", freopen(NULL, "rb", stdin) == stdin);
    tell_rest("once more", stdin);
    TELL("another: %d\n", freopen("other", "r", stdin) == stdin);
    tell_rest("another", stdin);
    TELL("a part of the first: %d\n", freopen("lines", "r", stdin) == stdin);
    TELL("%s", fgets(line, sizeof line, stdin));
    TELL("ordinary: %d\n", freopen("/dev/null", "r", stdin) != NULL);
    TELL("nothing: %d\n", getchar());
    TELL("the first again: %d\n", freopen("lines", "r", stdin) != NULL);
    tell_rest("the first again", stdin);
    errno = 0;
    int is_there = freopen("none", "r", stdin) != NULL;
    TELL("missing: %d %s\n", is_there, errno_name(errno));
    errno = 0;
    int flags = fcntl(0, F_GETFD);
    TELL("closed: %d %s\n", flags, errno_name(errno));
    return 0;
}

/* More than a buffer, so that a part is written and a part waits. */
static void print_much(void)
{
    for (int i = 0; i < 2000; i++)
        printf("%04d\n", i);
}

static int output(const char *role)
{
    if (!strcmp(role, "left")) {
        print_much();
        int is_there = freopen("/dev/null", "w", stdout) != NULL;
        TELL("ordinary: %d\n", is_there);
        printf("to nowhere\n");
    } else if (!strcmp(role, "emptied")) {
        print_much();
        int is_there = freopen(NULL, "w", stdout) != NULL;
        TELL("the same: %d\n", is_there);
        printf("all that is left\n");
    } else if (!strcmp(role, "changed")) {
        print_much();
        int is_there = freopen("changed to", "w+", stdout) != NULL;
        printf("another\nof two lines\n");
        rewind(stdout);
        tell_rest("written and read", stdout);
        is_there += freopen("changed", "a", stdout) != NULL;
        TELL("there and back: %d\n", is_there);
        printf("at the end\n");
    } else {
        static char buffer[4096];
        setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
        print_much();
        close(1);
        TELL("number %d\n", open("number", O_WRONLY | O_CREAT | O_TRUNC, 0644));
        printf("under the number\n");
        fflush(stdout);
        close(1);
        TELL("number %d\n", open("/dev/null", O_WRONLY));
        printf("to nowhere\n");
    }
    return 0;
}

static void run(char *name, const char *role, const char *path, int number)
{
    int status;
    fflush(stdout);
    if (fork() == 0) {
        int fd = open(path, number == 0 ? O_RDONLY : O_RDWR | O_CREAT | O_TRUNC, 0644);
        dup2(1, SCREEN);
        dup2(fd, number);
        close(fd);
        execl("/proc/self/exe", name, role, (char *)NULL);
        _exit(127);
    }
    wait(&status);
    say("%s:", role);
    show_child(status);
}

/* Under the number of a standard stream that is ordinary, with what the stream holds. */
static int closed(void)
{
    dup2(1, SCREEN);
    dup2(open("/dev/null", O_RDWR), 1);
    setvbuf(stdout, NULL, _IOFBF, 4096);
    printf("waits\n");
    close(1);
    TELL("number %d\n", open("waited", O_WRONLY | O_CREAT | O_TRUNC, 0644));
    printf("and is written\n");
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return !strcmp(argv[1], "input") ? input() : !strcmp(argv[1], "closed") ? closed() : output(argv[1]);
    FILE *f = fopen("lines", "w");
    for (int i = 0; i < 300; i++)
        fprintf(f, "line %d\n", i);
    fclose(f);
    f = fopen("other", "w");
    fprintf(f, "the other's only line\n");
    fclose(f);
    run(argv[0], "input", "lines", 0);
    show_file("lines");
    run(argv[0], "left", "left", 1);
    show_file("left");
    run(argv[0], "emptied", "emptied", 1);
    show_file("emptied");
    run(argv[0], "changed", "changed", 1);
    show_file("changed");
    show_file("changed to");
    run(argv[0], "numbered", "numbered", 1);
    show_file("numbered");
    show_file("number");
    int status;
    if (fork() == 0) {
        execl("/proc/self/exe", argv[0], "closed", (char *)NULL);
        _exit(127);
    }
    wait(&status);
    show_child(status);
    show_file("waited");
    return 0;
}
