/* Two ranks exchange messages: so many bytes, so many rounds. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    int rank, size, other, bytes, rounds, length, wrong = 0;
    char *mine, *theirs, node[MPI_MAX_PROCESSOR_NAME];

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    fprintf(stderr, "rank %d connected\n", rank);
    if (argc != 3 || size != 2)
        MPI_Abort(MPI_COMM_WORLD, 2);
    other = 1 - rank, bytes = atoi(argv[1]), rounds = atoi(argv[2]);
    mine = malloc(bytes), theirs = malloc(bytes);
    memset(mine, rank + 1, bytes);
    for (int i = 0; i < rounds; i++)
        MPI_Sendrecv(mine, bytes, MPI_CHAR, other, 0, theirs, bytes, MPI_CHAR, other, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < bytes; i++)
        wrong += theirs[i] != other + 1;
    MPI_Get_processor_name(node, &length);
    printf("rank %d of %d on %s: %d wrong\n", rank, size, node, wrong);
    MPI_Finalize();
    return wrong != 0;
}
