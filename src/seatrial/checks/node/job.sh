# Sourced by the job script. Runs one step with a time limit of its own, so that a benchmark
# that hangs loses its own figures only, and notes when it began and ended and how.
#   seatrial_step NAME SECONDS COMMAND...   -> NAME.out NAME.err, a line in steps.tsv
seatrial_step() {
    local name=$1 limit=$2 begin code
    shift 2
    begin=$EPOCHREALTIME
    timeout --kill-after=5 "$limit" "$@" >"$name.out" 2>"$name.err" </dev/null
    code=$?
    printf '%s\t%s\t%s\t%s\t%s\n' "$name" "$begin" "$EPOCHREALTIME" "$code" "$limit" >>steps.tsv
}

# The job's nodes by number, for steps that choose among them: $SEATRIAL_NODE_0 ...
seatrial_number=0
for seatrial_node in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
    declare -x "SEATRIAL_NODE_$seatrial_number=$seatrial_node"
    seatrial_number=$((seatrial_number + 1))
done
