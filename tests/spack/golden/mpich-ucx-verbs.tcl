#%Module1.0
## MPICH VERSION over UCX (ud,self,rc). Written by Spack: do not edit.
module-whatis {Name: mpich-ucx}
module-whatis {Version: VERSION}
module-whatis {Description: MPICH VERSION over UCX (ud,self,rc)}
module-whatis {Category: MPI transport}
module-whatis {Interface: eth1, RDMA port that UCX chooses}

proc ModulesHelp { } {
    puts stderr {MPICH VERSION over UCX (ud,self,rc)}
    puts stderr {}
    puts stderr {Site:      test}
    puts stderr {Interface: eth1, RDMA port that UCX chooses}
    puts stderr {In a node: shared memory}
    puts stderr {MPI:       EXTERNALS/mpich}
    puts stderr {Spack:     mpi-transport/HASH with mpich/HASH}
    puts stderr {}
    puts stderr {Loading it puts this MPI's compilers (mpicc, mpifort) and launchers into PATH and}
    puts stderr {sets the variables of this path. Programs built with this MPI have it in their}
    puts stderr {module's name. Start programs with srun. Only one transport is loaded at a time.}
    puts stderr {}
    puts stderr {Figures: none measured yet (seatrial stack modules --figures trials/<trial>).}
}

# Slurm sets both variables on the nodes of a job. A login node may have no such interface.
if {[module-info mode load]} {
    set made_for {mpich-ucx is a module of site test, cluster seatrial}
    set advice {Use the modules of this cluster: module avail, and module unuse for the folder of test.}
    if {[info exists env(SLURM_CLUSTER_NAME)]} {
        if {[string tolower $env(SLURM_CLUSTER_NAME)] ne "seatrial"} {
            error "$made_for, and this job runs on cluster $env(SLURM_CLUSTER_NAME). $advice"
        }
    } else {
        set conf /etc/slurm/slurm.conf
        if {[info exists env(SLURM_CONF)]} { set conf $env(SLURM_CONF) }
        set text {}
        if {[file readable $conf]} {
            set file [open $conf]
            set text [string tolower [read $file]]
            close $file
        }
        if {[regexp -line {^\s*clustername\s*=\s*"?([^\s"#]+)} $text line other]
            && $other ne "seatrial"} {
            puts stderr "Warning: $made_for, and this host is of cluster $other. $advice"
        }
    }
    if {[info exists env(SLURMD_NODENAME)] && ![file isdirectory /sys/class/net/eth1]} {
        error "$made_for. It sends through interface eth1, which node $env(SLURMD_NODENAME) does not have. $advice"
    }
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
setenv UCX_TLS {ud,self,rc,sm}
