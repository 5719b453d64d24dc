#!/bin/sh
# Builds the Debian package: programs, unit, manual pages, completions, examples. Needs cargo-deb.
set -eu
cd "$(dirname "$0")/.."
cargo build --release --locked -p tidegate-cli -p tidegate-lab -p tidegate-bench
rm -rf target/dist && mkdir -p target/dist/man
target/release/tidegate man target/dist/man
for shell in bash zsh fish; do target/release/tidegate completions "$shell" > "target/dist/tidegate.$shell"; done
cargo deb --no-build -p tidegate-cli
