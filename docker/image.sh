#!/bin/bash
# image.sh RELEASE: build the image slurmkit/cluster:RELEASE that every host of a cluster is, 22.05, 24.11 or 26.05.
#
# Needs Docker, .venv and PyPI, and debootstrap where no base image can be pulled.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
top=$(dirname "$here")
[ $# -eq 1 ] || { sed -n 's/^# \{0,1\}//;2,4p' "$0" >&2; exit 2; }
release=$1

# What each release is made of: the suite of Debian that has it, and the Python there.
case $release in
  22.05) suite=bookworm python=3.11 ;;
  24.11) suite=trixie python=3.13 ;;
  26.05) suite=forky python=3.14 ;;
  *) echo "image: no release $release; accepted are 22.05, 24.11 and 26.05" >&2; exit 2 ;;
esac
image=slurmkit/cluster:$release
context=$top/build/docker/$release
interpreter=$top/.venv/bin/python

say() { echo "cluster $release: $*" >&2; }

# Print what a command said only if it failed.
quietly() {
  local said
  said=$("$@" 2>&1) || { echo "$said" >&2; say "failed: $*"; exit 1; }
}

# What slurmkit needs, as wheels for the image's Python, so that the image needs no package index; and slurmkit
# itself as it is released. That is built anew each time: it takes seconds.
wheels() {
  local want=$context/wheels/requirements.txt
  mkdir -p "$context/wheels"
  rm -rf "$context/dist"
  quietly "$interpreter" -m build --no-isolation --outdir "$context/dist" "$top"
  "$interpreter" "$here/requirements.py" "$suite" >"$context/requirements.txt"
  cmp --silent "$context/requirements.txt" "$want" && return
  say "downloading what slurmkit needs, for Python $python"
  rm -rf "$context/wheels"
  local pip=("$interpreter" -m pip -qq --disable-pip-version-check)
  # The one that is on the index as source alone.
  quietly "${pip[@]}" wheel --no-deps --wheel-dir "$context/wheels" 'antlr4-python3-runtime==4.9.3'
  quietly "${pip[@]}" download --dest "$context/wheels" --only-binary=:all: --python-version "$python" \
    --find-links "$context/wheels" --requirement "$context/requirements.txt"
  cp "$context/requirements.txt" "$want" # last: it says that all of them are there
}

trap 'exit 130' INT
trap 'exit 143' TERM
[ -x "$interpreter" ] || { say "there is no $top/.venv to build slurmkit with: make setup"; exit 1; }
mkdir -p "$context"
exec 9>"$context/.lock"
flock 9 # another of the same release would change the files under our build
"$here/base.sh" "$suite"
wheels
cp "$here"/{Dockerfile,role,healthy,accounts,power,resume,suspend} "$context/"
say "building $image from debian:$suite-slim"
build=(docker build --quiet --build-arg "SUITE=$suite")
for name in http_proxy https_proxy no_proxy; do
  [ -z "${!name:-}" ] || build+=(--build-arg "$name=${!name}")
done
quietly "${build[@]}" --target bare --tag "$image-bare" "$context"
quietly "${build[@]}" --tag "$image" "$context"
version=$(docker run --rm --entrypoint slurmctld "$image" -V)
[[ $version == *" $release."* ]] || {
  say "debian:$suite-slim has Slurm ${version##* }: that suite has moved on, and $here/image.sh names another one"
  exit 1
}
