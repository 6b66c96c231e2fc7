// GGUF metadata as a Hugging Face configuration. Internal to weights/.
#pragma once

#include "tokamak/status.h"
#include "weights/config.h"
#include "weights/gguf.h"
#include "weights/gguf_names.h"

namespace tokamak {

// The config.json that the file was converted from, as far as it changes what the model computes.
// Every key under "<architecture>." must be known: one that is not is an error that names it.
Result<ConfigValue> TranslateGgufConfig(const GgufFile& file, const GgufArchitecture& architecture);

}  // namespace tokamak
