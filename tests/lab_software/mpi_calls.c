/* Stands in front of an MPI: notes the calls of a program, and damages messages on request.
 * Preloaded on the ranks. MPI_CALLS_FILE: lines "CALL tag bytes" of rank R go to MPI_CALLS_FILE.R.
 * MPI_CALLS_DAMAGE="RANK TAG NTH KIND": the NTH receive with that tag on that rank gets its last
 * byte changed (flip), leaves the buffer as it was (lost), or says that it got less (short).
 * MPI_CALLS_SLOW="RANK CALL": that rank's sends, non-blocking sends or receives (Send, Isend, Recv)
 * last 3 ms longer. */
#define _POSIX_C_SOURCE 200809L
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static FILE *file;
static int me;

int MPI_Init(int *argc, char ***argv)
{
    int code = PMPI_Init(argc, argv);
    char name[512];

    PMPI_Comm_rank(MPI_COMM_WORLD, &me);
    if (getenv("MPI_CALLS_FILE")) {
        snprintf(name, sizeof name, "%s.%d", getenv("MPI_CALLS_FILE"), me);
        file = fopen(name, "w");
    }
    return code;
}

static void note(const char *call, int tag, int count, MPI_Datatype type)
{
    const struct timespec pause = {0, 3000000};
    char slow[16] = "";
    int size, rank = -1;

    if (getenv("MPI_CALLS_SLOW"))
        sscanf(getenv("MPI_CALLS_SLOW"), "%d %15s", &rank, slow);
    if (rank == me && !strcmp(slow, call))
        nanosleep(&pause, NULL);

    PMPI_Type_size(type, &size);
    if (file) {
        fprintf(file, "%s %d %d\n", call, tag, count * size);
        fflush(file);
    }
}

int MPI_Send(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm)
{
    note("Send", tag, count, type);
    return PMPI_Send(data, count, type, to, tag, comm);
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    note("Isend", tag, count, type);
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    note("Wait", 0, 0, MPI_BYTE);
    return PMPI_Wait(request, status);
}

int MPI_Iprobe(int from, int tag, MPI_Comm comm, int *there, MPI_Status *status)
{
    int code = PMPI_Iprobe(from, tag, comm, there, status);

    note(*there ? "Iprobe-there" : "Iprobe", tag, 0, MPI_BYTE);
    return code;
}

int MPI_Recv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
             MPI_Status *status)
{
    static int seen;
    int rank = -1, with = 0, nth = 0, code;
    char kind[8] = "", *before;

    note("Recv", tag, count, type);
    if (getenv("MPI_CALLS_DAMAGE"))
        sscanf(getenv("MPI_CALLS_DAMAGE"), "%d %d %d %7s", &rank, &with, &nth, kind);
    if (rank != me || with != tag || ++seen != nth)
        return PMPI_Recv(data, count, type, from, tag, comm, status);
    before = malloc((size_t)count);
    memcpy(before, data, (size_t)count);
    code = PMPI_Recv(data, count, type, from, tag, comm, status);
    if (!strcmp(kind, "flip"))
        ((char *)data)[count - 1] ^= 1;
    else if (!strcmp(kind, "lost"))
        memcpy(data, before, (size_t)count);
    else
        MPI_Status_set_elements(status, MPI_BYTE, count - 1);
    free(before);
    return code;
}
