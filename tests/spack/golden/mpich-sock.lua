-- MPICH VERSION over ch3:sock. Written by Spack: do not edit.
whatis("Name: mpich-sock")
whatis("Version: VERSION")
whatis("Description: MPICH VERSION over ch3:sock")
whatis("Category: MPI transport")
whatis("Interface: eth1")

help([==[
MPICH VERSION over ch3:sock

Interface: eth1
MPI:       HOME/externals/mpich-sock
Spack:     mpi-transport/HASH with mpich/HASH

Loading it puts this MPI's compilers (mpicc, mpifort) and launchers into PATH, sets the
variables of this path, and shows the programs that were built with this MPI: module avail.
Start programs with srun. Only one transport is loaded at a time.

Figures: none measured yet (seatrial stack modules --figures trials/<trial>).
]==])

family("mpi")
local tree = myFileName():gsub("/[^/]+/[^/]+$", "")
prepend_path("MODULEPATH", pathJoin(tree, "mpich/VERSION-HASH/Core"))
prepend_path("PATH", "HOME/externals/mpich-sock/bin", ":")
setenv("SLURM_MPI_TYPE", "pmi2")
setenv("MPIR_CVAR_NOLOCAL", "1")
setenv("MPI_TRANSPORT_INTERFACE", "eth1")
setenv("SLURM_TASK_PROLOG", "HOME/opt/TARGET/mpi-transport-VERSION-mpich-VERSION-HASH/libexec/sock-address")
