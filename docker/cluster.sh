#!/bin/bash
# cluster.sh image|up|shell|down RELEASE: a Slurm cluster of containers, release 22.05, 24.11 or 26.05.
#
#   image  build the image: see image.sh
#   up     build what is missing, start what is not up, and wait until it is well; what is up is left as it is
#   shell  a shell of user alice on the login host; or run a command there: cluster.sh shell 22.05 sinfo
#   down   remove the containers, their network and their volumes
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
top=$(dirname "$here")
usage() { sed -n 's/^# \{0,1\}//;2,7p' "$0" >&2; exit 2; }
[ $# -ge 2 ] || usage
verb=$1 release=$2
shift 2
say() { echo "cluster $release: $*" >&2; }
refuse() { say "$*"; exit 1; }

# --- What is asked for -----------------------------------------------------------------------------------------
case $release in
  22.05 | 24.11 | 26.05) ;;
  *) echo "cluster: no release $release; accepted are 22.05, 24.11 and 26.05" >&2; exit 2 ;;
esac
case $verb in
  shell) ;;
  image | up | down) [ $# -eq 0 ] || { echo "cluster: $verb takes a release alone, not also: $*" >&2; usage; } ;;
  *) usage ;;
esac
default() { echo "slurmkit-${1/./}"; }
export IMAGE=slurmkit/cluster:$release CLUSTER=${CLUSTER:-$(default "$release")}
letters=abcdefghijklmnopqrstuvwxyz0123456789 # [a-z] is whatever the locale says; Compose means these
case $CLUSTER in [!$letters]* | *[!${letters}_-]*)
  echo "cluster: CLUSTER='$CLUSTER' is no name of a cluster; accepted are lower-case letters, digits, - and _," \
    "a letter or digit first: CLUSTER=mine-2" >&2
  exit 2 ;;
esac
asked=${SUBNET:-}
octet='(0|[1-9][0-9]?|1[0-9][0-9]|2[0-4][0-9]|25[0-5])'
[ -z "$asked" ] || [[ $asked =~ ^$octet\.$octet\.$octet$ && ${asked%%.*} -gt 0 && ${asked%%.*} -lt 224 ]] || {
  echo "cluster: SUBNET='$asked' is no network; accepted are its first three numbers, 1 to 223 and twice 0 to 255:" \
    "SUBNET=198.19.1" >&2
  exit 2
}
# How to call us for a cluster of this name: make_it down 24.11
make_it() {
  local name=" CLUSTER=$CLUSTER"
  [ "$CLUSTER" != "$(default "$2")" ] || name=
  echo "make cluster-$1 SLURM=$2$name"
}

# --- Docker and Compose ----------------------------------------------------------------------------------------
with_docker() {
  local said code=0 socket
  said=$(timeout 30 docker info 2>&1 >/dev/null) || code=$?
  # What docker info prints after its reason is not one.
  said=$(grep -v 'errors pretty printing info' <<<"$said" | tail -n 1) || true
  case $code:$said in
    0:*) ;;
    124:*) refuse "the Docker daemon has not answered docker info for 30 s: look at it, or start it anew" ;;
    127:*) refuse "there is no docker here: apt-get install docker.io" ;;
    *'permission denied'*)
      say "$said"
      refuse "you may not use the Docker daemon: be in group docker (usermod -aG docker NAME, and log in anew), or be root" ;;
    *)
      say "${said:-docker info exits $code}"
      refuse "no Docker daemon answers: start it, or set DOCKER_HOST" ;;
  esac
  # Where the daemon listens, for the host that starts and stops others.
  socket=$(docker context inspect --format '{{.Endpoints.docker.Host}}' 2>/dev/null) || socket=
  socket=${DOCKER_HOST:-$socket}
  case $socket in unix://*) export DOCKER_SOCKET=${socket#unix://} ;; esac
}

# Compose v2 is a plugin of docker, v1.29 a program of its own; COMPOSE says which where both are there.
with_compose() {
  if [ -n "${COMPOSE:-}" ]; then read -r -a program <<<"$COMPOSE"
  elif docker compose version >/dev/null 2>&1; then program=(docker compose)
  else program=(docker-compose)
  fi
  "${program[@]}" version >/dev/null 2>&1 ||
    refuse "${program[*]} does not run here: apt-get install docker-compose, or name one with COMPOSE"
}

# Print what Compose said only if it failed; in our words where they help more.
compose() {
  local said
  said=$("${program[@]}" --file "$here/compose.yaml" --project-name "$CLUSTER" "$@" 2>&1) && return
  [[ $said != *'ool overlaps with other one'* ]] || docker network inspect "${CLUSTER}_site" >/dev/null 2>&1 ||
    refuse "network $SUBNET.0/24 is taken on this machine: set SUBNET to three other numbers, such as SUBNET=198.19.1"
  case $said in # containers, or a network, that were not there when we looked
    *Conflict*'already in use'* | *'ool overlaps'* | *'network with name'*'already exists'*)
      started= # what there is is not ours to remove
      refuse "another user makes or has a cluster named $CLUSTER: choose another name with CLUSTER=, or wait, and call this again" ;;
  esac
  echo "$said" >&2
  refuse "failed: ${program[*]} $*"
}

# --- What is there already -------------------------------------------------------------------------------------
# The images of this cluster's containers, each once: the name that they were made by, and the id it had then.
images() {
  local ids
  ids=$(docker ps --all --quiet --filter "label=com.docker.compose.project=$CLUSTER")
  # One that is removed meanwhile is none.
  # shellcheck disable=SC2086 # words
  [ -z "$ids" ] || docker inspect --format '{{.Config.Image}} {{.Image}}' $ids 2>/dev/null | sort -u
}

# Refuse where what is there is of another release, or no cluster of ours.
same_release() {
  local name other hint
  there=$(images) || true
  while read -r name _; do
    other=${name#slurmkit/cluster:}
    case $name in
      '' | "$IMAGE") ;;
      slurmkit/cluster:*)
        hint=$(make_it "$verb" "$other")
        [ "$verb" != up ] || hint="$(make_it down "$other") first"
        refuse "$CLUSTER is there with Slurm $other, not $release: $hint" ;;
      *) refuse "$CLUSTER is no cluster of slurmkit, it has containers of $name: choose another name with CLUSTER=" ;;
    esac
  done <<<"$there"
}

same_image() {
  local id
  id=$(docker image inspect --format '{{.Id}}' "$IMAGE")
  [ -z "$there" ] || [ "$there" = "$IMAGE $id" ] || refuse "$CLUSTER is there with Slurm $release from another image" \
    "than the one just built, and is left as it is. To have the new one, without its jobs and database:" \
    "$(make_it down "$release") first"
}

# A network of its own for each cluster, by its name: hosts keep their addresses while they are down. The range is
# kept for tests of networks (RFC 2544), so that it is no neighbour's. What is there keeps the one that it has.
choose_subnet() {
  local has number
  has=$(docker network inspect --format '{{range .IPAM.Config}}{{.Subnet}}{{end}}' "${CLUSTER}_site" 2>/dev/null) || has=
  has=${has%.0/24}
  [ -z "$asked" ] || [ -z "$has" ] || [ "$asked" = "$has" ] || [ "$verb" = down ] ||
    refuse "$CLUSTER has network $has.0/24, not $asked.0/24. To have another: $(make_it down "$release") first"
  number=$(printf '%s' "$CLUSTER" | cksum | cut -d ' ' -f 1)
  export SUBNET=${has:-${asked:-198.18.$((number % 256))}}
}

# One up or down of a name at a time; from all checkouts of a user, who have one Docker daemon.
alone() {
  local locks=${HOME:-$top/build}/.cache/slurmkit
  mkdir -p "$locks"
  exec 8>"$locks/cluster-$CLUSTER.lock"
  flock --nonblock 8 || { say "waiting for another up or down of $CLUSTER"; flock 8; }
}

# --- The verbs -------------------------------------------------------------------------------------------------
on_login() { docker exec "$CLUSTER-login" "$@"; }

# Lines of "node state"; of a slurmctld that does not answer none.
nodes() { on_login sinfo --noheader --Node --partition=main --format='%N %T' 2>/dev/null || true; }

# Those that are not as they should be: of a fresh cluster all are idle, of one that was there all answer.
unwell() {
  local listed
  listed=$(nodes)
  if [ -z "$listed" ]; then echo "slurmctld does not answer"
  elif [ -z "$there" ]; then awk '$2 != "idle"' <<<"$listed"
  else awk '$2 ~ /^(down|unknown)|\*$/' <<<"$listed"
  fi
}

# What an up leaves that did not come to its end.
left() {
  [ -z "${started:-}" ] || [ -z "$(images)" ] ||
    say "not all of $CLUSTER is up; what is there is left as it is. To remove it: $(make_it down "$release")"
}

up() {
  local begin ill drained
  with_compose
  alone
  same_release
  choose_subnet
  "$here/image.sh" "$release"
  same_image
  begin=$SECONDS
  trap left EXIT
  started=yes
  compose up --detach --no-recreate
  # What Slurm itself starts is made, and left off; Compose makes nothing before what it depends on is healthy.
  compose --profile cloud up --no-start --no-recreate p1 p2
  while ill=$(unwell) && [ -n "$ill" ]; do
    [ $((SECONDS - begin)) -lt 180 ] || refuse "after 180 s not all nodes are well:" $'\n'"$ill"
    sleep 0.2
  done
  started=
  if [ -z "$there" ]; then say "up, all nodes idle, after $((SECONDS - begin)) s"
  else
    drained=$(nodes | awk '$2 ~ /^drain/ {printf " %s", $1}')
    say "$CLUSTER is up already, and left as it is${drained:+; drained:$drained}"
  fi
}

shell() {
  local tty=(-i)
  same_release
  [ "$(docker inspect --format '{{.State.Running}}' "$CLUSTER-login" 2>/dev/null)" = true ] ||
    refuse "$CLUSTER is not up: $(make_it up "$release")"
  [ ! -t 0 ] || tty=(-it) # what is piped in is read, as ssh does
  [ $# -gt 0 ] || set -- bash
  exec docker exec "${tty[@]}" --user alice --workdir /home/alice --env HOME=/home/alice "$CLUSTER-login" "$@"
}

down() {
  with_compose
  alone
  same_release
  choose_subnet
  compose --profile cloud down --volumes --timeout 1
}

trap 'exit 130' INT
trap 'exit 143' TERM
with_docker
case $verb in
  image) exec "$here/image.sh" "$release" ;;
  *) "$verb" "$@" ;;
esac
