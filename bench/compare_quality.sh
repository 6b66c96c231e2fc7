#!/bin/bash
# The effect of int8 activations here and in llama.cpp. For each quantized type: the KL divergence
# of the next token's distribution from that with f32 activations and the same weights, how often
# the most likely token is the same, and the perplexities, on bench/texts/prose.txt.
#
#   bench/compare_quality.sh --llama DIR [--types Q4_1,Q8_0,...] [--build build]
#
# DIR has llama.cpp's llama-quantize and llama-perplexity (bench/compare_cpu.sh builds them). Needs
# 1 GB for temporary files.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

llama='' types=Q4_0,Q4_1,Q5_0,Q5_1,Q8_0,IQ4_NL build=build
while [ $# -gt 0 ]; do
  case $1 in
    --llama) llama=$2 ;;
    --types) types=$2 ;;
    --build) build=$2 ;;
    *) echo "unknown option $1" >&2; exit 2 ;;
  esac
  shift 2
done
[ -x "$llama/llama-perplexity" ] || { echo "--llama DIR: no llama-perplexity there" >&2; exit 2; }

model=${TOKAMAK_TEST_MODEL:-$HOME/.cache/tokamak/models/SmolLM2-135M-Instruct.Q4_1.gguf}
text=bench/texts/prose.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

quantize() { "$llama/llama-quantize" --allow-requantize "$@" > "$work/log" 2>&1 || { tail -5 "$work/log" >&2; exit 1; }; }

echo "| type | engine | mean KL divergence | same most likely token | perplexity, int8 | with f32 |"
echo "|---|---|---|---|---|---|"
for type in ${types//,/ }; do
  file=$work/$type.gguf
  if [[ $model = *."$type".gguf ]]; then cp "$model" "$file"; else quantize "$model" "$file" "$type"; fi
  quantize "$file" "$work/f32.gguf" F32
  "$llama/llama-perplexity" -m "$work/f32.gguf" -f $text -c 512 --kl-divergence-base "$work/base" \
    > "$work/log" 2>&1
  "$llama/llama-perplexity" -m "$file" -f $text -c 512 --kl-divergence-base "$work/base" \
    --kl-divergence > "$work/kl" 2>&1
  rm "$work/f32.gguf" "$work/base"
  awk -v type="$type" '
    /^Mean PPL\(Q\) +:/ { ppl = $4 } /^Mean PPL\(base\) +:/ { base = $4 }
    /^Mean    KLD:/ { kl = $3 " ± " $5 } /^Same top p:/ { top = $4 " ± " $6 " %" }
    END { printf "| %s | llama.cpp | %s | %s | %s | %s |\n", type, kl, top, ppl, base }' "$work/kl"
  "$build/bench/quality" "$file" $text | awk -v type="$type" '
    { gsub(",", ""); for (i = 1; i <= NF; ++i) v[$i] = $(i + 1)
      printf "| %s | tokamak | %s | %s | %s | %s |\n", type, v["mean"], v["top"], v["perplexity"],
             v["against"] }'
  rm "$file"
done
