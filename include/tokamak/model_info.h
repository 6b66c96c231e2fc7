// The model that an engine has loaded: what it is, how large, and what a step costs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tokamak/image_options.h"
#include "tokamak/option_values.h"
#include "tokamak/sampling_params.h"

namespace tokamak {

// The task that a model is loaded for.
enum class Task {
  kGenerate,  // tokens, from logits: Engine
  kEmbed,     // vectors for texts, from the final hidden states: Embedder
};

// The vectors of an embedding model.
struct EmbeddingInfo {
  int32_t dimensions = 0;               // length of a vector
  Pooling pooling = Pooling::kMean;     // never kAuto
  bool normalized = false;              // to length 1
  std::vector<std::string> prompts;     // values for EmbeddingRequest::prompt_name
  std::vector<int32_t> cut_dimensions;  // shorter lengths that the model was trained for, ascending
  bool any_dimensions = false;          // any shorter length may be requested
};

// The images that a prompt may have.
struct ImageInfo {
  std::string placeholder;     // a special token ("<image>"), in the place of an image
  int32_t placeholder_id = 0;  // its id; with placeholder_text, the id of a token in that
  // If not empty, takes the place of `placeholder` in a text with images before the text becomes
  // tokens. Gemma 3 has marks and empty lines around an image.
  std::string placeholder_text = {};
  // If not empty, goes before placeholder_text, with the number of the image in the text, from 0,
  // behind it.
  std::string number_begin = {};
  int32_t max_images = 0;  // in one prompt
  int32_t max_tokens = 0;  // of a prompt, for one image
  int64_t max_bytes = 0;   // of an image's file
  int64_t max_pixels = 0;  // of an image
  // The values that absent ImageOptions have; empty: the model takes no such options.
  ImageOptions options = {};
  int32_t max_scaled_pixels = 0;  // the most that ImageOptions::max_pixels may be
};

// The loaded model and its device. Constant while the engine lives.
struct ModelInfo {
  std::string name;
  std::string architecture;
  int64_t num_parameters = 0;
  int32_t vocab_size = 0;
  int32_t max_context = 0;                     // positions per sequence in this engine
  int32_t max_seqs = 0;                        // sequences, or texts, at the same time
  int32_t max_logprobs = kDefaultMaxLogprobs;  // alternatives that a request may ask for
  std::string device;                          // "cpu", "cuda:0", ...
  std::string backend;                         // "cpu/avx512", "cpu/avx2", ...
  int32_t threads = 0;
  int64_t weight_bytes = 0;        // as packed for the device
  int64_t expert_bytes = 0;        // part of weight_bytes; a token reads expert_share of it
  int64_t image_weight_bytes = 0;  // part of weight_bytes, read when a step encodes images
  double expert_share = 1;
  std::string draft_model;           // the draft model's name; empty: none
  int64_t draft_weight_bytes = 0;    // in addition to weight_bytes
  int64_t kv_token_bytes = 0;        // KV cache per position, all layers, the draft model's too
  int64_t draft_kv_token_bytes = 0;  // the draft model's part of it
  int64_t token_macs = 0;            // multiplications by weights for one position
  int64_t logits_macs = 0;           // for the logits of one position
  int64_t device_bytes = 0;          // that loading took of this process's first GPU; 0: no GPU
  double load_seconds = 0;
  // The tables of the vocabulary that structured output needs are made while the model is loaded.
  double mask_table_seconds = 0;
  int64_t mask_table_bytes = 0;
  std::string chat_template;  // the checkpoint's Jinja source; empty: none
  std::string tool_template;  // for conversations with tools; empty: chat_template
  std::string bos_token;      // as text, for chat templates; empty: none
  std::string eos_token;
  SamplingDefaults sampling;  // used where a request sets nothing
  Task task = Task::kGenerate;
  EmbeddingInfo embedding;          // with Task::kEmbed
  std::optional<ImageInfo> images;  // absent: the model takes only text
};

// Expected bytes of weights read by a step of `tokens` tokens that encodes no image, assuming that
// tokens choose experts independently.
double StepWeightBytes(const ModelInfo& model, double tokens);

}  // namespace tokamak
