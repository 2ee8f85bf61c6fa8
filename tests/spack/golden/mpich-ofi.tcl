#%Module1.0
## MPICH VERSION over libfabric (tcp). Written by Spack: do not edit.
module-whatis {Name: mpich-ofi}
module-whatis {Version: VERSION}
module-whatis {Description: MPICH VERSION over libfabric (tcp)}
module-whatis {Category: MPI transport}
module-whatis {Interface: eth1}

proc ModulesHelp { } {
    puts stderr {MPICH VERSION over libfabric (tcp)}
    puts stderr {}
    puts stderr {Interface: eth1}
    puts stderr {MPI:       EXTERNALS/mpich-pypi}
    puts stderr {Spack:     mpi-transport/HASH with mpich/HASH}
    puts stderr {}
    puts stderr {Loading it puts this MPI's compilers (mpicc, mpifort) and launchers into PATH and}
    puts stderr {sets the variables of this path. Programs built with this MPI have it in their}
    puts stderr {module's name. Start programs with srun. Only one transport is loaded at a time.}
    puts stderr {}
    puts stderr {Figures: none measured yet (seatrial stack modules --figures trials/<trial>).}
}

conflict openmpi-tcp
conflict openmpi-ucx
conflict openmpi-ofi
conflict openmpi-sock
conflict mpich-tcp
conflict mpich-ucx
conflict mpich-sock
conflict intelmpi-tcp
conflict intelmpi-ucx
conflict intelmpi-ofi
conflict intelmpi-sock

prepend-path --delim {:} PATH {EXTERNALS/mpich-pypi/bin}
setenv SLURM_MPI_TYPE {pmi2}
setenv MPIR_CVAR_CH4_NETMOD {ofi}
setenv FI_PROVIDER {tcp}
setenv MPIR_CVAR_NOLOCAL {1}
setenv FI_TCP_IFACE {eth1}
