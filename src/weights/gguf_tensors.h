// The tensors of a GGUF file by their Hugging Face names. Internal to weights/.
#pragma once

#include <memory>

#include "weights/config.h"
#include "weights/gguf.h"
#include "weights/gguf_names.h"
#include "weights/tensor_source.h"

namespace tokamak {

// `config` is the file's translated configuration. Its head counts determine how rows are permuted.
std::shared_ptr<TensorSource> MakeGgufTensors(std::shared_ptr<const GgufFile> file,
                                              const GgufArchitecture& architecture,
                                              const JsonValue& config);

}  // namespace tokamak
