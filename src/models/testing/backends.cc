#include "models/testing/backends.h"

#include <utility>

#include "base/check.h"
#include "base/testing/sanitizers.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/reference/reference_ops.h"

namespace tokamak::testing {

namespace {

std::vector<std::string> Names(const std::string& suffix) {
  std::vector<std::string> names;
  if (!kSanitized) names.push_back("reference");
  for (const std::string& isa : CpuIsaNames()) {
    if (MakeCpuOps({.threads = 1, .isa = isa}).ok()) names.push_back("cpu/" + isa + suffix);
  }
  return names;
}

}  // namespace

std::vector<std::string> BackendNames() { return Names(""); }
std::vector<std::string> PreciseBackendNames() { return Names("/precise"); }

std::unique_ptr<Ops> MakeBackend(const std::string& name, int threads,
                                 std::shared_ptr<Communicator> communicator) {
  if (name == "reference") return MakeReferenceOps(std::move(communicator));
  CHECK_MSG(name.starts_with("cpu/"), name);
  Result<std::unique_ptr<Ops>> ops = MakeCpuOps(
      {.threads = threads, .isa = name.substr(4), .communicator = std::move(communicator)});
  CHECK_MSG(ops.ok(), ops.status().ToString());
  return *std::move(ops);
}

}  // namespace tokamak::testing
