#include "executor/in_process.h"

#include <utility>

#include "base/error.h"

namespace tokamak {
namespace {

class InProcessExecutor final : public Executor {
 public:
  InProcessExecutor(std::unique_ptr<Ops> ops, std::unique_ptr<const Model> model,
                    std::unique_ptr<const Model> draft, std::unique_ptr<Runner> runner)
      : ops_(std::move(ops)),
        model_(std::move(model)),
        draft_(std::move(draft)),
        runner_(std::move(runner)),
        limits_{.cache = runner_->cache(),
                .max_seqs = runner_->shape().max_seqs,
                .max_step_tokens = runner_->shape().max_step_tokens,
                .max_step_drafts = runner_->shape().max_step_drafts,
                .max_context = runner_->shape().max_context,
                .vocab_size = runner_->vocab_size(),
                .depth = runner_->shape().depth,
                .stages = model_->spec().stage.count,
                .has_candidates = runner_->has_candidates(),
                .max_encoder_rows = runner_->shape().max_encoder_rows,
                .max_step_image_rows = runner_->shape().max_step_image_rows,
                .whole_image_rows = runner_->whole_image_rows(),
                .num_moe_layers = model_->spec().num_moe_layers,
                .max_experts = model_->spec().max_experts} {}

  const ExecutorLimits& limits() const override { return limits_; }
  Status Submit(StepInput step) override { return runner_->Submit(std::move(step)); }
  Status Sample(uint64_t number) override { return runner_->Sample(number); }
  Status SampleMasked(uint64_t number, std::vector<TokenMask> masks) override {
    return runner_->SampleMasked(number, std::move(masks));
  }
  bool Done(uint64_t number) override { return runner_->Done(number); }
  Result<StepOutput> Wait(uint64_t number) override { return runner_->Wait(number); }
  Status Reset() override { return runner_->Reset(); }

 private:
  // Destroyed in reverse order: each needs those above it.
  const std::unique_ptr<Ops> ops_;
  const std::unique_ptr<const Model> model_;
  const std::unique_ptr<const Model> draft_;  // null: none
  const std::unique_ptr<Runner> runner_;
  const ExecutorLimits limits_;
};

}  // namespace

Result<std::unique_ptr<Executor>> MakeInProcessExecutor(std::unique_ptr<Ops> ops,
                                                        std::unique_ptr<const Model> model,
                                                        const RunnerShape& shape,
                                                        const RunnerMemory& memory,
                                                        std::unique_ptr<const Model> draft) {
  ASSIGN_OR_RETURN(std::unique_ptr<Runner> runner,
                   Runner::Create(*model, *ops, shape, memory, draft.get()));
  return std::unique_ptr<Executor>(std::make_unique<InProcessExecutor>(
      std::move(ops), std::move(model), std::move(draft), std::move(runner)));
}

}  // namespace tokamak
