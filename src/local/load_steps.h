// Steps of loading that generation and embedding share.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "models/registry.h"
#include "ops/host/communicator.h"
#include "ops/ops.h"
#include "tokamak/engine.h"
#include "weights/checkpoint.h"

namespace tokamak {

class ThreadPool;

// Which devices an engine may use.
struct DeviceChoice {
  bool cpu = true;
  bool gpu = true;
  int index = 0;  // of the GPU, or of the first if there are several ranks
};
// Parses "cpu", "cuda", "cuda:N" or "auto".
Result<DeviceChoice> ParseDevice(const std::string& name);

// Refuses options that no engine takes.
Status CheckOptions(const EngineOptions& options);

// The model's name: "SmolLM2.Q4_1" for "models/SmolLM2.Q4_1.gguf".
std::string NameOf(const Checkpoint& checkpoint);

// The compute threads that the options ask for, of rank 0 if there are several.
std::unique_ptr<ThreadPool> MakePool(const EngineOptions& options);

// Makes the backend of the device that the options request, of rank 0 if there are several; with
// device "auto", the CPU's if the GPU cannot run the model. Sets `options.device` to it, and other
// options left open to the best values for it. Reads no large weight. `pool` must outlive the
// backend.
Result<std::unique_ptr<Ops>> MakeOpsFor(const Checkpoint& checkpoint, EngineOptions& options,
                                        Task task, ThreadPool& pool,
                                        std::function<Profile()>* take_profile,
                                        const std::shared_ptr<Communicator>& communicator = {});

// Reads the weights into the backend's layout and reports progress.
Result<std::unique_ptr<Model>> LoadWeights(const Checkpoint& checkpoint, Ops& ops,
                                           const EngineOptions& options, Task task);

ModelInfo Describe(const Checkpoint& checkpoint, const Model& model, const Ops& ops);

}  // namespace tokamak
