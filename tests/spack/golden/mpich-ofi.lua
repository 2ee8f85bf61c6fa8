-- MPICH VERSION over libfabric (tcp). Written by Spack: do not edit.
whatis("Name: mpich-ofi")
whatis("Version: VERSION")
whatis("Description: MPICH VERSION over libfabric (tcp)")
whatis("Category: MPI transport")
whatis("Interface: eth1")

help([==[
MPICH VERSION over libfabric (tcp)

Interface: eth1
MPI:       EXTERNALS/mpich-pypi
Spack:     mpi-transport/HASH with mpich/HASH

Loading it puts this MPI's compilers (mpicc, mpifort) and launchers into PATH, sets the
variables of this path, and shows the programs that were built with this MPI: module avail.
Start programs with srun. Only one transport is loaded at a time.

Figures: none measured yet (seatrial stack modules --figures trials/<trial>).
]==])

family("mpi")
local tree = myFileName():gsub("/[^/]+/[^/]+$", "")
prepend_path("MODULEPATH", pathJoin(tree, "mpich/VERSION-HASH/Core"))
prepend_path("PATH", "EXTERNALS/mpich-pypi/bin", ":")
setenv("SLURM_MPI_TYPE", "pmi2")
setenv("MPIR_CVAR_CH4_NETMOD", "ofi")
setenv("FI_PROVIDER", "tcp")
setenv("MPIR_CVAR_NOLOCAL", "1")
setenv("FI_TCP_IFACE", "eth1")
