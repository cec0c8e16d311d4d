/* Forks while other threads open, look at and close files; every child uses files at once. */
#include "transcript.h"
#include <pthread.h>
#include <stdatomic.h>

#define CHILDREN 150
static atomic_int ended;

static void *busy(void *name)
{
    struct stat status;
    long failures = 0;
    while (!ended) {
        int fd = open(name, O_RDWR | O_CREAT, 0644);
        failures += fd < 0 || fstat(fd, &status) != 0 || close(fd) != 0 || stat(name, &status) != 0;
    }
    return (void *)failures;
}

int main(void)
{
    int fd = (int)CALL(open("f", O_RDWR | O_CREAT | O_TRUNC, 0644));
    CALL(write(fd, "shared", 6));
    pthread_t threads[3];
    char *names[] = {"one", "two", "f"};
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, busy, names[i]);
    int good = 0;
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        if (child == 0) {
            char buffer[6] = "";
            int own = open("f", O_RDONLY);
            _exit(own >= 0 && read(own, buffer, 6) == 6 && memcmp(buffer, "shared", 6) == 0 && close(own) == 0 ? 0 : 1);
        }
        int status;
        good += child > 0 && waitpid(child, &status, 0) == child && status == 0;
    }
    ended = 1;
    long failures = 0;
    for (int i = 0; i < 3; i++) {
        void *result;
        pthread_join(threads[i], &result);
        failures += (long)result;
    }
    say("children %d, failures %ld", good, failures);
    show_file("f");
    return 0;
}
