#include "images/content_digest.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace tokamak {
namespace {

std::string Hex(const ContentDigest& digest) {
  std::string hex;
  for (const uint8_t byte : digest) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

// By Python: sha256(struct.pack('<8i12f', 5, 7, 0, 0, 1, 3, 2, 2, *range(12))).hexdigest()
TEST(ContentDigest, IsTheSha256OfNumbersAndValues) {
  PreparedImage prepared{.shape = {1, 3, 2, 2}, .image_height = 5, .image_width = 7};
  for (int i = 0; i < 12; ++i) prepared.values.push_back(static_cast<float>(i));
  EXPECT_EQ(Hex(ContentDigestOf(prepared)),
            "2a2355b10bdc5a5eddfb821a82468bff227bba12414d8a66aed1f518d7c8974c");
}

TEST(ContentDigest, AnyDifferenceGivesAnother) {
  const PreparedImage image{.shape = {1, 3, 1, 2}, .values = {1, 2, 3, 4, 5, 6}};
  std::vector<PreparedImage> others(8, image);
  others[0].values[5] = 6.5F;
  others[1].values[0] = -0.0F;
  others[2].shape = {1, 3, 2, 1};
  others[3].grid_height = 1;
  others[4].grid_width = 1;
  others[5].shape = {2, 1, 3, 1};
  others[6].image_height = 1;
  others[7].image_width = 1;
  std::set<ContentDigest> digests = {ContentDigestOf(image)};
  for (const PreparedImage& other : others) digests.insert(ContentDigestOf(other));
  EXPECT_EQ(digests.size(), 9u);
  EXPECT_EQ(ContentDigestOf(PreparedImage(image)), ContentDigestOf(image));
}

}  // namespace
}  // namespace tokamak
