#!/bin/bash
# `make demo`: install what is missing, make .venv, tell the story. Non-zero if any step did not happen.
set -euo pipefail
cd "$(dirname "$0")/../.."

tests/demo/install.sh
make --silent --no-print-directory .venv/.ready
exec .venv/bin/python -m tests.demo.story
