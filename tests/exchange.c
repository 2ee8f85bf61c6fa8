/* Each rank exchanges messages with the rank whose number differs by XOR of the first argument.
   With blocks of two ranks on a node, 1 stays within the node and 2 crosses the network. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    int rank, size, length, wrong = 0;
    int distance, bytes, rounds;
    char *mine, *theirs, node[MPI_MAX_PROCESSOR_NAME];

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 4)
        MPI_Abort(MPI_COMM_WORLD, 2);
    distance = atoi(argv[1]), bytes = atoi(argv[2]), rounds = atoi(argv[3]);
    mine = malloc(bytes), theirs = malloc(bytes);
    memset(mine, rank + 1, bytes);
    for (int i = 0; i < rounds; i++)
        MPI_Sendrecv(mine, bytes, MPI_CHAR, rank ^ distance, 0, theirs, bytes, MPI_CHAR,
                     rank ^ distance, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < bytes; i++)
        wrong += theirs[i] != (rank ^ distance) + 1;
    MPI_Get_processor_name(node, &length);
    printf("rank %d of %d on %s: %d wrong\n", rank, size, node, wrong);
    MPI_Finalize();
    return wrong != 0;
}
