#%Module1.0
{% import "modules/words.j2" as words %}
{% from "site.j2" import site, cluster %}
{% set name = words.transport_name(spec) %}
{% set transport = name | trim %}
{% set interface, rdma_port = spec.package.interface, spec.package.rdma_port %}
{% set mpi = spec["mpi"] %}
## {{ words.mpi_title(spec) }} over {{ words.path_title(spec) }}. Written by Spack: do not edit.
module-whatis {Name: {{ name }}}
module-whatis {Version: {{ mpi.version }}}
module-whatis {Description: {{ words.mpi_title(spec) }} over {{ words.path_title(spec) }}}
module-whatis {Category: MPI transport}
module-whatis {Interface: {{ words.interface_title(spec) }}}

proc ModulesHelp { } {
    puts stderr {{ '{' }}{{ words.mpi_title(spec) }} over {{ words.path_title(spec) }}{{ '}' }}
    puts stderr {}
    puts stderr {Site:      {{ site }}}
    puts stderr {Interface: {{ words.interface_title(spec) }}}
    puts stderr {{ '{' }}In a node: {{ spec.package.within_node }}{{ '}' }}
    puts stderr {MPI:       {{ mpi.prefix }}}
    puts stderr {Spack:     mpi-transport/{{ spec.dag_hash(7) }} with {{ mpi.name }}/{{ mpi.dag_hash(7) }}}
    puts stderr {}
    puts stderr {Loading it puts this MPI's compilers (mpicc, mpifort) and launchers into PATH and}
    puts stderr {sets the variables of this path. Programs built with this MPI have it in their}
    puts stderr {module's name. Start programs with srun. Only one transport is loaded at a time.}
    puts stderr {}
{% for line in words.figures(name).splitlines() %}
    puts stderr {{ '{' }}{{ line }}{{ '}' }}
{% endfor %}
}

{% include "modules/site_check.tcl" %}

{% for family in ("openmpi", "mpich", "intelmpi") %}
{% for path in ("tcp", "ucx", "ofi", "sock") %}
{% if family ~ "-" ~ path != name | trim %}
conflict {{ family }}-{{ path }}
{% endif %}
{% endfor %}
{% endfor %}

{% for kind, change in environment_modifications %}
{% if change.name == "MPI_TRANSPORT_ROOT" %}
{# there is nothing in it #}
{% elif kind == "SetEnv" %}
setenv {{ change.name }} {{ '{' }}{{ change.value }}{{ '}' }}
{% elif kind == "PrependPath" %}
prepend-path --delim {{ '{' }}{{ change.separator }}{{ '}' }} {{ change.name }} {{ '{' }}{{ change.value }}{{ '}' }}
{% elif kind in ("AppendPath", "AppendFlagsEnv") %}
append-path --delim {{ '{' }}{{ change.separator }}{{ '}' }} {{ change.name }} {{ '{' }}{{ change.value }}{{ '}' }}
{% elif kind == "UnsetEnv" %}
unsetenv {{ change.name }}
{% elif kind in ("RemovePath", "RemoveFlagsEnv") %}
remove-path --delim {{ '{' }}{{ change.separator }}{{ '}' }} {{ change.name }} {{ '{' }}{{ change.value }}{{ '}' }}
{% endif %}
{% endfor %}
