/* O_APPEND: from several processes at once no record is lost, torn or overwritten; mixed with truncation and pwrite. */
#include "transcript.h"

#define WRITERS 6
#define RECORDS 200
#define RECORD 1031

static int compare(const void *a, const void *b)
{
    return memcmp(a, b, RECORD);
}

int main(void)
{
    CALL(open("log", O_WRONLY | O_CREAT | O_TRUNC, 0644));
    for (int writer = 0; writer < WRITERS; writer++) {
        if (fork() == 0) {
            int fd = open("log", O_WRONLY | O_APPEND);
            char record[RECORD];
            for (int i = 0; i < RECORDS; i++) {
                memset(record, 'A' + writer, sizeof record);
                snprintf(record, sizeof record, "%02d %05d ", writer, i);
                if (write(fd, record, RECORD) != RECORD)
                    _exit(1);
            }
            _exit(0);
        }
    }
    for (int writer = 0, status; writer < WRITERS; writer++) {
        wait(&status);
        show_child(status);
    }
    int fd = (int)CALL(open("log", O_RDWR | O_APPEND));
    static char all[WRITERS * RECORDS * RECORD + 1];
    CALL(pread(fd, all, sizeof all, 0));
    int last[WRITERS] = {0}, ordered = 1;
    for (int i = 0; i < WRITERS * RECORDS; i++) {
        int writer = atoi(all + i * RECORD), number = atoi(all + i * RECORD + 3);
        if (writer < 0 || writer >= WRITERS || number != last[writer]++)
            ordered = 0;
    }
    say("each writer's records in order: %d", ordered);
    qsort(all, WRITERS * RECORDS, RECORD, compare);
    show("sorted", all, sizeof all - 1);

    CALL(ftruncate(fd, 0)); /* the records' order is the scheduler's */
    CALL(write(fd, "0123456789", 10));
    CALL(lseek(fd, 0, SEEK_SET));
    CALL(write(fd, "appended", 8));
    CALL(lseek(fd, 0, SEEK_CUR));
    CALL(pwrite(fd, "P", 1, 2)); /* Linux appends here too, against POSIX */
    CALL(fcntl(fd, F_SETFL, 0));
    CALL(lseek(fd, 0, SEEK_SET));
    CALL(write(fd, "Z", 1));
    CALL(fcntl(fd, F_SETFL, O_APPEND));
    CALL(fcntl(fd, F_GETFL) & O_APPEND);
    CALL(write(fd, "!", 1));
    static char text[100];
    CALL(pread(fd, text, sizeof text - 1, 0));
    show("text", text, 30);
    CALL(write(fd, all, sizeof all - 1));
    return 0;
}
