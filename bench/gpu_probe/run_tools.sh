#!/bin/sh
# Do compute-sanitizer and ncu work on kernels with TMA and wgmma? Runs them on gpu_probe's correct
# and faulty kernels and prints a table: what they report on "good" is false, what they do not
# report on the others is missed.
#   usage: bench/gpu_probe/run_tools.sh GPU_PROBE OUT_DIR
# The logs of the tools are kept in OUT_DIR/tools.
set -u
probe=$1
out=$2/tools
limit=${TOOL_LIMIT:-60} # seconds for each run
mkdir -p "$out"

# find_tool NAME: its path, from PATH, the CUDA toolkit or Nsight's own folders.
find_tool() {
  command -v "$1" && return
  for path in /usr/local/cuda/bin/"$1" /usr/local/cuda/compute-sanitizer/"$1" \
    /opt/nvidia/nsight-compute/*/"$1"; do
    [ -x "$path" ] && echo "$path" && return
  done
}

# row TOOL KERNEL STATUS LOG PATTERN: one row; PATTERN selects the lines of findings.
row() {
  case $3 in
    0) status=ended ;;
    124 | 137) status="stopped after $limit s" ;;
    *) status="exit $3" ;;
  esac
  findings=$(grep -E "$5" "$4" | sed 's/^=* *//' | tr '|' '/' | sort | uniq -c | sort -rn |
    head -4 | sed 's/^ *//' | tr '\n' ';')
  echo "| $1 | $2 | $status | ${findings:-nothing} |"
}

sanitizer=$(find_tool compute-sanitizer)
ncu=$(find_tool ncu)
echo "| tool | kernel | run | found (count, text) |"
echo "|---|---|---|---|"
for kernel in good oob race nowait; do
  log=$out/plain_$kernel.log
  PROBE_TOOL=$kernel timeout -k 5 "$limit" "$probe" --out "$out" --sections tools >"$log" 2>&1
  row none "$kernel" $? "$log" 'ran "|error|FAILED'
done
if [ -n "$sanitizer" ]; then
  for tool in memcheck racecheck initcheck synccheck; do
    for kernel in good oob race nowait; do
      log=$out/${tool}_$kernel.log
      extra=
      [ $tool = racecheck ] && extra="--racecheck-report all"
      # shellcheck disable=SC2086 # $extra is a list of words
      PROBE_TOOL=$kernel timeout -k 5 "$limit" "$sanitizer" --tool $tool $extra \
        --target-processes all "$probe" --out "$out" --sections tools --seconds "$limit" \
        >"$log" 2>&1
      row $tool $kernel $? "$log" \
        'ERROR SUMMARY|RACECHECK SUMMARY|Invalid|Error: |Warning: |hazard|Uninitialized|Barrier error'
    done
  done
else
  echo "| compute-sanitizer | - | not installed | - |"
fi
if [ -n "$ncu" ]; then
  # One metric a run: an unknown name must not cost the others.
  for metric in dram__bytes_read.sum dram__bytes_write.sum gpu__time_duration.sum \
    sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed \
    sm__inst_executed_pipe_tensor.sum; do
    log=$out/ncu_$metric.log
    PROBE_TOOL=good timeout -k 5 "$limit" "$ncu" --clock-control none --target-processes all \
      --kernel-name regex:ToolKernel --metrics "$metric" \
      "$probe" --out "$out" --sections tools --seconds "$limit" >"$log" 2>&1
    row ncu good $? "$log" "$metric|ERR|WARNING"
  done
else
  echo "| ncu | - | not installed | - |"
fi
