// Locations of what tokamak downloads and prepares. scripts/common.sh follows the same rules.
#pragma once

#include <string>

namespace tokamak {

// $XDG_CACHE_HOME/tokamak, else $HOME/.cache/tokamak. A relative XDG_CACHE_HOME is ignored, as the
// XDG specification requires. Empty if neither is set. The directory need not exist.
std::string CacheDir();

// The model to use when the user names none: $TOKAMAK_MODEL if not empty, else the
// SmolLM2-135M-Instruct that scripts/fetch-model puts under CacheDir(). Empty if neither is known.
// The file need not exist.
std::string DefaultModelPath();

}  // namespace tokamak
