#!/bin/bash
# base.sh SUITE: see to it that the image debian:SUITE-slim is there; pulled, or made by debootstrap where no
# image can be pulled. The latter needs root and the package debootstrap.
set -euo pipefail
suite=$1
image=debian:$suite-slim

docker image inspect "$image" >/dev/null 2>&1 && exit 0
echo "base: $image is not here: pulling it" >&2
if why=$(timeout 120 docker pull --quiet "$image" 2>&1); then exit 0; fi
why=${why##*$'\n'}
echo "base: it cannot be pulled: ${why:-no answer in 120 s}" >&2

for program in debootstrap tar; do
  command -v "$program" >/dev/null || {
    echo "base: $program, to make it here, is missing: apt-get install $program" >&2
    exit 1
  }
done
[ "$(id -u)" -eq 0 ] || { echo "base: to make it here by debootstrap, run this as root" >&2; exit 1; }

# From DEBIAN_MIRROR, or debootstrap's own where that is not set. An older debootstrap does not know newer suites by
# name; they are all made as sid is.
script=/usr/share/debootstrap/scripts/$suite
[ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid
folder=$(mktemp -d)
trap 'rm -rf --one-file-system "$folder"' EXIT
echo "base: making $image with debootstrap" >&2
debootstrap --variant=minbase "$suite" "$folder/root" "${DEBIAN_MIRROR:-}" "$script" >"$folder/log" 2>&1 ||
  { tail -n 20 "$folder/log" >&2; echo "base: debootstrap failed" >&2; exit 1; }
tar -C "$folder/root" -c . | docker import - "$image" >/dev/null
