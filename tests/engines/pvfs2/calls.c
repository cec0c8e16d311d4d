/* A stand-in for OrangeFS's client library, for tests: the functions of libpvfs2 that Stripewise calls, over directories (servers.c).
 *
 * It is built as libpvfs2.so.2 by ../orangefs.py and found by the dynamic linker as the real one is. What the real library only
 * promises to take is checked here (checks.c), and operations end in any order (operations.c). A call that breaks a rule ends the
 * process by SIGABRT, with a line that begins with `libpvfs2 stand-in:` on standard error and in the file `violations` beside it. */
#include "pvfs2.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { MOST_SERVERS = 128, DAY_S = 86400, CACHE_MS_OPTIONS = 5 };

EXPORT struct request *PVFS_BYTE = &byte_request;

static char address_text[256];

static void enter_started(const char *call)
{
    enter(call, STARTED);
    /* A text is the caller's until its next call. */
    memset(address_text, '!', sizeof address_text - 1);
}

static struct file_system *known(int32_t id)
{
    struct file_system *found = file_system_of(id);
    REQUIRE(found, "file system %d was not added", id);
    return found;
}

/* Begins an operation of which the arguments were checked; `call` has been entered. */
static int begin(struct operation *operation, const struct credential *credential, int64_t *id, void *hints, const char *call)
{
    REQUIRE(!hints, "hints are given");
    int status = check_credential(credential);
    if (!status)
        return leave(post(operation, id, call));
    free(operation);
    *id = -1;
    return leave(status);
}

static void name_it(struct operation *operation, const char *name)
{
    check_text(name, "name");
    snprintf(operation->name, sizeof operation->name, "%s", name);
}

static struct operation *about(enum kind kind, struct reference object, void *user, void *answer, size_t answer_bytes)
{
    struct operation *operation = new_operation(kind, user, answer, answer_bytes);
    operation->file_system = check_reference(&object, "object");
    operation->object = object;
    return operation;
}

/* A name of an entry is one part of a path. */
static struct operation *about_entry(enum kind kind, const char *name, struct reference parent, void *user, void *answer, size_t bytes)
{
    struct operation *operation = about(kind, parent, user, answer, bytes);
    name_it(operation, name);
    REQUIRE(!strchr(name, '/') && strlen(name) <= 255, "`%s` is no name in a directory", name);
    return operation;
}

static void check_new(const struct attributes *attributes, const struct credential *credential, uint32_t mask)
{
    uint64_t now = (uint64_t)time(NULL);
    REQUIRE(attributes->mask == mask, "the mask of a new object is %#x, not %#x", attributes->mask, mask);
    REQUIRE(credential && attributes->owner == credential->user && attributes->group == credential->groups[0], "a new object belongs to another user");
    REQUIRE(attributes->permissions && !(attributes->permissions & ~(uint32_t)PERMISSIONS), "permissions %o", attributes->permissions);
    const uint64_t times[] = {attributes->accessed, attributes->modified, attributes->changed};
    for (int at = 0; at < 3; at++)
        REQUIRE(times[at] + DAY_S > now && times[at] < now + DAY_S, "a time of a new object is %llu", (unsigned long long)times[at]);
    REQUIRE(!attributes->distribution && !attributes->distribution_parameters && !attributes->link_target, "a new object has texts");
}

EXPORT int PVFS_sys_initialize(uint64_t debug_mask)
{
    (void)debug_mask;
    enter(__func__, BEFORE_START);
    has_started(true);
    return leave(0);
}

EXPORT int PVFS_sys_finalize(void)
{
    enter_started(__func__);
    REQUIRE(!is_under_way(), "operations are under way");
    has_finalized();
    return leave(0);
}

EXPORT int PVFS_sys_set_info(int option, unsigned value)
{
    (void)value;
    enter_started(__func__);
    REQUIRE(option >= 1 && option <= CACHE_MS_OPTIONS, "option %d", option);
    return leave(0);
}

EXPORT int gossip_enable_file(const char *path, const char *mode)
{
    enter_started(__func__);
    check_text(path, "path");
    check_text(mode, "mode");
    return leave(0);
}

EXPORT int PVFS_sys_testsome(int64_t *ids, int *count, void **users, int *statuses, int timeout_ms)
{
    enter_started(__func__);
    nothing_is_left();
    return leave(test_some(ids, count, users, statuses, timeout_ms));
}

EXPORT struct mount *PVFS_util_gen_mntent(char *server, char *name)
{
    enter(__func__, BEFORE_START);
    check_text(server, "server");
    check_text(name, "name of a file system");
    struct mount *mount = calloc(1, sizeof *mount);
    mount->servers = calloc(1, sizeof *mount->servers);
    mount->servers[0] = mount->server = strdup(server);
    mount->server_count = 1;
    mount->name = strdup(name);
    leave(0);
    return mount;
}

EXPORT int PVFS_util_gen_credential_defaults(struct credential *credential)
{
    enter(__func__, BEFORE_START);
    REQUIRE(credential, "no place for the credential");
    return leave(make_credential(credential));
}

EXPORT void PVFS_util_release_sys_attr(struct attributes *attributes)
{
    enter(__func__, BEFORE_START);
    REQUIRE(attributes && attributes->mask & MASK_TYPE && attributes->kind == TYPE_SYMLINK, "these attributes hold nothing that is freed");
    take_back(attributes->link_target);
    leave(0);
}

EXPORT int PVFS_isys_fs_add(struct mount *mount, int64_t *id, void *user)
{
    enter_started(__func__);
    REQUIRE(mount && mount->servers && mount->name, "no mount");
    struct operation *operation = new_operation(ADD, user, NULL, 0);
    operation->mount = mount;
    return leave(post(operation, id, __func__));
}

EXPORT int PVFS_sys_lookup(int32_t file_system, char *name, const struct credential *credential, struct found *found, int32_t follow, void *hints)
{
    enter_started(__func__);
    REQUIRE(!hints && (follow == 0 || follow == 1), "hints or a wrong flag are given");
    REQUIRE(found && (!found->error_path || found->error_path_bytes > 0), "no place for the answer");
    REQUIRE(name && name[0] == '/', "the path does not begin at the root");
    struct operation *operation = about(ROOT, known(file_system)->root, NULL, &found->reference, sizeof found->reference);
    name_it(operation, name);
    int status = check_credential(credential);
    return leave(status ? status : run_now(operation));
}

EXPORT int PVFS_isys_ref_lookup(int32_t file_system, char *path, struct reference parent, const struct credential *credential,
                                struct found *found, int32_t follow, int64_t *id, void *hints, void *user)
{
    enter_started(__func__);
    REQUIRE(found && (!found->error_path || found->error_path_bytes > 0), "no place for the answer");
    REQUIRE(follow == 0 || follow == 1, "a wrong flag is given");
    REQUIRE(parent.file_system == file_system, "the directory is in another file system");
    struct operation *operation = about(LOOKUP, parent, user, &found->reference, sizeof found->reference);
    name_it(operation, path);
    REQUIRE(path[0] != '/', "the path begins at the root");
    operation->may_end_at_once = true;
    return begin(operation, credential, id, hints, __func__);
}

EXPORT int PVFS_isys_getattr(struct reference object, uint32_t mask, const struct credential *credential, struct attributes *attributes,
                             int64_t *id, void *hints, void *user)
{
    enter_started(__func__);
    REQUIRE(mask == MASK_SIZE, "attributes %#x are asked for, and this knows sizes only", mask);
    struct operation *operation = about(ATTRIBUTES, object, user, attributes, sizeof *attributes);
    operation->may_end_at_once = true;
    return begin(operation, credential, id, hints, __func__);
}

EXPORT int PVFS_isys_mkdir(char *name, struct reference parent, struct attributes attributes, const struct credential *credential,
                           struct reference *made, int64_t *id, void *hints, void *user)
{
    enter_started(__func__);
    check_new(&attributes, credential, MASK_SETTABLE);
    return begin(about_entry(MKDIR, name, parent, user, made, sizeof *made), credential, id, hints, __func__);
}

EXPORT int PVFS_isys_readdir(struct reference directory, uint64_t token, int32_t most, const struct credential *credential,
                             struct entries *entries, int64_t *id, void *hints, void *user)
{
    enter_started(__func__);
    REQUIRE(most > 0 && most <= MAX_ENTRIES, "%d entries are asked for, of 1 to %d", most, MAX_ENTRIES);
    REQUIRE(token != LIST_END, "a listing that is over goes on");
    struct operation *operation = about(READDIR, directory, user, entries, sizeof *entries);
    operation->offset = (int64_t)token;
    operation->most = most;
    return begin(operation, credential, id, hints, __func__);
}

EXPORT int PVFS_isys_create(char *name, struct reference parent, struct attributes attributes, const struct credential *credential,
                            void *distribution, struct layout *layout, struct reference *made, int64_t *id, void *hints, void *user)
{
    enter_started(__func__);
    check_new(&attributes, credential, MASK_SETTABLE | MASK_DATAFILES);
    REQUIRE(attributes.datafiles == 1, "a new object has %d datafiles", attributes.datafiles);
    REQUIRE(!distribution, "a distribution is given");
    REQUIRE(layout && layout->algorithm == LAYOUT_LIST, "a new object is placed by no list");
    REQUIRE(layout->servers.count == 1 && layout->servers.addresses, "the list names %d servers", layout->servers.count);
    struct operation *operation = about_entry(CREATE, name, parent, user, made, sizeof *made);
    operation->target = server_at(operation->file_system, layout->servers.addresses[0]);
    REQUIRE(operation->target >= 0, "the list names %lld, which is no server", (long long)layout->servers.addresses[0]);
    return begin(operation, credential, id, hints, __func__);
}

EXPORT int PVFS_isys_remove(char *name, struct reference parent, const struct credential *credential, int64_t *id, void *hints, void *user)
{
    enter_started(__func__);
    return begin(about_entry(REMOVE, name, parent, user, NULL, 0), credential, id, hints, __func__);
}

EXPORT int PVFS_isys_rename(char *name, struct reference parent, char *new_name, struct reference new_parent,
                            const struct credential *credential, int64_t *id, void *hints, void *user)
{
    enter_started(__func__);
    struct operation *operation = about_entry(RENAME, name, parent, user, NULL, 0);
    check_text(new_name, "new name");
    REQUIRE(!strchr(new_name, '/') && strlen(new_name) <= 255, "`%s` is no name in a directory", new_name);
    REQUIRE(check_reference(&new_parent, "new directory") == operation->file_system, "the new directory is in another file system");
    strcpy(operation->new_name, new_name);
    operation->other = new_parent;
    return begin(operation, credential, id, hints, __func__);
}

EXPORT int PVFS_isys_io(struct reference object, struct request *in_file, int64_t offset, void *memory, struct request *in_memory,
                        const struct credential *credential, int64_t *moved, int kind, int64_t *id, void *hints, void *user)
{
    enter_started(__func__);
    REQUIRE(kind == IO_READ || kind == IO_WRITE, "a transfer of kind %d", kind);
    REQUIRE(memory && offset >= 0, "no memory, or a negative offset");
    REQUIRE(check_request(in_file, "request of the file")->bytes == 1, "the request of the file is no byte");
    REQUIRE(check_request(in_memory, "request of the memory")->is_committed, "the request of the memory was not committed");
    struct operation *operation = about(IO, object, user, moved, sizeof *moved);
    operation->offset = offset;
    operation->length = in_memory->bytes;
    operation->io = kind;
    operation->memory = memory;
    operation->request = in_memory;
    operation->may_end_at_once = in_memory->bytes <= 4096;
    return begin(operation, credential, id, hints, __func__);
}

EXPORT int PVFS_isys_truncate(struct reference object, int64_t length, const struct credential *credential, int64_t *id, void *hints, void *user)
{
    enter_started(__func__);
    REQUIRE(length >= 0, "a negative length");
    struct operation *operation = about(TRUNCATE, object, user, NULL, 0);
    operation->offset = length;
    return begin(operation, credential, id, hints, __func__);
}

EXPORT int PVFS_isys_flush(struct reference object, const struct credential *credential, int64_t *id, void *hints, void *user)
{
    enter_started(__func__);
    return begin(about(FLUSH, object, user, NULL, 0), credential, id, hints, __func__);
}

EXPORT int PVFS_imgmt_get_dfile_array(struct reference object, const struct credential *credential, uint64_t *datafiles, int most, int64_t *id,
                                      void *hints, void *user)
{
    enter_started(__func__);
    REQUIRE(most >= 1, "no place for a datafile");
    struct operation *operation = about(DATAFILES, object, user, datafiles, sizeof *datafiles);
    operation->may_end_at_once = true;
    return begin(operation, credential, id, hints, __func__);
}

EXPORT int PVFS_mgmt_statfs_list(int32_t file_system, const struct credential *credential, struct server_stat *stats, int64_t *addresses,
                                 int count, void *details, void *hints)
{
    enter_started(__func__);
    REQUIRE(!hints && !details && count >= 1 && addresses, "hints or details are given, or no servers");
    int status = check_credential(credential);
    for (int at = 0; at < count && !status; at++) {
        struct operation *operation = new_operation(STATFS, NULL, &stats[at], sizeof stats[at]);
        operation->file_system = known(file_system);
        operation->target = server_at(operation->file_system, addresses[at]);
        REQUIRE(operation->target >= 0, "%lld is no server", (long long)addresses[at]);
        status = run_now(operation);
    }
    return leave(status);
}

EXPORT int PVFS_mgmt_count_servers(int32_t file_system, int kind, int *count)
{
    enter_started(__func__);
    REQUIRE(count && (kind == IO_SERVER || kind == META_SERVER), "servers of kind %d", kind);
    *count = kind == IO_SERVER ? known(file_system)->server_count : 1;
    return leave(0);
}

EXPORT int PVFS_mgmt_get_server_array(int32_t file_system, int kind, int64_t *addresses, int *count)
{
    enter_started(__func__);
    struct file_system *found = known(file_system);
    int all = kind == IO_SERVER ? found->server_count : 1;
    REQUIRE(count && *count >= all && *count <= MOST_SERVERS && addresses, "no places for %d servers", all);
    for (*count = 0; *count < all; ++*count)
        addresses[*count] = address_of(found, *count);
    return leave(0);
}

EXPORT const char *PVFS_mgmt_map_addr(int32_t file_system, int64_t address, int *kind)
{
    enter_started(__func__);
    int server = server_at(known(file_system), address);
    REQUIRE(server >= 0 && kind, "%lld is no server", (long long)address);
    *kind = server ? IO_SERVER : IO_SERVER | META_SERVER;
    snprintf(address_text, sizeof address_text, "%s", known(file_system)->servers[server]);
    leave(0);
    return address_text;
}

EXPORT int PVFS_mgmt_map_handle(int32_t file_system, uint64_t handle, int64_t *address)
{
    enter_started(__func__);
    REQUIRE(address && handle, "no handle, or no place for the address");
    struct file_system *found = known(file_system);
    int server = server_of(handle);
    if (server < 0 || server >= found->server_count)
        return leave(WRONG);
    *address = address_of(found, server);
    return leave(0);
}

EXPORT int PVFS_Request_contiguous(int32_t count, struct request *of, struct request **made)
{
    enter_started(__func__);
    REQUIRE(count > 0 && made, "a request of %d", count);
    *made = new_request(check_request(of, "request")->bytes * count);
    return leave(0);
}

EXPORT int PVFS_Request_commit(struct request **request)
{
    enter_started(__func__);
    REQUIRE(request, "no request");
    check_request(*request, "request")->is_committed = true;
    return leave(0);
}

EXPORT int PVFS_Request_free(struct request **request)
{
    enter_started(__func__);
    REQUIRE(request && *request != &byte_request, "a request that is not the caller's");
    free_request(check_request(*request, "request"));
    *request = NULL;
    return leave(0);
}
