# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts of this directory with BUILD SOURCE MPIRUN: an empty
# directory to work in, a text to train on, and runs on several processes.
set -eu
build=$1
source=$2
mpirun=$3
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
export OMP_NUM_THREADS=1

fail() {
    echo "$1"
    tail -n 30 "$place"/*.out "$place"/*.err
    exit 1
}

# ranks N NAME ARGUMENTS...: loongrun on N ranks, into NAME.out and NAME.err
ranks() {
    local n=$1 name=$2
    shift 2
    timeout -k 5 100 "$mpirun" --oversubscribe -n "$n" "$build/loongrun" "$@" \
        >"$name.out" 2>"$name.err" || fail "exit $?: loongrun $*"
}

"$build/loong-data" index --tokenizer bytes --append-eod --quiet \
    --suffixes .md --output-prefix text "$source/docs" >/dev/null
