#!/bin/bash
# test.sh [--only core] 22.05|24.11|26.05|all: every test on one release of Slurm, or on all three.
#
# First the lab tests in one container of the release, then tests/docker on a cluster of it. With --only core
# it is the part that CI runs. Where all of it ran on all three, docs/compatibility.md is written anew.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
top=$(dirname "$here")
python=$top/.venv/bin/python
# bash would go on to the next release: what it waited for has ended by itself, with a code of its own.
trap 'exit 130' INT
trap 'exit 143' TERM
only=
[ "${1:-}" != --only ] || { only=${2:-}; shift $(($# < 2 ? $# : 2)); }
[ $# -eq 1 ] || { sed -n 's/^# \{0,1\}//;2,5p' "$0" >&2; exit 2; }
releases=("$1")
[ "$1" != all ] || releases=(22.05 24.11 26.05)
# Before images are built: minutes later pytest would find no test.
markers() {
  sed -n '/^markers = \[/,/^\]/s/^ *"\([a-z]*\).*/\1/p' "$top/pyproject.toml" | while read -r marker; do
    ! grep -qrw --include='*.py' "pytest\.mark\.$marker" "$top/tests/docker" || echo "$marker"
  done
}
accepted=$(markers | paste -sd " ")
# A word of that list. (A grep that ends at its match would end markers too, and that is a failure to pipefail.)
[ -z "$only" ] || [[ $only != *" "* && " $accepted " == *" $only "* ]] || {
  echo "test: ONLY='$only' is no marker of tests/docker; accepted: $accepted" >&2
  exit 2
}

results=$top/build/docker/results
mkdir -p "$results"
failed=()
for release in "${releases[@]}"; do
  begin=$SECONDS
  echo "=== Slurm $release" >&2
  rm -f "$results/$release".*
  "$here/cluster.sh" image "$release"
  images=$((SECONDS - begin))
  if [ -z "$only" ]; then
    "$here/suite.sh" "$release" | tee "$results/$release.lab.log" || failed+=("$release: lab tests")
  fi
  (cd "$top" && "$python" -m pytest tests/docker --slurm="$release" ${only:+-m "$only"}) || failed+=("$release: tests/docker")
  echo "=== Slurm $release took $((SECONDS - begin)) s, $images s of it for the image" >&2
done
# The page says what was found, whether it is good or not.
[ -n "$only" ] || [ ${#releases[@]} -ne 3 ] || "$python" "$top/tests/docker/compatibility.py"
[ ${#failed[@]} -eq 0 ] || { printf 'test-docker: failed on %s\n' "${failed[@]}" >&2; exit 1; }
