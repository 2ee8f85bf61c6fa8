-- Intel MPI VERSION over libfabric (tcp). Written by Spack: do not edit.
whatis("Name: intelmpi-tcp")
whatis("Version: VERSION")
whatis("Description: Intel MPI VERSION over libfabric (tcp)")
whatis("Category: MPI transport")
whatis("Interface: eth1")

help([==[
Intel MPI VERSION over libfabric (tcp)

Interface: eth1
MPI:       EXTERNALS/intelmpi
Spack:     mpi-transport/HASH with intel-oneapi-mpi/HASH

Loading it puts this MPI's compilers (mpicc, mpifort) and launchers into PATH, sets the
variables of this path, and shows the programs that were built with this MPI: module avail.
Start programs with srun. Only one transport is loaded at a time.

Figures: none measured yet (seatrial stack modules --figures trials/<trial>).
]==])

family("mpi")
local tree = myFileName():gsub("/[^/]+/[^/]+$", "")
prepend_path("MODULEPATH", pathJoin(tree, "intel-oneapi-mpi/VERSION-HASH/Core"))
prepend_path("FI_PROVIDER_PATH", "EXTERNALS/intelmpi/mpi/VERSION/libfabric/lib/libfabric", ":")
setenv("I_MPI_ROOT", "EXTERNALS/intelmpi/mpi/VERSION")
prepend_path("LD_LIBRARY_PATH", "EXTERNALS/intelmpi/mpi/VERSION/libfabric/lib:EXTERNALS/intelmpi/mpi/VERSION/lib", ":")
prepend_path("PATH", "EXTERNALS/intelmpi/mpi/VERSION/bin", ":")
setenv("SLURM_MPI_TYPE", "pmi2")
setenv("I_MPI_PMI", "pmi2")
setenv("I_MPI_PMI_LIBRARY", "/usr/lib/x86_64-linux-gnu/libpmi2.so.0")
setenv("I_MPI_OFI_PROVIDER", "tcp")
setenv("I_MPI_FABRICS", "ofi")
setenv("FI_TCP_IFACE", "eth1")
