/* File systems in directories, which every process that sees them shares: no step leaves anything that another process must wait for.
 *
 *     id, servers        the file system's number; one address a line, the first being that of the server that keeps the metadata
 *     meta/HANDLE/       a directory: links from its names to their handles
 *     meta/HANDLE        a file: a link to where its only datafile lies, sN/HANDLE
 *     sN/HANDLE          a datafile
 *     control.N          what server N is told to do: words, see parse()
 *     peak               how many operations were under way together, at most
 *     sent, arrived      a byte for each late request */
#include "pvfs2.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROOT_HANDLE = 1 << 20, SERVER_SHIFT = 52, SHOWN_AT_ONCE = 100, ADDRESSES = 1000 };

static struct file_system *file_systems;

struct file_system *file_system_of(int32_t id)
{
    struct file_system *found = file_systems;
    while (found && found->id != id)
        found = found->next;
    return found;
}

static int error_of(int error)
{
    switch (error) {
    case ENOENT: return MISSING;
    case EEXIST: return EXISTS;
    case ENOTEMPTY: return NOT_EMPTY;
    case ENOTDIR: return NO_DIRECTORY;
    case EISDIR: return IS_DIRECTORY;
    case ENOSPC: return FULL;
    default: return IO_ERROR;
    }
}

/* The text of a small file, or -1. */
static ssize_t text_of(int directory, const char *name, char *text, size_t bytes)
{
    int file = openat(directory, name, O_RDONLY | O_CLOEXEC);
    if (file == -1)
        return -1;
    ssize_t length = read(file, text, bytes - 1);
    close(file);
    text[length > 0 ? length : 0] = 0;
    return length;
}

int add_file_system(struct mount *mount)
{
    char path[PATH_MAX], text[8192];
    const char *place = strstr(mount->servers[0], "://");
    snprintf(path, sizeof path, "%s/servers/%s", library_directory(), place ? place + 3 : mount->servers[0]);
    int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory == -1)
        return REFUSED;
    if (text_of(directory, "id", text, sizeof text) <= 0)
        violation("%s/id cannot be read", path);
    int32_t id = (int32_t)strtol(text, NULL, 10);
    char *name = strchr(text, ' ');
    if (!name || strcmp(name + 1, mount->name)) {
        close(directory);
        return NO_DEVICE;
    }
    REQUIRE(!file_system_of(id), "file system %d is added a second time", id);
    struct file_system *added = calloc(1, sizeof *added);
    *added = (struct file_system){.next = file_systems, .id = id, .directory = directory, .root = {.handle = ROOT_HANDLE, .file_system = id}};
    snprintf(added->name, sizeof added->name, "%s", mount->name);
    snprintf(added->config_server, sizeof added->config_server, "%s", mount->servers[0]);
    if (text_of(directory, "servers", text, sizeof text) <= 0)
        violation("%s/servers cannot be read", path);
    added->servers = calloc(strlen(text), sizeof *added->servers);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        snprintf(added->servers[added->server_count++], sizeof *added->servers, "%s", line);
    file_systems = added;
    mount->file_system = id;
    return 0;
}

/* Numbers that mean nothing to a caller, and differ from one file system to the next. */
int64_t address_of(const struct file_system *file_system, int server)
{
    return (int64_t)file_system->id * ADDRESSES + server + 1;
}

int server_at(const struct file_system *file_system, int64_t address)
{
    int64_t server = address - (int64_t)file_system->id * ADDRESSES - 1;
    return server >= 0 && server < file_system->server_count ? (int)server : -1;
}

/* down | full | misplaced | delay=MS | hung=MS | late=MS | short=BYTES | capacity=BYTES | fail=OPERATION:NUMBER */
static void parse(char *word, struct control *control)
{
    long long number = 0;
    if (!strcmp(word, "down"))
        control->down = true;
    else if (!strcmp(word, "full"))
        control->full = true;
    else if (!strcmp(word, "misplaced"))
        control->misplaced = true;
    else if (sscanf(word, "delay=%lld", &number) == 1)
        control->delay_ms = (long)number;
    else if (sscanf(word, "hung=%lld", &number) == 1)
        control->hung_ms = (long)number;
    else if (sscanf(word, "late=%lld", &number) == 1)
        control->late_ms = (long)number;
    else if (sscanf(word, "short=%lld", &number) == 1)
        control->short_bytes = number;
    else if (sscanf(word, "capacity=%lld", &number) == 1)
        control->capacity = number;
    else if (sscanf(word, "fail=%15[a-z]:%d", control->failing, &control->failure) != 2)
        violation("a server is told `%s`, which it does not know", word);
}

struct control control_of(const struct file_system *file_system, int server)
{
    struct control control = {.short_bytes = INT64_MAX, .capacity = INT64_MAX};
    char name[32], text[256], *rest;
    snprintf(name, sizeof name, "control.%d", server);
    if (text_of(file_system->directory, name, text, sizeof text) > 0)
        for (char *word = strtok_r(text, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest))
            parse(word, &control);
    return control;
}

uint64_t new_handle(int server)
{
    return (uint64_t)(server + 1) << SERVER_SHIFT | (dice() >> (64 - SERVER_SHIFT)) | 1 << 21;
}

int server_of(uint64_t handle)
{
    return handle >> SERVER_SHIFT ? (int)(handle >> SERVER_SHIFT) - 1 : 0;
}

static void meta_path(char path[320], uint64_t handle, const char *name)
{
    snprintf(path, 320, name ? "meta/%" PRIx64 "/%s" : "meta/%" PRIx64, handle, name);
}

void path_of_data(const struct placement *placement, char path[64])
{
    snprintf(path, 64, "s%d/%" PRIx64, placement->server, placement->datafile);
}

int placement_of(const struct file_system *file_system, uint64_t handle, struct placement *placement)
{
    char path[320], target[64] = "";
    /* A datafile is asked for by its own handle. */
    *placement = (struct placement){.server = server_of(handle), .datafile = handle};
    path_of_data(placement, path);
    if (!faccessat(file_system->directory, path, F_OK, 0))
        return 0;
    meta_path(path, handle, NULL);
    if (readlinkat(file_system->directory, path, target, sizeof target - 1) == -1)
        return errno == EINVAL ? IS_DIRECTORY : MISSING;
    return sscanf(target, "s%d/%" SCNx64, &placement->server, &placement->datafile) == 2 ? 0 : IO_ERROR;
}

static int handle_of(const struct file_system *file_system, uint64_t parent, const char *name, uint64_t *handle)
{
    char path[320], target[64] = "";
    meta_path(path, parent, name);
    if (readlinkat(file_system->directory, path, target, sizeof target - 1) == -1)
        return error_of(errno);
    return sscanf(target, "%" SCNx64, handle) == 1 ? 0 : IO_ERROR;
}

int lookup_path(const struct file_system *file_system, uint64_t parent, const char *path, uint64_t *found)
{
    char text[4096], *rest, *name;
    snprintf(text, sizeof text, "%s", path);
    *found = parent;
    for (name = strtok_r(text, "/", &rest); name; name = strtok_r(NULL, "/", &rest)) {
        int status = handle_of(file_system, *found, name, found);
        if (status)
            return status;
    }
    return 0;
}

/* Gives what was made a name. */
static int enter_name(const struct file_system *file_system, uint64_t parent, const char *name, uint64_t handle)
{
    char path[320], target[32];
    meta_path(path, parent, name);
    snprintf(target, sizeof target, "%" PRIx64, handle);
    return symlinkat(target, file_system->directory, path) ? error_of(errno) : 0;
}

int make_directory(const struct file_system *file_system, uint64_t parent, const char *name, uint64_t *made)
{
    char path[320];
    *made = new_handle(0);
    meta_path(path, *made, NULL);
    if (mkdirat(file_system->directory, path, 0700))
        return error_of(errno);
    int status = enter_name(file_system, parent, name, *made);
    if (status)
        unlinkat(file_system->directory, path, AT_REMOVEDIR);
    return status;
}

int create_file(const struct file_system *file_system, uint64_t parent, const char *name, int server, uint64_t *made)
{
    char path[320], data[64];
    struct placement placement = {.server = server, .datafile = new_handle(server)};
    path_of_data(&placement, data);
    int file = openat(file_system->directory, data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file == -1)
        return error_of(errno);
    close(file);
    *made = new_handle(0);
    meta_path(path, *made, NULL);
    int status = symlinkat(data, file_system->directory, path) ? error_of(errno) : 0;
    if (!status && (status = enter_name(file_system, parent, name, *made)))
        unlinkat(file_system->directory, path, 0);
    if (status)
        unlinkat(file_system->directory, data, 0);
    return status;
}

static void free_object(const struct file_system *file_system, uint64_t handle)
{
    char path[320], target[64] = "";
    meta_path(path, handle, NULL);
    if (readlinkat(file_system->directory, path, target, sizeof target - 1) == -1)
        return;
    unlinkat(file_system->directory, path, 0);
    unlinkat(file_system->directory, target, 0);
}

int remove_name(const struct file_system *file_system, uint64_t parent, const char *name)
{
    char path[320];
    uint64_t handle;
    int status = handle_of(file_system, parent, name, &handle);
    if (status)
        return status;
    meta_path(path, handle, NULL);
    if (unlinkat(file_system->directory, path, AT_REMOVEDIR) && errno != ENOTDIR && errno != ENOENT)
        return error_of(errno);
    meta_path(path, parent, name);
    if (unlinkat(file_system->directory, path, 0))
        return error_of(errno);
    free_object(file_system, handle);
    return 0;
}

int rename_name(const struct file_system *file_system, uint64_t from, const char *name, uint64_t to, const char *new_name)
{
    char path[320], new_path[320];
    uint64_t replaced;
    bool is_replaced = !handle_of(file_system, to, new_name, &replaced);
    meta_path(path, from, name);
    meta_path(new_path, to, new_name);
    if (renameat(file_system->directory, path, file_system->directory, new_path))
        return error_of(errno);
    if (is_replaced)
        free_object(file_system, replaced);
    return 0;
}

/* Its place in a listing, which stays while other names come and go. */
static uint64_t place_of(const char *name)
{
    uint64_t place = 14695981039346656037u;
    for (; *name; name++)
        place = (place ^ (unsigned char)*name) * 1099511628211u;
    return place | 1ull << 63;
}

static int by_place(const void *left, const void *right)
{
    uint64_t first = place_of(((const struct entry *)left)->name), second = place_of(((const struct entry *)right)->name);
    return first < second ? -1 : first > second;
}

int list_names(const struct file_system *file_system, uint64_t directory, uint64_t token, int most, struct entries *entries)
{
    char path[320];
    meta_path(path, directory, NULL);
    int opened = openat(file_system->directory, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *listing = opened == -1 ? NULL : fdopendir(opened);
    if (!listing)
        return error_of(errno);
    size_t count = 0, size = 16;
    struct entry *found = malloc(size * sizeof *found);
    for (struct dirent *next = readdir(listing); next; next = readdir(listing)) {
        if (next->d_name[0] == '.' || (token != LIST_START && place_of(next->d_name) <= token))
            continue;
        if (count == size)
            found = realloc(found, (size *= 2) * sizeof *found);
        snprintf(found[count].name, sizeof found[count].name, "%s", next->d_name);
        if (!handle_of(file_system, directory, next->d_name, &found[count].handle))
            count++;
    }
    closedir(listing);
    qsort(found, count, sizeof *found, by_place);
    /* A server may show fewer than were asked for. */
    size_t shown = (size_t)most < SHOWN_AT_ONCE ? (size_t)most : SHOWN_AT_ONCE;
    shown = shown < count ? shown : count;
    *entries = (struct entries){.count = (uint32_t)shown, .version = 1, .token = LIST_END};
    if (shown < count)
        entries->token = place_of(found[shown - 1].name);
    if (shown) {
        entries->entries = lend(shown * sizeof *found);
        memcpy(entries->entries, found, shown * sizeof *found);
    }
    free(found);
    return 0;
}

int size_of(const struct file_system *file_system, const struct placement *placement, int64_t *size)
{
    char path[64];
    struct stat stat;
    path_of_data(placement, path);
    if (fstatat(file_system->directory, path, &stat, AT_SYMLINK_NOFOLLOW))
        return error_of(errno);
    *size = stat.st_size;
    return 0;
}

int used_bytes(const struct file_system *file_system, int server, int64_t *bytes)
{
    char path[32];
    snprintf(path, sizeof path, "s%d", server);
    int opened = openat(file_system->directory, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = opened == -1 ? NULL : fdopendir(opened);
    if (!listing)
        return error_of(errno);
    *bytes = 0;
    for (struct dirent *next = readdir(listing); next; next = readdir(listing)) {
        struct stat stat;
        if (next->d_name[0] != '.' && !fstatat(opened, next->d_name, &stat, AT_SYMLINK_NOFOLLOW))
            *bytes += stat.st_size;
    }
    closedir(listing);
    return 0;
}

void note_peak(const struct file_system *file_system, int under_way)
{
    int file = openat(file_system->directory, "peak", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file == -1)
        return;
    dprintf(file, "%d\n", under_way);
    close(file);
}
