# SPDX-License-Identifier: Apache-2.0
# For tests of commands: a folder of their own, and what they print and how
# they exit. To be sourced; ends with: finish
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0

failed() {
    printf 'FAILED: %s\n' "$*"
    failures=$((failures + 1))
}

# expect CODE TEXT COMMAND...: the exit code, and a text in stdout or stderr
expect() {
    local code=$1 text=$2 output got
    shift 2
    output=$("$@" 2>&1)
    got=$?
    if [ "$got" != "$code" ] || [[ $output != *"$text"* ]]; then
        failed "$(printf '%s\n  exit %s, expected %s\n  expected: %s\n  found: %s' \
            "$*" "$got" "$code" "$text" "$output")"
    fi
}

finish() {
    echo "$failures failures"
    [ "$failures" = 0 ]
}
