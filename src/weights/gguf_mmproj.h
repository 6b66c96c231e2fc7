// llama.cpp's mmproj files: the image encoder of a GGUF model, as a part of its checkpoint.
// Internal to weights/.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tokamak/status.h"
#include "weights/checkpoint.h"
#include "weights/gguf.h"

namespace tokamak {

// Gives the checkpoint of a text model the image encoder of an mmproj file. kInvalidArgument if
// they do not belong together, which leaves the checkpoint as it is. Other errors are about the
// file itself: they name the metadata key or the tensor.
Status AddMmproj(std::shared_ptr<const GgufFile> mmproj, Checkpoint& checkpoint);

// Returns the only file mmproj*.gguf beside a model, or "" if there is none. kInvalidArgument,
// which names them, if there are several.
Result<std::string> FindMmproj(const std::string& model_path);

// Whether an mmproj file can belong to a text model of this architecture.
bool MayHaveMmproj(const GgufFile& model);

}  // namespace tokamak
