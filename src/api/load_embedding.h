// Putting an engine together that embeds.
#pragma once

#include "api/embedding_engine.h"
#include "tokamak/engine.h"
#include "weights/checkpoint.h"

namespace tokamak {

// Whether the checkpoint is one that embeds, or is asked to.
bool IsForEmbedding(const EngineOptions& options, const Checkpoint& checkpoint);

// What the checkpoint's files say of embedding, and the options, which afterwards have what is best
// for it where they left it open. kInvalidArgument for an encoder whose files say nothing of
// pooling, where the options do not either; kUnimplemented for a GPU.
Result<EmbeddingSpec> ChooseEmbeddingSpec(EngineOptions& options, const Checkpoint& checkpoint);

// How `model` runs as `spec` says: texts may be as long as its files and the options allow, and,
// where the options leave it open, as a cache in half of `available_bytes` takes. kDataLoss where
// model and spec do not fit together.
Result<EmbeddingShape> ChooseEmbeddingShape(const EngineOptions& options, const EmbeddingSpec& spec,
                                            const Model& model, const std::string& source,
                                            int64_t available_bytes);

// All that the engine thread needs. Errors as those of LoadParts (api/load.h) and of the functions
// above.
Result<EmbeddingParts> LoadEmbeddingParts(const EngineOptions& options,
                                          const Checkpoint& checkpoint);

}  // namespace tokamak
