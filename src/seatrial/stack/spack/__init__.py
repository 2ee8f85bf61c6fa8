"""The stack by Spack: a site's environment concretized, built, and described for the trials.

Holds what the recipes (``spack-repo``) and the environments (``site-configs/*/spack``) need of
this machine: Spack itself, the concretizer, external MPI libraries. What is built is said in
those files, not here.
"""
