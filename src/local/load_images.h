// The steps of loading that a model needs in order to see.
#pragma once

#include <memory>

#include "images/processor.h"
#include "local/image_input.h"
#include "models/model.h"
#include "tokamak/engine_options.h"
#include "tokenizer/tokenizer.h"
#include "weights/checkpoint.h"

namespace tokamak {

// Reads how images are prepared, from the mmproj file or the model's directory, or that of a dummy
// model's config.json, and checks that the model takes what comes of it. Null if the model takes
// only text or max_images is 0; also, with a line in the log, if the directory does not say.
Result<std::unique_ptr<const ImageProcessor>> OpenImageProcessor(const Checkpoint& checkpoint,
                                                                 const Model& model,
                                                                 const EngineOptions& options);

// The model must outlive the result. `tokenizer`: null without one. An error if it lacks the tokens
// that the processor puts into prompts.
Result<std::unique_ptr<const ImageInput>> MakeImageInput(
    std::unique_ptr<const ImageProcessor> processor, const Model& model, const Tokenizer* tokenizer,
    const EngineOptions& options);

}  // namespace tokamak
