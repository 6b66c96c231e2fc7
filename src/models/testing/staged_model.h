// The stages of a pipeline, one after another, as one model. For tests.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/model.h"
#include "models/testing/backends.h"
#include "models/testing/golden.h"

namespace tokamak::testing {

class StagedModel final : public Model {
 public:
  StagedModel(std::vector<std::unique_ptr<Ops>> backends,
              std::vector<std::unique_ptr<Model>> stages)
      : backends_(std::move(backends)), stages_(std::move(stages)) {
    ModelSpec spec = stages_.front()->spec();
    spec.stage = {};
    for (size_t i = 1; i < stages_.size(); ++i) {
      const std::vector<nn::KvLayerSpec>& layers = stages_[i]->spec().cache.layers;
      spec.cache.layers.insert(spec.cache.layers.end(), layers.begin(), layers.end());
      const std::vector<StateLayerSpec>& states = stages_[i]->spec().cache.state_layers;
      spec.cache.state_layers.insert(spec.cache.state_layers.end(), states.begin(), states.end());
    }
    set_spec(std::move(spec));
  }

  const Model& stage(size_t index) const { return *stages_[index]; }

  Tensor Forward(nn::Pass& pass) const override {
    nn::Pass own = pass;
    size_t layer = 0, state = 0;
    for (const auto& stage : stages_) {
      const nn::CacheLayout& cache = stage->spec().cache;
      own.kv_layers = pass.kv_layers.subspan(layer, cache.layers.size());
      own.state_layers = pass.state_layers.subspan(state, cache.state_layers.size());
      layer += cache.layers.size();
      state += cache.state_layers.size();
      own.hidden = stage->Forward(own);
      own.token_ids = own.image_rows = {};  // only the first stage has them
    }
    return own.hidden;
  }
  Tensor Logits(nn::Pass& pass, Tensor hidden) const override {
    return stages_.back()->Logits(pass, hidden);
  }

 private:
  const std::vector<std::unique_ptr<Ops>> backends_;  // models need them
  const std::vector<std::unique_ptr<Model>> stages_;
};

// Loads each stage as a rank of its own does.
inline std::unique_ptr<StagedModel> LoadStages(const std::string& path, const std::string& backend,
                                               int32_t count) {
  auto group = *MakeThreadGroup({.stages = count, .channel_bytes = 64});
  std::vector<std::unique_ptr<Ops>> backends;
  std::vector<std::unique_ptr<Model>> stages;
  for (auto& communicator : group) {
    backends.push_back(MakeBackend(backend, 1, std::move(communicator)));
    stages.push_back(LoadOrDie(path, *backends.back()));
  }
  return std::make_unique<StagedModel>(std::move(backends), std::move(stages));
}

}  // namespace tokamak::testing
