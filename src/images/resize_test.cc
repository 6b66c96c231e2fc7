// The images come from torchvision (tests/golden/make_resize_goldens.py).
#include "images/resize.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "images/testing/ppm.h"

namespace tokamak {
namespace {

const std::string kFolder = TOKAMAK_SOURCE_DIR "/tests/golden/resized/";

TEST(Resize, GivesTorchvisionsBits) {
  int compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const std::string name = entry.path().stem();
    const size_t filter = name.find("_bi");
    if (filter == std::string::npos) continue;
    const bool bicubic = name.find("_bicubic_") != std::string::npos;
    const Image expected = ReadPpm(entry.path());
    const Image got =
        Resize(ReadPpm(kFolder + name.substr(0, filter) + ".ppm"), expected.width, expected.height,
               bicubic ? Resampling::kBicubic : Resampling::kBilinear);
    EXPECT_EQ(got.width, expected.width) << name;
    EXPECT_EQ(got.height, expected.height) << name;
    EXPECT_TRUE(got.rgb == expected.rgb) << name;
    ++compared;
  }
  EXPECT_GT(compared, 20);
}

TEST(Resize, AnImageOfTheRightSizeStaysAsItIs) {
  const Image noise = ReadPpm(kFolder + "noise.ppm");
  for (const Resampling resampling : {Resampling::kBilinear, Resampling::kBicubic}) {
    EXPECT_EQ(Resize(noise, noise.width, noise.height, resampling).rgb, noise.rgb);
  }
}

}  // namespace
}  // namespace tokamak
