#!/bin/bash
# Install what the lab and the tests need from Debian's packages: a Slurm, munge, a database, venv and git.
# Nothing is done where nothing is missing. Without root or sudo it says what to install, and ends with 1.
set -euo pipefail

PATH="$PATH:/usr/sbin:/sbin"
packages=(slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge slurmdbd mariadb-server git make python3-venv)
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ "${#missing[@]}" -gt 0 ] || exit 0

if [ "$(id -u)" -eq 0 ]; then
  become=()
elif sudo -n true 2>/dev/null; then
  become=(sudo -n)
else
  echo "Missing here: ${missing[*]}" >&2
  echo "Install them as root, and start again:" >&2
  echo "  apt-get update && apt-get install --no-install-recommends ${missing[*]}" >&2
  exit 1
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
# The lab starts daemons of its own: the packages' services stay off.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' | "${become[@]}" tee "$policy" >/dev/null
  "${become[@]}" chmod +x "$policy"
  trap '"${become[@]}" rm -f "$policy"' EXIT
fi
"${become[@]}" apt-get update -q >/dev/null
"${become[@]}" apt-get install -q -y --no-install-recommends "${missing[@]}" >/dev/null
