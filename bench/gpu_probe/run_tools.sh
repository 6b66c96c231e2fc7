#!/bin/sh
# Do compute-sanitizer and ncu work on kernels with TMA and wgmma? Runs them on gpu_probe's correct
# and faulty kernels and prints a table. A finding on the kernel "good" is a false alarm; another
# kernel without a finding is a missed fault.
#   usage: bench/gpu_probe/run_tools.sh GPU_PROBE OUT_DIR
# The logs of the tools are kept in OUT_DIR/tools. A run is stopped after TOOL_LIMIT seconds, and none
# is started TOOLS_LIMIT seconds after the first.
set -u
probe=$1
out=$2/tools
limit=${TOOL_LIMIT:-40}
end=$(($(date +%s) + ${TOOLS_LIMIT:-400}))
mkdir -p "$out"

# find_tool NAME: its path, from PATH, the CUDA toolkit or Nsight's own folders.
find_tool() {
  command -v "$1" && return
  for path in /usr/local/cuda/bin/"$1" /usr/local/cuda/compute-sanitizer/"$1" \
    /opt/nvidia/nsight-compute/*/"$1"; do
    [ -x "$path" ] && echo "$path" && return
  done
}

# run_kernel KERNEL LOG [TOOL...]: runs the probe's kernel, under a tool if one is given. Fails with 99,
# without running it, when the time for all runs is over.
run_kernel() {
  kernel=$1
  log=$2
  shift 2
  [ "$(date +%s)" -lt "$end" ] || return 99
  PROBE_TOOL=$kernel timeout -k 5 "$limit" "$@" "$probe" --out "$out" --sections tools \
    --seconds "$limit" >"$log" 2>&1
}

# row TOOL KERNEL STATUS LOG PATTERN: one row; PATTERN selects the lines of findings.
row() {
  case $3 in
    99)
      echo "| $1 | $2 | not run: no time left | - |"
      return
      ;;
    0) status=ended ;;
    124 | 137) status="stopped after $limit s" ;;
    *) status="exit $3" ;;
  esac
  findings=$(grep -E "$5" "$4" | sed 's/^=* *//' | tr '|' '/' | sort | uniq -c | sort -rn |
    head -4 | sed 's/^ *//' | tr '\n' ';')
  echo "| $1 | $2 | $status | ${findings:-nothing} |"
}

# sanitize TOOL...: all kernels under these tools of compute-sanitizer.
sanitize() {
  if [ -z "$sanitizer" ]; then
    echo "| compute-sanitizer $* | - | not installed | - |"
    return
  fi
  for tool in "$@"; do
    extra=
    [ "$tool" = racecheck ] && extra="--racecheck-report all"
    for kernel in good oob race nowait; do
      log=$out/${tool}_$kernel.log
      # shellcheck disable=SC2086 # $extra is a list of words
      run_kernel $kernel "$log" "$sanitizer" --tool "$tool" $extra --target-processes all
      row "$tool" "$kernel" $? "$log" \
        'ERROR SUMMARY|RACECHECK SUMMARY|Invalid|Error: |Warning: |hazard|Uninitialized|Barrier error'
    done
  done
}

# profile METRIC...: the correct kernel under ncu, one metric a run, so that an unknown name does not
# cost the others.
profile() {
  if [ -z "$ncu" ]; then
    echo "| ncu | - | not installed | - |"
    return
  fi
  for metric in "$@"; do
    log=$out/ncu_$metric.log
    run_kernel good "$log" "$ncu" --clock-control none --target-processes all \
      --kernel-name regex:ToolKernel --metrics "$metric"
    row ncu good $? "$log" "$metric|ERR|WARNING"
  done
}

sanitizer=$(find_tool compute-sanitizer)
ncu=$(find_tool ncu)
echo "| tool | kernel | run | found (count, text) |"
echo "|---|---|---|---|"
for kernel in good oob race nowait; do
  log=$out/plain_$kernel.log
  run_kernel $kernel "$log"
  row none "$kernel" $? "$log" 'ran "|error|FAILED'
done
sanitize memcheck racecheck
profile dram__bytes_read.sum gpu__time_duration.sum sm__inst_executed_pipe_tensor.sum \
  dram__bytes_write.sum sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed
sanitize initcheck synccheck
