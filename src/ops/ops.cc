#include "ops/ops.h"

#include "base/error.h"

namespace tokamak {

Result<std::unique_ptr<Graph>> Ops::Capture(Stream& /*stream*/, FunctionRef<void()> /*run*/) {
  return Unimplemented("{} has no graphs", name());
}

}  // namespace tokamak
