/* What the MPI programs share: every rank verifies its own data, and rank 0 prints the transcript. Each rank notes what
 * failed; the notes are summed once, at the end. After each note the ranks wait for each other, so that one rank's next
 * call does not disturb another's last; a program that needs no such thing clears `in_step`, for MPI libraries that
 * spin while they wait are slow at it on few cores. File names have two letters at least: Open MPI 4.1 takes the base name of a
 * shorter one to be empty and fails to open it. */
#ifndef CHECK_H
#define CHECK_H
#include <mpi.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOTES_MAX 4000

static int rank, ranks, in_step = 1;
static char *notes[NOTES_MAX];
static int failures[NOTES_MAX], notes_taken;

/* Every rank takes the same notes in the same order. */
static inline void note(const char *text, int failed)
{
    if (notes_taken == NOTES_MAX)
        MPI_Abort(MPI_COMM_WORLD, 4);
    failures[notes_taken] = failed;
    notes[notes_taken++] = strdup(text);
    if (in_step)
        MPI_Barrier(MPI_COMM_WORLD);
}

/* Notes whether the call worked. */
#define TOLD(call) told(#call, (call))
static inline void told(const char *text, int code)
{
    note(text, code != MPI_SUCCESS);
    if (code != MPI_SUCCESS) {
        char message[MPI_MAX_ERROR_STRING];
        int length;
        MPI_Error_string(code, message, &length);
        fprintf(stderr, "rank %d: %s: %s\n", rank, text, message);
    }
}

/* A property that must hold on every rank. */
static inline void verify(const char *what, int holds)
{
    note(what, !holds);
    if (!holds)
        fprintf(stderr, "rank %d: not so: %s\n", rank, what);
}

static inline void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline void say(const char *format, ...)
{
    char text[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    note(text, 0);
}

static inline int counted(MPI_Status *status, MPI_Datatype type)
{
    int count = -1;
    MPI_Get_count(status, type, &count);
    return count;
}

/* The value of element i of a file whose version is v. */
static inline int value(long i, int v)
{
    return (int)((uint64_t)(i + 1) * UINT64_C(2654435761) >> 7) ^ v * 1000003;
}

static inline void start(int *argc, char ***argv)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
}

static inline int finish(void)
{
    static int sums[NOTES_MAX];
    int wrong = 0;
    MPI_Allreduce(failures, sums, notes_taken, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < notes_taken; i++) {
        if (rank == 0)
            printf("%s%s\n", notes[i], sums[i] ? ": WRONG" : "");
        wrong += sums[i];
        free(notes[i]);
    }
#ifdef END
    /* Whoever started the ranks may wait for this line instead of their end. */
    if (rank == 0)
        puts(END);
#endif
    fflush(stdout);
    MPI_Finalize();
    return wrong ? 1 : 0;
}

static inline MPI_File open_file(const char *name, int mode, MPI_Info info)
{
    MPI_File file;
    int code = MPI_File_open(MPI_COMM_WORLD, name, mode, info, &file);
    told(name, code);
    if (code != MPI_SUCCESS)
        MPI_Abort(MPI_COMM_WORLD, 3);
    return file;
}
#endif
