#!/bin/bash
# suite.sh RELEASE [PYTEST ARGS…]: the tests in tests/lab, which start labs of their own, in one container of
# the image that `cluster.sh image RELEASE` builds: 22.05, 24.11 or 26.05. Exits as pytest does.
#
# The checkout is copied in as it is, without what git ignores: its .venv and runs stay out. Paths among the
# arguments are relative to it: suite.sh 24.11 tests/lab/test_ending.py -k grace
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
[ $# -ge 1 ] || { sed -n 's/^# \{0,1\}//;2,6p' "$0" >&2; exit 2; }
release=$1
shift
image=slurmkit/cluster:$release
container=slurmkit-suite-${release/./}-$$

docker image inspect "$image" >/dev/null || {
  echo "suite: build the image first: docker/cluster.sh image $release" >&2
  exit 1
}

git -C "$top" rev-parse --git-dir >/dev/null || { echo "suite: $top is no git checkout of yours" >&2; exit 1; }

files() {
  # A file that was removed and is still in the index is none.
  git -C "$top" ls-files -z --cached --others --exclude-standard |
    while IFS= read -r -d '' path; do [ ! -e "$top/$path" ] || printf '%s\0' "$path"; done
}

# In the container: everything that a test finds outside of pytest's own folder comes from the copy, also
# what jobs import. No test reads our stdin.
inside='
set -euo pipefail
mkdir /src && cd /src && tar --extract --no-same-owner
pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --no-build-isolation --editable . >&2
exec python -m pytest "$@" </dev/null
'
words=("$@") paths=no
for word in "$@"; do [[ $word != tests/* ]] || paths=yes; done
[ $paths = yes ] || words=(tests/lab "$@")

# Mounts are what some tests make (a full disk is a small tmpfs), and torch shares memory through /dev/shm.
end() { docker rm --force "$container" >/dev/null 2>&1 || true; }
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
files | tar --create --directory "$top" --null --files-from=- |
  docker run --rm --interactive --init --name "$container" --env CI=1 --shm-size 1g \
    --cap-add SYS_ADMIN --security-opt apparmor=unconfined \
    --entrypoint bash "$image" -c "$inside" suite "${words[@]}" &
wait $!
