// From a checkpoint to a model: which family serves which architecture.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "models/model.h"
#include "nn/mla.h"
#include "ops/ops.h"
#include "weights/checkpoint.h"

namespace tokamak {

// What a model is loaded for.
enum class ModelTask {
  kGenerate,  // tokens, from logits
  kEmbed,     // texts, from the final hidden states: there is no output layer
};

struct LoadOptions {
  ModelTask task = ModelTask::kGenerate;
  // Positions to be able to serve; 0: all that the model was trained for.
  int32_t max_context = 0;
  // How multi-head latent attention computes, where the model has it.
  nn::MlaForm mla_form = nn::MlaForm::kAbsorbed;
  // Called after each weight, from the calling thread, with the bytes of the checkpoint read so
  // far.
  std::function<void(int64_t bytes)> progress = {};
};

// Positions to serve: options.max_context, or the model's own; more than that is an error.
Result<int32_t> ServedContext(const LoadOptions& options, int32_t model_context);

// Builds the model and reads its weights into the backend's layout. `ops` outlives the model; the
// checkpoint need not. Errors name the field or tensor: an unknown architecture, a configuration
// that is incomplete or not understood, a tensor that is missing, of another shape or left over, a
// context longer than the model's.
Result<std::unique_ptr<Model>> LoadModel(const Checkpoint& checkpoint, Ops& ops,
                                         const LoadOptions& options = {});
// The same by a reader of the checkpoint's configuration, which knows afterwards what was read.
Result<std::unique_ptr<Model>> LoadModel(const Checkpoint& checkpoint, ConfigReader reader,
                                         Ops& ops, const LoadOptions& options = {});

// What LoadModel knows.
struct KnownModel {
  std::string_view architecture;  // Hugging Face's class name
  // What model_type may say of it, in a configuration that has the field.
  std::array<std::string_view, 2> model_types;
  std::string_view models;   // that have it, for people
  std::string_view goldens;  // what it is compared on with the reference (tests/golden)
  bool encoder = false;      // embeds and cannot generate
};
std::vector<KnownModel> KnownModels();
// Of the architecture of this name; false for one that is not known.
bool IsEncoder(std::string_view architecture);

}  // namespace tokamak
