// From a checkpoint to a model: which family serves which architecture.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "models/model.h"
#include "ops/ops.h"
#include "weights/checkpoint.h"

namespace tokamak {

struct LoadOptions {
  // Positions to be able to serve; 0: all that the model was trained for.
  int32_t max_context = 0;
  // Called after each weight, from the calling thread, with the bytes of the checkpoint read so
  // far.
  std::function<void(int64_t bytes)> progress;
};

// Builds the model and reads its weights into the backend's layout. `ops` outlives the model; the
// checkpoint need not. Errors name the field or tensor: an unknown architecture, a configuration
// that is incomplete or not understood, a tensor that is missing, of another shape or left over, a
// context longer than the model's.
Result<std::unique_ptr<Model>> LoadModel(const Checkpoint& checkpoint, Ops& ops,
                                         const LoadOptions& options = {});

// The architectures that LoadModel knows, by their Hugging Face class names.
std::vector<std::string_view> KnownArchitectures();

}  // namespace tokamak
