// The fields of the messages between driver and worker, listed once for reading and writing
// (base/codec.h). For worker_messages.cc.
#pragma once

#include "rpc/worker_messages.h"
#include "step/step_fields.h"

namespace tokamak::codec {

void HelloFields(auto& a, Hello& v) {
  Field(a, "protocol", v.protocol);
  Field(a, "step_version", v.step_version);
  if (!v.has_known_version()) return;  // the rest may look different
  Field(a, "version", v.version);
  Field(a, "model", v.model);
  Field(a, "weights", v.weights);
  Field(a, "rank", v.rank);
}

void OptionsFields(auto& a, EngineOptions& v) {
  Field(a, "isa", v.isa);
  Field(a, "precise", v.precise);
  Field(a, "kernels", v.kernels, KernelChoice::kTriton);
  Field(a, "attention", v.attention, AttentionKernels::kFlashInfer);
  Field(a, "cuda_graphs", v.cuda_graphs, CudaGraphs::kOff);
  Field(a, "step_timeout_seconds", v.step_timeout_seconds);
  Field(a, "kv_cache_dtype", v.kv_cache_dtype, KvCacheDtype::kQ8_0);
  Field(a, "mla", v.mla, MlaForm::kAuto);
  Field(a, "threads", v.threads);
  Field(a, "tensor_parallel", v.tensor_parallel);
  Field(a, "pipeline_parallel", v.pipeline_parallel);
  Field(a, "max_seqs", v.max_seqs);
  Field(a, "max_batch_tokens", v.max_batch_tokens);
  Field(a, "max_context", v.max_context);
  Field(a, "max_images", v.max_images);
  Field(a, "image_cache_tokens", v.image_cache_tokens);
  Field(a, "block_size", v.block_size);
  Field(a, "steps_in_flight", v.steps_in_flight);
  Field(a, "speculate", v.speculate, Speculation::kDraft);
  Field(a, "draft_tokens", v.draft_tokens);
  Field(a, "draft_min_probability", v.draft_min_probability);
  Field(a, "synthetic_acceptance", v.synthetic_acceptance);
  Field(a, "uniform_routing", v.uniform_routing);
}

void LoadFields(auto& a, LoadRank& v) {
  constexpr Below kGpus{1 << 16};
  OptionsFields(a, v.options);
  Field(a, "gpu", v.gpu, kGpus);
  Field(a, "num_gpus", v.num_gpus, kGpus);
}

void LoadedFields(auto& a, Loaded& v) {
  Field(a, "backend", v.backend);
  Field(a, "weight_bytes", v.weight_bytes);
  Field(a, "expert_bytes", v.expert_bytes);
  Field(a, "image_weight_bytes", v.image_weight_bytes);
}

void ConnectedFields(auto& a, Connected& v) {
  // Sums with other sizes do not overflow.
  Field(a, "free_device_bytes", v.free_device_bytes, Below{uint64_t{1} << 56});
}

void StartFields(auto& a, StartRank& v) {
  Field(a, "arena_bytes", v.arena_bytes);
  Field(a, "num_device_blocks", v.num_device_blocks);
  Field(a, "num_host_blocks", v.num_host_blocks);
}

// Names all members, so that one that is missing here does not compile.
void LimitsFields(auto& a, ExecutorLimits& v) {
  constexpr uint64_t kMaxGroups = 64;
  auto& [cache, max_seqs, max_step_tokens, max_step_drafts, max_context, vocab_size, depth, stages,
         has_candidates, max_encoder_rows, max_step_image_rows, whole_image_rows, num_moe_layers,
         max_experts] = v;
  auto& [groups, block_bytes, num_device_blocks, num_host_blocks, original_context,
         sequence_state] = cache;
  Field(a, "groups", groups, kMaxGroups);
  Field(a, "block_bytes", block_bytes);
  Field(a, "num_device_blocks", num_device_blocks);
  Field(a, "num_host_blocks", num_host_blocks);
  Field(a, "original_context", original_context);
  Field(a, "sequence_state", sequence_state);
  Field(a, "max_seqs", max_seqs);
  Field(a, "max_step_tokens", max_step_tokens);
  Field(a, "max_step_drafts", max_step_drafts);
  Field(a, "max_context", max_context);
  Field(a, "vocab_size", vocab_size);
  Field(a, "depth", depth);
  Field(a, "stages", stages);
  Field(a, "has_candidates", has_candidates);
  Field(a, "max_encoder_rows", max_encoder_rows);
  Field(a, "max_step_image_rows", max_step_image_rows);
  Field(a, "whole_image_rows", whole_image_rows);
  Field(a, "num_moe_layers", num_moe_layers);
  Field(a, "max_experts", max_experts);
}

// The driver knows who sent them.
template <typename A>
void StatsFields(A& a, RankStats& v) {
  constexpr Below kNotNegative{uint64_t{1} << 63};
  Field(a, "steps", v.steps, kNotNegative);
  Field(a, "received_bytes", v.received_bytes, kNotNegative);
  Field(a, "step_seconds", v.step_seconds);
  Field(a, "wait_seconds", v.wait_seconds);
  if constexpr (A::kReads) {
    const bool possible = 0 <= v.wait_seconds && v.wait_seconds <= v.step_seconds &&
                          v.step_seconds <= 1e12;  // not NaN
    if (a.ok() && !possible) a.Fail("has an impossible time of steps");
  }
}

template <typename A>
void StatusFields(A& a, Status& v) {
  StatusCode code = v.code();
  std::string message(v.message());
  Field(a, "code", code, StatusCode::kInternal);
  Field(a, "message", message);
  if constexpr (A::kReads) {
    if (a.ok() && code == StatusCode::kOk) a.Fail("an error has the code of success");
    v = a.ok() ? Status(code, std::move(message)) : Status();
  }
}

// The fields of any message.
template <typename A, typename T>
void MessageFields(A& a, T& v) {
  if constexpr (std::is_same_v<T, Hello>) {
    HelloFields(a, v);
  } else if constexpr (std::is_same_v<T, LoadRank>) {
    LoadFields(a, v);
  } else if constexpr (std::is_same_v<T, Loading>) {
    Field(a, "fraction", v.fraction);
  } else if constexpr (std::is_same_v<T, Loaded>) {
    LoadedFields(a, v);
  } else if constexpr (std::is_same_v<T, Connected>) {
    ConnectedFields(a, v);
  } else if constexpr (std::is_same_v<T, StartRank>) {
    StartFields(a, v);
  } else if constexpr (std::is_same_v<T, ExecutorLimits>) {
    LimitsFields(a, v);
  } else if constexpr (std::is_same_v<T, StepMasks>) {
    Field(a, "number", v.number);
    Field(a, v.masks);
  } else if constexpr (std::is_same_v<T, StepTaken>) {
    Field(a, "number", v.number);
  } else if constexpr (std::is_same_v<T, RankStats>) {
    StatsFields(a, v);
  } else if constexpr (std::is_same_v<T, Status>) {
    StatusFields(a, v);
  } else if constexpr (!std::is_empty_v<T>) {
    Field(a, v);  // StepInput, StepOutput
  }
}

}  // namespace tokamak::codec
