#%Module1.0
## MPICH VERSION over UCX (tcp,self). Written by Spack: do not edit.
module-whatis {Name: mpich-ucx}
module-whatis {Version: VERSION}
module-whatis {Description: MPICH VERSION over UCX (tcp,self)}
module-whatis {Category: MPI transport}
module-whatis {Interface: eth1}

proc ModulesHelp { } {
    puts stderr {MPICH VERSION over UCX (tcp,self)}
    puts stderr {}
    puts stderr {Interface: eth1}
    puts stderr {MPI:       EXTERNALS/mpich}
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
conflict mpich-ofi
conflict mpich-sock
conflict intelmpi-tcp
conflict intelmpi-ucx
conflict intelmpi-ofi
conflict intelmpi-sock

prepend-path --delim {:} PATH {EXTERNALS/mpich/bin}
setenv SLURM_MPI_TYPE {pmi2}
setenv MPIR_CVAR_CH4_NETMOD {ucx}
setenv UCX_TLS {tcp,self}
setenv MPIR_CVAR_NOLOCAL {1}
setenv UCX_NET_DEVICES {eth1}
