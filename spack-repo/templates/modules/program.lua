{% extends "modules/modulefile.lua" %}
{% block header %}
-- Written by Spack: do not edit.
whatis("Name: {{ spec.name }}")
whatis("Version: {{ spec.version }}")
{% if short_description %}
whatis([==[Description: {{ short_description }}]==])
{% endif %}
whatis("Category: network benchmark")
whatis("URL: {{ spec.package.homepage }}")

help([==[
{{ spec.name }} {{ spec.version }}, built for {{ spec.target }}{% if "mpi" in spec %} with {{ spec["mpi"].name }} {{ spec["mpi"].version }}{% endif %}{% if "blas" in spec %} and {{ spec["blas"].name }} {{ spec["blas"].version }}{% endif %}

Prefix: {{ spec.prefix }}
Spack:  {{ spec.name }}/{{ spec.dag_hash(7) }}
{% if long_description %}

{{ long_description | textwrap(72) | join() }}
{% endif %}
]==])
{% endblock %}
