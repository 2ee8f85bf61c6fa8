/* Patterns of communication whose time is predicted and then measured: PATTERN BYTES ROUNDS.
 *
 * alltoall   MPI_Alltoall of BYTES to each rank
 * allreduce  MPI_Allreduce of BYTES of doubles
 * halo       on a periodic grid of two dimensions each rank exchanges BYTES with its four neighbours
 * sweep      from one corner of a grid to the opposite one and back: each rank waits for BYTES from
 *            two neighbours and then sends as many to the other two
 *
 * One round is not timed. Rank 0 prints "PATTERN RANKS BYTES ROUNDS SECONDS", the time of the slowest
 * rank. Nothing is computed, so the time is that of the messages. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NEIGHBOURS = 4 };

static int ranks, bytes;
static int neighbours[NEIGHBOURS]; /* above, below, left, right */
static char *out, *in;

static void grid(int periodic)
{
    int sides[2] = {0, 0}, around[2] = {periodic, periodic};
    MPI_Comm flat;

    MPI_Dims_create(ranks, 2, sides);
    MPI_Cart_create(MPI_COMM_WORLD, 2, sides, around, 0, &flat);
    MPI_Cart_shift(flat, 0, 1, &neighbours[0], &neighbours[1]);
    MPI_Cart_shift(flat, 1, 1, &neighbours[2], &neighbours[3]);
}

static void alltoall(void)
{
    MPI_Alltoall(out, bytes, MPI_CHAR, in, bytes, MPI_CHAR, MPI_COMM_WORLD);
}

static void allreduce(void)
{
    int count = bytes / (int)sizeof(double);

    MPI_Allreduce(out, in, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void halo(void)
{
    MPI_Request requests[2 * NEIGHBOURS];

    for (int i = 0; i < NEIGHBOURS; i++)
        MPI_Irecv(in + (size_t)i * bytes, bytes, MPI_CHAR, neighbours[i], i, MPI_COMM_WORLD,
                  &requests[i]);
    for (int i = 0; i < NEIGHBOURS; i++) /* my lower neighbour knows me as the upper one */
        MPI_Isend(out + (size_t)i * bytes, bytes, MPI_CHAR, neighbours[i], i ^ 1, MPI_COMM_WORLD,
                  &requests[NEIGHBOURS + i]);
    MPI_Waitall(2 * NEIGHBOURS, requests, MPI_STATUSES_IGNORE);
}

static void sweep(void)
{
    for (int way = 0; way < 2; way++) {
        for (int side = 0; side < NEIGHBOURS; side += 2)
            MPI_Recv(in, bytes, MPI_CHAR, neighbours[side + way], way, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        for (int side = 0; side < NEIGHBOURS; side += 2)
            MPI_Send(out, bytes, MPI_CHAR, neighbours[side + 1 - way], way, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*round)(void);
    } patterns[] = {
        {"alltoall", alltoall}, {"allreduce", allreduce}, {"halo", halo}, {"sweep", sweep}};
    int rank, rounds = 0, which = 0, count = sizeof patterns / sizeof *patterns;
    double start, own, slowest;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 4 || (bytes = atoi(argv[2])) < (int)sizeof(double) || (rounds = atoi(argv[3])) < 1)
        MPI_Abort(MPI_COMM_WORLD, 2);
    while (which < count && strcmp(patterns[which].name, argv[1]))
        which++;
    if (which == count)
        MPI_Abort(MPI_COMM_WORLD, 2);
    out = calloc(ranks + NEIGHBOURS, bytes);
    in = calloc(ranks + NEIGHBOURS, bytes);
    if (!out || !in)
        MPI_Abort(MPI_COMM_WORLD, 3);
    grid(patterns[which].round == halo);
    patterns[which].round();
    MPI_Barrier(MPI_COMM_WORLD);
    start = MPI_Wtime();
    for (int i = 0; i < rounds; i++)
        patterns[which].round();
    own = MPI_Wtime() - start;
    MPI_Reduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%s %d %d %d %.6f\n", argv[1], ranks, bytes, rounds, slowest);
    MPI_Finalize();
    return 0;
}
