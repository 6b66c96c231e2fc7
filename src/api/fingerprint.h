// Naming everything that the same answer depends on.
#pragma once

#include <string>

#include "tokamak/engine.h"
#include "tokamak/status.h"
#include "weights/checkpoint.h"

namespace tokamak {

// "fp_" and 16 hexadecimal digits: a hash of the checkpoint's metadata (every name, type, shape and
// place of a tensor, every setting) with the sizes of its files, of this build, of the backend, and
// of those options that may change a result. Equal fingerprints and seeds give equal answers.
Result<std::string> SystemFingerprint(const Checkpoint& checkpoint, const EngineOptions& options,
                                      const ModelInfo& model);

}  // namespace tokamak
