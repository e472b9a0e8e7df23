#!/bin/bash
# cluster.sh image|up|shell|down RELEASE: a Slurm cluster of containers, release 22.05, 24.11 or 26.05.
#
#   image  build the image: needs Docker, .venv and PyPI, and debootstrap where no base image can be pulled
#   up     build what is missing, start everything, and wait until all nodes are idle
#   shell  a shell of user alice on the login host; or run a command there: cluster.sh shell 22.05 sinfo
#   down   remove the containers, their network and their volumes
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
top=$(dirname "$here")
usage() { sed -n 's/^# \{0,1\}//;2,7p' "$0" >&2; exit 2; }
[ $# -ge 2 ] || usage
verb=$1 release=$2
shift 2

# What each release is made of: the suite of Debian that has it, and the Python there.
case $release in
  22.05) suite=bookworm python=3.11 ;;
  24.11) suite=trixie python=3.13 ;;
  26.05) suite=forky python=3.14 ;;
  *) echo "cluster: no release $release; accepted are 22.05, 24.11 and 26.05" >&2; exit 2 ;;
esac
export IMAGE=slurmkit/cluster:$release CLUSTER=${CLUSTER:-slurmkit-${release/./}}
# A network of its own for each cluster, by its name: hosts keep their addresses while they are down. The range is
# kept for tests of networks (RFC 2544), so that it is no neighbour's. Should two collide: SUBNET=198.19.1
number=$(printf '%s' "$CLUSTER" | cksum | cut -d ' ' -f 1)
export SUBNET=${SUBNET:-198.18.$((number % 256))}
context=$top/build/docker/$release
interpreter=$top/.venv/bin/python

say() { echo "cluster $release: $*" >&2; }

timeout 30 docker info >/dev/null 2>&1 || {
  say "no Docker daemon answers: start it, or set DOCKER_HOST (docker info tells why)"
  exit 1
}
# Where the daemon listens, for the host that starts and stops others.
socket=$(docker context inspect --format '{{.Endpoints.docker.Host}}' 2>/dev/null) || socket=
socket=${DOCKER_HOST:-$socket}
case $socket in unix://*) export DOCKER_SOCKET=${socket#unix://} ;; esac
# Compose v2 is a plugin of docker, v1.29 a program of its own; COMPOSE says which where both are there.
compose() {
  local program
  if [ -n "${COMPOSE:-}" ]; then read -r -a program <<<"$COMPOSE"
  elif docker compose version >/dev/null 2>&1; then program=(docker compose)
  elif command -v docker-compose >/dev/null; then program=(docker-compose)
  else say "there is no docker compose: apt-get install docker-compose"; exit 1
  fi
  "${program[@]}" --file "$here/compose.yaml" --project-name "$CLUSTER" "$@"
}

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

image() {
  [ -x "$interpreter" ] || { say "there is no $top/.venv to build slurmkit with: make setup"; exit 1; }
  mkdir -p "$context"
  exec 9>"$context/.lock"
  flock 9 # another of the same release would change the files under our build
  "$here/base.sh" "$suite"
  wheels
  cp "$here"/{Dockerfile,role,healthy,accounts,power,resume,suspend} "$context/"
  say "building $IMAGE from debian:$suite-slim"
  local build=(docker build --quiet --build-arg "SUITE=$suite") name
  for name in http_proxy https_proxy no_proxy; do
    [ -z "${!name:-}" ] || build+=(--build-arg "$name=${!name}")
  done
  quietly "${build[@]}" --target bare --tag "$IMAGE-bare" "$context"
  quietly "${build[@]}" --tag "$IMAGE" "$context"
  local version
  version=$(docker run --rm --entrypoint slurmctld "$IMAGE" -V)
  [[ $version == *" $release."* ]] || {
    say "debian:$suite-slim has Slurm ${version##* }: that suite has moved on, and $here/cluster.sh names another one"
    exit 1
  }
  exec 9>&-
}

on_login() { docker exec "$CLUSTER-login" "$@"; }

all_idle() { [ "$(on_login sinfo --noheader --Node --partition=main --format=%T 2>/dev/null | sort -u)" = idle ]; }

up() {
  image
  local begin=$SECONDS
  quietly compose up --detach
  # What Slurm itself starts is made, and left off; Compose makes nothing before what it depends on is healthy.
  quietly compose --profile cloud up --no-start p1 p2
  until all_idle; do
    [ $((SECONDS - begin)) -lt 180 ] || { say "not all nodes are idle after 180 s"; on_login sinfo >&2; exit 1; }
    sleep 0.2
  done
  say "up, all nodes idle, after $((SECONDS - begin)) s"
}

trap 'exit 130' INT
trap 'exit 143' TERM
case $verb in
  image) image ;;
  up) up ;;
  shell)
    docker inspect "$CLUSTER-login" >/dev/null 2>&1 || { say "is not up: make cluster-up SLURM=$release"; exit 1; }
    tty=(-i); [ -t 0 ] && tty=(-it) # what is piped in is read, as ssh does
    [ $# -gt 0 ] || set -- bash
    exec docker exec "${tty[@]}" --user alice --workdir /home/alice --env HOME=/home/alice "$CLUSTER-login" "$@"
    ;;
  down) quietly compose --profile cloud down --volumes --timeout 1 ;;
  *) usage ;;
esac
