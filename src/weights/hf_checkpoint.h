// A Hugging Face model directory: config.json, weights in safetensors, generation_config.json.
#pragma once

#include <string>

#include "tokamak/status.h"
#include "weights/checkpoint.h"
#include "weights/config.h"

namespace tokamak {

// Reads only metadata. `folder` must be a directory.
Result<Checkpoint> OpenHfCheckpoint(const std::string& folder);

// Reads generation_config.json. Absent fields stay absent. Fields that would change the chosen
// tokens but are not implemented are listed in the result; others (caches, versions) are ignored.
// "do_sample": false becomes temperature 0. kInvalidArgument for a value of the wrong type or out
// of range. `source` names the file in messages.
Result<GenerationDefaults> ParseGenerationConfig(const JsonValue& config,
                                                 const std::string& source);

}  // namespace tokamak
