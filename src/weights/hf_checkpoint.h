// A Hugging Face model directory: config.json, weights in safetensors, generation_config.json.
#pragma once

#include <string>

#include "tokamak/status.h"
#include "weights/checkpoint.h"
#include "weights/config.h"

namespace tokamak {

// Reads metadata only. `folder` must be a directory.
Result<Checkpoint> OpenHfCheckpoint(const std::string& folder);

// What generation_config.json asks for. Fields that are absent stay so; those that would choose
// other tokens and are not implemented are named in the result, the others (caches, versions) left
// out. "do_sample": false is a temperature of 0. kInvalidArgument for a value of another type or
// out of its range. `source` names the file in messages.
Result<GenerationDefaults> ParseGenerationConfig(const ConfigValue& config,
                                                 const std::string& source);

}  // namespace tokamak
