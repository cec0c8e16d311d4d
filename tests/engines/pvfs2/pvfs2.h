/* What the parts of the stand-in for libpvfs2 have in common; calls.c says how it works.
 *
 * Types, numbers and names of functions are those that the public headers of OrangeFS 2.10 declare, as far as they are needed. */
#ifndef PVFS2_H
#define PVFS2_H
#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct reference {
    uint64_t handle;
    int32_t file_system;
    int32_t padding;
};

struct credential {
    uint32_t user, group_count;
    uint32_t *groups;
    char *issuer;
    uint64_t expires;
    uint32_t signature_bytes;
    unsigned char *signature;
    uint32_t certificate_bytes;
    unsigned char *certificate;
};

struct attributes {
    uint32_t owner, group, permissions;
    uint64_t accessed, modified, changed;
    int64_t size;
    char *link_target;
    int32_t datafiles, directory_servers, directory_servers_most, directory_split;
    uint32_t mirrors;
    char *distribution, *distribution_parameters;
    int64_t entries;
    int kind;
    uint64_t flags;
    uint32_t mask;
    int64_t block_bytes;
};

struct layout {
    int algorithm;
    struct {
        int32_t count;
        int64_t *addresses;
    } servers;
};

struct found {
    struct reference reference;
    char *error_path;
    int error_path_bytes;
};

struct entry {
    char name[257];
    uint64_t handle;
};

struct entries {
    uint64_t token;
    struct entry *entries;
    uint32_t count;
    uint64_t version;
};

struct server_stat {
    int32_t file_system;
    int64_t bytes_available, bytes_total;
    uint64_t figures[8];
    const char *address;
    int kind;
};

struct mount {
    char **servers;
    int32_t server_count;
    char *server, *name;
    int flow, encoding;
    int32_t file_system, datafiles;
    char *options;
    int32_t integrity_check;
    char *directory, *mount_options;
};

_Static_assert(sizeof(struct reference) == 16 && sizeof(struct credential) == 64, "as a 64-bit host has them");
_Static_assert(sizeof(struct attributes) == 136 && sizeof(struct found) == 32 && sizeof(struct entries) == 32, "");
_Static_assert(sizeof(struct entry) == 272 && sizeof(struct server_stat) == 104 && sizeof(struct layout) == 24, "");
_Static_assert(offsetof(struct layout, servers.addresses) == 16 && offsetof(struct mount, file_system) == 40, "");

enum { IO_READ = 1, IO_WRITE = 2, LAYOUT_LIST = 4, IO_SERVER = 1, META_SERVER = 2, TYPE_FILE = 1, TYPE_DATAFILE = 2, TYPE_SYMLINK = 8 };
enum { MASK_SETTABLE = 0x3f, MASK_TYPE = 1 << 6, MASK_SIZE = 1 << 20, MASK_DATAFILES = 1 << 25, PERMISSIONS = 07777 & ~01000 };
enum { MAX_ENDED = 256, MAX_ENTRIES = 512, LIST_START = INT32_MAX - 1, LIST_END = INT32_MAX - 2 };
/* A number of an error, as calls return it: errors of OrangeFS have bit 30, those that no errno stands for bit 29 as well. */
enum {
    OWN = 1 << 30, NO_ERRNO = 1 << 29, OF_NETWORK = 1 << 7, OF_STORAGE = 2 << 7,
    MISSING = -(OWN | 2), IO_ERROR = -(OWN | 4), EXISTS = -(OWN | 11), NO_DEVICE = -(OWN | 12), NO_DIRECTORY = -(OWN | 13),
    IS_DIRECTORY = -(OWN | 14), WRONG = -(OWN | 15), FULL = -(OWN | OF_STORAGE | 18), NOT_EMPTY = -(OWN | 26),
    TIMED_OUT = -(OWN | OF_NETWORK | 53), REFUSED = -(OWN | OF_NETWORK | 54), SECURITY = -(OWN | NO_ERRNO | 9),
};

/* servers.c: file systems, whose objects lie in directories. */

struct file_system {
    struct file_system *next;
    int32_t id;
    int directory;
    char name[256], config_server[256];
    int server_count;
    char (*servers)[256]; /* as in tcp://HOST:PORT; the first keeps the metadata too */
    struct reference root;
};

/* What a server is told to do, in its file `control`. */
struct control {
    bool down, full, misplaced;
    long delay_ms, hung_ms, late_ms;
    int64_t short_bytes, capacity;
    char failing[16];
    int failure;
};

struct file_system *file_system_of(int32_t id);
int add_file_system(struct mount *mount);
int64_t address_of(const struct file_system *file_system, int server);
int server_at(const struct file_system *file_system, int64_t address); /* -1: of none */
struct control control_of(const struct file_system *file_system, int server);
uint64_t new_handle(int server);
int server_of(uint64_t handle); /* that keeps it */

/* Of an object: where its datafile lies. */
struct placement {
    int server;
    uint64_t datafile;
};

int placement_of(const struct file_system *file_system, uint64_t handle, struct placement *placement);
int lookup_path(const struct file_system *file_system, uint64_t parent, const char *path, uint64_t *found);
int make_directory(const struct file_system *file_system, uint64_t parent, const char *name, uint64_t *made);
int create_file(const struct file_system *file_system, uint64_t parent, const char *name, int server, uint64_t *made);
int remove_name(const struct file_system *file_system, uint64_t parent, const char *name);
int rename_name(const struct file_system *file_system, uint64_t from, const char *name, uint64_t to, const char *new_name);
int list_names(const struct file_system *file_system, uint64_t directory, uint64_t token, int most, struct entries *entries);
int size_of(const struct file_system *file_system, const struct placement *placement, int64_t *size);
int used_bytes(const struct file_system *file_system, int server, int64_t *bytes);
void path_of_data(const struct placement *placement, char path[64]);
void note_peak(const struct file_system *file_system, int under_way);

/* checks.c: what a caller has to keep to. */

struct request {
    int64_t bytes;
    bool is_committed;
    int users;
    struct request *next;
};

/* Ends the process, and says why. */
_Noreturn __attribute__((format(printf, 1, 2))) void violation(const char *format, ...);
#define REQUIRE(condition, ...) ((condition) ? (void)0 : violation(__VA_ARGS__))

enum stage { BEFORE_START, STARTED };
void enter(const char *call, enum stage earliest);
int leave(int status);
void has_started(bool is_started);
void has_finalized(void);
const char *library_directory(void);
void *lend(size_t bytes); /* memory that the caller frees, by PVFS_util_release_sys_attr */
void take_back(void *memory);
void nothing_is_left(void);
int make_credential(struct credential *credential);
int check_credential(const struct credential *credential); /* 0, or what the servers say of one that expired */
void check_text(const char *text, const char *what);
struct file_system *check_reference(const struct reference *reference, const char *what);
struct request *check_request(struct request *request, const char *what);
struct request *new_request(int64_t bytes);
void free_request(struct request *request);
extern struct request byte_request;

/* operations.c: what is under way. */

enum kind { ADD, LOOKUP, ATTRIBUTES, MKDIR, READDIR, CREATE, REMOVE, RENAME, IO, TRUNCATE, FLUSH, DATAFILES, STATFS, ROOT, KINDS };

struct operation {
    struct operation *next;
    int64_t id;
    enum kind kind;
    void *user;
    struct mount *mount;
    struct file_system *file_system;
    struct reference object, other;
    char name[4096], new_name[257];
    int64_t offset, length; /* of a transfer; the length that is left of a truncated object; the token of a listing */
    int most; /* entries or datafiles */
    int target; /* server of a new object */
    int io;
    unsigned char *memory;
    struct request *request;
    uint64_t digest; /* of the memory of a transfer while it is lent */
    void *answer;
    size_t answer_bytes;
    uint64_t due_ns, hung_until_ns;
    int courier; /* a pipe to the process that carries a late request, or -1 */
    int status;
    bool has_ended, may_end_at_once;
};

struct operation *new_operation(enum kind kind, void *user, void *answer, size_t answer_bytes);
int post(struct operation *operation, int64_t *id, const char *call);
int run_now(struct operation *operation); /* for calls that wait */
int test_some(int64_t *ids, int *count, void **users, int *statuses, int timeout_ms);
bool is_under_way(void);
int ended_listings(void);
uint64_t now_ns(void);
uint64_t dice(void);

#endif
