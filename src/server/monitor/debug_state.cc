#include "server/monitor/debug_state.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/errors.h"
#include "server/json_text.h"

namespace tokamak {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kRateSeconds = 1;     // rates cover at least this, if snapshots go back so far
constexpr double kForgetSeconds = 10;  // older snapshots are dropped
constexpr std::chrono::seconds kPatience(2);  // longest wait for a snapshot

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

const char* Name(EngineSnapshot::State state) {
  switch (state) {
    case EngineSnapshot::State::kRunning:
      return "running";
    case EngineSnapshot::State::kWaiting:
      return "waiting";
    case EngineSnapshot::State::kPreempted:
      return "preempted";
    case EngineSnapshot::State::kPaused:
      return "paused";
  }
  return "";
}

Json ModelJson(const ModelInfo& model, const std::string& id) {
  return {{"id", id},
          {"architecture", model.architecture},
          {"parameters", model.num_parameters},
          {"weight_bytes", model.weight_bytes},
          {"max_context", model.max_context},
          {"kv_token_bytes", model.kv_token_bytes},
          {"device", model.device},
          {"backend", model.backend},
          {"threads", model.threads}};
}

Json EngineJson(const EngineSnapshot& snapshot, const DebugRates& rates) {
  const EngineStats& stats = snapshot.stats;
  return {{"steps", stats.steps},
          {"running", stats.running},
          {"waiting", stats.waiting},
          {"paused", stats.paused},
          {"preemptions", stats.preemptions},
          {"prompt_tokens", stats.prompt_tokens},
          {"generated_tokens", stats.generated_tokens},
          {"queried_prompt_tokens", stats.queried_prompt_tokens},
          {"cached_prompt_tokens", stats.cached_prompt_tokens},
          {"drafts", stats.drafts},
          {"accepted_drafts", stats.accepted_drafts},
          {"drafts_at", stats.drafts_at},
          {"accepted_drafts_at", stats.accepted_drafts_at},
          {"saved_seconds", stats.saved_seconds},
          {"rates",
           {{"prompt_tok_s", rates.prompt_tok_s},
            {"output_tok_s", rates.output_tok_s},
            {"steps_s", rates.steps_s},
            {"weight_gb_s", rates.weight_gb_s},
            {"kv_gb_s", rates.kv_gb_s},
            {"ceiling_gb_s", OrNull(snapshot.read_gb_s)}}}};
}

Json RanksJson(const EngineSnapshot& snapshot, const DebugRates& rates) {
  Json list = Json::array();
  for (size_t i = 0; i < rates.ranks.size(); ++i) {
    const RankStats& rank = snapshot.stats.ranks[i];
    list.push_back({{"replica", rank.replica},
                    {"stage", rank.stage},
                    {"rank", rank.rank},
                    {"steps", rank.steps},
                    {"busy", rates.ranks[i].busy},
                    {"wait", rates.ranks[i].wait},
                    {"received_mb_s", rates.ranks[i].received_mb_s}});
  }
  return list;
}

Json SequencesJson(const EngineSnapshot& snapshot) {
  Json list = Json::array();
  for (const EngineSnapshot::Sequence& s : snapshot.sequences) {
    list.push_back({{"request", s.request},
                    {"choice", s.choice},
                    {"state", Name(s.state)},
                    {"prompt_tokens", s.prompt_tokens},
                    {"computed_tokens", s.computed_tokens},
                    {"output_tokens", s.output_tokens},
                    {"cached_tokens", s.cached_tokens},
                    {"priority", s.priority},
                    {"age_s", s.age_seconds},
                    {"blocks", s.blocks}});
  }
  return list;
}

// One entry, because all cache groups take their blocks from the same pool.
Json BlocksJson(const EngineSnapshot::Blocks& blocks) {
  const char* kind = blocks.window_groups == 0 ? "full"
                     : blocks.full_groups == 0 ? "window"
                                               : "full+window";
  Json pool = {{"name", "kv"},
               {"kind", kind},
               {"total", blocks.total},
               {"free", blocks.free},
               {"referenced", blocks.referenced},
               {"cached", blocks.cached},
               {"host_total", blocks.host_total},
               {"host_used", blocks.host_used},
               {"map", blocks.map},
               {"map_truncated", blocks.map.size() < static_cast<size_t>(blocks.total)}};
  return {{"block_tokens", blocks.block_tokens}, {"groups", Json::array({std::move(pool)})}};
}

Json TreeJson(const EngineSnapshot& snapshot) {
  Json nodes = Json::array();
  for (const EngineSnapshot::TreeNode& node : snapshot.tree) {
    nodes.push_back({{"id", node.id},
                     {"parent", node.parent},
                     {"blocks", node.blocks},
                     {"readers", node.readers},
                     {"age_s", node.age_seconds}});
  }
  return {{"nodes_total", snapshot.num_tree_blocks},
          {"truncated", snapshot.tree_truncated},
          {"nodes", std::move(nodes)}};
}

Json RequestsJson(const EngineSnapshot& snapshot) {
  Json list = Json::array();
  for (const EngineSnapshot::Request& r : snapshot.requests) {
    list.push_back({{"id", r.id},
                    {"state", r.end ? FinishReasonName(*r.end) : "running"},
                    {"arrived", r.arrived},
                    {"admitted", OrNull(r.admitted)},
                    {"first_token", OrNull(r.first_token)},
                    {"ended", OrNull(r.ended)},
                    {"prompt_tokens", r.prompt_tokens},
                    {"cached_tokens", r.cached_tokens},
                    {"output_tokens", r.output_tokens},
                    {"preemptions", r.preemptions}});
  }
  return list;
}

// A rank's counts start again at 0 with its process, and may come a bit late.
DebugRates::Rank RatesOfRank(const RankStats& before, const RankStats& after, double seconds) {
  const RankStats& a = after.steps < before.steps ? RankStats() : before;
  const double wait = (after.wait_seconds - a.wait_seconds) / seconds;
  const double busy = (after.step_seconds - a.step_seconds) / seconds - wait;
  DebugRates::Rank rank;
  rank.busy = std::clamp(busy, 0.0, 1.0);
  rank.wait = std::clamp(wait, 0.0, 1 - rank.busy);
  rank.received_mb_s = static_cast<double>(after.received_bytes - a.received_bytes) / seconds / 1e6;
  return rank;
}

}  // namespace

DebugRates RatesBetween(const EngineSnapshot& before, const EngineSnapshot& after,
                        const ModelInfo& model) {
  DebugRates rates;
  const double seconds = after.time - before.time;
  const EngineStats& a = before.stats;
  const EngineStats& b = after.stats;
  rates.ranks.resize(b.ranks.size());
  if (seconds <= 0) return rates;
  const auto steps = static_cast<double>(b.steps - a.steps);
  const auto outputs = static_cast<double>(b.generated_tokens - a.generated_tokens);
  const auto positions = static_cast<double>(b.step_tokens - a.step_tokens);
  rates.steps_s = steps / seconds;
  rates.output_tok_s = outputs / seconds;
  rates.prompt_tok_s = static_cast<double>(b.prefill_tokens - a.prefill_tokens) / seconds;
  if (steps > 0) {
    rates.weight_gb_s = steps * StepWeightBytes(model, positions / steps) / seconds / 1e9;
  }
  rates.kv_gb_s = static_cast<double>(b.kv_bytes_read - a.kv_bytes_read) / seconds / 1e9;
  for (size_t i = 0; i < std::min(a.ranks.size(), b.ranks.size()); ++i) {
    rates.ranks[i] = RatesOfRank(a.ranks[i], b.ranks[i], seconds);
  }
  return rates;
}

std::string FormatDebugState(const EngineSnapshot& snapshot, const DebugRates& rates,
                             const ModelInfo& model, const std::string& fingerprint,
                             const DebugStateInfo& info) {
  const Json state = {{"version", 1},
                      {"time", snapshot.time},
                      {"uptime_s", snapshot.time - info.started},
                      {"build", {{"version", info.version}, {"fingerprint", fingerprint}}},
                      {"model", ModelJson(model, info.model_id)},
                      {"engine", EngineJson(snapshot, rates)},
                      {"sequences_total", snapshot.num_sequences},
                      {"sequences", SequencesJson(snapshot)},
                      {"ranks", RanksJson(snapshot, rates)},
                      {"kv", BlocksJson(snapshot.blocks)},
                      {"prefix_tree", TreeJson(snapshot)},
                      {"requests", RequestsJson(snapshot)}};
  return DumpJson(state);
}

Awaitable<> DebugState::Handle(ResponseWriter& writer) {
  if (!std::exchange(asked_, true)) {
    loaded_.Snapshot(
        [sender = snapshots_.sender()](std::shared_ptr<const EngineSnapshot> snapshot) {
          sender.Put(std::move(snapshot));
        });
  }
  waiting_.insert(&writer);
  // If the engine is stuck or its steps are long, the response is its last state; `time` says how
  // old that is.
  const auto deadline = ResponseWriter::Clock::now() + kPatience;
  co_await writer.Wait(deadline);
  waiting_.erase(&writer);
  if (body_.empty()) {
    writer.Respond(ErrorResponse(503, "the engine has not answered; see /health"));
  } else {
    HttpResponse response;
    response.body = body_;
    writer.Respond(std::move(response));
  }
}

void DebugState::OnSnapshot() {
  asked_ = false;
  for (std::shared_ptr<const EngineSnapshot>& snapshot : snapshots_.Take()) {
    if (!history_.empty() && history_.back() == snapshot) continue;
    const double now = snapshot->time;
    history_.push_back(std::move(snapshot));
    // Keep one snapshot that is at least kRateSeconds old, and none that is older than
    // kForgetSeconds.
    while (history_.size() > 2 && now - history_[1]->time >= kRateSeconds) history_.pop_front();
    while (now - history_.front()->time > kForgetSeconds) history_.pop_front();
    body_ = FormatDebugState(*history_.back(),
                             RatesBetween(*history_.front(), *history_.back(), loaded_.model()),
                             loaded_.model(), loaded_.system_fingerprint(), info_);
  }
  for (ResponseWriter* writer : waiting_) writer->Notify();
}

}  // namespace tokamak
