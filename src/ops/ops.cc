#include "ops/ops.h"

#include "base/check.h"
#include "base/error.h"

namespace tokamak {

Result<std::unique_ptr<Graph>> Ops::Capture(Stream& /*stream*/, FunctionRef<void()> /*run*/) {
  return Unimplemented("{} has no graphs", name());
}

// Models ask has_experts first.
void Ops::Run(const Convert&, Stream&) { CHECK_MSG(false, "no experts"); }
void Ops::Run(const RouteTokens&, Stream&) { CHECK_MSG(false, "no experts"); }
void Ops::Run(const GroupedLinear&, Stream&) { CHECK_MSG(false, "no experts"); }
void Ops::Run(const CombineExperts&, Stream&) { CHECK_MSG(false, "no experts"); }

}  // namespace tokamak
