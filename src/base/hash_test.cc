#include "base/hash.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace tokamak {
namespace {

uint64_t Hash(std::string_view text, uint64_t seed = 0) {
  return Hash64(text.data(), text.size(), seed);
}

// Values from the Python package xxhash 4.1.0 (xxh3_64_intdigest). The hash must not change between
// releases: caches on disk may be keyed by it.
TEST(Hash64, EqualsTheReferenceOnKnownInputs) {
  EXPECT_EQ(Hash(""), 0x2d06800538d394c2u);
  EXPECT_EQ(Hash("tokamak"), 0x4a6ea1e35ee27b31u);
  EXPECT_EQ(Hash("tokamak", 42), 0x6b27594d29fc0c25u);
  EXPECT_EQ(Hash(std::string(1000, 'a')), 0xb3e7af627147db7cu);
  EXPECT_EQ(Hash(std::string(1000, 'a'), 7), 0x3f9e6c865a1faf29u);
}

TEST(Hash64, DependsOnEveryByteAndOnTheLength) {
  std::string text(300, 'x');
  const uint64_t original = Hash(text);
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = 'y';
    EXPECT_NE(Hash(changed), original) << i;
  }
  EXPECT_NE(Hash(std::string(299, 'x')), original);
  EXPECT_NE(Hash(std::string("a\0", 2)), Hash("a"));
}

}  // namespace
}  // namespace tokamak
