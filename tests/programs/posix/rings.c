/* Rings by number (tagged): they name descriptors where no wrapper sees them. */
#include "transcript.h"
#include <linux/io_uring.h>
#include <sys/syscall.h>

static char data[10000];

int main(void)
{
    fill(data, sizeof data, 7);
    int fd = (int)CALL(open("f", O_RDWR | O_CREAT | O_TRUNC, 0644));
    CALL(write(fd, data, sizeof data));
    struct io_uring_params parameters = {0};
    int ring = (int)syscall(SYS_io_uring_setup, 4, &parameters);
    if (tagged_after("io_uring_setup", ring < 0 ? -1 : 0) == 0)
        close(ring);
    CALL(syscall(SYS_getppid) == getppid());
    CALL(syscall(SYS_close, 99));
    show_file("f");
    return 0;
}
