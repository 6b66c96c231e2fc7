#include "models/llava.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "models/testing/golden.h"

namespace tokamak::testing {
namespace {

// The regions come from transformers (tests/golden/make_image_processor_goldens.py).
TEST(UnpaddedFeatures, KeepsWhatTransformersKeeps) {
  std::ifstream file(GoldenPath("image_processors/sizes.json"));
  const nlohmann::json goldens = nlohmann::json::parse(file).at("unpadded");
  EXPECT_GT(goldens.size(), 10u);
  for (const nlohmann::json& golden : goldens) {
    const std::vector<int32_t> n = golden;
    const FeatureRegion region = UnpaddedFeatures(n[0], n[1], n[2], n[3]);
    EXPECT_EQ((std::vector{region.top, region.left, region.height, region.width}),
              (std::vector<int32_t>(n.begin() + 4, n.end())))
        << golden.dump();
  }
}

}  // namespace
}  // namespace tokamak::testing
