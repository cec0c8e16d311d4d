/* POSIX locks and flock() of all hosts on the one underlying file; mount.c says how. */
#define _GNU_SOURCE
#include "mount.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <time.h>

enum { INTERRUPTS_PER_SECOND = 100 };

static struct owner **find_owner(struct inode *inode, uint64_t identity)
{
    struct owner **at = &inode->owners;
    while (*at && (*at)->identity != identity)
        at = &(*at)->next;
    return at;
}

/* With `owners_lock` held. NULL and errno where it cannot be opened. */
static struct owner *owner_of(struct inode *inode, uint64_t identity)
{
    struct owner *owner = *find_owner(inode, identity);
    if (owner)
        return owner;
    int descriptor = reopen(inode->descriptor, O_RDWR);
    /* A program that is being run. */
    if (descriptor == -1 && (errno == ETXTBSY || errno == EROFS))
        descriptor = reopen(inode->descriptor, O_RDONLY);
    if (descriptor == -1)
        return NULL;
    owner = calloc(1, sizeof *owner);
    if (!owner) {
        close(descriptor);
        errno = ENOMEM;
        return NULL;
    }
    owner->identity = identity;
    owner->descriptor = descriptor;
    owner->next = inode->owners;
    inode->owners = owner;
    return owner;
}

struct waiter {
    fuse_req_t request;
    struct inode *inode;
    struct owner *owner; /* NULL: flock() on `descriptor` */
    int descriptor;
    int operation;
    struct flock lock;
    timer_t timer;
    atomic_int is_interrupted;
};

/* The thread may not have reached its system call yet, so signals repeat until it is out of it. */
static void interrupt(fuse_req_t request, void *data)
{
    (void)request;
    struct waiter *waiter = data;
    struct itimerspec often = {.it_interval.tv_nsec = 1000000000 / INTERRUPTS_PER_SECOND, .it_value.tv_nsec = 1};
    atomic_store(&waiter->is_interrupted, 1);
    timer_settime(waiter->timer, 0, &often, NULL);
}

static void *wait_for_lock(void *data)
{
    struct waiter *waiter = data;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    event._sigev_un._tid = gettid();
    int error = 0;
    if (timer_create(CLOCK_MONOTONIC, &event, &waiter->timer) != 0) {
        error = errno;
    } else {
        fuse_req_interrupt_func(waiter->request, interrupt, waiter);
        int result;
        do
            result = waiter->owner ? fcntl(waiter->descriptor, F_OFD_SETLKW, &waiter->lock)
                                   : flock(waiter->descriptor, waiter->operation);
        while (result == -1 && errno == EINTR && !atomic_load(&waiter->is_interrupted));
        error = result == -1 ? errno : 0;
        fuse_req_interrupt_func(waiter->request, NULL, NULL);
        timer_delete(waiter->timer);
    }
    if (waiter->owner) {
        pthread_mutex_lock(&waiter->inode->owners_lock);
        waiter->owner->waiters--;
        pthread_mutex_unlock(&waiter->inode->owners_lock);
    }
    fuse_reply_err(waiter->request, error);
    free(waiter);
    return NULL;
}

/* Replies later. The kernel keeps file and inode until then. */
static int wait_apart(struct waiter like)
{
    struct waiter *waiter = malloc(sizeof *waiter);
    if (!waiter)
        return ENOMEM;
    *waiter = like;
    pthread_t thread;
    int error = pthread_create(&thread, NULL, wait_for_lock, waiter);
    if (error)
        free(waiter);
    else
        pthread_detach(thread);
    return error;
}

void get_lock(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *open, struct flock *lock)
{
    struct inode *inode = inode_of(node);
    pthread_mutex_lock(&inode->owners_lock);
    struct owner *owner = owner_of(inode, open->lock_owner);
    lock->l_pid = 0;
    int error = !owner || fcntl(owner->descriptor, F_OFD_GETLK, lock) != 0 ? errno : 0;
    pthread_mutex_unlock(&inode->owners_lock);
    lock->l_pid = 0; /* An OFD lock belongs to no process. */
    if (error)
        fuse_reply_err(request, error);
    else
        fuse_reply_lock(request, lock);
}

void set_lock(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *open, struct flock *lock, int waits)
{
    struct inode *inode = inode_of(node);
    int error = 0, has_begun_to_wait = 0;
    pthread_mutex_lock(&inode->owners_lock);
    struct owner *owner = owner_of(inode, open->lock_owner);
    lock->l_pid = 0;
    if (!owner || fcntl(owner->descriptor, F_OFD_SETLK, lock) != 0)
        error = errno;
    if (owner && waits && (error == EAGAIN || error == EACCES)) {
        owner->waiters++;
        error = wait_apart((struct waiter){
            .request = request, .inode = inode, .owner = owner, .descriptor = owner->descriptor, .lock = *lock});
        has_begun_to_wait = error == 0;
        if (!has_begun_to_wait)
            owner->waiters--;
    }
    pthread_mutex_unlock(&inode->owners_lock);
    if (!has_begun_to_wait)
        fuse_reply_err(request, error);
}

void lock_whole_file(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *open, int operation)
{
    int error = flock(file_of(open), operation | LOCK_NB) == 0 ? 0 : errno;
    if (error == EWOULDBLOCK && !(operation & LOCK_NB)) {
        error = wait_apart((struct waiter){
            .request = request, .inode = inode_of(node), .descriptor = file_of(open), .operation = operation});
        if (error == 0)
            return;
    }
    fuse_reply_err(request, error);
}

/* A process closed one of its descriptors of the file: all of its POSIX locks go. */
void flush_file(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *open)
{
    struct inode *inode = inode_of(node);
    pthread_mutex_lock(&inode->owners_lock);
    struct owner **at = find_owner(inode, open->lock_owner), *owner = *at;
    if (owner && owner->waiters > 0) {
        struct flock all = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
        fcntl(owner->descriptor, F_OFD_SETLK, &all);
    } else if (owner) {
        *at = owner->next;
        close(owner->descriptor);
        free(owner);
    }
    pthread_mutex_unlock(&inode->owners_lock);
    fuse_reply_err(request, 0);
}
