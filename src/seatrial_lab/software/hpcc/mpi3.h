/* Included before every file of hpcc: HPL calls two functions that MPI-3.0 removed by the names
 * of their successors, which take the same arguments. */
#include <mpi.h>
#undef MPI_Address
#define MPI_Address MPI_Get_address
#undef MPI_Type_struct
#define MPI_Type_struct MPI_Type_create_struct
