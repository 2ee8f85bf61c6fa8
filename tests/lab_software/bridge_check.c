#define _GNU_SOURCE
/* Calls every function that the ABI bridge carries and checks what comes back.
 *
 * Built with MPICH's mpi.h and libmpi.so.12, so it also runs under MPICH and Intel MPI, which
 * shows that the checks themselves are right. Two or more ranks. Prints "N checks passed".
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int checks, rank, size;

#define CHECK(condition) \
    do { \
        checks++; \
        if (!(condition)) { \
            fprintf(stderr, "rank %d, line %d: not true: %s\n", rank, __LINE__, #condition); \
            MPI_Abort(MPI_COMM_WORLD, 3); \
        } \
    } while (0)
#define OK(call) CHECK((call) == MPI_SUCCESS)

static MPI_Datatype seen_type;
static void keep_larger(void *in, void *inout, int *count, MPI_Datatype *type)
{
    seen_type = *type;
    for (int i = 0; i < *count; i++)
        if (((int *)in)[i] > ((int *)inout)[i])
            ((int *)inout)[i] = ((int *)in)[i];
}

static void point_to_point(void)
{
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    int out[4] = {rank, rank + 1, rank + 2, rank + 3}, in[4] = {-1, -1, -1, -1}, count = -1;
    MPI_Status status;
    MPI_Request request, both[2], many[300];

    OK(MPI_Sendrecv(out, 4, MPI_INT, next, 7, in, 4, MPI_INT, last, 7, MPI_COMM_WORLD, &status));
    CHECK(in[0] == last && in[3] == last + 3);
    CHECK(status.MPI_SOURCE == last && status.MPI_TAG == 7);
    OK(MPI_Get_count(&status, MPI_INT, &count));
    CHECK(count == 4);
    OK(MPI_Get_count(&status, MPI_BYTE, &count));
    CHECK(count == 16);

    OK(MPI_Irecv(in, 4, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request));
    CHECK(request != MPI_REQUEST_NULL);
    OK(MPI_Send(out, 3, MPI_INT, next, 9, MPI_COMM_WORLD));
    OK(MPI_Wait(&request, &status));
    CHECK(request == MPI_REQUEST_NULL);
    CHECK(status.MPI_SOURCE == last && status.MPI_TAG == 9);
    OK(MPI_Get_count(&status, MPI_INT, &count));
    CHECK(count == 3);
    OK(MPI_Wait(&request, &status)); /* of nothing: an empty status */
    CHECK(status.MPI_SOURCE == MPI_ANY_SOURCE && status.MPI_TAG == MPI_ANY_TAG);

    OK(MPI_Isend(out, 4, MPI_INT, next, 1, MPI_COMM_WORLD, &both[0]));
    OK(MPI_Irecv(in, 4, MPI_INT, last, 1, MPI_COMM_WORLD, &both[1]));
    MPI_Status two[2];
    OK(MPI_Waitall(2, both, two));
    CHECK(two[1].MPI_SOURCE == last && in[2] == last + 2);
    CHECK(both[0] == MPI_REQUEST_NULL && both[1] == MPI_REQUEST_NULL);

    int values[300];
    for (int i = 0; i < 150; i++) { /* more than one table of handles, more than one stack's */
        values[150 + i] = 1000 * rank + i;
        OK(MPI_Irecv(&values[i], 1, MPI_INT, last, i, MPI_COMM_WORLD, &many[2 * i]));
        OK(MPI_Isend(&values[150 + i], 1, MPI_INT, next, i, MPI_COMM_WORLD, &many[2 * i + 1]));
    }
    OK(MPI_Waitall(300, many, MPI_STATUSES_IGNORE));
    for (int i = 0; i < 150; i++)
        CHECK(values[i] == 1000 * last + i);

    if (rank == 0) {
        OK(MPI_Send(out, 4, MPI_INT, 1, 2, MPI_COMM_WORLD));
    } else if (rank == 1) {
        OK(MPI_Recv(in, 4, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(in[1] == 1);
    }
    OK(MPI_Send(out, 4, MPI_INT, MPI_PROC_NULL, 2, MPI_COMM_WORLD));
    OK(MPI_Recv(in, 4, MPI_INT, MPI_PROC_NULL, 2, MPI_COMM_WORLD, &status));
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL);
    OK(MPI_Get_count(&status, MPI_INT, &count));
    CHECK(count == 0);
}

static void collectives(void)
{
    int n = size, *out = calloc(n, sizeof *out), *in = calloc(n, sizeof *in);
    int *ones = calloc(n, sizeof *ones), *at = calloc(n, sizeof *at), value, sum;
    for (int i = 0; i < n; i++) {
        ones[i] = 1;
        at[i] = i;
    }
    int total = n * (n - 1) / 2;

    OK(MPI_Barrier(MPI_COMM_WORLD));
    value = rank ? -1 : 42;
    OK(MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD));
    CHECK(value == 42);

    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == total);
    sum = rank;
    OK(MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == total);
    OK(MPI_Allreduce(&rank, &value, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
    CHECK(value == n - 1);
    OK(MPI_Allreduce(&rank, &value, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
    CHECK(value == 0);
    double real = rank + 0.5, product;
    OK(MPI_Allreduce(&real, &product, 1, MPI_DOUBLE, MPI_PROD, MPI_COMM_WORLD));
    double expected = 1;
    for (int i = 0; i < n; i++)
        expected *= i + 0.5;
    CHECK(product == expected);
    float single = 1.5f, together;
    OK(MPI_Allreduce(&single, &together, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(together == 1.5f * n);
    struct { double value; int at; } mine = {-rank, rank}, best;
    OK(MPI_Allreduce(&mine, &best, 1, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD));
    CHECK(best.at == n - 1 && best.value == -(n - 1));
    unsigned char bit = 1 << (rank % 8), bits;
    OK(MPI_Allreduce(&bit, &bits, 1, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD));
    CHECK(bits & 1 && bits & 2);

    OK(MPI_Reduce(&rank, &sum, 1, MPI_INT, MPI_SUM, n - 1, MPI_COMM_WORLD));
    CHECK(rank != n - 1 || sum == total);
    value = 5;
    sum = 7;
    OK(MPI_Reduce_local(&value, &sum, 1, MPI_INT, MPI_SUM));
    CHECK(sum == 12);

    for (int i = 0; i < n; i++)
        out[i] = i;
    OK(MPI_Reduce_scatter(out, &value, ones, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(value == n * rank);
    OK(MPI_Reduce_scatter_block(out, &value, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(value == n * rank);

    value = 100 + rank;
    memset(in, 0, n * sizeof *in);
    OK(MPI_Gather(&value, 1, MPI_INT, in, 1, rank ? MPI_DATATYPE_NULL : MPI_INT, 0,
                  MPI_COMM_WORLD));
    CHECK(rank || in[n - 1] == 100 + n - 1);
    OK(MPI_Gatherv(&value, 1, MPI_INT, in, ones, at, MPI_INT, 0, MPI_COMM_WORLD));
    CHECK(rank || in[1] == 101);
    OK(MPI_Scatter(in, 1, MPI_INT, &value, 1, MPI_INT, 0, MPI_COMM_WORLD));
    CHECK(value == 100 + rank);
    value = 0;
    OK(MPI_Scatterv(in, ones, at, MPI_INT, &value, 1, MPI_INT, 0, MPI_COMM_WORLD));
    CHECK(value == 100 + rank);
    memset(in, 0, n * sizeof *in);
    OK(MPI_Allgather(&value, 1, MPI_INT, in, 1, MPI_INT, MPI_COMM_WORLD));
    CHECK(in[0] == 100 && in[n - 1] == 100 + n - 1);
    in[rank] = -rank;
    OK(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, 1, MPI_INT, MPI_COMM_WORLD));
    CHECK(in[n - 1] == -(n - 1));
    OK(MPI_Allgatherv(&value, 1, MPI_INT, in, ones, at, MPI_INT, MPI_COMM_WORLD));
    CHECK(in[1] == 101);

    for (int i = 0; i < n; i++)
        out[i] = 10 * rank + i;
    OK(MPI_Alltoall(out, 1, MPI_INT, in, 1, MPI_INT, MPI_COMM_WORLD));
    for (int i = 0; i < n; i++)
        CHECK(in[i] == 10 * i + rank);
    memset(in, 0, n * sizeof *in);
    OK(MPI_Alltoallv(out, ones, at, MPI_INT, in, ones, at, MPI_INT, MPI_COMM_WORLD));
    for (int i = 0; i < n; i++)
        CHECK(in[i] == 10 * i + rank);

    MPI_Op own;
    OK(MPI_Op_create(keep_larger, 1, &own));
    OK(MPI_Allreduce(&rank, &value, 1, MPI_INT, own, MPI_COMM_WORLD));
    CHECK(value == n - 1);
    value = 8;
    OK(MPI_Reduce_local(&(int){9}, &value, 1, MPI_INT, own));
    CHECK(value == 9 && seen_type == MPI_INT);
    free(out), free(in), free(ones), free(at);
}

static void types(void)
{
    int bytes = 0, matrix[3][4] = {{0}}, column[3];
    MPI_Aint lb = -1, extent = -1;
    MPI_Datatype vector, resized;
    static const struct { MPI_Datatype type; int size; } known[] = {
        {MPI_CHAR, 1}, {MPI_SHORT, 2}, {MPI_INT, 4}, {MPI_LONG, 8}, {MPI_FLOAT, 4},
        {MPI_DOUBLE, 8}, {MPI_LONG_DOUBLE, 16}, {MPI_BYTE, 1}, {MPI_UNSIGNED, 4},
        {MPI_LONG_LONG, 8}, {MPI_UNSIGNED_LONG_LONG, 8}, {MPI_INT8_T, 1}, {MPI_UINT64_T, 8},
        {MPI_C_DOUBLE_COMPLEX, 16}, {MPI_AINT, 8}, {MPI_2INT, 8}, {MPI_FLOAT_INT, 8},
        {MPI_SHORT_INT, 6}, {MPI_UNSIGNED_CHAR, 1}, {MPI_C_BOOL, 1}, {MPI_WCHAR, 4},
    };
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++) {
        OK(MPI_Type_size(known[i].type, &bytes));
        CHECK(bytes == known[i].size);
    }
    OK(MPI_Type_vector(3, 1, 4, MPI_INT, &vector));
    OK(MPI_Type_create_resized(vector, 0, 4, &resized));
    OK(MPI_Type_commit(&resized));
    OK(MPI_Type_get_extent(resized, &lb, &extent));
    CHECK(lb == 0 && extent == 4);
    OK(MPI_Type_size(resized, &bytes));
    CHECK(bytes == 12);
    for (int i = 0; i < 3; i++)
        matrix[i][2] = 50 + i;
    OK(MPI_Sendrecv(&matrix[0][2], 1, resized, rank, 0, column, 3, MPI_INT, rank, 0,
                    MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(column[0] == 50 && column[1] == 51 && column[2] == 52);
    OK(MPI_Type_free(&vector));
    OK(MPI_Type_free(&resized));
    CHECK(vector == MPI_DATATYPE_NULL && resized == MPI_DATATYPE_NULL);
}

static void communicators(void)
{
    MPI_Comm half, none;
    MPI_Group world, part;
    int result = -1, half_rank, half_size, ranks[2] = {0, MPI_PROC_NULL}, seen[2];
    OK(MPI_Comm_compare(MPI_COMM_WORLD, MPI_COMM_WORLD, &result));
    CHECK(result == MPI_IDENT);
    OK(MPI_Comm_compare(MPI_COMM_WORLD, MPI_COMM_SELF, &result));
    CHECK(result == MPI_UNEQUAL);
    OK(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half));
    OK(MPI_Comm_rank(half, &half_rank));
    OK(MPI_Comm_size(half, &half_size));
    CHECK(half_size == (size + 1 - rank % 2) / 2);
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OK(MPI_Comm_group(half, &part));
    OK(MPI_Group_translate_ranks(part, 2, ranks, world, seen));
    CHECK(seen[0] == (size - 1 - (size - 1 - rank) % 2)); /* the last of this rank's half */
    CHECK(seen[1] == MPI_PROC_NULL);
    ranks[0] = 1 - rank % 2; /* world rank 0 or 1: whichever is not of this half */
    OK(MPI_Group_translate_ranks(world, 1, ranks, part, seen));
    CHECK(seen[0] == MPI_UNDEFINED);
    OK(MPI_Comm_free(&half));
    CHECK(half == MPI_COMM_NULL);
    OK(MPI_Comm_split(MPI_COMM_WORLD, rank ? 0 : MPI_UNDEFINED, 0, &none));
    CHECK((rank == 0) == (none == MPI_COMM_NULL));
    if (rank)
        OK(MPI_Comm_free(&none));
}

int main(int argc, char **argv)
{
    int provided = -1, version = 0, subversion = -1, length = 0;
    char text[MPI_MAX_ERROR_STRING] = "";
    void *memory = 0;
    if (argc > 1 && !strcmp(argv[1], "threads")) {
        OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
        CHECK(provided >= MPI_THREAD_SINGLE && provided <= MPI_THREAD_MULTIPLE);
    } else {
        OK(MPI_Init(&argc, &argv));
    }
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    CHECK(size > 1);
    if (argc > 1 && !strcmp(argv[1], "unsupported"))
        MPI_Comm_dup(MPI_COMM_WORLD, &(MPI_Comm){0});
    if (rank == 0 && argc > 1 && !strcmp(argv[1], "wrong-handle"))
        MPI_Bcast(text, 1, (MPI_Datatype)0x12345678, 0, MPI_COMM_WORLD);
    OK(MPI_Get_version(&version, &subversion));
    CHECK(version >= 3);
    OK(MPI_Error_string(MPI_ERR_TRUNCATE, text, &length));
    CHECK(strcasestr(text, "trunc") && length > 0);
    OK(MPI_Alloc_mem(1000, MPI_INFO_NULL, &memory));
    memset(memory, 1, 1000);
    OK(MPI_Free_mem(memory));
    double start = MPI_Wtime();
    CHECK(start >= 0 && MPI_Wtime() >= start);
    point_to_point();
    collectives();
    types();
    communicators();
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0)
        printf("%d checks passed\n", checks);
    OK(MPI_Finalize());
    return 0;
}
