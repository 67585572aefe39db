#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: two_machines.sh BUILD SOURCE MPIRUN: two ranks on two machines, which
# are namespaces of this one (network, host name, shared memory). One is
# stopped or hangs: its own parent tells, though it does not see who waits. The
# link is cut: each rank names the other, which does not answer any more, its
# machine and the collective. One is late for longer than that: it is waited for. All end with exit code 4 within 30 s. Needs root.
set -u
build=$1
source=$2
mpirun=$3
if [ -z "${TWO_MACHINES:-}" ]; then
    exec env TWO_MACHINES=1 unshare -mnu "$0" "$@"
fi
place=$(mktemp -d)
far=
job=
# Whatever runs on the other machine: nothing else is in its network.
clear_up() {
    local process net
    net=$(readlink "/proc/$far/ns/net")
    for process in /proc/[0-9]*; do
        [ "$(readlink "$process/ns/net")" != "$net" ] ||
            kill -9 "${process#/proc/}"
    done 2>/dev/null
    [ -z "$job" ] || kill -9 $job 2>/dev/null
    rm -rf "$place"
}
trap clear_up EXIT
cd "$place" || exit 1
export OMP_NUM_THREADS=1 TMPDIR=$place

fail() {
    echo "FAILED: $1"
    tail -n 40 "$place"/out "$place"/err 2>/dev/null
    exit 1
}

# ---- two machines -----------------------------------------------------------
far_side() { nsenter -t $far -m -n -u -- "$@"; }
unshare -mnu sleep 1000 &
far=$!
for _ in $(seq 100); do
    [ "$(readlink /proc/$far/ns/net)" = "$(readlink /proc/self/ns/net)" ] ||
        break
    sleep 0.05
done
hostname near && mount -t tmpfs tmpfs /dev/shm || fail "a machine"
far_side sh -c 'hostname far && mount -t tmpfs tmpfs /dev/shm' ||
    fail "another machine"
ip link add wire type veth peer name eriw &&
    ip link set eriw netns $far &&
    ip address add 10.231.0.1/24 dev wire && ip link set wire up &&
    ip link set lo up &&
    far_side ip address add 10.231.0.2/24 dev eriw &&
    far_side ip link set eriw up && far_side ip link set lo up ||
    fail "a link"
# How mpirun reaches the other one.
cat >agent <<SH
#!/bin/bash
shift
exec nsenter -t $far -m -n -u -- bash -c "cd $place; \$*"
SH
chmod +x agent

# ---- a job on both ----------------------------------------------------------
"$build/loong-data" index --tokenizer bytes --append-eod --quiet \
    --suffixes .md --output-prefix text "$source/docs" >/dev/null
cat >recipe.yaml <<'YAML'
device: cpu
model:
  foundation: {family: qwen3, num_layers: 1, hidden_size: 32,
    ffn_hidden_size: 64, num_attention_heads: 2, vocab_size: 257,
    max_position_embeddings: 64}
data: {seq_length: 64, train: [{path: text}]}
train: {micro_batch_size: 2, global_batch_size: 4, train_iters: 1000000}
optimizer: {lr: 1e-3}
log: {interval: 5}
YAML
net=10.231.0.0/24
# start ARGUMENTS...: until its tenth step; exit codes and errors by rank
start() {
    rm -f code.? err.?
    "$mpirun" --host 10.231.0.1,10.231.0.2 -n 2 --map-by node \
        --mca plm_rsh_agent "$place/agent" --mca btl tcp,self \
        --mca btl_tcp_if_include $net --mca oob_tcp_if_include $net \
        -x OMP_NUM_THREADS -wdir "$place" \
        bash -c "'$build/loongrun' recipe.yaml $* \
            2>err.\$OMPI_COMM_WORLD_RANK
        code=\$?
        echo \$code >code.\$OMPI_COMM_WORLD_RANK
        exit \$code" >out 2>err &
    job=$!
    for _ in $(seq 600); do
        ! grep -q '^step 10/' out || break
        sleep 0.1
    done
    grep -q '^step 10/' out || fail "$*: no steps"
    began=$SECONDS
}

# mpirun ends with 4 within SECONDS
finish() {
    local code=0
    for _ in $(seq $((10 * $1))); do
        kill -0 $job 2>/dev/null || break
        sleep 0.1
    done
    ! kill -0 $job 2>/dev/null || fail "mpirun does not end"
    wait $job || code=$?
    job=
    [ $code = 4 ] || fail "mpirun: exit $code, not 4"
}

for kind in stop hang; do
    start "'fault=[{kind: $kind, rank: 1, step: 10}]'"
    finish 30
    grep -E "^loongrun: lost: rank 1 (hangs|is stopped)|^lost: rank 1" err.1 |
        cut -c 1-140 | head -n 1
    grep -qF "ranks on other machines may wait for it and it has done nothing" \
        err.1 || fail "$kind: nothing in $(cat err.1)"
    echo "$kind: ended after $((SECONDS - began)) s"
done

start comm.heartbeat_timeout=8s \
    "'fault=[{kind: slow, rank: 1, step: 6, seconds: 12}]'"
ip link set wire down
for _ in $(seq 300); do
    [ ! -e code.0 ] || [ ! -e code.1 ] || break
    sleep 0.1
done
took=$((SECONDS - began))
for rank in 0 1; do
    [ "$(cat code.$rank 2>/dev/null)" = 4 ] ||
        fail "rank $rank: exit $(cat code.$rank err.$rank)"
    other=$([ $rank = 0 ] && echo far || echo near)
    for text in "1 of 2 ranks did not come in " "(limit 300.0 s): rank" \
        "rank $((1 - rank)) (on $other, which has not answered for 8." \
        "what the ranks of this machine did last:" "  rank $rank (pid "; do
        grep -qF -- "$text" err.$rank ||
            fail "rank $rank: no \"$text\" in $(cat err.$rank)"
    done
    grep -oE '[a-z_]+ #[0-9]+ .* did not come in [0-9.]+ s' err.$rank |
        head -n 1
done
# mpirun's own word has to reach the other machine.
ip link set wire up
finish 60
echo "link cut: both ranks named the other and ended with 4 after $took s"
