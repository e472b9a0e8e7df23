#!/bin/bash
# `make demo`: install what is missing, make .venv, tell the story. Non-zero if any step did not happen.
set -euo pipefail
cd "$(dirname "$0")/../.."

tests/demo/install.sh
[ -e .venv/.ready ] || echo "making .venv (torch and what else requirements-dev.txt pins: some minutes, once)"
make --no-print-directory setup
exec .venv/bin/python tests/demo/story.py
