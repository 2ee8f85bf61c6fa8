# Sourced by the job script. seatrial_step runs one step with its own time limit, so that a benchmark
# that hangs loses only its own figures, and records its begin, its end and its exit code.
#   seatrial_step NAME SECONDS COMMAND...   -> NAME.out NAME.err, a line in steps.tsv
seatrial_step() {
    local name=$1 limit=$2 begin code
    shift 2
    begin=$EPOCHREALTIME
    timeout --kill-after=5 "$limit" "$@" >"$name.out" 2>"$name.err" </dev/null
    code=$?
    printf '%s\t%s\t%s\t%s\t%s\n' "$name" "$begin" "$EPOCHREALTIME" "$code" "$limit" >>steps.tsv
}

# A step that goes on when a node fails. srun waits for the dead node, so it is ended when the program
# has written NAME.end and had time to finish on the other nodes.
seatrial_lossy_step() {
    local name=$1 limit=$2 begin code pid left=30
    shift 2
    begin=$EPOCHREALTIME
    timeout --kill-after=40 "$limit" "$@" >"$name.out" 2>"$name.err" </dev/null &
    pid=$!
    while kill -0 "$pid" 2>/dev/null; do
        sleep 0.5
        if [ -e "$name.end" ]; then
            left=$((left - 1))
            [ "$left" -ne 0 ] || kill "$pid" 2>/dev/null
        fi
    done
    wait "$pid"
    code=$?
    printf '%s\t%s\t%s\t%s\t%s\n' "$name" "$begin" "$EPOCHREALTIME" "$code" "$limit" >>steps.tsv
}

# The names of the job's nodes by number, for steps on selected nodes: $SEATRIAL_NODE_0 ..., and one
# a line in job_nodes.txt.
seatrial_number=0
for seatrial_node in $(scontrol show hostnames "$SLURM_JOB_NODELIST" | tee job_nodes.txt); do
    declare -x "SEATRIAL_NODE_$seatrial_number=$seatrial_node"
    seatrial_number=$((seatrial_number + 1))
done
