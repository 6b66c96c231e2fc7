#include "ops/ops.h"

#include "base/check.h"
#include "base/error.h"

namespace tokamak {

Result<std::unique_ptr<Graph>> Ops::Capture(Stream& /*stream*/, FunctionRef<void()> /*run*/) {
  return Unimplemented("the {} backend does not support graphs", name());
}

// Models check has_linear_argmax, has_extras, has_moe and has_mla before they use these.
void Ops::Run(const LinearArgmax&, Stream&) {
  CHECK_MSG(false, "this backend has no LinearArgmax");
}
void Ops::Run(const AddResidual&, Stream&) {
  CHECK_MSG(false, "this backend has no extra operations");
}
void Ops::Run(const Softcap&, Stream&) { CHECK_MSG(false, "this backend has no extra operations"); }
void Ops::Run(const AddLayerNorm&, Stream&) {
  CHECK_MSG(false, "this backend has no extra operations");
}
void Ops::Run(const Clamp&, Stream&) { CHECK_MSG(false, "this backend has no extra operations"); }
void Ops::Run(const Activate&, Stream&) {
  CHECK_MSG(false, "this backend has no extra operations");
}
void Ops::Run(const Convert&, Stream&) { CHECK_MSG(false, "this backend has no MoE operations"); }
void Ops::Run(const RouteTokens&, Stream&) {
  CHECK_MSG(false, "this backend has no MoE operations");
}
void Ops::Run(const GroupedLinear&, Stream&) {
  CHECK_MSG(false, "this backend has no MoE operations");
}
void Ops::Run(const CombineExperts&, Stream&) {
  CHECK_MSG(false, "this backend has no MoE operations");
}
void Ops::Run(const HeadLinear&, Stream&) {
  CHECK_MSG(false, "this backend has no MLA operations");
}
void Ops::Run(const LatentAttention&, Stream&) {
  CHECK_MSG(false, "this backend has no MLA operations");
}

}  // namespace tokamak
