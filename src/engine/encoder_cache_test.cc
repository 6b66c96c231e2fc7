#include "engine/encoder_cache.h"

#include <gtest/gtest.h>

namespace tokamak {
namespace {

std::shared_ptr<const EncodeImage> Image(ImageId id, int32_t num_rows) {
  return std::make_shared<EncodeImage>(EncodeImage{.id = id, .num_rows = num_rows});
}

std::vector<ImageId> Ids(const std::vector<std::shared_ptr<const EncodeImage>>& images) {
  std::vector<ImageId> ids;
  for (const auto& image : images) ids.push_back(image->id);
  return ids;
}

// Uses the images in one step, and expects what it encodes and forgets.
void UseAndExpect(EncoderCache* cache,
                  const std::vector<std::shared_ptr<const EncodeImage>>& images,
                  const std::vector<ImageId>& encoded, const std::vector<ImageId>& forgotten) {
  cache->BeginStep();
  for (const auto& image : images) {
    ASSERT_TRUE(cache->MayUse(*image)) << image->id;
    cache->Use(image);
  }
  const EncoderCache::StepWork work = cache->TakeStepWork();
  EXPECT_EQ(Ids(work.encode), encoded);
  EXPECT_EQ(work.forget, forgotten);
}

TEST(EncoderCache, EncodesAnImageOnce) {
  EncoderCache cache(10, 10);
  UseAndExpect(&cache, {Image(1, 4), Image(1, 4), Image(2, 5)}, {1, 2}, {});
  UseAndExpect(&cache, {Image(2, 5), Image(1, 4)}, {}, {});
  EXPECT_EQ(cache.num_rows(), 9);
}

TEST(EncoderCache, ForgetsTheLeastRecentlyUsed) {
  EncoderCache cache(10, 10);
  UseAndExpect(&cache, {Image(1, 4), Image(2, 4)}, {1, 2}, {});
  UseAndExpect(&cache, {Image(1, 4)}, {}, {});
  UseAndExpect(&cache, {Image(3, 3)}, {3}, {2});
  cache.Touch(1);
  cache.Touch(2);  // is not there
  UseAndExpect(&cache, {Image(4, 4)}, {4}, {3});
  UseAndExpect(&cache, {Image(5, 10)}, {5}, {1, 4});
  EXPECT_EQ(cache.num_rows(), 10);
  EXPECT_EQ(cache.num_evicted_rows(), 4 + 3 + 4 + 4);
}

TEST(EncoderCache, KeepsWhatTheStepUses) {
  EncoderCache cache(10, 10);
  UseAndExpect(&cache, {Image(1, 4), Image(2, 4)}, {1, 2}, {});
  cache.BeginStep();
  cache.Use(Image(1, 4));
  EXPECT_TRUE(cache.MayUse(*Image(3, 6)));
  EXPECT_FALSE(cache.MayUse(*Image(3, 7)));
  cache.Use(Image(3, 6));
  EXPECT_TRUE(cache.MayUse(*Image(1, 4)));
  EXPECT_FALSE(cache.MayUse(*Image(2, 4)));  // has made room
  EXPECT_FALSE(cache.Holds(2));
}

TEST(EncoderCache, AStepEncodesSoManyRows) {
  EncoderCache cache(100, 5);
  UseAndExpect(&cache, {Image(1, 4)}, {1}, {});
  cache.BeginStep();
  EXPECT_FALSE(cache.MayUse(*Image(2, 6)));
  cache.Use(Image(2, 5));
  EXPECT_FALSE(cache.MayUse(*Image(3, 1)));
  EXPECT_TRUE(cache.MayUse(*Image(1, 4)));
  cache.BeginStep();
  EXPECT_TRUE(cache.MayUse(*Image(3, 1)));
}

TEST(EncoderCache, HoldsNothingAfterAReset) {
  EncoderCache cache(4, 4);
  cache.BeginStep();
  cache.Use(Image(1, 4));
  cache.Reset();
  EXPECT_EQ(cache.num_rows(), 0);
  UseAndExpect(&cache, {Image(1, 4)}, {1}, {});
}

}  // namespace
}  // namespace tokamak
