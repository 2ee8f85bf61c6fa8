# With the default fence of Slurm's PMIx, a message that comes too early can end a rank in MPI_Init.
# Before Slurm 23.02 direct connections between its servers can fail as well, and "ring" needs them.
# Not for a step on a part of the job's nodes.
case $(scontrol --version) in
*" 2"[0-2].*) export SLURM_PMIX_DIRECT_CONN="${SLURM_PMIX_DIRECT_CONN:-false}" ;;
*) export SLURM_PMIX_FENCE="${SLURM_PMIX_FENCE:-ring}" ;;
esac
