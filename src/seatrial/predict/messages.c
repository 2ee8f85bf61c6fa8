/* Loaded into a simulation by LD_PRELOAD: counts the messages of a program and their bytes.
 *
 * At the end it writes "messages COUNT BYTES LARGEST BEYOND" to the standard error, of all ranks, which
 * are one process. BEYOND are the bytes of messages above SEATRIAL_BEYOND_B bytes. A message is what the
 * program gives to one call for one partner; an algorithm may send it in parts. Of calls with an array
 * of counts a rank's message to itself is counted, too. Not counted: one-sided operations, neighbourhood
 * and non-blocking collectives, and messages of MPI_Start.
 *
 * These are PMPI_*, not MPI_*: SMPI loads a program so that it sees the MPI_* of SimGrid's library first
 * (RTLD_DEEPBIND), and those call PMPI_*. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

/* SimGrid's own function of the same type */
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static long long count, bytes, largest, beyond, limit;

static __attribute__((constructor)) void begin(void)
{
    const char *text = getenv("SEATRIAL_BEYOND_B");
    limit = text ? atoll(text) : 0;
}

static __attribute__((destructor)) void end(void)
{
    if (count)
        fprintf(stderr, "messages %lld %lld %lld %lld\n", count, bytes, largest, beyond);
}

static void add(long long times, long long elements, MPI_Datatype type)
{
    int size;

    if (times < 1 || elements < 1 || type == MPI_DATATYPE_NULL)
        return;
    PMPI_Type_size(type, &size);
    count += times;
    bytes += times * elements * size;
    if (elements * size > largest)
        largest = elements * size;
    if (elements * size > limit)
        beyond += times * elements * size;
}

static int others(MPI_Comm comm)
{
    int size;

    PMPI_Comm_size(comm, &size);
    return size - 1;
}

static int is_root(int root, MPI_Comm comm)
{
    int rank;

    PMPI_Comm_rank(comm, &rank);
    return rank == root;
}

#define SEND(name)                                                                                 \
    int PMPI_##name(const void *out, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm)      \
    {                                                                                              \
        add(to >= 0, n, type);                                                                     \
        return NEXT(PMPI_##name)(out, n, type, to, tag, comm);                                           \
    }
#define ISEND(name)                                                                                \
    int PMPI_##name(const void *out, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm,      \
                   MPI_Request *request)                                                           \
    {                                                                                              \
        add(to >= 0, n, type);                                                                     \
        return NEXT(PMPI_##name)(out, n, type, to, tag, comm, request);                                  \
    }

SEND(Send)
SEND(Ssend)
SEND(Bsend)
SEND(Rsend)
ISEND(Isend)
ISEND(Issend)
ISEND(Irsend)

int PMPI_Sendrecv(const void *out, int n, MPI_Datatype type, int to, int tag, void *in, int m,
                 MPI_Datatype other, int from, int other_tag, MPI_Comm comm, MPI_Status *status)
{
    add(to >= 0, n, type);
    return NEXT(PMPI_Sendrecv)(out, n, type, to, tag, in, m, other, from, other_tag, comm, status);
}

int PMPI_Sendrecv_replace(void *data, int n, MPI_Datatype type, int to, int tag, int from,
                         int other_tag, MPI_Comm comm, MPI_Status *status)
{
    add(to >= 0, n, type);
    return NEXT(PMPI_Sendrecv_replace)(data, n, type, to, tag, from, other_tag, comm, status);
}

int PMPI_Bcast(void *data, int n, MPI_Datatype type, int root, MPI_Comm comm)
{
    add(is_root(root, comm) ? others(comm) : 0, n, type);
    return NEXT(PMPI_Bcast)(data, n, type, root, comm);
}

int PMPI_Reduce(const void *out, void *in, int n, MPI_Datatype type, MPI_Op op, int root,
               MPI_Comm comm)
{
    add(!is_root(root, comm), n, type);
    return NEXT(PMPI_Reduce)(out, in, n, type, op, root, comm);
}

int PMPI_Allreduce(const void *out, void *in, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    add(others(comm) > 0, n, type);
    return NEXT(PMPI_Allreduce)(out, in, n, type, op, comm);
}

int PMPI_Reduce_scatter(const void *out, void *in, const int *counts, MPI_Datatype type, MPI_Op op,
                       MPI_Comm comm)
{
    for (int i = 0; i <= others(comm); i++)
        add(1, counts[i], type);
    return NEXT(PMPI_Reduce_scatter)(out, in, counts, type, op, comm);
}

int PMPI_Scan(const void *out, void *in, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    add(others(comm) > 0, n, type);
    return NEXT(PMPI_Scan)(out, in, n, type, op, comm);
}

int PMPI_Gather(const void *out, int n, MPI_Datatype type, void *in, int m, MPI_Datatype other,
               int root, MPI_Comm comm)
{
    add(!is_root(root, comm), n, type);
    return NEXT(PMPI_Gather)(out, n, type, in, m, other, root, comm);
}

int PMPI_Gatherv(const void *out, int n, MPI_Datatype type, void *in, const int *m, const int *at,
                MPI_Datatype other, int root, MPI_Comm comm)
{
    add(!is_root(root, comm), n, type);
    return NEXT(PMPI_Gatherv)(out, n, type, in, m, at, other, root, comm);
}

int PMPI_Scatter(const void *out, int n, MPI_Datatype type, void *in, int m, MPI_Datatype other,
                int root, MPI_Comm comm)
{
    add(!is_root(root, comm), m, other);
    return NEXT(PMPI_Scatter)(out, n, type, in, m, other, root, comm);
}

int PMPI_Scatterv(const void *out, const int *n, const int *at, MPI_Datatype type, void *in, int m,
                 MPI_Datatype other, int root, MPI_Comm comm)
{
    add(!is_root(root, comm), m, other);
    return NEXT(PMPI_Scatterv)(out, n, at, type, in, m, other, root, comm);
}

int PMPI_Allgather(const void *out, int n, MPI_Datatype type, void *in, int m, MPI_Datatype other,
                  MPI_Comm comm)
{
    add(others(comm), m, other);
    return NEXT(PMPI_Allgather)(out, n, type, in, m, other, comm);
}

int PMPI_Allgatherv(const void *out, int n, MPI_Datatype type, void *in, const int *m,
                   const int *at, MPI_Datatype other, MPI_Comm comm)
{
    for (int i = 0; i <= others(comm); i++)
        add(1, m[i], other);
    return NEXT(PMPI_Allgatherv)(out, n, type, in, m, at, other, comm);
}

int PMPI_Alltoall(const void *out, int n, MPI_Datatype type, void *in, int m, MPI_Datatype other,
                 MPI_Comm comm)
{
    add(others(comm), m, other);
    return NEXT(PMPI_Alltoall)(out, n, type, in, m, other, comm);
}

int PMPI_Alltoallv(const void *out, const int *n, const int *at, MPI_Datatype type, void *in,
                  const int *m, const int *other_at, MPI_Datatype other, MPI_Comm comm)
{
    for (int i = 0; i <= others(comm); i++)
        add(1, m[i], other);
    return NEXT(PMPI_Alltoallv)(out, n, at, type, in, m, other_at, other, comm);
}
