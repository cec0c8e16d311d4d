/* stdin, stdout and stderr put on files by freopen and dup2: libc writes them from inside itself. */
#include "transcript.h"

int main(void)
{
    int screen = dup(1);
    if (!freopen("out", "w", stdout))
        return 1;
    printf("printf %d\n", 42);
    puts("puts");
    putchar('c');
    fflush(stdout);
    dprintf(1, "\ndprintf %s\n", "text");
    fwrite("fwrite\n", 1, 7, stdout);
    fclose(stdout);

    int fd = open("err", O_RDWR | O_CREAT | O_TRUNC, 0644);
    int kept = dup(2);
    dup2(fd, 2);
    fprintf(stderr, "to stderr\n");
    errno = ENOENT;
    perror("perror");
    psignal(SIGUSR1, "psignal");
    dup2(kept, 2);

    int in = open("out", O_RDONLY);
    dup2(in, 0);
    char word[32];
    int lines = 0, scanned = scanf("%31s", word);
    for (int c; (c = getchar()) != EOF;)
        lines += c == '\n';
    dprintf(screen, "scanned %d %s, then %d lines, eof %d\n", scanned, word, lines, feof(stdin) != 0);
    dprintf(fd, "dprintf to the file\n");
    dprintf(screen, "position %lld\n", (long long)lseek(fd, 0, SEEK_CUR));
    return 0;
}
