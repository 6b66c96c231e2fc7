// The draft model of speculative decoding (EngineOptions::draft_model).
#pragma once

#include <cstdint>
#include <memory>

#include "models/model.h"
#include "ops/ops.h"
#include "tokamak/engine_options.h"
#include "weights/checkpoint.h"

namespace tokamak {

// Opens the checkpoint of `options.draft_model`. An error names the reason why it cannot draft for
// `model`: it makes embeddings, or has other tokens. Reads no weights.
Result<Checkpoint> OpenDraftModel(const Checkpoint& model, const EngineOptions& options);

// Checks before weights are read that `ops` can run the draft model, and that the weights of both
// models fit into its memory.
Status CheckBothFit(const Checkpoint& model, const Checkpoint& draft, const EngineOptions& options,
                    Ops& ops);

// Loads it, once the other model is loaded, to follow sequences of up to `context` positions.
Result<std::unique_ptr<Model>> LoadDraftModel(const Checkpoint& draft, Ops& ops,
                                              const EngineOptions& options, int32_t context);

}  // namespace tokamak
