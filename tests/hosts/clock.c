/* Preloaded into all programs of a host, a wall clock that is off: CLOCK_OFF_SECONDS of the environment are added to what they read, and taken from the
   times until which they wait. Time namespaces do not cover CLOCK_REALTIME. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long offset(void) {
    static long seconds = -1;
    if (seconds == -1) {
        const char *text = getenv("CLOCK_OFF_SECONDS");
        seconds = text ? atol(text) : 0;
    }
    return seconds;
}

static int is_wall(clockid_t clock) { return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE; }

/* Not by libc, which may not be found yet when this is called first. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && is_wall(clock)) now->tv_sec += offset();
    return result;
}

int gettimeofday(struct timeval *now, void *zone) {
    (void)zone;
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *to) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (to) *to = now.tv_sec;
    return now.tv_sec;
}

/* With its version: without one the linker may find what programs of twenty years ago wanted. */
static void *next(const char *name, const char *version) {
    void *found = dlvsym(RTLD_NEXT, name, version);
    return found ? found : dlsym(RTLD_NEXT, name);
}

static struct timespec kernel_time(const struct timespec *until) {
    struct timespec time = *until;
    time.tv_sec -= offset();
    return time;
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!real) real = next("pthread_cond_timedwait", "GLIBC_2.3.2");
    /* A condition may have been made for the other clock, whose times are those since the machine was booted. */
    if (until->tv_sec < 1000000000) return real(condition, mutex, until);
    struct timespec time = kernel_time(until);
    return real(condition, mutex, &time);
}

int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until) {
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
    if (!real) real = next("pthread_cond_clockwait", "GLIBC_2.30");
    struct timespec time = is_wall(clock) ? kernel_time(until) : *until;
    return real(condition, mutex, clock, &time);
}

int pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *until) {
    static int (*real)(pthread_mutex_t *, const struct timespec *);
    if (!real) real = next("pthread_mutex_timedlock", "GLIBC_2.2.5");
    struct timespec time = kernel_time(until);
    return real(mutex, &time);
}

int sem_timedwait(sem_t *semaphore, const struct timespec *until) {
    static int (*real)(sem_t *, const struct timespec *);
    if (!real) real = next("sem_timedwait", "GLIBC_2.2.5");
    struct timespec time = kernel_time(until);
    return real(semaphore, &time);
}
