#include "ops/ops.h"

#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"

namespace tokamak {
namespace {

void Lacks(const char* operation) {
  CHECK_MSG(false, std::string("this backend has no ") + operation);
}

bool AreAlike(const PackedWeight& a, const PackedWeight& b) {
  return a.rows() == b.rows() && a.cols() == b.cols() && a.activation() == b.activation() &&
         a.output() == b.output();
}

}  // namespace

PackedStack::PackedStack(std::vector<std::unique_ptr<PackedWeight>> members)
    : size_(static_cast<int64_t>(members.size())),
      rows_(members.front()->rows()),
      cols_(members.front()->cols()),
      activation_(members.front()->activation()),
      output_(members.front()->output()),
      bytes_(0),
      members_(std::move(members)) {
  for (const auto& member : members_) {
    CHECK(AreAlike(*member, *members_.front()));
    bytes_ += member->bytes();
  }
}

Result<std::unique_ptr<PackedStack>> Ops::PackStack(std::span<const WeightSpec> members) {
  std::vector<std::unique_ptr<PackedWeight>> packed;
  for (const WeightSpec& spec : members) {
    ASSIGN_OR_RETURN(std::unique_ptr<PackedWeight> weight, PackWeight(spec));
    if (!packed.empty() && !AreAlike(*weight, *packed.front())) {
      return InvalidArgument("{}: its shape or type does not go with that of {}",
                             spec.parts.front()->name(), members.front().parts.front()->name());
    }
    packed.push_back(std::move(weight));
  }
  return std::make_unique<PackedStack>(std::move(packed));
}

Result<std::unique_ptr<Graph>> Ops::Capture(Stream& /*stream*/, FunctionRef<void()> /*run*/) {
  return Unimplemented("the {} backend does not support graphs", name());
}

void Ops::Run(const NormAndConvert& op, Stream& stream) {
  Run(op.norm, stream);
  Run(op.convert, stream);
}

void Ops::Run(const GateUp& op, Stream& stream) {
  Run(op.linear, stream);
  Run(op.gate, stream);
}

void Ops::Run(const GateUpExperts& op, Stream& stream) {
  Run(op.gather, stream);
  Run(op.linear, stream);
  Run(op.gate, stream);
}

// Calling these is a mistake: Model::Argmax checks has_linear_argmax, LoadModel the capabilities,
// and layers are divided only among several ranks.
void Ops::Run(const AllReduce&, Stream&) { Lacks("AllReduce"); }
void Ops::Run(const AllGather&, Stream&) { Lacks("AllGather"); }
void Ops::Run(const Send&, Stream&) { Lacks("Send"); }
void Ops::Run(const Receive&, Stream&) { Lacks("Receive"); }
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
void Ops::Run(const CausalConv&, Stream&) { Lacks("CausalConv"); }
void Ops::Run(const GatedDelta&, Stream&) { Lacks("GatedDelta"); }
void Ops::Run(const GateOutput&, Stream&) { Lacks("GateOutput"); }

}  // namespace tokamak
