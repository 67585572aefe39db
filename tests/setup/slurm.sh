#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: slurm.sh BUILD SOURCE SECONDS: a Slurm of one node in a directory of
# its own, and requests to end that reach a job of two ranks, whose steps last
# SECONDS, in the ways that Slurm has. Skipped (77) without root or
# `apt install slurm-wlm`.
set -u
build=$1
source=$2
seconds=$3
for tool in munged slurmctld slurmd srun sbatch; do
    command -v $tool >/dev/null || { echo "no $tool"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "not root"; exit 77; }
place=$(mktemp -d)
chmod 755 "$place"
trap 'kill $(cat *.pid) 2>/dev/null; cd /; rm -rf "$place"' EXIT
cd "$place" || exit 1
export OMP_NUM_THREADS=1 SLURM_CONF=$place/slurm.conf

# ---- a node ------------------------------------------------------------------

mkdir state spool
cp /etc/munge/munge.key key
chmod 600 key
munged --force --key-file="$place/key" --socket="$place/munge" \
    --pid-file="$place/munged.pid" --log-file="$place/munged.log" \
    --seed-file="$place/seed" 2>/dev/null || { echo "no munged"; exit 1; }
host=$(hostname -s)
cat >slurm.conf <<CONF
ClusterName=one
SlurmctldHost=$host
AuthType=auth/munge
AuthInfo=socket=$place/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$place/state
SlurmdSpoolDir=$place/spool
SlurmctldPidFile=$place/ctld.pid
SlurmdPidFile=$place/slurmd.pid
SlurmctldLogFile=$place/ctld.log
SlurmdLogFile=$place/slurmd.log
SlurmctldPort=16917
SlurmdPort=16918
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName=$host CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
slurmctld && slurmd || { tail ./*.log; exit 1; }
for _ in $(seq 100); do
    [[ $(sinfo -h -o %t 2>/dev/null) != idle ]] || break
    sleep 0.1
done

# ---- a job -------------------------------------------------------------------

"$build/loong-data" index --tokenizer bytes --append-eod --quiet \
    --suffixes .md --output-prefix text "$source/docs" >/dev/null
slow=
for step in 1 2 3 4; do
    slow="$slow {kind: slow, rank: 1, step: $step, seconds: $seconds},"
done
cat >recipe.yaml <<YAML
model:
  foundation: {family: qwen3, num_layers: 1, hidden_size: 32,
    ffn_hidden_size: 64, num_attention_heads: 2, vocab_size: 257,
    max_position_embeddings: 64}
data: {seq_length: 64, train: [{path: $place/text}]}
train: {micro_batch_size: 1, global_batch_size: 2, train_iters: 5}
optimizer: {lr: 1e-3}
checkpoint: {load: auto, save: save, save_interval: 100}
log: {interval: 1, dir: logs}
device: cpu
fault: [$slow]
YAML
ranks=(srun --mpi=pmix --overcommit -n 2)
rest=("$build/loongrun" ../recipe.yaml)
supervised=("$build/loong-supervise" --log log.jsonl)
failures=0

fail() {
    failures=$((failures + 1))
    echo "FAILED: $name: $*"
    tail -n 8 out err 2>/dev/null
}

begun() { # FILE: the second step has begun
    for _ in $(seq 300); do
        ! grep -q "rank 1, step 1: slow" "$1" 2>/dev/null || return 0
        sleep 0.1
    done
    fail "the second step has not begun"
}

saved() { # that step, in the end
    for _ in $(seq 300); do
        [ -n "$(squeue -h)" ] || break
        sleep 0.1
    done
    [ "$(cd save && echo step_*)" = step_00000001 ] || fail "not saved"
}

# asked CODE REQUEST COMMAND...: what srun, or what stands before it, ends with.
asked() {
    local code=$1 request=$2 got=0
    shift 2
    name="$request | $*"
    mkdir "case$((++cases))" && cd "case$cases" || exit 1
    env --default-signal=INT "$@" >out 2>err &
    job=$!
    begun err
    id=$(squeue -h -o %i)
    eval "$request"
    wait $job || got=$?
    [ $got = "$code" ] || fail "exit $got, not $code"
    saved
    cd ..
}

# The same from a batch script, which cannot wait for what it started.
batch() {
    name="scancel of a script | $*"
    mkdir "case$((++cases))" && cd "case$cases" || exit 1
    printf '#!/bin/bash\n%s\n' "$*" >script
    id=$(sbatch --parsable --overcommit -n 2 -o out script)
    begun out
    scancel "$id"
    saved
    grep -q "exit 75: stopped on request" out || fail "not 75"
    cd ..
}

cases=0
asked 75 'scancel --signal=TERM $id' "${ranks[@]}" "${rest[@]}"
asked 75 'scancel $id' "${ranks[@]}" "${rest[@]}"
asked 75 'scancel --signal=USR2 $id' "${ranks[@]}" "${rest[@]}"
asked 75 'kill -USR2 $job' "${ranks[@]}" "${rest[@]}"
asked 75 'kill -INT $job' "${ranks[@]}" -X "${rest[@]}"
asked 75 'kill -TERM $job' "${supervised[@]}" "${ranks[@]}" "${rest[@]}"
batch "${ranks[@]}" "${rest[@]}"
batch "${supervised[@]}" "${ranks[@]}" "${rest[@]}"
echo "$cases cases, $failures failures"
[ $failures = 0 ]
