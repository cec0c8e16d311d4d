/* open, openat, creat and the flags that decide what they do; descriptors of one direction only. */
#include "transcript.h"

int main(void)
{
    char buffer[16] = "0123456789";
    umask(022);
    CALL(open("none", O_RDONLY));
    CALL(open("none/below", O_RDWR | O_CREAT, 0644));
    int fd = (int)CALL(open("a", O_RDWR | O_CREAT | O_EXCL, 0640));
    CALL(write(fd, buffer, 10));
    CALL(open("a", O_RDWR | O_CREAT | O_EXCL, 0640));
    CALL(open("a/below", O_RDONLY));
    CALL(open("a", O_RDONLY | O_DIRECTORY));
    CALL(fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND | O_NONBLOCK));
    CALL(fcntl(fd, F_GETFD));
    CALL(close(fd));
    CALL(close(fd));

    int reader = (int)CALL(open("a", O_RDONLY | O_CLOEXEC));
    CALL(fcntl(reader, F_GETFD));
    CALL(write(reader, buffer, 1));
    CALL(ftruncate(reader, 3));
    CALL(pwrite(reader, buffer, 1, 0));
    CALL(read(reader, buffer, 4));
    int writer = (int)CALL(open("a", O_WRONLY));
    CALL(read(writer, buffer, 1));
    CALL(pread(writer, buffer, 1, 0));
    CALL(write(writer, "xy", 2));
    CALL(fcntl(writer, F_GETFL) & (O_ACCMODE | O_APPEND | O_NONBLOCK));
    CALL(read(reader, buffer, 16));
    show("rest", buffer, 6);
    show_file("a");

    CALL(close(CALL(open("a", O_WRONLY | O_TRUNC))));
    show_file("a");
    CALL(read(reader, buffer, 16));
    int created = (int)CALL(creat("b", 0600));
    CALL(read(created, buffer, 1));
    CALL(write(created, "created", 7));
    CALL(lseek(created, 0, SEEK_CUR));
    CALL(creat("b", 0600));
    show_file("b");

    int directory = (int)CALL(open(".", O_RDONLY | O_DIRECTORY));
    CALL(read(directory, buffer, 1));
    CALL(open(".", O_RDWR));
    int at = (int)CALL(openat(directory, "c", O_RDWR | O_CREAT, 0604));
    CALL(write(at, "at", 2));
    CALL(openat(at, "c", O_RDONLY));
    CALL(openat(-7, "c", O_RDONLY));
    CALL(close((int)CALL(openat(AT_FDCWD, "c", O_RDONLY))));
    CALL(symlink("c", "link"));
    CALL(open("link", O_RDONLY | O_NOFOLLOW));
    int linked = (int)CALL(open("link", O_RDWR));
    CALL(write(linked, "via", 3));
    show_file("c");
    CALL(symlink("loop", "loop"));
    CALL(open("loop", O_RDONLY));
    CALL(unlink("loop"));
    CALL(unlink("link"));

    /* What /proc tells of a descriptor: its name, and the file once more, with a position of its own. */
    char proc[40], name[4096];
    snprintf(proc, sizeof proc, "/proc/self/fd/%d", linked);
    ssize_t length = readlink(proc, name, sizeof name - 1);
    name[length < 0 ? 0 : length] = 0;
    say("named %s", strrchr(name, '/') ? strrchr(name, '/') : "nothing");
    int again = (int)CALL(open(proc, O_RDONLY));
    CALL(read(again, buffer, 16));
    show("again", buffer, 3);
    CALL(write(again, "x", 1));
    CALL(lseek(linked, 0, SEEK_CUR));
    CALL(close(again));

    int path = (int)CALL(open("c", O_PATH));
    CALL(read(path, buffer, 1));
    struct stat status;
    CALL(fstat(path, &status));
    show_stat("by O_PATH", &status);
    CALL(open("", O_RDONLY));
    CALL(open("d", O_RDWR | O_CREAT | O_SYNC, 0644));
    CALL(open("e", O_RDWR | O_CREAT | O_NONBLOCK, 0444));
    /* A path with a slash at its end is a directory's. */
    CALL(open("new/", O_RDWR | O_CREAT, 0644));
    CALL(open("./new//", O_WRONLY | O_CREAT | O_EXCL, 0644));
    CALL(open("missing/new/", O_WRONLY | O_CREAT, 0644));
    CALL(open("e/", O_RDWR | O_CREAT, 0644));
    CALL(creat("new/", 0644));
    CALL(fopen("new/", "w") != NULL);
    CALL(symlink("new/", "dangling"));
    CALL(open("dangling", O_RDWR | O_CREAT, 0644));
    CALL(access("new", F_OK));
    return 0;
}
