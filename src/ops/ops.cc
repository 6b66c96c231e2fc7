#include "ops/ops.h"

#include <string>

#include "base/check.h"
#include "base/error.h"

namespace tokamak {
namespace {

void Lacks(const char* operation) {
  CHECK_MSG(false, std::string("this backend has no ") + operation);
}

}  // namespace

Result<std::unique_ptr<Graph>> Ops::Capture(Stream& /*stream*/, FunctionRef<void()> /*run*/) {
  return Unimplemented("the {} backend does not support graphs", name());
}

// Calling these is a mistake: Model::Argmax checks has_linear_argmax, and LoadModel the
// capabilities.
void Ops::Run(const LinearArgmax&, Stream&) { Lacks("LinearArgmax"); }
void Ops::Run(const AddResidual&, Stream&) { Lacks("AddResidual"); }
void Ops::Run(const Softcap&, Stream&) { Lacks("Softcap"); }
void Ops::Run(const AddLayerNorm&, Stream&) { Lacks("AddLayerNorm"); }
void Ops::Run(const Clamp&, Stream&) { Lacks("Clamp"); }
void Ops::Run(const Activate&, Stream&) { Lacks("Activate"); }
void Ops::Run(const Convert&, Stream&) { Lacks("Convert"); }
void Ops::Run(const RouteTokens&, Stream&) { Lacks("RouteTokens"); }
void Ops::Run(const GroupedLinear&, Stream&) { Lacks("GroupedLinear"); }
void Ops::Run(const CombineExperts&, Stream&) { Lacks("CombineExperts"); }
void Ops::Run(const HeadLinear&, Stream&) { Lacks("HeadLinear"); }
void Ops::Run(const LatentAttention&, Stream&) { Lacks("LatentAttention"); }

}  // namespace tokamak
