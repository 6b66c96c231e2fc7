#include <cmath>

#include "tokamak/model_info.h"

namespace tokamak {

double StepWeightBytes(const ModelInfo& model, double tokens) {
  const auto experts = static_cast<double>(model.expert_bytes);
  const double touched = 1 - std::pow(1 - model.expert_share, tokens);
  const auto always = static_cast<double>(model.weight_bytes - model.image_weight_bytes);
  return always - experts + experts * touched;
}

}  // namespace tokamak
