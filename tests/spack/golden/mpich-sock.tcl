#%Module1.0
## MPICH VERSION over ch3:sock. Written by Spack: do not edit.
module-whatis {Name: mpich-sock}
module-whatis {Version: VERSION}
module-whatis {Description: MPICH VERSION over ch3:sock}
module-whatis {Category: MPI transport}
module-whatis {Interface: eth1}

proc ModulesHelp { } {
    puts stderr {MPICH VERSION over ch3:sock}
    puts stderr {}
    puts stderr {Interface: eth1}
    puts stderr {MPI:       HOME/externals/mpich-sock}
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
conflict mpich-ofi
conflict intelmpi-tcp
conflict intelmpi-ucx
conflict intelmpi-ofi
conflict intelmpi-sock

prepend-path --delim {:} PATH {HOME/externals/mpich-sock/bin}
setenv SLURM_MPI_TYPE {pmi2}
setenv MPIR_CVAR_NOLOCAL {1}
setenv MPI_TRANSPORT_INTERFACE {eth1}
setenv SLURM_TASK_PROLOG {HOME/opt/TARGET/mpi-transport-VERSION-mpich-VERSION-HASH/libexec/sock-address}
