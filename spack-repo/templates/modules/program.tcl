{% extends "modules/modulefile.tcl" %}
{% block header %}
module-whatis {Name: {{ spec.name }}}
module-whatis {Version: {{ spec.version }}}
{% if short_description %}
module-whatis {{ '{' }}Description: {{ short_description }}{{ '}' }}
{% endif %}
module-whatis {Category: network benchmark}

proc ModulesHelp { } {
    puts stderr {{ '{' }}{{ spec.name }} {{ spec.version }}, built for {{ spec.target }}{% if "mpi" in spec %} with {{ spec["mpi"].name }} {{ spec["mpi"].version }}{% endif %}{% if "blas" in spec %} and {{ spec["blas"].name }} {{ spec["blas"].version }}{% endif %}{{ '}' }}
    puts stderr {}
    puts stderr {Prefix: {{ spec.prefix }}}
    puts stderr {Spack:  {{ spec.name }}/{{ spec.dag_hash(7) }}}
{% if long_description %}
    puts stderr {}
{{ long_description| textwrap(72)| curly_quote()| prepend_to_line('    puts stderr ')| join() }}
{% endif %}
}
{% endblock %}
