// Putting an engine together.
#pragma once

#include "api/local_engine.h"
#include "tokamak/engine.h"
#include "weights/checkpoint.h"

namespace tokamak {

// All that Engine::Load makes before the engine thread starts. Errors name the option, the file or
// the tensor; what does not fit in memory is refused before it is read.
Result<EngineParts> LoadParts(const EngineOptions& options);

// Of an open checkpoint, which the parts do not need afterwards.
Result<EngineParts> LoadParts(const EngineOptions& options, const Checkpoint& checkpoint);

}  // namespace tokamak
