// invariance: checks that a request's answer has the same bits alone and in any batch. Runs the
// whole engine and compares ids, logprobs and their alternatives, and texts.
//
//   build/tests/invariance/invariance --requests 1000
//
// This is the full run: 1000 random requests for every weight type and every ISA of this machine,
// each alone and in two mixes, one with one thread and one with two. ctest runs fewer.
//
//   build/tests/invariance/invariance --device cuda --requests 100
//
// This runs on a GPU, in two mixes without graphs and two with graphs, with overlapping steps.
// Exits with 77 if there is no GPU or no backend for it.
//
//   build/tests/invariance/invariance --drafts text:1,text:2,model:1,model:2,forced:1,forced:2
//
// This runs each round in a mix for each of these ways to guess tokens, with so many steps in
// flight: matches in the text, a draft model, and text that a grammar forces. Alone, requests have
// no drafts.
//
//   build/tests/invariance/invariance --goldens llava_64,gemma3_vision_odd,qwen35_odd
//
// This uses golden models that take images, which their requests have, or that keep states
// (golden_model.cc).
//
//   build/tests/invariance/invariance --model default --requests 30
//
// This uses SmolLM2-135M-Instruct, as fetched by scripts/fetch-model, or any other model by its
// path. Exits with 77 if the default model is missing. --types Q4_K,F16, --isas avx2 and --seed
// select a part. Prints the first difference of each combination, with the command that repeats it.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/option_names.h"
#include "base/testing/refs.h"
#include "invariance/golden_model.h"
#include "invariance/round.h"
#include "invariance/tiny_model.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"

namespace tokamak::invariance {
namespace {

constexpr int kSkipped = 77;
constexpr std::string_view kCpu = "cpu";
constexpr std::string_view kCuda = "cuda";
constexpr int32_t kRoundRequests = 40;
// After this many comparisons, the whole run and each combination of type and ISA must have met
// everything that could make a difference.
constexpr int64_t kEnough = 60;
constexpr int64_t kEnoughForCombination = 1000;

struct Flags {
  const char* program = "";
  int32_t requests = 40;
  uint64_t seed = 1;
  std::string model;
  std::string device = "cpu";
  KernelChoice kernels = KernelChoice::kVerified;
  std::vector<std::string> types;
  std::vector<GoldenModel> goldens;  // instead of types
  std::vector<std::string> isas;
  std::vector<std::string> drafts;  // names of draft_mixes
  std::vector<DraftMix> draft_mixes;
};

std::vector<std::string> Split(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream in(list);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

// The ISAs that this machine supports, slowest first, including variants with f32 activations.
std::vector<std::string> MachineIsas() {
  std::vector<std::string> isas;
  for (const std::string& isa : CpuIsaNames()) {
    if (!MakeCpuOps({.threads = 1, .isa = isa}).ok()) continue;
    isas.push_back(isa);
    if (isa == "avx2" || isa == "avx512") isas.push_back(isa + "/precise");
  }
  return isas;
}

// Reads "text:2": a method and the steps in flight.
std::optional<DraftMix> ParseDraftMix(const std::string& name) {
  constexpr std::string_view kMethods[] = {"text", "model", "forced"};
  const size_t colon = name.find(':');
  const auto* const method =
      std::find(std::begin(kMethods), std::end(kMethods), std::string_view(name).substr(0, colon));
  const int depth = colon == name.npos ? 0 : std::atoi(name.c_str() + colon + 1);
  if (method == std::end(kMethods) || depth < 1) return std::nullopt;
  return DraftMix{static_cast<DraftMix::Method>(method - std::begin(kMethods)), depth};
}

bool Parse(int argc, char** argv, Flags* flags) {
  flags->program = argv[0];
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) return false;
    const char* const value = argv[i + 1];
    if (name == "--requests") {
      flags->requests = std::max(1, std::atoi(value));
    } else if (name == "--seed") {
      flags->seed = std::strtoull(value, nullptr, 10);
    } else if (name == "--model") {
      flags->model = value;
    } else if (name == "--device" && (value == kCpu || value == kCuda)) {
      flags->device = value;
    } else if (const auto kernels = ParseOption<KernelChoice>(value);
               kernels && name == "--kernels") {
      flags->kernels = *kernels;
    } else if (name == "--types") {
      flags->types = Split(value);
    } else if (name == "--goldens") {
      for (const std::string& golden : Split(value)) {
        const Result<GoldenModel> found = FindGoldenModel(golden);
        if (!found.ok()) return false;
        flags->goldens.push_back(*found);
      }
    } else if (name == "--isas") {
      flags->isas = Split(value);
    } else if (name == "--drafts") {
      flags->drafts = Split(value);
      for (const std::string& mix : flags->drafts) {
        const std::optional<DraftMix> parsed = ParseDraftMix(mix);
        if (!parsed) return false;
        flags->draft_mixes.push_back(*parsed);
      }
    } else {
      return false;
    }
  }
  if (!flags->goldens.empty() && !flags->types.empty()) return false;
  if (flags->types.empty() && flags->goldens.empty()) flags->types = WeightTypes();
  const bool states = std::any_of(flags->goldens.begin(), flags->goldens.end(),
                                  [](const GoldenModel& golden) { return golden.states; });
  if (states && !flags->drafts.empty()) return false;  // they take none
  if (flags->device == kCuda && !flags->isas.empty()) return false;
  if (flags->isas.empty() && flags->model.empty() && flags->device == kCpu) {
    flags->isas = MachineIsas();
  }
  if (flags->isas.empty()) flags->isas = {"auto"};
  return true;
}

// A temporary folder that its destructor deletes.
class TempFolder {
 public:
  TempFolder() {
    path_ = (std::filesystem::temp_directory_path() / "tokamak-invariance-XXXXXX").string();
    if (mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~TempFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// "avx2", or the GPU's device.
std::string NameOf(const RoundOptions& round) { return round.gpu() ? round.device : round.isa; }

// The cases that mixes of these models must meet.
Needs NeedsOf(const Flags& flags, const std::vector<GoldenModel>& goldens) {
  Needs needs = {.graphs = flags.device == kCuda,
                 .draft_models = flags.model.empty() && goldens.empty()};
  needs.images =
      std::any_of(goldens.begin(), goldens.end(), [](const auto& golden) { return golden.images; });
  needs.states = !goldens.empty() && std::all_of(goldens.begin(), goldens.end(),
                                                 [](const auto& golden) { return golden.states; });
  return needs;
}

// Prints a message and returns false if `counts` lacks what `enough` comparisons must have met.
bool Proves(const Needs& needs, const Counts& counts, int64_t enough) {
  const std::string zero = counts.FirstZero(needs);
  if (counts.requests < enough || zero.empty()) return true;
  fmt::print("FAILED: there were no {}, so this run proves nothing about them\n", zero);
  return false;
}

// The same for a mix that drafts.
bool ProvesDrafts(const Flags& flags, const DraftMix& mix, const std::string& name,
                  const Counts& counts) {
  using Method = DraftMix::Method;
  const bool missing =
      counts.accepted_drafts == 0 || counts.drafts == counts.accepted_drafts ||
      counts.masked_accepted == 0 || counts.preemptions == 0 || counts.chunks == 0 ||
      counts.forks == 0 ||
      (mix.method == Method::kText && counts.accepted_drafts == counts.masked_accepted) ||
      (mix.method == Method::kModel && counts.own_drafts == 0) ||
      (!flags.goldens.empty() && (counts.drafts_with_images == 0 || counts.chunks_in_images == 0));
  if (counts.requests < kEnough || !missing) return true;
  fmt::print("FAILED: {} did not meet all that could make a difference: {}\n", name,
             counts.ToString());
  return false;
}

// Prints what the mixes met. Returns whether that is enough.
bool Show(const Flags& flags, const Needs& needs, const std::string& what, double seconds,
          const std::vector<Counts>& counts) {
  fmt::print("{}: {:.1f} s of CPU time", what, seconds);
  if (flags.draft_mixes.empty()) {
    fmt::print("; {}\n", counts[0].ToString());
    return Proves(needs, counts[0], kEnoughForCombination);
  }
  fmt::print("\n");
  bool enough = true;
  for (size_t i = 0; i < counts.size(); ++i) {
    fmt::print("  drafts {}: {}\n", flags.drafts[i], counts[i].ToString());
    enough = ProvesDrafts(flags, flags.draft_mixes[i], flags.drafts[i], counts[i]) && enough;
  }
  return enough;
}

// Runs all rounds of one model and ISA, up to the first failure. `choice`: the flags that select
// them.
bool RunCombination(const Flags& flags, const Needs& needs, const std::string& choice,
                    RoundOptions round, Counts* total) {
  std::vector<Counts> counts(std::max<size_t>(1, flags.drafts.size()));
  std::string failure;
  const std::clock_t start = std::clock();
  round.device = flags.device;
  round.kernels = flags.kernels;
  round.draft_mixes = flags.draft_mixes;
  const std::string name = NameOf(round);
  const std::string where =
      round.gpu() ? "--device " + name + " --kernels " + std::string(Name(flags.kernels))
                  : "--isas " + name;
  round.salt = choice + " " + name;
  round.seed = flags.seed;
  for (int32_t left = flags.requests; left > 0 && failure.empty(); left -= round.requests) {
    round.requests = std::min(left, kRoundRequests);
    failure = RunRound(round, &counts);
    if (failure.empty()) {
      ++round.seed;
      continue;
    }
    fmt::print("FAILED {} {} seed {}: {}\n  repeat with: {} {} {}{}{} --requests {} --seed {}\n",
               choice, name, round.seed, failure, flags.program, choice, where,
               flags.drafts.empty() ? "" : " --drafts ", fmt::join(flags.drafts, ","),
               round.requests, round.seed);
  }
  for (const Counts& mix : counts) total->Add(mix);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  const bool ok = failure.empty() && Show(flags, needs, choice + " " + name, seconds, counts);
  std::fflush(stdout);
  return ok;
}

int Report(const Flags& flags, int num_failed, const Counts& total) {
  fmt::print("total: {}\n", total.ToString());
  if (num_failed > 0) {
    fmt::print("{} combinations FAILED\n", num_failed);
    return 1;
  }
  if (flags.drafts.empty() && !Proves(NeedsOf(flags, flags.goldens), total, kEnough)) return 1;
  fmt::print("every answer was the same alone and in mixed batches\n");
  return 0;
}

// Runs a model on every ISA, and returns how many combinations failed.
int RunIsas(const Flags& flags, const Needs& needs, const std::string& choice,
            const Status& written, RoundOptions round, Counts* total) {
  if (!written.ok()) {
    fmt::print("{}\n", written.ToString());
    return 1;
  }
  int num_failed = 0;
  for (const std::string& isa : flags.isas) {
    round.isa = isa;
    num_failed += RunCombination(flags, needs, choice, round, total) ? 0 : 1;
  }
  return num_failed;
}

int RunModel(const Flags& flags) {
  RoundOptions round;
  round.model = flags.model;
  round.tiny = false;
  if (flags.model == "default") {
    const auto found = testing::FindModel();
    if (!found) {
      fmt::print("skipped: the model has not been fetched; run scripts/fetch-model\n");
      return kSkipped;
    }
    round.model = *found;
  }
  Counts total;
  const int num_failed =
      RunIsas(flags, NeedsOf(flags, {}), "--model " + flags.model, Status(), round, &total);
  return Report(flags, num_failed, total);
}

// Writes the models of a weight type.
Status WriteModels(const std::string& folder, const std::string& type, RoundOptions* round) {
  round->model = folder + "/" + type + ".gguf";
  round->other_model = folder + "/other." + type + ".gguf";
  RETURN_IF_ERROR(WriteTinyModel(type, round->model));
  return WriteTinyModel(type, round->other_model, kTinySeed + 1);
}

Status WriteModels(const std::string& folder, const GoldenModel& golden, RoundOptions* round) {
  round->model = folder + "/" + golden.name;
  round->cache_groups = golden.cache_groups;
  round->least_batch_tokens = golden.least_batch_tokens;
  round->states = golden.states;
  return WriteGoldenModel(golden, round->model);
}

int RunTinyModels(const Flags& flags) {
  const TempFolder folder;
  if (folder.path().empty()) {
    fmt::print("cannot make a temporary folder\n");
    return 1;
  }
  Counts total;
  int num_failed = 0;
  for (const GoldenModel& golden : flags.goldens) {
    RoundOptions round;
    const Status written = WriteModels(folder.path(), golden, &round);
    num_failed += RunIsas(flags, NeedsOf(flags, {golden}), fmt::format("--goldens {}", golden.name),
                          written, round, &total);
  }
  for (const std::string& type : flags.types) {
    RoundOptions round;
    const Status written = WriteModels(folder.path(), type, &round);
    num_failed += RunIsas(flags, NeedsOf(flags, {}), "--types " + type, written, round, &total);
  }
  return Report(flags, num_failed, total);
}

}  // namespace
}  // namespace tokamak::invariance

int main(int argc, char** argv) {
  tokamak::invariance::Flags flags;
  if (!tokamak::invariance::Parse(argc, argv, &flags)) {
    fmt::print(
        stderr,
        "usage: {} [--requests N] [--seed S] [--model PATH|default] [--types T,... | --goldens "
        "MODEL,...] [--drafts text:1,model:1,forced:2,...] [--isas I,... | --device cuda "
        "[--kernels "
        "verified|new|plain|triton]]\n",
        argv[0]);
    return 2;
  }
  tokamak::SetLogLevel(tokamak::LogLevel::kOff);
  if (flags.device == tokamak::invariance::kCuda) {
    const tokamak::Status status = tokamak::MakeCudaOps({}).status();
    if (!status.ok()) {
      fmt::print("skipped: no CUDA backend here: {}\n", status.ToString());
      return tokamak::invariance::kSkipped;
    }
  }
  return flags.model.empty() ? RunTinyModels(flags) : RunModel(flags);
}
