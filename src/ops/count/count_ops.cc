#include "ops/count/count_ops.h"

#include "base/error.h"
#include "ops/host/host_ops.h"

namespace tokamak {
namespace {

class NoPlan final : public AttentionPlan {
 public:
  void Fill(const AttentionBatch&, Stream&) override {}
};

class CountOps final : public HostOps {
 public:
  std::string_view name() const override { return "count"; }
  Result<std::unique_ptr<PackedWeight>> Prepare(const WeightSpec&) override {
    return Unimplemented("counting needs no weights");
  }
  Result<std::unique_ptr<AttentionPlan>> MakePlan(const AttentionShape&) override {
    return std::unique_ptr<AttentionPlan>(std::make_unique<NoPlan>());
  }
  Result<std::unique_ptr<Sampler>> MakeSampler(const SamplerShape&) override {
    return Unimplemented("counting draws nothing");
  }
  void Run(const Embed&, Stream&) override {}
  void Run(const AddRmsNorm&, Stream&) override {}
  void Run(const Linear&, Stream&) override {}
  void Run(const GatedActivation&, Stream&) override {}
  void Run(const RopeAndStore&, Stream&) override {}
  void Run(const Attention&, Stream&) override {}
  void Run(const GatherRows&, Stream&) override {}
  void Run(const CopyRanges&, Stream&) override {}
};

}  // namespace

std::unique_ptr<Ops> MakeCountOps() { return std::make_unique<CountOps>(); }

}  // namespace tokamak
