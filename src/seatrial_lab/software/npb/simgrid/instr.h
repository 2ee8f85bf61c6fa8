/* Stands in for SimGrid's header of this name; see smpi/mpi.h. */
