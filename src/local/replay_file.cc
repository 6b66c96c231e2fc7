#include "local/replay_file.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/option_names.h"
#include "local/load.h"
#include "local/structured_output.h"
#include "local/text_decoder.h"
#include "tokenizer/load/open_tokenizer.h"

namespace tokamak {
namespace {

constexpr uint64_t kMaxRecordBytes = uint64_t{16} << 30;

constexpr char kModel[] = "model";
constexpr char kDevice[] = "device";
constexpr char kIsa[] = "isa";
constexpr char kKernels[] = "kernels";
constexpr char kKvCacheDtype[] = "kv_cache_dtype";
constexpr char kAttention[] = "attention";
constexpr char kMla[] = "mla";
constexpr char kTensorParallel[] = "tensor_parallel";
constexpr char kPipelineParallel[] = "pipeline_parallel";
constexpr char kDraftModel[] = "draft_model";
constexpr char kMmproj[] = "mmproj";
constexpr char kFingerprint[] = "system_fingerprint";

std::string Property(const RecordHeader& header, std::string_view key) {
  for (const auto& [name, value] : header.properties) {
    if (name == key) return value;
  }
  return "";
}

// Sets an option to the recorded value. Older records lack some.
template <typename Option>
Status ReadOption(const RecordHeader& header, std::string_view key, Option& option) {
  const std::string name = Property(header, key);
  if (name.empty()) return Status();
  const std::optional<Option> value = ParseOption<Option>(name);
  if (!value) return DataLoss("the record's {} is unknown: \"{}\"", key, name);
  option = *value;
  return Status();
}

// The options for an executor with the record's limits.
Result<EngineOptions> OptionsOf(const RecordHeader& header, const ReplayFileOptions& replay) {
  const CacheSpec& cache = header.limits.cache;
  if (cache.groups.empty()) return DataLoss("{}: the record contains no cache group", replay.path);
  EngineOptions options;
  options.model = replay.model.empty() ? Property(header, kModel) : replay.model;
  options.mmproj = Property(header, kMmproj);
  options.device = Property(header, kDevice);
  options.isa = Property(header, kIsa);
  RETURN_IF_ERROR(ReadOption(header, kKernels, options.kernels));
  RETURN_IF_ERROR(ReadOption(header, kAttention, options.attention));
  options.steps_in_flight = header.limits.depth;
  RETURN_IF_ERROR(ReadOption(header, kKvCacheDtype, options.kv_cache_dtype));
  RETURN_IF_ERROR(ReadOption(header, kMla, options.mla));
  // CheckOptions refuses what makes no sense.
  if (const std::string ranks = Property(header, kTensorParallel); !ranks.empty()) {
    options.tensor_parallel = std::atoi(ranks.c_str());
  }
  if (const std::string stages = Property(header, kPipelineParallel); !stages.empty()) {
    options.pipeline_parallel = std::atoi(stages.c_str());
  }
  options.threads = replay.threads;
  options.max_seqs = header.limits.max_seqs;
  options.max_batch_tokens = header.limits.max_step_tokens;
  const bool from_model = header.options.drafts.from_model;
  options.speculate = header.options.drafts.most == 0 ? Speculation::kOff
                      : from_model                    ? Speculation::kDraft
                                                      : Speculation::kNgram;
  options.draft_tokens = std::max(1, header.options.drafts.most);
  options.draft_tokens_min = std::min(header.options.drafts.least, options.draft_tokens);
  options.draft_model = Property(header, kDraftModel);
  options.draft_min_probability = header.options.drafts.min_probability;
  if (header.limits.max_encoder_rows == 0) options.max_images = 0;
  options.image_cache_tokens = header.limits.max_encoder_rows;
  options.max_context = header.limits.max_context;
  options.block_size = cache.groups[0].block_size;
  options.num_blocks = cache.num_device_blocks;
  options.host_cache_bytes = cache.block_bytes * cache.num_host_blocks;
  return options;
}

// Adds decoders, because stop strings end generations, and constraints.
void Complete(const std::shared_ptr<const Tokenizer>& tokenizer, ConstraintMaker& constraints,
              const ArrivalEvent& event, Arrival* arrival) {
  const SamplingParams& sampling = arrival->sampling;
  auto made = constraints.MakeFor(sampling);
  if (made.ok()) arrival->constraints = *std::move(made);  // otherwise the core refuses it
  if (!event.has_decoders || tokenizer == nullptr) return;
  for (int32_t choice = 0; choice < sampling.n; ++choice) {
    auto decoder = MakeTextDecoder(tokenizer, sampling);
    if (!decoder.ok()) return;  // Submit refuses it again, as it did in the recorded run
    arrival->decoders.push_back(*std::move(decoder));
  }
}

}  // namespace

RecordHeader MakeRecordHeader(const EngineOptions& options, const std::string& isa,
                              const std::string& system_fingerprint, const EngineCoreOptions& core,
                              const ExecutorLimits& limits) {
  RecordHeader header;
  header.properties = {{kModel, options.model},
                       {kDevice, options.device},
                       {kIsa, isa},
                       {kKernels, std::string(Name(options.kernels))},
                       {kAttention, std::string(Name(options.attention))},
                       {kKvCacheDtype, std::string(Name(options.kv_cache_dtype))},
                       {kMla, std::string(Name(options.mla))},
                       {kTensorParallel, std::to_string(options.tensor_parallel)},
                       {kPipelineParallel, std::to_string(options.pipeline_parallel)},
                       {kDraftModel, options.draft_model},
                       {kMmproj, options.mmproj},
                       {kFingerprint, system_fingerprint}};
  header.options = core;
  header.options.on_request_done = nullptr;
  header.limits = limits;
  return header;
}

Result<ReplayFileReport> ReplayFile(const ReplayFileOptions& options) {
  ASSIGN_OR_RETURN(const std::string bytes, ReadWholeFile(options.path, kMaxRecordBytes));
  ASSIGN_OR_RETURN(RecordReader reader, RecordReader::Open(options.path, bytes));
  ASSIGN_OR_RETURN(const EngineOptions engine, OptionsOf(reader.header(), options));
  ReplayFileReport report;
  report.recorded_fingerprint = Property(reader.header(), kFingerprint);
  EngineParts parts;
  if (options.schedule_only) {
    // If the tokenizer is missing, replaying goes on without it: only stop strings and structured
    // outputs need it.
    Result<std::shared_ptr<const Tokenizer>> tokenizer = OpenTokenizer(engine.model);
    if (tokenizer.ok()) parts.tokenizer = *tokenizer;
    if (parts.tokenizer) parts.constraint_tokens = MakeConstraintTokens(parts.tokenizer);
  } else {
    ASSIGN_OR_RETURN(parts, LoadParts(engine));
    report.fingerprint = parts.system_fingerprint;
  }
  ReplayOptions replay;
  if (!parts.replicas.empty()) replay.executor = parts.replicas[0].executor.get();
  ConstraintMaker constraints(parts.constraint_tokens);
  replay.on_arrival = [&](const ArrivalEvent& event, Arrival* arrival) {
    Complete(parts.tokenizer, constraints, event, arrival);
  };
  Result<ReplayReport> counts = Replay(std::move(reader), replay);
  if (!counts.ok()) return counts.status().WithContext(options.path);
  report.counts = *counts;
  return report;
}

}  // namespace tokamak
