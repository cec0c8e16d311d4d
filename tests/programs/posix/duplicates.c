/* dup, dup2, dup3, F_DUPFD: one open file description, one position, one set of status flags; fork shares it too. */
#include "transcript.h"

static void positions(const char *when, int a, int b)
{
    say("%s: %lld %lld", when, (long long)lseek(a, 0, SEEK_CUR), (long long)lseek(b, 0, SEEK_CUR));
}

/* Three names of one open file description, found after exec, so that the program was not there when they were made. */
static int inherited(void)
{
    for (int fd = 40; fd < 43; fd++)
        CALL(lseek(fd, 0, SEEK_CUR));
    CALL(fcntl(40, F_SETFL, O_APPEND));
    CALL(fcntl(41, F_GETFL) & O_APPEND);
    CALL(lseek(41, 0, SEEK_SET));
    CALL(write(41, "X", 1));
    show_file("inherited");
    CALL(fcntl(41, F_SETFL, 0));
    CALL(lseek(42, 0, SEEK_SET));
    CALL(write(42, "Y", 1));
    CALL(lseek(43, 0, SEEK_SET)); /* another description of the file, which appends on */
    CALL(write(43, "Z", 1));
    show_file("inherited");
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return inherited();
    char buffer[64];
    int fd = (int)CALL(open("f", O_RDWR | O_CREAT | O_TRUNC, 0644));
    CALL(write(fd, "abcdefghijklmnopqrstuvwxyz", 26));
    CALL(lseek(fd, 0, SEEK_SET));
    int twin = (int)CALL(dup(fd));
    CALL(read(fd, buffer, 3));
    CALL(read(twin, buffer, 3));
    show("read", buffer, 3);
    positions("after two reads", fd, twin);
    CALL(dup2(fd, 40));
    CALL(lseek(40, -1, SEEK_END));
    positions("after seek", twin, 40);
    CALL(dup2(fd, fd));
    CALL(dup3(fd, fd, 0));
    CALL(dup3(fd, 41, O_CLOEXEC));
    CALL(fcntl(41, F_GETFD));
    CALL(fcntl(40, F_GETFD));
    CALL(fcntl(fd, F_DUPFD, 50));
    CALL(fcntl(fd, F_DUPFD_CLOEXEC, 50));
    CALL(fcntl(51, F_GETFD));
    CALL(fcntl(50, F_SETFD, FD_CLOEXEC));
    CALL(fcntl(50, F_GETFD));
    CALL(dup(99));
    CALL(dup2(99, 3));
    CALL(close(fd));
    CALL(read(fd, buffer, 1));
    CALL(write(50, "Z!", 2));
    CALL(lseek(twin, 0, SEEK_CUR));
    CALL(fcntl(twin, F_SETFL, O_APPEND));
    CALL(fcntl(40, F_GETFL) & O_APPEND);
    CALL(fcntl(40, F_SETFL, 0));

    int other = (int)CALL(open("f", O_RDONLY));
    positions("another description", other, twin);
    CALL(dup2(other, twin)); /* closes twin first */
    positions("after dup2 over it", other, twin);

    CALL(lseek(40, 5, SEEK_SET));
    fflush(stdout);
    pid_t child = fork();
    int status;
    if (child == 0) {
        char inner[5];
        _exit(read(40, inner, 5) == 5 && memcmp(inner, "fghij", 5) == 0 && close(41) == 0 ? 7 : 1);
    }
    waitpid(child, &status, 0);
    show_child(status);
    positions("after the child's read", 40, 41);
    CALL(read(40, buffer, 4));
    show("parent continues", buffer, 4);
    child = fork();
    if (child == 0) {
        lseek(40, 1, SEEK_SET);
        _exit(write(40, "BCD", 3) == 3 ? 0 : 1);
    }
    waitpid(child, &status, 0);
    CALL(write(40, "EFG", 3));
    CALL(close_range(41, 60, CLOSE_RANGE_CLOEXEC));
    CALL(fcntl(50, F_GETFD));
    CALL(close_range(41, 60, 0));
    CALL(fcntl(50, F_GETFD));
    CALL(close_range(60, 41, 0));
    CALL(read(40, buffer, 4));
    show_file("f");
    CALL(dup2((int)CALL(open("inherited", O_RDWR | O_CREAT | O_TRUNC, 0644)), 40));
    CALL(write(40, "0123456789", 10));
    CALL(dup2(40, 41));
    CALL(dup2(40, 42));
    CALL(dup2((int)CALL(open("inherited", O_RDWR | O_APPEND)), 43));
    child = fork();
    if (child == 0) {
        execl("/proc/self/exe", argv[0], "inherited", (char *)NULL);
        _exit(127);
    }
    waitpid(child, &status, 0);
    show_child(status);
    closefrom(40);
    CALL(read(40, buffer, 1));
    return 0;
}
