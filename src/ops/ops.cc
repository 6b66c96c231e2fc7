#include "ops/ops.h"

#include "base/check.h"
#include "base/error.h"

namespace tokamak {

Result<std::unique_ptr<Graph>> Ops::Capture(Stream& /*stream*/, FunctionRef<void()> /*run*/) {
  return Unimplemented("{} has no graphs", name());
}

// Models check has_linear_argmax, has_extras, has_moe and has_mla before they use these.
void Ops::Run(const LinearArgmax&, Stream&) { CHECK_MSG(false, "no argmax"); }
void Ops::Run(const AddResidual&, Stream&) { CHECK_MSG(false, "no extras"); }
void Ops::Run(const Softcap&, Stream&) { CHECK_MSG(false, "no extras"); }
void Ops::Run(const AddLayerNorm&, Stream&) { CHECK_MSG(false, "no extras"); }
void Ops::Run(const Clamp&, Stream&) { CHECK_MSG(false, "no extras"); }
void Ops::Run(const Activate&, Stream&) { CHECK_MSG(false, "no extras"); }
void Ops::Run(const Convert&, Stream&) { CHECK_MSG(false, "no experts"); }
void Ops::Run(const RouteTokens&, Stream&) { CHECK_MSG(false, "no experts"); }
void Ops::Run(const GroupedLinear&, Stream&) { CHECK_MSG(false, "no experts"); }
void Ops::Run(const CombineExperts&, Stream&) { CHECK_MSG(false, "no experts"); }
void Ops::Run(const HeadLinear&, Stream&) { CHECK_MSG(false, "no latent attention"); }
void Ops::Run(const LatentAttention&, Stream&) { CHECK_MSG(false, "no latent attention"); }

}  // namespace tokamak
