// The parts of a model on disk: architecture, configuration and weights.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tensor/dtype.h"
#include "tokamak/sampling_params.h"
#include "tokamak/status.h"
#include "weights/config.h"
#include "weights/config_reader.h"
#include "weights/embedding_spec.h"
#include "weights/gguf.h"
#include "weights/safetensors.h"
#include "weights/tensor_source.h"

namespace tokamak {

// Recommendations of the checkpoint's authors, for requests that set nothing.
struct GenerationDefaults {
  SamplingDefaults sampling;
  std::vector<int32_t> eos_token_ids;  // ascending
  // Fields that ask for something unsupported, such as num_beams. They are ignored.
  std::vector<std::string> without_effect;
};

struct Checkpoint {
  std::string source;        // path, for messages
  std::string architecture;  // Hugging Face's class name, e.g. "LlamaForCausalLM"
  JsonValue config;          // the fields of Hugging Face's config.json
  std::shared_ptr<TensorSource> tensors;
  int64_t weight_bytes = 0;  // as stored; 0 if unknown (dummy weights)
  // The GGUF file, which also has the tokenizer and the chat template. Null for other formats.
  std::shared_ptr<const GgufFile> gguf;
  // The file with its image encoder, and how that says images are prepared, as in
  // preprocessor_config.json or processor_config.json. Null without one.
  std::shared_ptr<const GgufFile> mmproj;
  JsonValue image_processor;
  // Path and weights of a Hugging Face directory. Empty and null for other formats.
  std::string directory;
  std::shared_ptr<const SafetensorsModel> safetensors;
  GenerationDefaults generation;
  // How texts become vectors, if this is an embedding model.
  std::optional<EmbeddingSpec> embedding;

  // Returns a reader of `config`. The checkpoint must outlive it.
  ConfigReader Reader() const { return ConfigReader(config, source); }
};

struct CheckpointOptions {
  // For dummy weights only: the type of matrices (BF16 if rows are not whole blocks of it) and the
  // seed. With BF16, experts are MXFP4 if the configuration says that they are stored so.
  DType dummy_dtype = DType::kBF16;
  uint64_t dummy_seed = 0;
  // The mmproj file of a GGUF model, or "none". Empty: the only mmproj*.gguf in the same folder, if
  // it is this model's.
  std::string mmproj = {};
};

// Opens a .gguf file (the first one of a split model), a Hugging Face directory, or
// "dummy:<config.json>": random weights for the architecture that the configuration describes.
// Reads only metadata.
Result<Checkpoint> OpenCheckpoint(const std::string& path, const CheckpointOptions& options = {});

// Build a checkpoint from something other than a path. A GGUF checkpoint may have one tensor
// without a Hugging Face name: "rope_freqs.weight", [rotary_dim / 2], divides the RoPE frequencies
// (Llama 3's scaling as llama.cpp stores it). Apply it if it exists.
Result<Checkpoint> MakeGgufCheckpoint(std::shared_ptr<const GgufFile> file);
Result<Checkpoint> MakeDummyCheckpoint(JsonValue config, const std::string& source,
                                       const CheckpointOptions& options = {});

// Returns the class that a config.json names; an error if it names none or several.
Result<std::string> ArchitectureOf(const JsonValue& config, const std::string& source);

}  // namespace tokamak
