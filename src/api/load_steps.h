// What loading a model to generate and loading one to embed have in common.
#pragma once

#include <functional>
#include <memory>

#include "models/registry.h"
#include "ops/ops.h"
#include "tokamak/engine.h"
#include "weights/checkpoint.h"

namespace tokamak {

// The backend of the device that the options ask for. Afterwards they name it, and have what is
// best for it where they left it open.
Result<std::unique_ptr<Ops>> MakeOps(EngineOptions& options, int threads,
                                     std::function<Profile()>* take_profile);

// Reads the weights into the backend's layout, with progress.
Result<std::unique_ptr<Model>> LoadWeights(const Checkpoint& checkpoint, Ops& ops,
                                           const EngineOptions& options, ModelTask task);

// What the checkpoint and the loaded model tell.
ModelInfo Describe(const Checkpoint& checkpoint, const Model& model, const Ops& ops);

}  // namespace tokamak
