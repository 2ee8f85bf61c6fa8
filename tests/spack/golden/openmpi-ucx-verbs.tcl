#%Module1.0
## Open MPI VERSION over UCX (ud,self,rc). Written by Spack: do not edit.
module-whatis {Name: openmpi-ucx}
module-whatis {Version: VERSION}
module-whatis {Description: Open MPI VERSION over UCX (ud,self,rc)}
module-whatis {Category: MPI transport}
module-whatis {Interface: eth1, RDMA port mlx5_0:1}

proc ModulesHelp { } {
    puts stderr {Open MPI VERSION over UCX (ud,self,rc)}
    puts stderr {}
    puts stderr {Site:      test}
    puts stderr {Interface: eth1, RDMA port mlx5_0:1}
    puts stderr {In a node: shared memory}
    puts stderr {MPI:       EXTERNALS/HASH}
    puts stderr {Spack:     mpi-transport/HASH with openmpi/HASH}
    puts stderr {}
    puts stderr {Loading it puts this MPI's compilers (mpicc, mpifort) and launchers into PATH and}
    puts stderr {sets the variables of this path. Programs built with this MPI have it in their}
    puts stderr {module's name. Start programs with srun. Only one transport is loaded at a time.}
    puts stderr {}
    puts stderr {Figures: none measured yet (seatrial stack modules --figures trials/<trial>).}
}

# Slurm sets both variables on the nodes of a job. A login node may have no such interface.
if {[module-info mode load]} {
    set made_for {openmpi-ucx is a module of site test, cluster seatrial}
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
    if {[info exists env(SLURMD_NODENAME)] && ![file isdirectory /sys/class/infiniband/mlx5_0/ports/1]} {
        error "$made_for. It sends through RDMA port mlx5_0:1, which node $env(SLURMD_NODENAME) does not have. $advice"
    }
}
conflict openmpi-tcp
conflict openmpi-ofi
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
setenv OMPI_MCA_btl {^openib,uct,usnic,ofi}
setenv OMPI_MCA_pml {ucx}
setenv OMPI_MCA_osc {^ucx}
setenv OMPI_MCA_opal_common_ucx_tls {any}
setenv OMPI_MCA_opal_common_ucx_devices {any}
setenv UCX_TLS {ud,self,rc,sm}
setenv UCX_NET_DEVICES {mlx5_0:1}
setenv OMPI_MCA_btl_tcp_if_include {eth1}
