// Where tokamak keeps what it downloads and prepares. The scripts that fetch (scripts/common.sh)
// follow the same rules.
#pragma once

#include <string>

namespace tokamak {

// $XDG_CACHE_HOME/tokamak, or $HOME/.cache/tokamak where that is not set. As the XDG specification
// asks, a relative XDG_CACHE_HOME is ignored. Empty when neither is known. Need not exist.
std::string CacheDir();

// The model used when the user names none: $TOKAMAK_MODEL if it is set and not empty, else the
// SmolLM2-135M-Instruct that scripts/fetch-model put under CacheDir(). Empty when neither is known.
// Need not exist.
std::string DefaultModelPath();

}  // namespace tokamak
