/* mpi_time: how long each rank of a program is in MPI, by call.
 *
 * A library for LD_PRELOAD, over the profiling interface of MPI (PMPI): the program is not rebuilt.
 * It sums, for each call and rank, the number of calls, their time by CLOCK_MONOTONIC, and the
 * bytes of data that they moved. The run time of a rank is that from a barrier of its own after
 * MPI_Init to the begin of MPI_Finalize: without it, ranks that start late would be time in MPI of
 * the others. Waiting in a call for another rank is time in MPI.
 *
 * Bytes are those of the program's data, each counted once over all ranks, on the rank where the
 * arguments must say it: a send on its sender, MPI_Bcast and MPI_Scatter on each rank but the root,
 * MPI_Gather and MPI_Reduce likewise, MPI_Allreduce, MPI_Reduce_scatter, MPI_Scan, MPI_Alltoall,
 * MPI_Alltoallv and MPI_Allgather on every rank. (An MPI may move more, or less, for a collective
 * operation.) Not counted: one-sided operations, files, persistent and neighbourhood operations,
 * and collective operations that do not block, whose time is not known either.
 *
 * A program that prints a figure of a part of its run times that part with MPI_Wtime. So the first
 * and the last 250 readings of that clock are kept, each with the time in MPI until then.
 *
 * In MPI_Finalize rank 0 collects the sums and writes the file that MPI_TIME_FILE names, as text:
 *
 *   # mpi_time 1.1: RANKS ranks
 *   # rank call calls ns bytes
 *   0 run 1 2000000 0
 *   0 MPI_Send 20 1000 80        (calls that a rank made, in the order of the list below)
 *   0 clock 1 3000 500           (its first reading of MPI_Wtime: ns of the run, of these in MPI)
 *   # crc32 01234567             (zlib's, of all bytes before)
 *
 * Without MPI_TIME_FILE nothing is written. A program with MPI_THREAD_MULTIPLE is refused: no file,
 * and a line on standard error. The exit code of the program never changes.
 *
 * Programs in Fortran call mpi_send_ and so on, with mpif.h or the module mpi; the MPI may or may
 * not pass by MPI_Send on the way. So both are counted, the outer one alone. The module mpi_f08
 * has other names and is not seen.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define VERSION "1.1"
#define WEAK __attribute__((weak))

/* name in C, name in Fortran */
#define NAMES(X) \
    X(Send, send) X(Bsend, bsend) X(Ssend, ssend) X(Rsend, rsend) X(Recv, recv) \
    X(Isend, isend) X(Issend, issend) X(Irecv, irecv) X(Sendrecv, sendrecv) \
    X(Sendrecv_replace, sendrecv_replace) X(Probe, probe) X(Iprobe, iprobe) \
    X(Wait, wait) X(Waitall, waitall) X(Waitany, waitany) X(Waitsome, waitsome) \
    X(Test, test) X(Testall, testall) X(Testany, testany) X(Testsome, testsome) \
    X(Barrier, barrier) X(Bcast, bcast) X(Reduce, reduce) X(Allreduce, allreduce) \
    X(Reduce_scatter, reduce_scatter) X(Scan, scan) X(Gather, gather) X(Gatherv, gatherv) \
    X(Scatter, scatter) X(Scatterv, scatterv) X(Allgather, allgather) \
    X(Allgatherv, allgatherv) X(Alltoall, alltoall) X(Alltoallv, alltoallv) \
    X(Comm_dup, comm_dup) X(Comm_split, comm_split)

#define NUMBER(name, lower) CALL_##name,
enum call { NAMES(NUMBER) CALLS };
#define TEXT(name, lower) "MPI_" #name,
static const char *const names[CALLS] = {NAMES(TEXT)};

enum { COUNT, NS, BYTES, FIELDS };
enum { HALF = 250 };
/* of a rank: calls, and in their last row the run; readings of the clock: ns of the run, in MPI */
static struct times {
    uint64_t calls[CALLS + 1][FIELDS], clock[2 * HALF][2], read;
} own;
static uint64_t in_mpi;
static int64_t started;
static double clock_started;
static int depth; /* of calls of the program: an MPI may use its own functions */

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void leave(enum call call, int64_t entered, uint64_t bytes)
{
    uint64_t ns = (uint64_t)(now() - entered);
    own.calls[call][COUNT] += 1;
    own.calls[call][NS] += ns;
    own.calls[call][BYTES] += bytes;
    in_mpi += ns;
}

/* Of the last readings the newest replaces the oldest. */
static uint64_t place(uint64_t reading)
{
    return reading < HALF ? reading : HALF + reading % HALF;
}

/* The value that the program gets: differences are those that it prints. */
static double noted(double seconds)
{
    if (started && !depth) {
        uint64_t *reading = own.clock[place(own.read++)];
        reading[0] = (uint64_t)((seconds - clock_started) * 1e9 + 0.5);
        reading[1] = in_mpi;
    }
    return seconds;
}

/* --- bytes: of the program's arguments ------------------------------------------------------- */

static uint64_t data(int64_t count, MPI_Datatype type)
{
    int size = 0;
    if (count <= 0 || type == MPI_DATATYPE_NULL || PMPI_Type_size(type, &size) != MPI_SUCCESS)
        return 0;
    return (uint64_t)count * (uint64_t)(size < 0 ? 0 : size);
}

static uint64_t sent(int count, MPI_Datatype type, int peer)
{
    return peer == MPI_PROC_NULL ? 0 : data(count, type);
}

static int ranks_of(MPI_Comm comm)
{
    int ranks = 0, is_inter = 0;
    PMPI_Comm_test_inter(comm, &is_inter);
    if (is_inter)
        PMPI_Comm_remote_size(comm, &ranks);
    else
        PMPI_Comm_size(comm, &ranks);
    return ranks;
}

static int is_root(int root, MPI_Comm comm)
{
    int rank = -1, is_inter = 0;
    PMPI_Comm_test_inter(comm, &is_inter);
    if (is_inter)
        return root == MPI_ROOT || root == MPI_PROC_NULL;
    PMPI_Comm_rank(comm, &rank);
    return rank == root;
}

static uint64_t unless_root(int count, MPI_Datatype type, int root, MPI_Comm comm)
{
    return is_root(root, comm) ? 0 : data(count, type);
}

static uint64_t of_all(const int *counts, MPI_Datatype type, MPI_Comm comm)
{
    int64_t sum = 0;
    for (int i = 0, ranks = ranks_of(comm); i < ranks; i++)
        sum += counts[i];
    return data(sum, type);
}

/* the part of its own rank */
static uint64_t of_own(const int *counts, MPI_Datatype type, MPI_Comm comm)
{
    int rank = 0;
    PMPI_Comm_rank(comm, &rank);
    return data(counts[rank], type);
}

/* --- the calls ------------------------------------------------------------------------------- */

/* C and Fortran of one call: parameters, arguments, bytes. Fortran passes addresses, of which
 * ``WORDS`` has the types, and the last is that of the error. */
#define C_CALL(name, parameters, arguments, bytes) \
    int MPI_##name parameters \
    { \
        int64_t entered = now(); \
        depth++; \
        int code = PMPI_##name arguments; \
        if (--depth == 0) \
            leave(CALL_##name, entered, bytes); \
        return code; \
    }
#define FORTRAN_CALL(name, lower, parameters, arguments, bytes) \
    extern void pmpi_##lower##_ parameters WEAK; \
    extern void mpi_##lower##_ parameters; \
    void mpi_##lower##_ parameters \
    { \
        int64_t entered = now(); \
        depth++; \
        pmpi_##lower##_ arguments; \
        if (--depth == 0) \
            leave(CALL_##name, entered, bytes); \
    }
#define I MPI_Fint *
#define T(type) MPI_Type_f2c(*type)
#define G(comm) MPI_Comm_f2c(*comm)

#define SEND(name, lower) \
    C_CALL(name, (const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm g), \
           (b, n, t, to, tag, g), sent(n, t, to)) \
    FORTRAN_CALL(name, lower, (void *b, I n, I t, I to, I tag, I g, I e), \
                 (b, n, t, to, tag, g, e), sent(*n, T(t), *to))
#define SEND_WITH_REQUEST(name, lower) \
    C_CALL(name, (const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm g, \
                  MPI_Request *r), \
           (b, n, t, to, tag, g, r), sent(n, t, to)) \
    FORTRAN_CALL(name, lower, (void *b, I n, I t, I to, I tag, I g, I r, I e), \
                 (b, n, t, to, tag, g, r, e), sent(*n, T(t), *to))

SEND(Send, send)
SEND(Bsend, bsend)
SEND(Ssend, ssend)
SEND(Rsend, rsend)
SEND_WITH_REQUEST(Isend, isend)
SEND_WITH_REQUEST(Issend, issend)

C_CALL(Recv, (void *b, int n, MPI_Datatype t, int from, int tag, MPI_Comm g, MPI_Status *s),
       (b, n, t, from, tag, g, s), 0)
FORTRAN_CALL(Recv, recv, (void *b, I n, I t, I from, I tag, I g, I s, I e),
             (b, n, t, from, tag, g, s, e), 0)
C_CALL(Irecv, (void *b, int n, MPI_Datatype t, int from, int tag, MPI_Comm g, MPI_Request *r),
       (b, n, t, from, tag, g, r), 0)
FORTRAN_CALL(Irecv, irecv, (void *b, I n, I t, I from, I tag, I g, I r, I e),
             (b, n, t, from, tag, g, r, e), 0)
C_CALL(Sendrecv,
       (const void *b, int n, MPI_Datatype t, int to, int tag, void *b2, int n2, MPI_Datatype t2,
        int from, int tag2, MPI_Comm g, MPI_Status *s),
       (b, n, t, to, tag, b2, n2, t2, from, tag2, g, s), sent(n, t, to))
FORTRAN_CALL(Sendrecv, sendrecv,
             (void *b, I n, I t, I to, I tag, void *b2, I n2, I t2, I from, I tag2, I g, I s, I e),
             (b, n, t, to, tag, b2, n2, t2, from, tag2, g, s, e), sent(*n, T(t), *to))
C_CALL(Sendrecv_replace,
       (void *b, int n, MPI_Datatype t, int to, int tag, int from, int tag2, MPI_Comm g,
        MPI_Status *s),
       (b, n, t, to, tag, from, tag2, g, s), sent(n, t, to))
FORTRAN_CALL(Sendrecv_replace, sendrecv_replace,
             (void *b, I n, I t, I to, I tag, I from, I tag2, I g, I s, I e),
             (b, n, t, to, tag, from, tag2, g, s, e), sent(*n, T(t), *to))

C_CALL(Probe, (int from, int tag, MPI_Comm g, MPI_Status *s), (from, tag, g, s), 0)
FORTRAN_CALL(Probe, probe, (I from, I tag, I g, I s, I e), (from, tag, g, s, e), 0)
C_CALL(Iprobe, (int from, int tag, MPI_Comm g, int *f, MPI_Status *s), (from, tag, g, f, s), 0)
FORTRAN_CALL(Iprobe, iprobe, (I from, I tag, I g, I f, I s, I e), (from, tag, g, f, s, e), 0)
C_CALL(Wait, (MPI_Request *r, MPI_Status *s), (r, s), 0)
FORTRAN_CALL(Wait, wait, (I r, I s, I e), (r, s, e), 0)
C_CALL(Waitall, (int n, MPI_Request r[], MPI_Status s[]), (n, r, s), 0)
FORTRAN_CALL(Waitall, waitall, (I n, I r, I s, I e), (n, r, s, e), 0)
C_CALL(Waitany, (int n, MPI_Request r[], int *i, MPI_Status *s), (n, r, i, s), 0)
FORTRAN_CALL(Waitany, waitany, (I n, I r, I i, I s, I e), (n, r, i, s, e), 0)
C_CALL(Waitsome, (int n, MPI_Request r[], int *o, int i[], MPI_Status s[]), (n, r, o, i, s), 0)
FORTRAN_CALL(Waitsome, waitsome, (I n, I r, I o, I i, I s, I e), (n, r, o, i, s, e), 0)
C_CALL(Test, (MPI_Request *r, int *f, MPI_Status *s), (r, f, s), 0)
FORTRAN_CALL(Test, test, (I r, I f, I s, I e), (r, f, s, e), 0)
C_CALL(Testall, (int n, MPI_Request r[], int *f, MPI_Status s[]), (n, r, f, s), 0)
FORTRAN_CALL(Testall, testall, (I n, I r, I f, I s, I e), (n, r, f, s, e), 0)
C_CALL(Testany, (int n, MPI_Request r[], int *i, int *f, MPI_Status *s), (n, r, i, f, s), 0)
FORTRAN_CALL(Testany, testany, (I n, I r, I i, I f, I s, I e), (n, r, i, f, s, e), 0)
C_CALL(Testsome, (int n, MPI_Request r[], int *o, int i[], MPI_Status s[]), (n, r, o, i, s), 0)
FORTRAN_CALL(Testsome, testsome, (I n, I r, I o, I i, I s, I e), (n, r, o, i, s, e), 0)

C_CALL(Barrier, (MPI_Comm g), (g), 0)
FORTRAN_CALL(Barrier, barrier, (I g, I e), (g, e), 0)
C_CALL(Bcast, (void *b, int n, MPI_Datatype t, int root, MPI_Comm g), (b, n, t, root, g),
       unless_root(n, t, root, g))
FORTRAN_CALL(Bcast, bcast, (void *b, I n, I t, I root, I g, I e), (b, n, t, root, g, e),
             unless_root(*n, T(t), *root, G(g)))
C_CALL(Reduce, (const void *b, void *b2, int n, MPI_Datatype t, MPI_Op o, int root, MPI_Comm g),
       (b, b2, n, t, o, root, g), unless_root(n, t, root, g))
FORTRAN_CALL(Reduce, reduce, (void *b, void *b2, I n, I t, I o, I root, I g, I e),
             (b, b2, n, t, o, root, g, e), unless_root(*n, T(t), *root, G(g)))
C_CALL(Allreduce, (const void *b, void *b2, int n, MPI_Datatype t, MPI_Op o, MPI_Comm g),
       (b, b2, n, t, o, g), data(n, t))
FORTRAN_CALL(Allreduce, allreduce, (void *b, void *b2, I n, I t, I o, I g, I e),
             (b, b2, n, t, o, g, e), data(*n, T(t)))
C_CALL(Scan, (const void *b, void *b2, int n, MPI_Datatype t, MPI_Op o, MPI_Comm g),
       (b, b2, n, t, o, g), data(n, t))
FORTRAN_CALL(Scan, scan, (void *b, void *b2, I n, I t, I o, I g, I e), (b, b2, n, t, o, g, e),
             data(*n, T(t)))
C_CALL(Reduce_scatter,
       (const void *b, void *b2, const int n[], MPI_Datatype t, MPI_Op o, MPI_Comm g),
       (b, b2, n, t, o, g), of_all(n, t, g))
FORTRAN_CALL(Reduce_scatter, reduce_scatter, (void *b, void *b2, I n, I t, I o, I g, I e),
             (b, b2, n, t, o, g, e), of_all(n, T(t), G(g)))
C_CALL(Gather,
       (const void *b, int n, MPI_Datatype t, void *b2, int n2, MPI_Datatype t2, int root,
        MPI_Comm g),
       (b, n, t, b2, n2, t2, root, g), unless_root(n, t, root, g))
FORTRAN_CALL(Gather, gather, (void *b, I n, I t, void *b2, I n2, I t2, I root, I g, I e),
             (b, n, t, b2, n2, t2, root, g, e), unless_root(*n, T(t), *root, G(g)))
C_CALL(Gatherv,
       (const void *b, int n, MPI_Datatype t, void *b2, const int n2[], const int d[],
        MPI_Datatype t2, int root, MPI_Comm g),
       (b, n, t, b2, n2, d, t2, root, g), unless_root(n, t, root, g))
FORTRAN_CALL(Gatherv, gatherv, (void *b, I n, I t, void *b2, I n2, I d, I t2, I root, I g, I e),
             (b, n, t, b2, n2, d, t2, root, g, e), unless_root(*n, T(t), *root, G(g)))
C_CALL(Scatter,
       (const void *b, int n, MPI_Datatype t, void *b2, int n2, MPI_Datatype t2, int root,
        MPI_Comm g),
       (b, n, t, b2, n2, t2, root, g), unless_root(n2, t2, root, g))
FORTRAN_CALL(Scatter, scatter, (void *b, I n, I t, void *b2, I n2, I t2, I root, I g, I e),
             (b, n, t, b2, n2, t2, root, g, e), unless_root(*n2, T(t2), *root, G(g)))
C_CALL(Scatterv,
       (const void *b, const int n[], const int d[], MPI_Datatype t, void *b2, int n2,
        MPI_Datatype t2, int root, MPI_Comm g),
       (b, n, d, t, b2, n2, t2, root, g), unless_root(n2, t2, root, g))
FORTRAN_CALL(Scatterv, scatterv,
             (void *b, I n, I d, I t, void *b2, I n2, I t2, I root, I g, I e),
             (b, n, d, t, b2, n2, t2, root, g, e), unless_root(*n2, T(t2), *root, G(g)))
/* Of these the receiving side counts: with MPI_IN_PLACE the sending one means nothing. */
C_CALL(Allgather,
       (const void *b, int n, MPI_Datatype t, void *b2, int n2, MPI_Datatype t2, MPI_Comm g),
       (b, n, t, b2, n2, t2, g), data(n2, t2))
FORTRAN_CALL(Allgather, allgather, (void *b, I n, I t, void *b2, I n2, I t2, I g, I e),
             (b, n, t, b2, n2, t2, g, e), data(*n2, T(t2)))
C_CALL(Allgatherv,
       (const void *b, int n, MPI_Datatype t, void *b2, const int n2[], const int d[],
        MPI_Datatype t2, MPI_Comm g),
       (b, n, t, b2, n2, d, t2, g), of_own(n2, t2, g))
FORTRAN_CALL(Allgatherv, allgatherv, (void *b, I n, I t, void *b2, I n2, I d, I t2, I g, I e),
             (b, n, t, b2, n2, d, t2, g, e), of_own(n2, T(t2), G(g)))
C_CALL(Alltoall,
       (const void *b, int n, MPI_Datatype t, void *b2, int n2, MPI_Datatype t2, MPI_Comm g),
       (b, n, t, b2, n2, t2, g), data((int64_t)n2 * ranks_of(g), t2))
FORTRAN_CALL(Alltoall, alltoall, (void *b, I n, I t, void *b2, I n2, I t2, I g, I e),
             (b, n, t, b2, n2, t2, g, e), data((int64_t)*n2 * ranks_of(G(g)), T(t2)))
C_CALL(Alltoallv,
       (const void *b, const int n[], const int d[], MPI_Datatype t, void *b2, const int n2[],
        const int d2[], MPI_Datatype t2, MPI_Comm g),
       (b, n, d, t, b2, n2, d2, t2, g), of_all(n2, t2, g))
FORTRAN_CALL(Alltoallv, alltoallv,
             (void *b, I n, I d, I t, void *b2, I n2, I d2, I t2, I g, I e),
             (b, n, d, t, b2, n2, d2, t2, g, e), of_all(n2, T(t2), G(g)))
C_CALL(Comm_dup, (MPI_Comm g, MPI_Comm *made), (g, made), 0)
FORTRAN_CALL(Comm_dup, comm_dup, (I g, I made, I e), (g, made, e), 0)
C_CALL(Comm_split, (MPI_Comm g, int colour, int key, MPI_Comm *made), (g, colour, key, made), 0)
FORTRAN_CALL(Comm_split, comm_split, (I g, I colour, I key, I made, I e),
             (g, colour, key, made, e), 0)

double MPI_Wtime(void)
{
    return noted(PMPI_Wtime());
}

extern double pmpi_wtime_(void) WEAK;
extern double mpi_wtime_(void);
double mpi_wtime_(void)
{
    depth++; /* it may call MPI_Wtime */
    double seconds = pmpi_wtime_();
    depth--;
    return noted(seconds);
}

/* --- begin and end --------------------------------------------------------------------------- */

static void begin(void)
{
    PMPI_Barrier(MPI_COMM_WORLD);
    memset(&own, 0, sizeof own);
    in_mpi = 0;
    clock_started = PMPI_Wtime();
    started = now();
}

static uint32_t crc32(uint32_t crc, const char *text)
{
    crc = ~crc;
    for (; *text; text++) {
        crc ^= (unsigned char)*text;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static int put(FILE *file, uint32_t *crc, const char *line)
{
    *crc = crc32(*crc, line);
    return fputs(line, file) < 0;
}

static int row(FILE *file, uint32_t *crc, int rank, const char *call, const uint64_t *of)
{
    char line[200];
    snprintf(line, sizeof line, "%d %s %llu %llu %llu\n", rank, call, (unsigned long long)of[COUNT],
             (unsigned long long)of[NS], (unsigned long long)of[BYTES]);
    return put(file, crc, line);
}

static int write_all(FILE *file, int ranks, const struct times *all)
{
    uint32_t crc = 0;
    char line[200];
    snprintf(line, sizeof line, "# mpi_time " VERSION ": %d ranks\n", ranks);
    int bad = put(file, &crc, line) || put(file, &crc, "# rank call calls ns bytes\n");
    for (int rank = 0; rank < ranks && !bad; rank++) {
        const struct times *of = &all[rank];
        bad = row(file, &crc, rank, "run", of->calls[CALLS]);
        for (int call = 0; call < CALLS && !bad; call++)
            if (of->calls[call][COUNT])
                bad = row(file, &crc, rank, names[call], of->calls[call]);
        for (uint64_t i = 0; i < of->read && !bad; i++) {
            const uint64_t *at = of->clock[place(i)], reading[FIELDS] = {i + 1, at[0], at[1]};
            if (i < HALF || i + HALF >= of->read)
                bad = row(file, &crc, rank, "clock", reading);
        }
    }
    return bad || fprintf(file, "# crc32 %08x\n", (unsigned)crc) < 0;
}

static void end(void)
{
    const char *name = getenv("MPI_TIME_FILE");
    int rank, ranks, threads = 0;
    if (!started)
        return;
    own.calls[CALLS][COUNT] = 1;
    own.calls[CALLS][NS] = (uint64_t)(now() - started);
    started = 0;
    if (!name || !*name)
        return;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &ranks);
    PMPI_Query_thread(&threads);
    if (threads == MPI_THREAD_MULTIPLE) {
        if (rank == 0)
            fputs("mpi_time: the program has MPI_THREAD_MULTIPLE, no times are kept\n", stderr);
        return;
    }
    struct times *all = rank == 0 ? calloc((size_t)ranks, sizeof own) : NULL;
    int ready = rank != 0 || all != NULL;
    PMPI_Bcast(&ready, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (ready)
        PMPI_Gather(&own, sizeof own, MPI_BYTE, all, sizeof own, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        FILE *file = all ? fopen(name, "w") : NULL;
        int bad = !file || write_all(file, ranks, all);
        if (file && fclose(file))
            bad = 1;
        if (bad)
            fprintf(stderr, "mpi_time: cannot write %s: %s\n", name, strerror(errno));
        free(all);
    }
}

int MPI_Init(int *argc, char ***argv)
{
    int code = PMPI_Init(argc, argv);
    begin();
    return code;
}

int MPI_Init_thread(int *argc, char ***argv, int wanted, int *provided)
{
    int code = PMPI_Init_thread(argc, argv, wanted, provided);
    begin();
    return code;
}

int MPI_Finalize(void)
{
    end();
    return PMPI_Finalize();
}

extern void pmpi_init_(I e) WEAK;
extern void pmpi_init_thread_(I wanted, I provided, I e) WEAK;
extern void pmpi_finalize_(I e) WEAK;
extern void mpi_init_(I e);
extern void mpi_init_thread_(I wanted, I provided, I e);
extern void mpi_finalize_(I e);

void mpi_init_(I e)
{
    pmpi_init_(e);
    begin();
}

void mpi_init_thread_(I wanted, I provided, I e)
{
    pmpi_init_thread_(wanted, provided, e);
    begin();
}

void mpi_finalize_(I e)
{
    end();
    pmpi_finalize_(e);
}
