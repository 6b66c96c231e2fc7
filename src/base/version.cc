#include "base/version.h"

namespace tokamak {

std::string_view Version() { return TOKAMAK_VERSION; }
std::string VersionText() {
  return "tokamak " + std::string(Version()) + " (" + std::string(Commit()) + ")";
}

}  // namespace tokamak
