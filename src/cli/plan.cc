// tokamak plan: the memory that a model needs and its possible speed, before loading it.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/byte_count.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "local/model_plan.h"

namespace tokamak::cli {
namespace {

constexpr char kExamples[] =
    "  tokamak plan model.gguf\n"
    "  tokamak plan model.gguf --context 8192 --concurrency 32\n"
    "  tokamak plan dummy:config.json --device h200 --json\n";

struct PlanFlags {
  EngineOptions engine;
  int32_t context = 0;
  int32_t concurrency = 64;
  bool json = false;
};

std::string Count(int64_t parameters) {
  const auto value = static_cast<double>(parameters);
  return parameters < 1'000'000'000 ? fmt::format("{:.1f} M", value / 1e6)
                                    : fmt::format("{:.2f} B", value / 1e9);
}

const char* Bound(const Roofline& roofline) {
  return roofline.memory_bound() ? "memory" : "compute";
}

void PrintMemory(const ModelPlan& p) {
  std::printf("%s (%s), for %s\n", p.model.c_str(), p.architecture.c_str(),
              p.hardware.name.c_str());
  for (size_t i = 0; i < p.stages.size(); ++i) {
    const ModelPlan::Stage& stage = p.stages[i];
    std::printf("  stage %-12zu layers %d to %d: needs %s, weights %s of it; %s per token%s\n", i,
                stage.first_layer, stage.end_layer - 1, ByteCount(stage.needed_bytes).c_str(),
                ByteCount(stage.weight_bytes).c_str(), ByteCount(stage.token_bytes).c_str(),
                i == p.fullest_stage ? " (the rest is about this one)" : "");
  }
  if (p.ranks > static_cast<int32_t>(std::max<size_t>(1, p.stages.size()))) {
    std::printf("  rank 0 of %d; no other needs more\n", p.ranks);
  }
  if (p.replicas > 1) std::printf("  one of %d replicas\n", p.replicas);
  if (!p.refusal.empty()) std::printf("  cannot run there: %s\n", p.refusal.c_str());
  std::printf("  parameters        %s", Count(p.num_parameters).c_str());
  if (p.active_parameters < p.num_parameters) {
    std::printf(", of which a token uses %s", Count(p.active_parameters).c_str());
  }
  std::printf("\n  weights           %s (stored:", ByteCount(p.weight_bytes).c_str());
  for (const auto& [type, bytes] : p.stored_bytes) {
    std::printf(" %s %s", type.c_str(), ByteCount(bytes).c_str());
  }
  std::printf(")\n");
  if (!p.draft_model.empty()) {
    std::printf("  draft model       %s, and %s per token of the KV cache (%s)\n",
                ByteCount(p.draft_bytes).c_str(), ByteCount(p.draft_token_bytes).c_str(),
                p.draft_model.c_str());
  }
  for (const ModelPlan::CacheGroup& group : p.cache_groups) {
    if (group.layers == 0) continue;  // they are on other stages
    std::printf("  KV cache          %s per token, %s, %d layers",
                ByteCount(group.token_bytes).c_str(), p.kv_dtype.c_str(), group.layers);
    if (group.window > 0) std::printf(", the last %d tokens", group.window);
    std::printf("\n");
  }
  if (p.task == Task::kEmbed) {
    std::printf("  cache of a step   %s\n", ByteCount(p.batch_cache_bytes).c_str());
  }
  if (p.table_bytes > 0) {
    std::printf("  RoPE table        %s\n", ByteCount(p.table_bytes).c_str());
  }
  std::printf("  activations       %s\n", ByteCount(p.activation_bytes).c_str());
  std::printf("  batches, tables   %s\n", ByteCount(p.staging_bytes).c_str());
  if (p.encoder_bytes > 0) {
    std::printf("  images            %s\n", ByteCount(p.encoder_bytes).c_str());
  }
  if (p.state_bytes > 0) {
    std::printf("  states            %s, %s per sequence\n", ByteCount(p.state_bytes).c_str(),
                ByteCount(p.sequence_state_bytes).c_str());
  }
  std::printf("  memory            %s", ByteCount(p.hardware.memory_bytes).c_str());
  if (p.needed_bytes() > p.hardware.memory_bytes) {
    std::printf(": %s too little", ByteCount(p.needed_bytes() - p.hardware.memory_bytes).c_str());
  } else if (p.task == Task::kEmbed) {
    std::printf(": enough for texts of up to %d tokens", p.max_context);
  } else {
    std::printf(": %lld sequences of %d tokens", static_cast<long long>(p.sequences), p.context);
  }
  if (!p.layout_that_fits.empty()) std::printf("; %s would fit", p.layout_that_fits.c_str());
  std::printf("\n");
}

void PrintSpeed(const ModelPlan& p) {
  constexpr int kBarCells = 40;
  std::printf("Speed limits: %.0f GB/s, %.0f GMAC/s in %s\n", p.hardware.memory_gb_s,
              p.hardware.gmac_s, p.hardware.multiplies_in.c_str());
  const double prefill = p.prefill_tokens / p.prefill.seconds();
  if (p.task == Task::kEmbed) {
    std::printf("  embedding         %.0f tok/s, %.1f texts/s of %d tokens, bound by %s\n", prefill,
                prefill / p.context, p.context, Bound(p.prefill));
    return;
  }
  std::printf("  prefill           %.0f tok/s, bound by %s\n", prefill, Bound(p.prefill));
  double best = 0;
  for (const ModelPlan::Decode& d : p.decode) best = std::max(best, d.batch / d.step.seconds());
  std::printf("  decode at context %d, all sequences together\n", p.context);
  for (const ModelPlan::Decode& d : p.decode) {
    const double rate = d.batch / d.step.seconds();
    std::string bar;
    for (int i = 0; i < std::max(1, static_cast<int>(kBarCells * rate / best)); ++i) bar += "█";
    std::printf("  %6d  %10.1f tok/s  %-7s %s%s\n", d.batch, rate, Bound(d.step), bar.c_str(),
                d.fits ? "" : "  (does not fit)");
  }
}

nlohmann::ordered_json Json(const Roofline& roofline, double tokens) {
  return {{"tok_s", tokens / roofline.seconds()},
          {"seconds", roofline.seconds()},
          {"memory_seconds", roofline.memory_seconds},
          {"compute_seconds", roofline.compute_seconds}};
}

void PrintJson(const ModelPlan& p) {
  nlohmann::ordered_json json = {{"model", p.model},
                                 {"architecture", p.architecture},
                                 {"task", p.task == Task::kEmbed ? "embed" : "generate"},
                                 {"parameters", p.num_parameters},
                                 {"active_parameters", p.active_parameters},
                                 {"max_context", p.max_context},
                                 {"hardware",
                                  {{"name", p.hardware.name},
                                   {"memory_bytes", p.hardware.memory_bytes},
                                   {"memory_gb_s", p.hardware.memory_gb_s},
                                   {"gmac_s", p.hardware.gmac_s},
                                   {"multiplies_in", p.hardware.multiplies_in}}},
                                 {"ranks", p.ranks},
                                 {"stages", nlohmann::ordered_json::array()},
                                 {"replicas", p.replicas},
                                 {"refusal", p.refusal},
                                 {"weight_bytes", p.weight_bytes},
                                 {"stored_bytes", nlohmann::ordered_json::object()},
                                 {"kv_cache_dtype", p.kv_dtype},
                                 {"block_size", p.block_size},
                                 {"block_bytes", p.block_bytes},
                                 {"cache_groups", nlohmann::ordered_json::array()},
                                 {"draft_bytes", p.draft_bytes},
                                 {"draft_token_bytes", p.draft_token_bytes},
                                 {"table_bytes", p.table_bytes},
                                 {"activation_bytes", p.activation_bytes},
                                 {"staging_bytes", p.staging_bytes},
                                 {"encoder_bytes", p.encoder_bytes},
                                 {"sequence_state_bytes", p.sequence_state_bytes},
                                 {"state_bytes", p.state_bytes},
                                 {"batch_cache_bytes", p.batch_cache_bytes},
                                 {"cache_blocks", p.cache_blocks},
                                 {"context", p.context},
                                 {"sequence_blocks", p.sequence_blocks},
                                 {"sequences", p.sequences},
                                 {"layout_that_fits", p.layout_that_fits},
                                 {"prefill", Json(p.prefill, p.prefill_tokens)},
                                 {"decode", nlohmann::ordered_json::array()}};
  for (const auto& [type, bytes] : p.stored_bytes) json["stored_bytes"][type] = bytes;
  for (const ModelPlan::Stage& stage : p.stages) {
    json["stages"].push_back({{"first_layer", stage.first_layer},
                              {"end_layer", stage.end_layer},
                              {"weight_bytes", stage.weight_bytes},
                              {"token_bytes", stage.token_bytes},
                              {"needed_bytes", stage.needed_bytes},
                              {"cache_blocks", stage.cache_blocks}});
  }
  for (const ModelPlan::CacheGroup& group : p.cache_groups) {
    json["cache_groups"].push_back({{"kind", group.kind},
                                    {"window", group.window},
                                    {"layers", group.layers},
                                    {"token_bytes", group.token_bytes}});
  }
  for (const ModelPlan::Decode& d : p.decode) {
    nlohmann::ordered_json entry = Json(d.step, d.batch);
    entry["batch"] = d.batch;
    entry["fits"] = d.fits;
    json["decode"].push_back(std::move(entry));
  }
  std::printf("%s\n", json.dump().c_str());
}

int Run(const PlanFlags& flags) {
  constexpr int32_t kMaxConcurrency = 4096;
  if (flags.context < 0) return UsageError("--context must not be negative");
  if (flags.concurrency < 1 || flags.concurrency > kMaxConcurrency) {
    return UsageError(fmt::format("--concurrency must be in [1, {}]", kMaxConcurrency));
  }
  EngineOptions options = flags.engine;
  const Result<std::string> model = ResolveModel(options.model);
  if (!model.ok()) return Fail(model.status());
  options.model = *model;
  const Result<ModelPlan> plan = PlanModel(options, flags.context, flags.concurrency);
  if (!plan.ok()) return Fail(plan.status());
  if (flags.json) {
    PrintJson(*plan);
  } else {
    PrintMemory(*plan);
    PrintSpeed(*plan);
  }
  return kOk;
}

}  // namespace

void AddPlanCommand(CommandLine& line) {
  auto flags = std::make_shared<PlanFlags>();
  Flags f = line.Command("plan", "Estimate a model's memory and speed without loading it",
                         kExamples, [flags] { return Run(*flags); });
  f.Add("--context", flags->context, "Tokens per sequence (default 2048)");
  f.Add("--concurrency", flags->concurrency, "Largest number of concurrent sequences");
  f.Add("--json", flags->json, "Print one JSON object");
  AddEngineFlags(f, flags->engine);
}

}  // namespace tokamak::cli
