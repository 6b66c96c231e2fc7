// Assembling an engine for embedding.
#pragma once

#include <string>

#include "local/embedding_engine.h"
#include "tokamak/engine_options.h"
#include "weights/checkpoint.h"

namespace tokamak {

// Whether the checkpoint is an embedding model or the options request embedding.
bool IsForEmbedding(const EngineOptions& options, const Checkpoint& checkpoint);

// Reads what the options and the checkpoint's files say about embedding. kInvalidArgument if
// neither says how to pool.
Result<EmbeddingSpec> ChooseEmbeddingSpec(const EngineOptions& options,
                                          const Checkpoint& checkpoint);

// The type of keys and values if the options leave it open.
KvCacheDtype EmbeddingCacheType(const EngineOptions& options, bool gpu);

// Returns how `model` runs with `spec`. The longest text is what its files and the options allow.
// If the options leave it open, it is halved until cache and activations fit into half of
// `available_bytes`. kDataLoss if model and spec do not match.
Result<EmbeddingShape> ChooseEmbeddingShape(const EngineOptions& options, const EmbeddingSpec& spec,
                                            const Model& model, const std::string& source,
                                            int64_t available_bytes);

// Makes everything that the engine thread needs. Errors are those of LoadParts (local/load.h) and
// of the functions above.
Result<EmbeddingParts> LoadEmbeddingParts(const EngineOptions& options,
                                          const Checkpoint& checkpoint);

}  // namespace tokamak
