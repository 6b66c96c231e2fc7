// Assembling an engine for generation.
#pragma once

#include "local/local_engine.h"
#include "tokamak/engine.h"
#include "weights/checkpoint.h"

namespace tokamak {

// Makes everything that Engine::Load needs before the engine thread starts. Errors name the option,
// file or tensor. A model that does not fit into memory is refused before it is read.
Result<EngineParts> LoadParts(const EngineOptions& options);

// The same for an open checkpoint, which the parts do not need afterwards.
Result<EngineParts> LoadParts(const EngineOptions& options, const Checkpoint& checkpoint);

}  // namespace tokamak
