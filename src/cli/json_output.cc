#include "cli/json_output.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "cli/common.h"

namespace tokamak::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// [[id, logprob], ...]
Json Top(const TokenLogprobs& logprobs) {
  Json top = Json::array();
  for (const TokenLogprobs::Entry& entry : logprobs.top) {
    top.push_back(Json::array({entry.token_id, entry.logprob}));
  }
  return top;
}

bool AnyTop(const std::vector<TokenLogprobs>& list) {
  for (const TokenLogprobs& logprobs : list) {
    if (!logprobs.top.empty()) return true;
  }
  return false;
}

Json Object(const CpuRoofline& c) {
  return {{"memory_gb_s", c.memory_gb_s}, {"weights_gb_s", c.weights_gb_s},
          {"cache_gb_s", c.cache_gb_s},   {"int8_gmac_s", c.int8_gmac_s},
          {"f32_gmac_s", c.f32_gmac_s},   {"bf16_gmac_s", c.bf16_gmac_s},
          {"tile_gmac_s", c.tile_gmac_s}};
}

Json Object(const loadgen::Spread& s) { return {{"p50", s.p50}, {"p90", s.p90}, {"p99", s.p99}}; }

}  // namespace

std::string RunJson(const OutputChunk& answer, const std::string& system_fingerprint) {
  Json json = Json::object();
  json["index"] = answer.choice;
  json["token_ids"] = answer.token_ids;
  json["text"] = answer.text;
  json["finish_reason"] = answer.finish_reason ? FinishReasonName(*answer.finish_reason) : "error";
  Json logprobs = Json::array(), tops = Json::array();
  for (const TokenLogprobs& token : answer.logprobs) {
    logprobs.push_back(token.token.logprob);
    tops.push_back(Top(token));
  }
  json["logprobs"] = std::move(logprobs);
  if (AnyTop(answer.logprobs)) json["top"] = std::move(tops);
  if (!answer.prompt_logprobs.empty()) {
    Json prompt = Json::array({nullptr}), prompt_top = Json::array({nullptr});
    for (const TokenLogprobs& token : answer.prompt_logprobs) {
      prompt.push_back(token.token.logprob);
      prompt_top.push_back(Top(token));
    }
    json["prompt_logprobs"] = std::move(prompt);
    if (AnyTop(answer.prompt_logprobs)) json["prompt_top"] = std::move(prompt_top);
  }
  if (answer.beam_score) json["beam_score"] = *answer.beam_score;
  json["seed"] = answer.seed;
  json["usage"] = {{"prompt_tokens", answer.usage.prompt_tokens},
                   {"cached_tokens", answer.usage.cached_tokens},
                   {"completion_tokens", answer.usage.completion_tokens}};
  json["system_fingerprint"] = system_fingerprint;
  return Dump(json);
}

std::string ScoreJson(const Score& score) {
  Json logprobs = Json::array({nullptr}), tops = Json::array({nullptr});
  for (const TokenLogprobs& token : score.logprobs) {
    logprobs.push_back(token.token.logprob);
    tops.push_back(Top(token));
  }
  Json json = {{"token_ids", score.token_ids}, {"logprobs", std::move(logprobs)}};
  json["top"] = std::move(tops);
  json["mean_logprob"] = score.mean_logprob;
  json["perplexity"] = score.perplexity;
  return Dump(json);
}

std::string EmbedJson(size_t index, const std::vector<float>& vector) {
  // Formats the shortest digits that parse to the same float.
  return fmt::format("{{\"index\":{},\"embedding\":[{}]}}", index, fmt::join(vector, ","));
}

std::string TokenizeJson(const std::vector<Piece>& pieces) {
  Json ids = Json::array(), texts = Json::array();
  for (const Piece& piece : pieces) {
    ids.push_back(piece.id);
    texts.push_back(piece.text);
  }
  return Dump({{"token_ids", std::move(ids)}, {"pieces", std::move(texts)}});
}

std::string ReplayJson(int64_t requests, int64_t steps, int64_t tokens) {
  return Dump({{"requests", requests}, {"steps", steps}, {"tokens", tokens}, {"equal", true}});
}

std::string BenchJson(const BenchResult& r) {
  return Dump({{"model", r.model},
               {"backend", r.backend},
               {"device", r.device},
               {"threads", r.threads},
               {"batch", r.batch},
               {"requests", r.requests},
               {"input_tokens", r.input_tokens},
               {"output_tokens", r.output_tokens},
               {"temperature", r.temperature},
               {"seconds", r.seconds},
               {"prompt_tok_s", r.prompt_tok_s},
               {"output_tok_s", r.output_tok_s},
               {"prompt_gmac_s", r.prompt_gmac_s},
               {"output_gmac_s", r.output_gmac_s},
               {"ttft_ms", Object(r.ttft_ms)},
               {"tpot_ms", Object(r.tpot_ms)},
               {"weight_gb_s", r.weight_gb_s},
               {"kv_gb_s", r.kv_gb_s},
               {"drafts", r.drafts},
               {"accepted_drafts", r.accepted_drafts},
               {"routing", r.uniform_routing ? "uniform" : "model"},
               {"experts_touched", r.experts_touched},
               {"expert_imbalance", r.expert_imbalance},
               {"ceiling", r.roofline ? Object(*r.roofline) : Json()},
               {"load_s", r.load_s},
               {"peak_rss_mb", r.peak_rss_mb},
               {"peak_device_mb", r.peak_device_mb},
               {"commit", r.commit}});
}

}  // namespace tokamak::cli
