{% import "modules/words.j2" as words %}
{% from "site.j2" import site, cluster %}
{% set name = words.transport_name(spec) %}
{% set transport = name | trim %}
{% set interface, rdma_port = spec.package.interface, spec.package.rdma_port %}
{% set mpi = spec["mpi"] %}
-- {{ words.mpi_title(spec) }} over {{ words.path_title(spec) }}. Written by Spack: do not edit.
whatis("Name: {{ name }}")
whatis("Version: {{ mpi.version }}")
whatis("Description: {{ words.mpi_title(spec) }} over {{ words.path_title(spec) }}")
whatis("Category: MPI transport")
whatis("Interface: {{ words.interface_title(spec) }}")

help([==[
{{ words.mpi_title(spec) }} over {{ words.path_title(spec) }}

Site:      {{ site }}
Interface: {{ words.interface_title(spec) }}
In a node: {{ spec.package.within_node }}
MPI:       {{ mpi.prefix }}
Spack:     mpi-transport/{{ spec.dag_hash(7) }} with {{ mpi.name }}/{{ mpi.dag_hash(7) }}

Loading it puts this MPI's compilers (mpicc, mpifort) and launchers into PATH, sets the
variables of this path, and shows the programs that were built with this MPI: module avail.
Start programs with srun. Only one transport is loaded at a time.

{{ words.figures(name) }}
]==])

{% include "modules/site_check.lua" %}

family("mpi")
local tree = myFileName():gsub("/[^/]+/[^/]+$", "")
prepend_path("MODULEPATH", pathJoin(tree, "{{ mpi.name }}/{{ mpi.version }}-{{ mpi.dag_hash(7) }}/Core"))
{% for kind, change in environment_modifications %}
{% if change.name == "MPI_TRANSPORT_ROOT" %}
{# there is nothing in it #}
{% elif kind == "SetEnv" %}
setenv("{{ change.name }}", "{{ change.value }}")
{% elif kind == "PrependPath" %}
prepend_path("{{ change.name }}", "{{ change.value }}", "{{ change.separator }}")
{% elif kind in ("AppendPath", "AppendFlagsEnv") %}
append_path("{{ change.name }}", "{{ change.value }}", "{{ change.separator }}")
{% elif kind == "UnsetEnv" %}
unsetenv("{{ change.name }}")
{% elif kind in ("RemovePath", "RemoveFlagsEnv") %}
remove_path("{{ change.name }}", "{{ change.value }}", "{{ change.separator }}")
{% endif %}
{% endfor %}
