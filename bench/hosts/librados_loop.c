/* Requests on a striped file in pools of Ceph by plain librados: the floor of bench/hosts/on_rados.py.
 *
 *   librados_loop read|write CONF FILE_BYTES REGION_BYTES STRIPE_BYTES REQUEST_BYTES COUNT [-s] POOL...
 *
 * A region has one object in each pool, in whose stripes its bytes lie in turn; each request is one operation for each object that it
 * touches, all under way together. librados reads into, and writes from, memory in one piece, so that the bytes of an object lie one behind the
 * other in the buffer. With -s they are copied to and from where they are in the file, as a program must that uses them. Prints the time of the
 * loop, in ns. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "../timing.h"

/* Of the public interface of librados, whose headers a host that runs it need not have. */
typedef void *rados_t, *rados_ioctx_t, *rados_completion_t;
int rados_create(rados_t *cluster, const char *user);
int rados_conf_read_file(rados_t cluster, const char *path);
int rados_connect(rados_t cluster);
void rados_shutdown(rados_t cluster);
int rados_ioctx_create(rados_t cluster, const char *pool, rados_ioctx_t *pool_io);
void rados_ioctx_destroy(rados_ioctx_t pool_io);
void rados_ioctx_set_namespace(rados_ioctx_t pool_io, const char *name);
int rados_aio_create_completion2(void *argument, void (*complete)(rados_completion_t, void *), rados_completion_t *completion);
int rados_aio_wait_for_complete(rados_completion_t completion);
int rados_aio_get_return_value(rados_completion_t completion);
void rados_aio_release(rados_completion_t completion);
int rados_aio_read(rados_ioctx_t pool_io, const char *object, rados_completion_t completion, char *buffer, size_t bytes, uint64_t offset);
int rados_aio_write(rados_ioctx_t pool_io, const char *object, rados_completion_t completion, const char *buffer, size_t bytes, uint64_t offset);

#define MOST_POOLS 16

static void need(int status, const char *what)
{
    if (status < 0)
        errno = -status;
    demand(status >= 0, what);
}

/* Bytes of object `pool` that lie before byte `offset` of the region. */
static long long before(long long offset, int pool, int pools, long long stripe)
{
    long long round = stripe * pools, rest = offset % round - pool * stripe;
    rest = rest < 0 ? 0 : rest > stripe ? stripe : rest;
    return offset / round * stripe + rest;
}

/* Copies the bytes of one pool between the file's order and the object's, from byte `at` of the region on. */
static void copy_stripes(char *of_file, char *of_object, int to_object, long long at, long long bytes, int pool, int pools, long long stripe)
{
    long long round = stripe * pools, end = at + bytes;
    for (long long begin = at / round * round + pool * stripe; begin < end; begin += round) {
        long long from = begin < at ? at : begin, until = begin + stripe < end ? begin + stripe : end;
        if (from >= until)
            continue;
        if (to_object)
            memcpy(of_object, of_file + (from - at), (size_t)(until - from));
        else
            memcpy(of_file + (from - at), of_object, (size_t)(until - from));
        of_object += until - from;
    }
}

int main(int argc, char **argv)
{
    int striped = argc > 8 && !strcmp(argv[8], "-s"), first_pool = 8 + striped;
    demand(argc > first_pool && argc - first_pool <= MOST_POOLS,
           "usage: librados_loop read|write CONF FILE_BYTES REGION_BYTES STRIPE_BYTES REQUEST_BYTES COUNT [-s] POOL...");
    int writing = !strcmp(argv[1], "write"), pools = argc - first_pool;
    long long file_bytes = atoll(argv[3]), region = atoll(argv[4]), stripe = atoll(argv[5]), bytes = atoll(argv[6]), count = atoll(argv[7]);
    demand(region % bytes == 0 && region % (stripe * pools) == 0, "requests that lie in one region each");
    rados_t cluster;
    rados_ioctx_t pool_io[MOST_POOLS];
    need(rados_create(&cluster, "admin"), "rados_create");
    need(rados_conf_read_file(cluster, argv[2]), argv[2]);
    need(rados_connect(cluster), "rados_connect");
    for (int pool = 0; pool < pools; pool++) {
        need(rados_ioctx_create(cluster, argv[first_pool + pool], &pool_io[pool]), argv[first_pool + pool]);
        rados_ioctx_set_namespace(pool_io[pool], "floor");
    }
    char *buffer = NULL, *file_order = NULL;
    demand(posix_memalign((void **)&buffer, 4096, (size_t)bytes) == 0, "memory");
    demand(posix_memalign((void **)&file_order, 4096, (size_t)bytes) == 0, "memory");
    memset(buffer, 'x', (size_t)bytes);
    memset(file_order, 'x', (size_t)bytes);
    long long offset = 0, start = now_ns();
    for (long long i = 0; i < count; i++) {
        rados_completion_t under_way[MOST_POOLS];
        long long asked[MOST_POOLS], places[MOST_POOLS];
        int pool_of[MOST_POOLS];
        int begun = 0;
        long long at = offset % region, used = 0;
        for (int pool = 0; pool < pools; pool++) {
            long long first = before(at, pool, pools, stripe), length = before(at + bytes, pool, pools, stripe) - first;
            if (length == 0)
                continue;
            char object[64];
            snprintf(object, sizeof object, "%lld/%d", offset / region, pool);
            if (striped && writing)
                copy_stripes(file_order, buffer + used, 1, at, bytes, pool, pools, stripe);
            rados_completion_t completion;
            need(rados_aio_create_completion2(NULL, NULL, &completion), "completion");
            need(writing ? rados_aio_write(pool_io[pool], object, completion, buffer + used, (size_t)length, (uint64_t)first)
                         : rados_aio_read(pool_io[pool], object, completion, buffer + used, (size_t)length, (uint64_t)first),
                 object);
            asked[begun] = length;
            places[begun] = used;
            pool_of[begun] = pool;
            under_way[begun++] = completion;
            used += length;
        }
        for (int operation = 0; operation < begun; operation++) {
            rados_aio_wait_for_complete(under_way[operation]);
            int status = rados_aio_get_return_value(under_way[operation]);
            need(status, argv[1]);
            demand(writing || status == asked[operation], "a whole read");
            rados_aio_release(under_way[operation]);
            if (striped && !writing)
                copy_stripes(file_order, buffer + places[operation], 0, at, bytes, pool_of[operation], pools, stripe);
        }
        offset = offset + 2 * bytes <= file_bytes ? offset + bytes : 0;
    }
    printf("%lld\n", now_ns() - start);
    for (int pool = 0; pool < pools; pool++)
        rados_ioctx_destroy(pool_io[pool]);
    rados_shutdown(cluster);
    return 0;
}
