#!/usr/bin/env bash
# Runs this example in a folder of its own and shows what came out: the first hours of the table, and the checkpoints.
#
#   demo.sh WEIR FOLDER      WEIR: the weir binary. FOLDER: is made anew.
set -euo pipefail

weir=$(realpath "$1")
folder=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

rm -rf "$folder"
mkdir -p "$folder"
cp "$here/pipeline.toml" "$folder/"
ln -s "$here/data" "$folder/data"
cd "$folder"

echo "== weir check pipeline.toml"
"$weir" check pipeline.toml
echo
echo "== weir run pipeline.toml"
"$weir" run pipeline.toml

echo
echo "== out/: hourly departures, mean and worst delay in minutes, for each carrier"
printf '%-20s  %-7s  %10s  %10s  %10s\n' hour carrier departures mean worst
# The flights that left are those with a delay ("values"); "count" has the cancelled ones, too.
cat out/epoch-*/part-* \
    | sed -E 's/.*"window_start":"([^"]*)".*"carrier":"([^"]*)".*"values":([0-9]+).*"mean":(null|[-0-9.e]+).*"max":(null|[-0-9.e]+).*/\1 \2 \3 \4 \5/' \
    | LC_ALL=C sort \
    | awk '{ mean = $4 == "null" ? "-" : sprintf("%.1f", $4); printf "%-20s  %-7s  %10d  %10s  %10s\n", $1, $2, $3, mean, $5 == "null" ? "-" : $5 }' >table.txt
head -n 24 table.txt
echo "... $(wc -l <table.txt) rows in all: $folder/table.txt"

echo
echo "== weir checkpoint list pipeline.toml"
"$weir" checkpoint list pipeline.toml
