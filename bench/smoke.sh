#!/bin/sh
# smoke.sh TOKAMAK BENCHMARK...: runs every benchmark briefly on a model with random weights, and
# fails if one fails. The figures mean nothing. Leaves out the largest sizes and passes of the real
# model's size ("stack").
set -eu

tokamak=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/config.json" <<'JSON'
{"architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "vocab_size": 512,
 "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
 "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
 "rope_theta": 10000.0, "tie_word_embeddings": true, "attention_bias": false, "mlp_bias": false}
JSON

says() {
  grep -q "$1" "$work/out" || {
    echo "\"$1\" is missing from this output:" >&2
    cat "$work/out" >&2
    exit 1
  }
}

echo "bench latency"
"$tokamak" bench latency "dummy:$work/config.json" --batch 1,3 --prompt-tokens 20 \
  --output-tokens 5 --runs 2 --device cpu --threads 2 --profile --trace "$work/trace" \
  >"$work/out" 2>&1
says 'batch 3'
says 'GMAC/s'
says 'gaps between steps'
grep -q '"name": "linear"' "$work/trace"
"$tokamak" bench latency "dummy:$work/config.json" --batch 2 --prompt-tokens 20 --output-tokens 5 \
  --device cpu --json >"$work/out" 2>&1
says '"int8_gmac_s"'

echo "forms of latent attention"
bench=$(dirname "$0")
sed -e 's/"num_hidden_layers": 24/"num_hidden_layers": 2/' \
  -e 's/"n_routed_experts": 64/"n_routed_experts": 8/' \
  "$bench/configs/deepseek-v2-3b.json" >"$work/latent.json"
for form in absorbed latent standard auto; do
  "$tokamak" bench latency "dummy:$work/latent.json" --mla $form --dummy-dtype q4_k \
    --max-context 512 --batch 2 --prompt-tokens 200 --output-tokens 3 --device cpu >"$work/out" 2>&1
  says 'busiest expert'
done

echo "bench throughput"
"$tokamak" bench throughput "dummy:$work/config.json" --requests 5 --input 3:30 --output 2:9 \
  --device cpu --json >"$work/out" 2>&1
says '"output_tok_s"'

echo "loading"
TOKAMAK_BINARY=$tokamak "$bench/loading.py" "$bench/../tests/golden/llama_tied.gguf" --runs 1 \
  -- --device cpu >"$work/out" 2>&1 || cat "$work/out" >&2
says 'from the disk [0-9]*% of its speed'

for benchmark in "$@"; do
  echo "$(basename "$benchmark")"
  quick=
  case $benchmark in *ops_bench) quick=--quick ;; esac
  "$benchmark" $quick --benchmark_min_time=0.001 \
    --benchmark_filter='-stack|/256/|/512/|queries:512|context:8192' >"$work/out" 2>&1 || {
    tail -40 "$work/out" >&2
    exit 1
  }
done
