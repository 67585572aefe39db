# SPDX-License-Identifier: Apache-2.0
# For tests of commands that stop at the first failure: a folder of their own,
# in which the last command has left out and err. To be sourced.
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place" || exit 1
export OMP_NUM_THREADS=1

fail() {
    printf 'FAILED: %s\n' "$*"
    tail -n 30 "$place"/out "$place"/err*
    exit 1
}
