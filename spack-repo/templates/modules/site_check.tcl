{#- site_check.lua in Tcl. -#}
# Slurm sets both variables on the nodes of a job. A login node may have no such interface.
if {[module-info mode load]} {
    set made_for {{ '{' }}{{ transport }} is a module of site {{ site }}{% if cluster %}, cluster {{ cluster }}{% endif %}{{ '}' }}
    set advice {Use the modules of this cluster: module avail, and module unuse for the folder of {{ site }}.}
{% if cluster %}
    if {[info exists env(SLURM_CLUSTER_NAME)]} {
        if {[string tolower $env(SLURM_CLUSTER_NAME)] ne "{{ cluster | lower }}"} {
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
            && $other ne "{{ cluster | lower }}"} {
            puts stderr "Warning: $made_for, and this host is of cluster $other. $advice"
        }
    }
{% endif %}
{% if interface %}
    if {[info exists env(SLURMD_NODENAME)] && ![file isdirectory /sys/class/net/{{ interface }}]} {
        error "$made_for. It sends through interface {{ interface }}, which node $env(SLURMD_NODENAME) does not have. $advice"
    }
{% endif %}
{% if rdma_port %}
    if {[info exists env(SLURMD_NODENAME)] && ![file isdirectory /sys/class/infiniband/{{ rdma_port.split(":")[0] }}/ports/{{ rdma_port.split(":")[1] }}]} {
        error "$made_for. It sends through RDMA port {{ rdma_port }}, which node $env(SLURMD_NODENAME) does not have. $advice"
    }
{% endif %}
}
