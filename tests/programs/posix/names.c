/* rename over files, hard links, unlink while open, O_TMPFILE, mkstemp, remove, directories. */
#include "transcript.h"
#include <dirent.h>
#include <sys/inotify.h>

static int put(const char *name, const char *text)
{
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    say("put %s: %zd", name, write(fd, text, strlen(text)));
    return fd;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void list(const char *path)
{
    struct dirent **names;
    int n = scandir(path, &names, NULL, by_name);
    for (int i = 0; i < n; i++)
        if (names[i]->d_name[0] != '.')
            say("%s/%s", path, names[i]->d_name);
}

int main(void)
{
    char buffer[64];
    struct stat status;
    int a = put("a", "content of a"), b = put("b", "content of b, longer");
    CALL(rename("a", "b"));
    show_file("b");
    CALL(pread(b, buffer, 64, 0));
    CALL(pwrite(b, "still here", 10, 0));
    CALL(fstat(b, &status));
    show_stat("the replaced one", &status);
    CALL(write(a, "+more", 5));
    show_file("b");
    CALL(rename("none", "x"));
    CALL(mkdir("d", 0755));
    CALL(rename("b", "d"));
    /* Ways that lead through a file, to one that is there and from it. */
    CALL(rename("b/x", "b"));
    CALL(rename("b", "b/x"));
    CALL(rename("none", "b/x"));
    CALL(link("b", "b/x"));
    CALL(unlink("b/x"));
    CALL(rename("b", "d/moved"));
    CALL(link("d/moved", "second"));
    CALL(link("d/moved", "second"));
    CALL(stat("second", &status));
    show_stat("second", &status);
    CALL(pwrite(a, "LINKED", 6, 0));
    show_file("second");
    CALL(unlink("d/moved"));
    show_file("second");
    CALL(renameat2(AT_FDCWD, "second", AT_FDCWD, "third", RENAME_NOREPLACE));
    put("fourth", "4");
    CALL(renameat2(AT_FDCWD, "third", AT_FDCWD, "fourth", RENAME_NOREPLACE));
    CALL(renameat2(AT_FDCWD, "third", AT_FDCWD, "fourth", RENAME_EXCHANGE));
    show_file("third");
    show_file("fourth");
    CALL(unlink("fourth"));
    CALL(fstat(a, &status));
    show_stat("unlinked", &status);
    CALL(pwrite(a, "after unlink", 12, 70000));
    CALL(pread(a, buffer, 64, 69990));
    show("after unlink", buffer, 22);
    CALL(open("fourth", O_RDONLY));
    put("fourth", "a new one of the same name");
    show_file("fourth");
    CALL(remove("third"));
    CALL(remove("third"));
    CALL(unlink("d"));
    CALL(unlinkat(AT_FDCWD, "d", AT_REMOVEDIR));

    int hidden = (int)CALL(open(".", O_RDWR | O_TMPFILE, 0600));
    CALL(write(hidden, "no name yet", 11));
    CALL(fstat(hidden, &status));
    show_stat("O_TMPFILE", &status);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", hidden);
    int linked = linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW);
    say("linkat of the hidden file = %d", linked);
    show_file("named");
    hidden = (int)CALL(open(".", O_RDWR | O_TMPFILE | O_EXCL, 0600));
    CALL(write(hidden, "never a name", 12));
    snprintf(path, sizeof path, "/proc/self/fd/%d", hidden);
    say("linkat of a file that may not be linked = %d", linkat(AT_FDCWD, path, AT_FDCWD, "never", AT_SYMLINK_FOLLOW));
    CALL(close(hidden));

    char template[] = "temp-XXXXXX";
    int fd = mkstemp(template);
    say("mkstemp: %d", fd >= 0 && strncmp(template, "temp-", 5) == 0);
    CALL(fstat(fd, &status));
    show_stat("mkstemp", &status);
    CALL(write(fd, "temporary", 9));
    CALL(rename(template, "temporary"));
    show_file("temporary");
    char with_suffix[] = "XXXXXX.dat";
    fd = mkostemps(with_suffix, 4, O_APPEND);
    CALL(write(fd, "x", 1));
    CALL(unlink(with_suffix));
    FILE *stream = tmpfile();
    say("tmpfile: %d", stream != NULL && fputs("x", stream) >= 0 && fclose(stream) == 0);
    CALL(mkdir("sub", 0700));
    CALL(chdir("sub"));
    put("inner", "relative to the new directory");
    CALL(rename("inner", "../outer"));
    CALL(chdir(".."));
    show_file("outer");
    CALL(rename("sub", "renamed"));
    put("renamed/kept", "kept");
    /* Whoever waits for what is written is told that he has to look himself. */
    int watches = (int)CALL(inotify_init1(IN_NONBLOCK));
    TAGGED("watch_writes", inotify_add_watch(watches, "outer", IN_MODIFY));
    CALL(inotify_add_watch(watches, "outer", IN_DELETE_SELF | IN_CLOSE_WRITE) > 0);
    CALL(inotify_add_watch(watches, "renamed", IN_MODIFY | IN_CREATE) > 0);
    CALL(inotify_add_watch(watches, "missing", IN_MODIFY));
    CALL(close(watches));
    list(".");
    list("renamed");
    return 0;
}
