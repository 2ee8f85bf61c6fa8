-- Open MPI VERSION over libfabric (tcp). Written by Spack: do not edit.
whatis("Name: openmpi-ofi")
whatis("Version: VERSION")
whatis("Description: Open MPI VERSION over libfabric (tcp)")
whatis("Category: MPI transport")
whatis("Interface: eth1")

help([==[
Open MPI VERSION over libfabric (tcp)

Interface: eth1
MPI:       EXTERNALS/HASH
Spack:     mpi-transport/HASH with openmpi/HASH

Loading it puts this MPI's compilers (mpicc, mpifort) and launchers into PATH, sets the
variables of this path, and shows the programs that were built with this MPI: module avail.
Start programs with srun. Only one transport is loaded at a time.

Figures: none measured yet (seatrial stack modules --figures trials/<trial>).
]==])

family("mpi")
local tree = myFileName():gsub("/[^/]+/[^/]+$", "")
prepend_path("MODULEPATH", pathJoin(tree, "openmpi/VERSION-HASH/Core"))
prepend_path("PATH", "EXTERNALS/openmpi/bin", ":")
setenv("SLURM_MPI_TYPE", "pmix")
setenv("OMPI_MCA_pml", "cm")
setenv("OMPI_MCA_mtl", "ofi")
setenv("OMPI_MCA_mtl_ofi_provider_include", "tcp;ofi_rxm")
setenv("OMPI_MCA_io", "^romio321")
setenv("OMPI_MCA_btl", "self")
setenv("OMPI_MCA_mpi_yield_when_idle", "1")
setenv("FI_TCP_IFACE", "eth1")
