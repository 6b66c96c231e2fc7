// What a model is built from: an architecture, its configuration and its weights.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tensor/dtype.h"
#include "tokamak/status.h"
#include "weights/config.h"
#include "weights/config_reader.h"
#include "weights/embedding_spec.h"
#include "weights/gguf.h"
#include "weights/safetensors.h"
#include "weights/tensor_source.h"

namespace tokamak {

// How the authors of a checkpoint want tokens to be chosen where a request does not say. Absent:
// they say nothing.
struct GenerationDefaults {
  std::optional<float> temperature, top_p, min_p, typical_p, repetition_penalty;
  std::optional<int32_t> top_k, max_tokens;
  std::vector<int32_t> eos_token_ids;  // ascending
  // Fields that ask for what is not done here, such as num_beams; they are left out.
  std::vector<std::string> without_effect;
};

struct Checkpoint {
  std::string source;        // the path, for messages
  std::string architecture;  // Hugging Face's class name: "LlamaForCausalLM"
  ConfigValue config;        // fields as in Hugging Face's config.json
  std::shared_ptr<TensorSource> tensors;
  int64_t weight_bytes = 0;  // as stored; 0 when not known (dummy weights)
  // The file, for what it says beside the weights (tokenizer, chat template); null when the
  // checkpoint is not GGUF.
  std::shared_ptr<const GgufFile> gguf;
  // The same for a Hugging Face directory: its path, and its weights; empty and null otherwise.
  std::string directory;
  std::shared_ptr<const SafetensorsModel> safetensors;
  GenerationDefaults generation;
  // How texts become vectors, where the checkpoint is one that embeds.
  std::optional<EmbeddingSpec> embedding;

  // Reads `config`; the checkpoint must outlive the reader.
  ConfigReader Reader() const { return ConfigReader(config, source); }
};

struct CheckpointOptions {
  // dummy: only. The type of matrices (BF16 where rows are not whole blocks of it) and the seed.
  // Where it is BF16, experts are in MXFP4 if the configuration says that they are stored so.
  DType dummy_dtype = DType::kBF16;
  uint64_t dummy_seed = 0;
};

// Opens a .gguf file (the first, when split), a Hugging Face directory, or "dummy:<config.json>":
// random weights for the architecture that a Hugging Face configuration describes. Reads metadata
// only.
Result<Checkpoint> OpenCheckpoint(const std::string& path, const CheckpointOptions& options = {});

// The two ways of OpenCheckpoint, for what is not at a path. A checkpoint made from a GGUF file has
// one name of its own among the tensors: "rope_freqs.weight", [rotary_dim / 2], divides the RoPE
// frequencies (Llama 3's scaling as llama.cpp stores it); use it when it is there.
Result<Checkpoint> MakeGgufCheckpoint(std::shared_ptr<const GgufFile> file);
Result<Checkpoint> MakeDummyCheckpoint(ConfigValue config, const std::string& source,
                                       const CheckpointOptions& options = {});

// The class that a config.json names, or an error: it must name one.
Result<std::string> ArchitectureOf(const ConfigValue& config, const std::string& source);

}  // namespace tokamak
