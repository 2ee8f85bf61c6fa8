#%Module1.0
## Open MPI VERSION over libfabric (tcp). Written by Spack: do not edit.
module-whatis {Name: openmpi-ofi}
module-whatis {Version: VERSION}
module-whatis {Description: Open MPI VERSION over libfabric (tcp)}
module-whatis {Category: MPI transport}
module-whatis {Interface: eth1}

proc ModulesHelp { } {
    puts stderr {Open MPI VERSION over libfabric (tcp)}
    puts stderr {}
    puts stderr {Interface: eth1}
    puts stderr {MPI:       EXTERNALS/HASH}
    puts stderr {Spack:     mpi-transport/HASH with openmpi/HASH}
    puts stderr {}
    puts stderr {Loading it puts this MPI's compilers (mpicc, mpifort) and launchers into PATH and}
    puts stderr {sets the variables of this path. Programs built with this MPI have it in their}
    puts stderr {module's name. Start programs with srun. Only one transport is loaded at a time.}
    puts stderr {}
    puts stderr {Figures: none measured yet (seatrial stack modules --figures trials/<trial>).}
}

conflict openmpi-tcp
conflict openmpi-ucx
conflict openmpi-sock
conflict mpich-tcp
conflict mpich-ucx
conflict mpich-ofi
conflict mpich-sock
conflict intelmpi-tcp
conflict intelmpi-ucx
conflict intelmpi-ofi
conflict intelmpi-sock

prepend-path --delim {:} PATH {EXTERNALS/openmpi/bin}
setenv SLURM_MPI_TYPE {pmix}
setenv OMPI_MCA_pml {cm}
setenv OMPI_MCA_mtl {ofi}
setenv OMPI_MCA_mtl_ofi_provider_include {tcp;ofi_rxm}
setenv OMPI_MCA_io {^romio321}
setenv OMPI_MCA_btl {self}
setenv OMPI_MCA_mpi_yield_when_idle {1}
setenv FI_TCP_IFACE {eth1}
