/* Wide characters on streams: by character, line and format, in a multibyte locale; orientation; broken text. */
#include "transcript.h"
#include <locale.h>
#include <wchar.h>

static void say_wide(const char *what, const wchar_t *text)
{
    printf("%s:", what);
    for (; *text; text++)
        printf(" %x", (unsigned)*text);
    printf("\n");
}

int main(void)
{
    say("%s", setlocale(LC_ALL, "C.UTF-8"));
    FILE *file = fopen("f", "w");
    say("orientation %d", fwide(file, 0));
    say("fputwc %d", fputwc(L'\u00e9', file) == L'\u00e9');
    say("fputws %d", fputws(L" plain \u20ac and \U0001f600\n", file) >= 0);
    say("fwprintf %d", fwprintf(file, L"%d %.3f %ls %s %lc\n", 42, 2.5, L"\u4e2d\u6587", "bytes", L'\u00df'));
    for (int i = 0; i < 300; i++)
        if (putwc(L'\u2500' + i % 4, file) == WEOF)
            say("putwc failed");
    fwprintf(file, L"\n%*d|%-600ls|\n", 400, 7, L"long");
    say("orientation %d", fwide(file, 0) > 0);
    say("error %d", ferror(file));
    say("close %d", fclose(file));
    show_file("f");

    wchar_t line[2000];
    file = fopen("f", "r");
    say("fgetwc %x", (unsigned)fgetwc(file));
    say("ungetwc %d", ungetwc(L'\u20ac', file) == L'\u20ac');
    say("getwc %x", (unsigned)getwc(file));
    say("narrow %d", fgetws(line, 4, file) == line);
    say_wide("three", line);
    while (fgetws(line, 2000, file))
        say("line of %zu, last %x", wcslen(line), (unsigned)line[wcslen(line) - 1]);
    say("end %d error %d", feof(file) != 0, ferror(file));
    say("after the end %d", getwc(file) == WEOF);
    rewind(file);
    say("again %x", (unsigned)fgetwc(file));
    say("size one %d", fgetws(line, 1, file) == line && line[0] == 0);
    fclose(file);

    file = fopen("broken", "w");
    fputs("ok\xff rest\n", file);
    fclose(file);
    file = fopen("broken", "r");
    say("broken %d", fgetws(line, 2000, file) == NULL);
    say("%s error %d end %d", errno_name(errno), ferror(file) != 0, feof(file) != 0);
    fclose(file);
    file = fopen("cut", "w");
    fputs("\xe2\x82", file);
    fclose(file);
    file = fopen("cut", "r");
    say("cut %d", fgetwc(file) == WEOF);
    fclose(file);

    int kept = dup(1);
    int fd = open("out", O_RDWR | O_CREAT | O_TRUNC, 0644);
    fflush(stdout);
    dup2(fd, 1);
    fflush(stdout);
    FILE *other = fopen("other", "w");
    fwprintf(other, L"%ls", L"\u00fcber");
    fclose(other);
    dup2(kept, 1);
    show_file("other");
    return 0;
}
