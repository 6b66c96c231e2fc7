// From a checkpoint to a model: which family implements which architecture.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "models/model.h"
#include "ops/ops.h"
#include "tokamak/model_info.h"
#include "tokamak/option_values.h"
#include "weights/checkpoint.h"

namespace tokamak {

struct LoadOptions {
  Task task = Task::kGenerate;
  // Positions to serve; 0: all that the model was trained for.
  int32_t max_context = 0;
  // The form of multi-head latent attention, for models that have it.
  MlaForm mla_form = MlaForm::kAbsorbed;
  // For benchmarks: every MoE layer chooses its experts at random instead of by its router.
  bool uniform_routing = false;
  // Called after each weight, on the calling thread, with the bytes of the checkpoint read so far.
  std::function<void(int64_t bytes)> progress = {};
};

// Returns options.max_context, by default the model's own. More than the model's is an error.
Result<int32_t> ServedContext(const LoadOptions& options, int32_t model_context);

// Builds the model and packs its weights. `ops` must outlive the model; the checkpoint need not.
// Errors name the field or tensor: an unknown architecture, an incomplete configuration, an unknown
// field, a tensor that is missing, left over or of another shape, a context longer than the
// model's. kUnimplemented names all optional features that the model needs and `ops` lacks. Only
// the whole model shows them, so load it with CountOps first (CheckFitsOnDevice): that reads no
// large weight.
Result<std::unique_ptr<Model>> LoadModel(const Checkpoint& checkpoint, Ops& ops,
                                         const LoadOptions& options = {});
// The same with a reader of the configuration, which afterwards tells what was read.
Result<std::unique_ptr<Model>> LoadModel(const Checkpoint& checkpoint, ConfigReader reader,
                                         Ops& ops, const LoadOptions& options = {});

// An architecture that LoadModel supports.
struct KnownModel {
  std::string_view architecture;  // Hugging Face's class name
  // The values of model_type that it may have, in a configuration with that field.
  std::array<std::string_view, 2> model_types;
  std::string_view models;   // its well-known models, for people
  std::string_view goldens;  // those that compare it with the reference (tests/golden)
  bool encoder = false;      // embeds and cannot generate
};
std::vector<KnownModel> KnownModels();
// False for unknown architectures.
bool IsEncoder(std::string_view architecture);

}  // namespace tokamak
