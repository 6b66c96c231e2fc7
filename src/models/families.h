// The functions that registry.cc lists, one per family file.
#pragma once

#include <memory>

#include "models/model.h"
#include "models/registry.h"
#include "nn/builder.h"

namespace tokamak {

// Makes a family's model: parses `config` strictly, then builds the layers, whose errors stay in
// load.status.
using CreateModel = Result<std::unique_ptr<Model>>(ConfigReader config, nn::WeightLoad& load,
                                                   const LoadOptions& options);

CreateModel CreateLlama;     // llama.cc
CreateModel CreateQwen3;     // qwen3.cc
CreateModel CreateQwen3Moe;  // qwen3.cc

// Positions to serve: options.max_context, or the model's own; more than that is an error.
Result<int32_t> ServedContext(const LoadOptions& options, int32_t model_context);

}  // namespace tokamak
