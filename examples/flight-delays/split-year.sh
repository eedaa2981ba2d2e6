#!/usr/bin/env bash
# Splits the year into months, one file each, so that a source reads them in the order of time.
#
#   split-year.sh [FOLDER]      FOLDER: where 2013-01.csv to 2013-12.csv go; data/months beside this script if it is left out.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${1:-$here/data/months}
mkdir -p "$folder"

# A source that finds half a file would take it for the whole: each gets its name when all are complete.
draft=$(mktemp -d "$folder/.split-XXXXXX")
trap 'rm -rf "$draft"' EXIT

gzip -dc "$here/data/flights-2013.csv.gz" | awk -F, -v folder="$draft" '
    NR == 1 { header = $0; next }
    {
        file = sprintf("%s/2013-%02d.csv", folder, $2)
        if (!(file in begun)) { begun[file] = 1; print header > file }
        print > file
    }
'
mv "$draft"/2013-*.csv "$folder/"
echo "$folder: $(find "$folder" -name '2013-*.csv' | wc -l) files, $(cat "$folder"/2013-*.csv | grep -vc '^year,') flights" >&2
