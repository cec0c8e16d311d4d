/* Requests on a striped file in pools of Ceph by plain librados: the floor of bench/hosts/on_rados.py.
 *
 *   librados_loop read|write CONF FILE_BYTES REGION_BYTES STRIPE_BYTES REQUEST_BYTES COUNT POOL...
 *
 * A region has one object in each pool, in whose stripes its bytes lie in turn; each request is one operation for each object that it
 * touches, all under way together. Prints the time of the loop, in ns. */
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

int main(int argc, char **argv)
{
    demand(argc > 8 && argc - 8 <= MOST_POOLS, "usage: librados_loop read|write CONF FILE_BYTES REGION_BYTES STRIPE_BYTES REQUEST_BYTES COUNT POOL...");
    int writing = !strcmp(argv[1], "write"), pools = argc - 8;
    long long file_bytes = atoll(argv[3]), region = atoll(argv[4]), stripe = atoll(argv[5]), bytes = atoll(argv[6]), count = atoll(argv[7]);
    demand(region % bytes == 0 && region % (stripe * pools) == 0, "requests that lie in one region each");
    rados_t cluster;
    rados_ioctx_t pool_io[MOST_POOLS];
    need(rados_create(&cluster, "admin"), "rados_create");
    need(rados_conf_read_file(cluster, argv[2]), argv[2]);
    need(rados_connect(cluster), "rados_connect");
    for (int pool = 0; pool < pools; pool++) {
        need(rados_ioctx_create(cluster, argv[8 + pool], &pool_io[pool]), argv[8 + pool]);
        rados_ioctx_set_namespace(pool_io[pool], "floor");
    }
    char *buffer = NULL;
    demand(posix_memalign((void **)&buffer, 4096, (size_t)bytes) == 0, "memory");
    memset(buffer, 'x', (size_t)bytes);
    long long offset = 0, start = now_ns();
    for (long long i = 0; i < count; i++) {
        rados_completion_t under_way[MOST_POOLS];
        long long asked[MOST_POOLS];
        int begun = 0;
        long long at = offset % region, used = 0;
        for (int pool = 0; pool < pools; pool++) {
            long long first = before(at, pool, pools, stripe), length = before(at + bytes, pool, pools, stripe) - first;
            if (length == 0)
                continue;
            char object[64];
            snprintf(object, sizeof object, "%lld/%d", offset / region, pool);
            rados_completion_t completion;
            need(rados_aio_create_completion2(NULL, NULL, &completion), "completion");
            need(writing ? rados_aio_write(pool_io[pool], object, completion, buffer + used, (size_t)length, (uint64_t)first)
                         : rados_aio_read(pool_io[pool], object, completion, buffer + used, (size_t)length, (uint64_t)first),
                 object);
            asked[begun] = length;
            under_way[begun++] = completion;
            used += length;
        }
        for (int operation = 0; operation < begun; operation++) {
            rados_aio_wait_for_complete(under_way[operation]);
            int status = rados_aio_get_return_value(under_way[operation]);
            need(status, argv[1]);
            demand(writing || status == asked[operation], "a whole read");
            rados_aio_release(under_way[operation]);
        }
        offset = offset + 2 * bytes <= file_bytes ? offset + bytes : 0;
    }
    printf("%lld\n", now_ns() - start);
    for (int pool = 0; pool < pools; pool++)
        rados_ioctx_destroy(pool_io[pool]);
    rados_shutdown(cluster);
    return 0;
}
