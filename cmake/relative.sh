#!/bin/sh
# usage: relative.sh FOLDER COMMAND...
# Runs a compiler with sources in FOLDER named relative to where it runs: nvcc writes their names
# into its objects, and has no option that maps them.
folder=$1
shift
for argument; do
    shift
    case $argument in "$folder"/*) argument=$(realpath --relative-to=. "$argument") ;; esac
    set -- "$@" "$argument"
done
exec "$@"
