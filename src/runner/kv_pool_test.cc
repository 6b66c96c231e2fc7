#include "runner/kv_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "base/check.h"
#include "ops/reference/reference_ops.h"

namespace tokamak {
namespace {

nn::CacheLayout TwoGroups() {
  return {.groups = {{.kind = CacheGroupKind::kFull, .window = 0},
                     {.kind = CacheGroupKind::kWindow, .window = 8}},
          .layers = {{.group = 0, .num_heads = 4, .num_kv_heads = 2, .head_dim = 5},
                     {.group = 1, .num_heads = 4, .num_kv_heads = 4, .head_dim = 8},
                     {.group = 0, .num_heads = 4, .num_kv_heads = 2, .head_dim = 5}}};
}

TEST(KvBlockLayout, PacksTheLayersOfAGroupAndOverlaysGroups) {
  const KvBlockLayout layout = KvBlockLayout::Make(TwoGroups(), 3, DType::kF32);
  // 2 · 3 · 5 floats are 120 bytes, aligned to 128; 4 · 3 · 8 floats are 384.
  EXPECT_EQ(layout.layers[0].k_offset, 0);
  EXPECT_EQ(layout.layers[0].v_offset, 128);
  EXPECT_EQ(layout.layers[2].k_offset, 256);
  EXPECT_EQ(layout.layers[2].v_offset, 384);
  EXPECT_EQ(layout.layers[1].k_offset, 0);
  EXPECT_EQ(layout.layers[1].v_offset, 384);
  EXPECT_EQ(layout.block_bytes, 768);
  EXPECT_EQ(KvBlockLayout::Make(TwoGroups(), 3, DType::kF16).block_bytes, 384);
  // 30 bytes are aligned to 64, 96 bytes to 128.
  const KvBlockLayout bytes = KvBlockLayout::Make(TwoGroups(), 3, DType::kF8E4M3);
  EXPECT_EQ(bytes.layers[2].v_offset, 3 * 64);
  EXPECT_EQ(bytes.layers[1].v_offset, 128);
  EXPECT_EQ(bytes.block_bytes, 256);
}

// The values of a latent are within its keys and take no further bytes.
TEST(KvBlockLayout, KeepsLatentsOnce) {
  const nn::KvLayerSpec latent = {.num_heads = 16,
                                  .num_kv_heads = 1,
                                  .head_dim = 512 + 64,
                                  .value_dim = 512,
                                  .values_in_keys = true};
  const nn::CacheLayout cache = {.groups = {{}}, .layers = {latent, latent, latent}};
  const KvBlockLayout layout = KvBlockLayout::Make(cache, 16, DType::kF16);
  EXPECT_EQ(layout.block_bytes, 16 * 3 * (512 + 64) * 2);
  EXPECT_EQ(layout.layers[1].k_offset, 16 * (512 + 64) * 2);
  EXPECT_EQ(layout.layers[1].v_offset, layout.layers[1].k_offset + 64 * 2);
}

TEST(KvBlockLayout, PacksUnequalKeysAndValues) {
  const nn::KvLayerSpec layer = {
      .num_heads = 2, .num_kv_heads = 2, .head_dim = 48, .value_dim = 32};
  const nn::CacheLayout cache = {.groups = {{}}, .layers = {layer, layer}};
  const KvBlockLayout layout = KvBlockLayout::Make(cache, 16, DType::kF32);
  EXPECT_EQ(layout.layers[0].v_offset, 16 * 2 * 48 * 4);
  EXPECT_EQ(layout.block_bytes, 2 * 16 * 2 * (48 + 32) * 4);
}

// Compares with plain arrays to which the copies are applied in order.
TEST(KvPool, CopiesActInOrder) {
  constexpr int32_t kDeviceBlocks = 6;
  constexpr int32_t kHostBlocks = 3;
  const std::unique_ptr<Ops> ops = MakeReferenceOps();
  auto made = KvPool::Create(*ops, TwoGroups(),
                             {.block_size = 3,
                              .dtype = DType::kF32,
                              .num_device_blocks = kDeviceBlocks,
                              .num_host_blocks = kHostBlocks});
  ASSERT_TRUE(made.ok());
  KvPool& pool = *made;
  const auto stream = ops->MakeStream();
  const int64_t bytes = pool.spec().block_bytes;
  std::byte* base = pool.layers()[0].base;
  std::mt19937 random(1);
  std::vector<int> host(kHostBlocks, -1);
  for (int round = 0; round < 500; ++round) {
    std::vector<int> device(kDeviceBlocks);
    for (int b = 0; b < kDeviceBlocks; ++b) {
      device[static_cast<size_t>(b)] = static_cast<int>(random() % 200);
      std::memset(base + b * bytes, device[static_cast<size_t>(b)], static_cast<size_t>(bytes));
    }
    std::vector<CopyBlock> copies(random() % 8);
    for (CopyBlock& copy : copies) {
      const auto pick = [&random](Tier tier) {
        return static_cast<BlockId>(random() %
                                    (tier == Tier::kDevice ? kDeviceBlocks : kHostBlocks));
      };
      copy.source_tier = random() % 3 == 0 ? Tier::kHost : Tier::kDevice;
      copy.source = pick(copy.source_tier);
      if (copy.source_tier == Tier::kHost && host[static_cast<size_t>(copy.source)] < 0) {
        copy.source_tier = Tier::kDevice;  // that host block is still empty
      }
      const bool out = copy.source_tier == Tier::kDevice && random() % 3 == 0;
      copy.destination_tier = out ? Tier::kHost : Tier::kDevice;
      copy.destination = pick(copy.destination_tier);
      std::vector<int>& from = copy.source_tier == Tier::kHost ? host : device;
      std::vector<int>& to = out ? host : device;
      to[static_cast<size_t>(copy.destination)] = from[static_cast<size_t>(copy.source)];
    }
    pool.Copy(copies, *stream);
    for (int64_t i = 0; i < kDeviceBlocks * bytes; ++i) {
      ASSERT_EQ(static_cast<int>(base[i]), device[static_cast<size_t>(i / bytes)])
          << "round " << round << " block " << i / bytes;
    }
  }
}

}  // namespace
}  // namespace tokamak
