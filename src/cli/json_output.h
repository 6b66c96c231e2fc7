// The output of commands with --json: one object per line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "loadgen/report.h"
#include "ops/cpu/roofline.h"
#include "tokamak/engine.h"

namespace tokamak::cli {

// `run --json`: one choice, with its chunks merged.
std::string RunJson(const OutputChunk& answer, const std::string& system_fingerprint);

// `score --json`. logprobs[i] and top[i] belong to token_ids[i]; they are null for the first token.
struct Score {
  std::vector<int32_t> token_ids;
  std::vector<TokenLogprobs> logprobs;  // from token 1 on
  double mean_logprob = 0;
  double perplexity = 0;
};
std::string ScoreJson(const Score& score);

// `embed --json`: the text number `index`.
std::string EmbedJson(size_t index, const std::vector<float>& vector);

// `tokenize --json`.
struct Piece {
  int32_t id = 0;
  std::string text;
};
std::string TokenizeJson(const std::vector<Piece>& pieces);

// `replay --json`.
std::string ReplayJson(int64_t requests, int64_t steps, int64_t tokens);

// `bench --json`: the result of one configuration.
struct BenchResult {
  std::string model, backend, device;
  int32_t threads = 0;
  int32_t batch = 0;  // sequences that may run at the same time
  int64_t requests = 0;
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
  float temperature = 0;
  double seconds = 0;
  double prompt_tok_s = 0;
  double output_tok_s = 0;
  double prompt_gmac_s = 0;              // multiplications by weights per second, for prompts
  double output_gmac_s = 0;              // and for decoding
  loadgen::Spread ttft_ms;               // from submission to a request's first token
  loadgen::Spread tpot_ms;               // a request's mean gap between output tokens
  double weight_gb_s = 0;                // weight bytes × steps / seconds
  double kv_gb_s = 0;                    // keys and values read by decoding / seconds
  int64_t drafts = 0;                    // EngineStats::drafts of the run
  int64_t accepted_drafts = 0;           // of these
  bool uniform_routing = false;          // EngineOptions::uniform_routing
  double experts_touched = 0;            // by an MoE layer in a decode step, on average; 0: none
  std::vector<double> expert_imbalance;  // of each MoE layer: ExpertImbalance
  std::optional<CpuRoofline> roofline;   // of this machine, if measured
  double load_s = 0;
  double peak_rss_mb = 0;
  double peak_device_mb = 0;  // 0 on a CPU
  std::string commit;
};
std::string BenchJson(const BenchResult& result);

}  // namespace tokamak::cli
