#include <gtest/gtest.h>

#include "tokamak/model_info.h"

namespace tokamak {
namespace {

TEST(StepWeightBytes, TokensShareExperts) {
  ModelInfo model;
  model.weight_bytes = 1000;
  EXPECT_EQ(StepWeightBytes(model, 1), 1000);
  model.expert_bytes = 800;
  model.expert_share = 0.25;
  EXPECT_EQ(StepWeightBytes(model, 1), 200 + 200);
  EXPECT_EQ(StepWeightBytes(model, 2), 200 + 350);  // 1/4, and 1/4 of the other 3/4
}

TEST(StepWeightBytes, StepsOfTokensDoNotReadTheImageEncoder) {
  ModelInfo model;
  model.weight_bytes = 1000;
  model.image_weight_bytes = 300;
  EXPECT_EQ(StepWeightBytes(model, 5), 700);
}

}  // namespace
}  // namespace tokamak
