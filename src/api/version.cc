#include "api/version.h"

namespace tokamak {
namespace {

constexpr std::string_view kCommit =
#include "commit.inc"
    ;

}  // namespace

std::string_view Version() { return TOKAMAK_VERSION; }
std::string_view Commit() { return kCommit; }
std::string VersionText() {
  return "tokamak " + std::string(Version()) + " (" + std::string(Commit()) + ")";
}

}  // namespace tokamak
