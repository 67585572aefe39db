#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The drawing of the modules is that of src/modules.cmake, the tour follows a
# step through nine files that have what it says, and every file that the tour
# or the glossary names is there.
#   architecture.sh SOURCE_DIR
set -u
cd "$1" || exit 2
bad=0
wrong() {
  echo "$*"
  bad=1
}

awk -f docs/architecture.awk src/modules.cmake | diff - docs/architecture.svg ||
  wrong "docs/architecture.svg is old: docs/architecture.awk says how it is made"

# An item: a number, its file, names that stand in it.
items=$(awk '/^[0-9]+\. `/ { item = 1; printf "\n" } /^$/ { item = 0 }
  item { printf "%s ", $0 }' docs/architecture.md | sed 1d)
[ "$(echo "$items" | wc -l)" -eq 9 ] || wrong "the step has not nine files"
while read -r item; do
  names=$(grep -oE '`[^`]+`' <<<"$item" | tr -d '`')
  file=$(head -n 1 <<<"$names")
  for name in $(tail -n +2 <<<"$names"); do
    [ "$name" = "${name//\//}" ] || continue # another file
    grep -qw -- "$name" "$file" || wrong "$file: no $name"
  done
done <<<"$items"

for path in $(grep -ohE '`[A-Za-z0-9_/.-]+/[A-Za-z0-9_/.-]*`' \
  docs/architecture.md docs/words.md | tr -d '`' | sort -u); do
  [ -e "$path" ] || wrong "docs name $path, which is not there"
done
[ "$(wc -l <docs/words.md)" -le 60 ] || wrong "docs/words.md: 60 lines at most"
exit $bad
