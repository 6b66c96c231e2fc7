// A fingerprint of everything that an answer depends on.
#pragma once

#include <cstdint>
#include <string>

#include "tokamak/engine.h"
#include "tokamak/status.h"
#include "weights/checkpoint.h"

namespace tokamak {

// A hash of the checkpoint's metadata (names, types, shapes and positions of tensors, all
// settings), its file sizes and a sample of each tensor.
Result<uint64_t> CheckpointHash(const Checkpoint& checkpoint);

// "fp_" and 16 hexadecimal digits: a hash of the checkpoint, this build, the backend, and options
// that may change a result. Equal fingerprints and seeds give equal answers.
Result<std::string> SystemFingerprint(const Checkpoint& checkpoint, const EngineOptions& options,
                                      const ModelInfo& model);

}  // namespace tokamak
