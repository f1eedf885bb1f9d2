#!/usr/bin/env bash
# Checks and measures a GPU, in pieces that fit into a few minutes each. Run it on the machine that
# has the GPU, in a checkout of this project; it needs bash, coreutils and python3, and either nvcc,
# gcc and cmake or programs that were packed elsewhere.
#
#   bench/gpu.sh pack DIR           on a machine with nvcc: builds into DIR what the others need
#   bench/gpu.sh check [PART ...]   PART: doctor kernels parity demo oracle invariance memory
#                                   logits (all), and shapes (large models against the CPU; takes
#                                   minutes)
#   bench/gpu.sh sanitize           compute-sanitizer over the kernels
#   bench/gpu.sh bench              times random models of true shapes
#   bench/gpu.sh probe [NAME ...]   what the chip gives, on Hopper (bench/hopper): L2, launches,
#                                   clusters, wgmma, weights, a step (all)
#   bench/gpu.sh profile            where decode steps of --users spend their time, at the first of
#                                   --depths, in one table
#
# Options, with defaults:
#   --programs DIR     the folder of pack, or a build folder (.gpu/pack, else build/release)
#   --backend NAME     what is checked: cuda, or cpu to try this script (cuda)
#   --limit SECONDS    all phases together; phases that do not fit are left out and named (540)
#   --families LIST    of kernels, for check and sanitize (all)
#   --tools LIST       for sanitize (memcheck,racecheck,initcheck)
#   --chips LIST       for pack (90a-real)
#   --models LIST      SIZE:TYPE as bench/random-model knows them (e4b:q8_0,12b:q4_0,26b-a4b:q4_0)
#   --layers N         of the random models, to try this script with small ones (as they are)
#   --vocab N          likewise
#   --prompts LIST     prompt lengths, alone (512,2048,8192); "" for none
#   --depths LIST      contexts after which one user decodes (0,4096,16384); "" for none
#   --users LIST       users who decode at the same time (1,8,32); "" for none
#   --gen N            tokens that each user decodes (64)
#   --matmul LIST      ways of computing products: auto, fp16, int8 (auto)
#   --repeat N         runs of a test (3)
#   --gpu-memory SIZE  GPU memory for `carat bench`, such as 11G, to simulate a smaller card
#   --more WORDS       further options of `carat bench`, such as "--profile"
#   --read N           GB/s that the device reads at most, for bounds (4670, an H200)
#   --rates LIST       TFLOP/s at most of auto, fp16, int8 (780,780,500: cuBLAS and ours, an H200)
#   --out DIR          results ($OUT when set, else bench/results/h200)
#
# The last lines are a table of phases with their seconds; the exit status is 1 when one failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

programs="" backend=cuda limit=540 families="" tools=memcheck,racecheck,initcheck chips=90a-real
models=e4b:q8_0,12b:q4_0,26b-a4b:q4_0 layers="" vocab="" more="" gpu_memory="" gen=64 repeat=3
prompts=512,2048,8192 depths=0,4096,16384 users=1,8,32 matmul=auto
read_limit=4670 rates=780,780,500 out=${OUT:-bench/results/h200}
words=()

fail() { printf 'gpu.sh: %s\n' "$*" >&2; exit 2; }
usage() { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }
split() { tr ',' '\n' <<<"$1" | sed '/^$/d'; }

while [ $# -gt 0 ]; do
    case "$1" in
    -h | --help) usage; exit 0 ;;
    --programs | --backend | --limit | --families | --tools | --chips | --models | --layers | \
        --vocab | --prompts | --depths | --users | --gen | --matmul | --repeat | --more | \
        --rates | --out)
        [ $# -gt 1 ] || fail "$1: a value is missing"
        printf -v "${1#--}" '%s' "$2"
        shift 2
        ;;
    --read) read_limit=${2:?}; shift 2 ;;
    --gpu-memory) gpu_memory=${2:?}; shift 2 ;;
    -*) fail "unknown option $1 (--help)" ;;
    *) words+=("$1"); shift ;;
    esac
done

# ---- Phases ----------------------------------------------------------------------------------

phase_names=() phase_seconds=() phase_results=()
has_failed=false
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

left() { echo $((limit - SECONDS)); }

note() { # name seconds result
    phase_names+=("$1") phase_seconds+=("$2") phase_results+=("$3")
}

# A bounded step: name, most seconds, command. Its output is in $log; the end of it is shown, except
# if is_quiet and nothing is wrong. A step that would begin with too few seconds left is left out.
log=$scratch/log is_quiet=false
phase() {
    local name=$1 most=$2 begin=$SECONDS status=0
    shift 2
    if [ "$(left)" -lt 10 ]; then
        note "$name" 0 "left out: no time"
        return 1
    fi
    [ "$most" -lt "$(left)" ] || most=$(left)
    printf '\n==> %s\n' "$name"
    timeout --kill-after=5 "$most" "$@" >"$log" 2>&1 || status=$?
    if ! $is_quiet || [ $status -ne 0 ]; then tail -n 60 "$log"; fi
    case $status in
    0) ;;
    124 | 137) note "$name" $((SECONDS - begin)) "FAILED: more than $most s"; has_failed=true ;;
    *) note "$name" $((SECONDS - begin)) "FAILED: status $status"; has_failed=true ;;
    esac
    [ $status -eq 0 ] || return 1
    local result
    result=$(sed -n 's/^skipped:/FAILED: skipped,/p' "$log" | head -n 1)
    if [ -n "$result" ]; then has_failed=true; fi # here a device is expected
    note "$name" $((SECONDS - begin)) "${result:-passed}"
}

finish() {
    local i failed=0
    printf '\n%-44s %6s  %s\n' phase s result
    for i in "${!phase_names[@]}"; do
        printf '%-44s %6d  %s\n' "${phase_names[i]}" "${phase_seconds[i]}" "${phase_results[i]}"
    done
    if $has_failed; then failed=1; fi
    printf '%-44s %6d  of %d\n' "all" "$SECONDS" "$limit"
    exit $failed
}

# ---- Programs --------------------------------------------------------------------------------

# The path of a program in the folder, which is flat when packed; empty when it is not there.
program() {
    local at
    for at in "$programs/$1" "$programs/bench/$1" "$programs/tests/$1"; do
        if [ -x "$at" ]; then echo "$at"; return 0; fi
    done
}

find_programs() {
    if [ -z "$programs" ]; then
        programs=build/release
        if [ -x .gpu/pack/carat ]; then programs=.gpu/pack; fi
    fi
    if [ -z "$(program carat)" ]; then
        command -v cmake >/dev/null || fail "no programs in $programs, and no cmake to build them"
        programs=build/gpu
        phase "build" 520 bash -c 'build "$@"' build "$programs" native || finish
    fi
    carat=$(program carat)
    printf 'programs in %s; %s cores\n' "$programs" "$(nproc)"
    if command -v nvidia-smi >/dev/null; then
        timeout 20 nvidia-smi --format=csv,noheader \
            --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit || true
    fi
}

build() { # folder chips further options
    local folder=$1 chips=$2 generator=()
    shift 2
    if command -v ninja >/dev/null && [ ! -e "$folder/CMakeCache.txt" ]; then generator=(-G Ninja)
    fi
    cmake -S . -B "$folder" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DCARAT_CUDA=ON \
        -DCARAT_CUDA_CHIPS="$chips" -DCARAT_EDIT=OFF "$@" >"$folder.log" 2>&1 ||
        { cat "$folder.log"; return 1; }
    cmake --build "$folder" --parallel "$(nproc)"
}
export -f build

# Packed programs run from the root of any checkout, on machines without Debian's packages: all
# libraries but the C and C++ runtimes are next to the programs. An RPATH, other than a RUNPATH,
# also holds for the libraries of libraries.
packed=(carat check-cuda-kernels check-cpu-kernels random-model hopper-probes test_backends
    test_oracle test_demo test_invariance test_memory)
pack() {
    local target=${words[1]:-} folder=build/gpu-pack name
    [ -n "$target" ] || fail "pack: a folder is missing"
    mkdir -p "$target" build
    target=$(cd "$target" && pwd)
    # shellcheck disable=SC2016
    build "$folder" "${chips//,/;}" -DCARAT_TESTS=ON -DCARAT_JSON=ON -DCARAT_TEST_ROOT=. \
        -DCARAT_HTTP=ON -DCARAT_FETCH=ON -DCMAKE_BUILD_RPATH='$ORIGIN' \
        -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags >"$log" 2>&1 ||
        { tail -n 40 "$log"; fail "no build"; }
    programs=$folder
    for name in "${packed[@]}"; do
        strip -o "$target/$name" "$(program "$name")"
    done
    ldd "$(program carat)" "$(program test_oracle)" | awk '$2 == "=>" {print $1, $3}' | sort -u |
        grep -Ev '^lib(c|m|dl|rt|pthread|resolv|gcc_s|stdc\+\+)\.so' |
        while read -r name path; do cp -L "$path" "$target/$name"; done
    du -sh "$target"
}

# ---- Checks ----------------------------------------------------------------------------------

list_families() {
    if [ -n "$families" ]; then split "$families"
    elif [ "$backend" = cuda ]; then "$kernels" --list
    else echo "all"; fi
}

check_part() { # part
    local family test
    case "$1" in
    kernels)
        [ -n "$kernels" ] || { note kernels 0 "left out: not built"; return 0; }
        for family in $(list_families); do
            phase "kernels $family" 120 "$kernels" "${family#all}" || true
        done
        ;;
    parity | oracle | demo | invariance | memory)
        case "$1" in parity) test=test_backends ;; *) test=test_$1 ;; esac
        if [ -z "$(program "$test")" ]; then
            note "$1" 0 "left out: not built"
        else
            phase "$1" 240 "$(program "$test")" "${backend}_*" || true
        fi
        ;;
    logits)
        phase "logits of the oracle models" 240 python3 bench/gpu_tables.py logits "$carat" \
            --backend "$backend" || true
        ;;
    shapes) check_shapes ;;
    doctor) phase "doctor" 60 "$carat" doctor --backend "$backend" || true ;;
    *) fail "check: no part $1" ;;
    esac
}

# Large random models: the device against the CPU backend, in fp32 and by default.
check_shapes() {
    local model cut=() ids=()
    [ -z "$layers" ] || cut+=(--layers "$layers")
    [ -z "$vocab" ] || cut+=(--vocab "$vocab")
    [ -z "$vocab" ] || ids+=(--ids "$vocab")
    for model in e4b:q8_0 12b:q4_0; do
        phase "make $model" 120 "$(program random-model)" "${model%:*}" "${model#*:}" \
            "$scratch/model.gguf" "${cut[@]}" || continue
        phase "shapes of $model" 300 python3 bench/gpu_tables.py shapes "$carat" \
            "$scratch/model.gguf" --backend "$backend" "${ids[@]}" || true
        rm -f "$scratch/model.gguf"
    done
}

check() {
    local part parts=("${words[@]:1}")
    [ ${#parts[@]} -gt 0 ] || parts=(doctor kernels parity demo oracle invariance memory logits)
    for part in "${parts[@]}"; do check_part "$part"; done
}

sanitize() {
    local tool family sanitizer own
    sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer || true)
    [ -n "$sanitizer" ] || fail "compute-sanitizer is not here"
    [ -n "$kernels" ] || fail "check-cuda-kernels is not in $programs"
    for tool in $(split "$tools"); do
        for family in $(list_families); do
            # racecheck reports reads and writes within kernels of cuBLAS, which are not ours
            own=(); [ "$tool" != racecheck ] || own=(--own)
            phase "$tool $family" 150 "$sanitizer" --tool "$tool" --error-exitcode 9 \
                "$kernels" --small "${own[@]}" "$family" || true
        done
    done
}

# ---- Times -----------------------------------------------------------------------------------

# One call of `carat bench`. Its rows are added to the file of results, with the way of products.
times() { # name way options
    local name=$1 way=$2 options=()
    shift 2
    read -ra options <<<"$more"
    [ "$way" = auto ] || options+=(--matmul "$way")
    [ -z "$gpu_memory" ] || options+=(--gpu-memory "$gpu_memory")
    if [ -n "$more" ]; then is_quiet=false; else is_quiet=true; fi
    phase "$name" 240 "$carat" bench "$scratch/model.gguf" --backend "$backend" -q -o csv \
        -r "$repeat" "${options[@]}" "$@" || { is_quiet=false; return 0; }
    is_quiet=false
    python3 bench/gpu_tables.py add "$results" --model "$model" --matmul "$way" <"$log"
}

bench_model() {
    local way cut=()
    [ -z "$layers" ] || cut+=(--layers "$layers")
    [ -z "$vocab" ] || cut+=(--vocab "$vocab")
    phase "make $model" 200 "$(program random-model)" "${model%:*}" "${model#*:}" \
        "$scratch/model.gguf" "${cut[@]}" || return 0
    for way in $(split "$matmul"); do
        if [ -n "$gpu_memory" ]; then # which part of it is where, and how long the context is
            phase "$model memory, $way" 60 "$carat" show "$scratch/model.gguf" \
                --backend "$backend" --matmul "$way" --gpu-memory "$gpu_memory" || true
        fi
        if [ -n "$prompts" ]; then
            times "$model prompts, $way" "$way" -p "$prompts" -n 0
        fi
        if [ -n "$users" ]; then
            times "$model users, $way" "$way" -p 0 -n "$gen" --users "$users"
        fi
    done
    if [ -n "$depths" ]; then
        times "$model depths" "$(split "$matmul" | head -n 1)" -p 0 -n "$gen" -d "$depths"
    fi
    rm -f "$scratch/model.gguf"
}

bench() {
    mkdir -p "$out"
    results=$out/$(date +%F)-$backend${gpu_memory:+-$gpu_memory}-bench.csv
    for model in $(split "$models"); do
        bench_model
    done
    if [ -e "$results" ]; then
        python3 bench/gpu_tables.py table "$results" --read "$read_limit" --rates "$rates"
    fi
}

# ---- Probes, profiles ------------------------------------------------------------------------

probe() {
    local name names=("${words[@]:1}") prober
    prober=$(program hopper-probes)
    [ -n "$prober" ] || fail "hopper-probes is not in $programs"
    mkdir -p "$out"
    [ ${#names[@]} -gt 0 ] || mapfile -t names < <("$prober" --list)
    for name in "${names[@]}"; do
        phase "probe $name" 90 "$prober" --csv "$out/$(date +%F)-probe-$name.csv" "$name" || true
    done
}

profile_model() {
    local n base profiles=() options=() depth name=${model//:/-}
    read -ra options <<<"$more"
    depth=$(split "$depths" | head -n 1)
    options+=(--backend "$backend" -p 0 -n "$gen" -d "${depth:-0}")
    base=$out/$(date +%F)-profile-$name
    phase "make $model" 200 "$(program random-model)" "${model%:*}" "${model#*:}" \
        "$scratch/model.gguf" || return 0
    is_quiet=true
    phase "$model as it is" 240 "$carat" bench "$scratch/model.gguf" -q -o csv -r "$repeat" \
        --users "$users" "${options[@]}" || { is_quiet=false; return 0; }
    cp "$log" "$base.csv"
    for n in $(split "$users"); do
        phase "$model, profile of $n" 120 "$carat" bench "$scratch/model.gguf" -q -r 1 --no-warmup \
            --profile --users "$n" "${options[@]}" || continue
        cp "$log" "$base-$n.txt"
        profiles+=("$n=$base-$n.txt")
    done
    is_quiet=false
    rm -f "$scratch/model.gguf"
    [ ${#profiles[@]} -eq 0 ] ||
        phase "$model, table" 10 python3 bench/profile_table.py --times "$base.csv" "${profiles[@]}"
}

profile() {
    mkdir -p "$out"
    for model in $(split "$models"); do profile_model || true; done
}

# ---- Verbs -----------------------------------------------------------------------------------

case "${words[0]:-}" in
pack) pack; exit ;;
check | sanitize | bench | probe | profile) find_programs ;;
*) usage >&2; exit 2 ;;
esac
kernels=$(program "check-$backend-kernels")
case "${words[0]}" in
check) check ;;
sanitize) sanitize ;;
bench) bench ;;
probe) probe ;;
profile) profile ;;
esac
finish
