/* stdio: fopen modes, positions, ungetc, freopen, fdopen, buffering, getline, and streams that share a description. */
#include "transcript.h"
#include <stdio_ext.h>

static FILE *opened(const char *path, const char *mode)
{
    errno = 0;
    FILE *stream = fopen(path, mode);
    say("fopen(%s, %s): %s", path, mode, stream ? "ok" : errno_name(errno));
    return stream;
}

int main(void)
{
    char buffer[100] = {0}, *line = NULL;
    size_t room = 0;
    opened("none", "r");
    opened("none", "r+");
    opened("none", "q");
    FILE *f = opened("f", "w");
    CALL(fprintf(f, "line %d\nline %d\n%s", 1, 2, "no newline at the end"));
    CALL(ftell(f));
    CALL(fgetc(f));
    say("error flag %d", ferror(f) != 0);
    CALL(fclose(f));
    f = opened("f", "wx");
    f = opened("f", "r");
    CALL(fileno(f) >= 3);
    CALL(getline(&line, &room, f));
    say("got %s", line);
    CALL(fgetc(f));
    CALL(ungetc('L', f));
    CALL(getline(&line, &room, f));
    say("got %s", line);
    CALL(getdelim(&line, &room, ' ', f));
    CALL(ftell(f));
    CALL(fseek(f, -3, SEEK_END));
    CALL(fread(buffer, 1, 10, f));
    say("tail %s eof %d", buffer, feof(f) != 0);
    CALL(fputc('x', f));
    rewind(f);
    CALL(fgetc(f));
    fpos_t position;
    CALL(fgetpos(f, &position));
    CALL(fseeko(f, 100000, SEEK_SET));
    CALL(fgetc(f));
    CALL(fsetpos(f, &position));
    CALL(fgetc(f));
    CALL(fseek(f, -10, SEEK_SET));
    CALL(fclose(f));

    f = opened("f", "a+");
    CALL(fputs(" appended", f));
    CALL(fseek(f, 0, SEEK_SET));
    CALL(fread(buffer, 1, 4, f));
    CALL(fseek(f, 0, SEEK_CUR));
    CALL(fputs(" again", f));
    CALL(fflush(f));
    CALL(ftell(f));
    CALL(fclose(f));
    show_file("f");
    f = opened("f", "r+");
    CALL(fseek(f, 2, SEEK_SET));
    CALL(fwrite("NE", 1, 2, f));
    CALL(fflush(f));
    CALL(fgetc(f));
    f = freopen("g", "w+", f);
    say("freopen %d", f != NULL);
    CALL(setvbuf(f, NULL, _IONBF, 0));
    CALL(fputs("unbuffered", f));
    show_file("g");
    CALL(fclose(f));
    show_file("f");

    f = opened("big", "w+");
    static char own[1 << 16];
    CALL(setvbuf(f, own, _IOFBF, sizeof own));
    for (int i = 0; i < 50000; i++)
        fprintf(f, "%d,", i * i);
    CALL(fseek(f, 100000, SEEK_SET));
    for (int i = 0; i < 100; i++)
        fputc('#', f);
    CALL(fseek(f, 99990, SEEK_SET));
    CALL(fread(buffer, 1, 20, f));
    show("round the change", buffer, 20);
    CALL(fclose(f));
    show_file("big");

    int fd = (int)CALL(open("d", O_RDWR | O_CREAT | O_TRUNC, 0644));
    f = fdopen(fd, "r+");
    CALL(fputs("by stream,", f));
    CALL(fflush(f));
    CALL(write(fileno(f), "by descriptor,", 14));
    CALL(fseek(f, 0, SEEK_END));
    CALL(fputs("by stream", f));
    FILE *twin = fdopen(dup(fileno(f)), "w");
    CALL(fflush(f));
    CALL(fputs(",by twin", twin));
    CALL(fclose(twin));
    CALL(lseek(fileno(f), 0, SEEK_CUR));
    CALL(fclose(f));
    show_file("d");
    CALL(fcntl(fd, F_GETFD));
    f = fdopen(99, "r");
    say("fdopen of nothing: %s", f ? "ok" : errno_name(errno));

    f = opened("wide", "w,ccs=UTF-8");
    if (f)
        fclose(f);
    f = opened("lines", "we");
    CALL(setvbuf(f, NULL, _IOLBF, 0));
    CALL(fputs("whole line\npart", f));
    show_file("lines");
    say("pending %zu", __fpending(f));
    fflush(stdout);
    if (fork() == 0)
        _exit(fputs(" child", f) >= 0 && fflush(f) == 0 ? 0 : 1);
    int status;
    wait(&status);
    show_child(status);
    CALL(fclose(f));
    show_file("lines");
    /* A file on the descriptor of a stream of libc's own: the stream writes it, or fails and leaves it alone; and then
     * the stream's first file again. */
    f = tmpfile();
    fd = (int)CALL(open("over", O_RDWR | O_CREAT | O_TRUNC, 0644));
    int number = fileno(f), kept = dup(number);
    CALL(fputs("before", f));
    CALL(fflush(f));
    CALL(dup2(fd, number) == number);
    CALL(fputs(" over", f));
    CALL(fileno(f) == number);
    if (TAGGED("stream_over_managed", fflush(f)) != 0) {
        __fpurge(f);
        clearerr(f);
        if (write(fileno(f), " over", 5) != 5)
            return 1;
    }
    show_file("over");
    CALL(dup2(kept, number) == number);
    CALL(fputs(" and after", f));
    rewind(f);
    memset(buffer, 0, sizeof buffer);
    CALL(fread(buffer, 1, sizeof buffer, f));
    say("%s", buffer);
    CALL(dup2(fd, number) == number);
    CALL(fclose(f));
    CALL(fcntl(number, F_GETFD));
    show_file("over");
    /* What is appended to is read from its begin. */
    f = opened("both", "w");
    CALL(fputs("one\ntwo\n", f));
    CALL(fclose(f));
    f = opened("both", "a+");
    CALL(ftell(f));
    CALL(fgets(buffer, sizeof buffer, f) != NULL);
    say("%s", buffer);
    CALL(fputs("three\n", f));
    CALL(fflush(f));
    show_file("both");
    CALL(freopen("both", "a+", f) == f);
    CALL(fgets(buffer, sizeof buffer, f) != NULL);
    say("%s", buffer);
    CALL(fclose(f));
    f = opened("both", "a");
    CALL(ftell(f));
    CALL(fclose(f));
    /* A stream does what its descriptor can. */
    const char *modes[] = {"r", "w", "a", "r+", "w+", "a+", "q", ""};
    int accesses[] = {O_RDONLY, O_WRONLY, O_RDWR};
    for (int access = 0; access < 3; access++)
        for (int mode = 0; mode < 8; mode++) {
            int under = open("both", accesses[access]);
            f = fdopen(under, modes[mode]);
            say("%d %s %s %x", access, modes[mode], f ? "yes" : errno_name(errno), (unsigned)fcntl(under, F_GETFL) & (O_ACCMODE | O_APPEND));
            if (f)
                fclose(f);
            else
                close(under);
        }
    /* A stream left open is flushed by exit. */
    f = opened("left", "w");
    fputs("flushed at exit", f);
    free(line);
    return 0;
}
