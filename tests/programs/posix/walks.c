/* Walks over directories, which look at files by calls inside libc. */
#include "transcript.h"
#include <fts.h>
#include <ftw.h>

static int seen(const char *path, const struct stat *s, int kind)
{
    if (S_ISREG(s->st_mode))
        say("ftw %s: kind %d size %lld", path, kind, (long long)s->st_size);
    return 0;
}

static int placed(const char *path, const struct stat *s, int kind, struct FTW *place)
{
    if (S_ISREG(s->st_mode))
        say("nftw %s at %d, level %d: kind %d size %lld", path, place->base, place->level, kind,
            (long long)s->st_size);
    return 0;
}

static int by_name(const FTSENT **one, const FTSENT **other)
{
    return strcmp((*one)->fts_name, (*other)->fts_name);
}

static void walk(int options)
{
    char *paths[] = {"tree", NULL};
    FTS *fts = fts_open(paths, options, by_name);
    for (FTSENT *entry; (entry = fts_read(fts)) != NULL;) {
        if (entry->fts_info == FTS_F)
            say("fts %s: size %lld, %s", entry->fts_path, (long long)entry->fts_statp->st_size,
                entry->fts_statp->st_blocks > 0 ? "blocks" : "no blocks");
        if (entry->fts_info == FTS_D)
            for (FTSENT *child = fts_children(fts, 0); child; child = child->fts_link)
                if (child->fts_info == FTS_F)
                    say("child %s: size %lld", child->fts_name, (long long)child->fts_statp->st_size);
    }
    CALL(fts_close(fts));
}

int main(void)
{
    CALL(mkdir("tree", 0755));
    CALL(mkdir("tree/below", 0755));
    int fd = (int)CALL(open("tree/below/data", O_RDWR | O_CREAT, 0644));
    static char buffer[30000];
    CALL(write(fd, buffer, sizeof buffer));
    CALL(symlink("data", "tree/below/link"));
    walk(FTS_PHYSICAL);
    walk(FTS_LOGICAL | FTS_NOCHDIR);
    CALL(unlink("tree/below/link")); /* these walk in the directory's own order */
    CALL(ftw("tree", seen, 4));
    CALL(nftw("tree", placed, 4, FTW_PHYS));
    CALL(nftw("tree", placed, 4, FTW_CHDIR));
    CALL(nftw("tree", placed, 4, FTW_CHDIR | FTW_PHYS | FTW_DEPTH));
    CALL(close(fd));
    CALL(nftw("tree", placed, 4, 0));
    return 0;
}
