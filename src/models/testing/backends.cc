#include "models/testing/backends.h"

#include "base/check.h"
#include "ops/reference/reference_ops.h"

namespace tokamak::testing {

std::vector<const char*> BackendNames() { return {"reference"}; }

std::unique_ptr<Ops> MakeBackend(const std::string& name) {
  CHECK(name == "reference");
  return MakeReferenceOps();
}

}  // namespace tokamak::testing
