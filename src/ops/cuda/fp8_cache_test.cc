// A KV cache in FP8 on the CUDA backend: what is stored, and that attention reads it as what it
// holds.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "ops/testing/attention_case.h"
#include "ops/testing/op_harness.h"
#include "quant/e4m3.h"

namespace tokamak::attention_test {
namespace {

class Fp8Cache : public OpTest {};

std::vector<OpBackend> CudaBackends() {
  std::vector<OpBackend> backends = PlainCudaBackend();
  for (const OpBackend& backend : OpBackends()) {
    if (backend.name.starts_with("cuda")) backends.push_back(backend);
  }
  return backends;
}

INSTANTIATE_TEST_SUITE_P(All, Fp8Cache, ::testing::ValuesIn(CudaBackends()), OpBackendName);

struct Stored {
  std::vector<float> values;
  std::vector<uint8_t> codes;
};

// Every value of the type, every tie of two neighbours, what lies beside each tie, and what is
// beyond the largest value, with both signs.
Stored InterestingValues() {
  constexpr int kLargest = 0x7e, kNan = 0x7f;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Stored all;
  for (const int sign : {0x00, 0x80}) {
    const auto add = [&](float size, int code) {
      all.values.push_back(sign != 0 ? -size : size);
      all.codes.push_back(static_cast<uint8_t>(sign | code));
    };
    for (int code = 0; code < kLargest; ++code) {
      const float low = E4m3ToFloat(static_cast<uint8_t>(code));
      const float tie = (low + E4m3ToFloat(static_cast<uint8_t>(code + 1))) / 2;
      add(low, code);
      add(std::nextafter(tie, 0.0f), code);
      add(tie, code + code % 2);
      add(std::nextafter(tie, kInfinity), code + 1);
    }
    for (const float large : {448.0f, 463.0f, 464.0f, 480.0f, 1e9f, kInfinity}) {
      add(large, kLargest);
    }
    for (const float tiny : {1e-45f, 1e-38f, 1e-20f}) add(tiny, 0);
    add(std::numeric_limits<float>::quiet_NaN(), kNan);
  }
  return all;
}

// Stored by vectors, and element by element.
TEST_P(Fp8Cache, ValuesAreRoundedToNearestEvenAndCutOffAtTheLargest) {
  const auto ops = Make(1);
  for (const size_t rest : {0, 1}) {
    Stored all = InterestingValues();
    while (all.values.size() % 8 != rest) {
      all.values.push_back(1.0f);
      all.codes.push_back(FloatToE4m3(1.0f));
    }
    const auto dim = static_cast<int64_t>(all.values.size());
    OpRunner run(*ops);
    const std::vector<std::byte> empty(2 * all.values.size() + 32);
    const Tensor pool = run.Upload(empty.data(), DType::kI8, {static_cast<int64_t>(empty.size())});
    RopeAndStore op;
    op.q = run.Output({1, dim});
    op.k = run.Floats(all.values, {1, dim});
    op.v = run.Floats(all.values, {1, dim});
    op.positions = run.Ints({0});
    op.slot_mapping = run.Longs({0});
    op.cache = {.base = static_cast<std::byte*>(pool.data),
                .block_stride = (2 * dim + 31) / 16 * 16,
                .k_offset = 0,
                .v_offset = (dim + 15) / 16 * 16,
                .dtype = DType::kF8E4M3,
                .block_size = 1,
                .num_kv_heads = 1,
                .head_dim = static_cast<int32_t>(dim)};
    run.Run(op);
    const std::vector<std::byte> stored = run.DownloadBytes(pool.data, empty.size());
    for (const int64_t offset : {op.cache.k_offset, op.cache.v_offset}) {
      for (size_t i = 0; i < all.codes.size(); ++i) {
        EXPECT_EQ(static_cast<uint8_t>(stored[static_cast<size_t>(offset) + i]), all.codes[i])
            << all.values[i];
      }
    }
  }
}

// Each value of FP8 is one of bf16 too.
TEST_P(Fp8Cache, AttentionGivesTheBitsOfABf16CacheWithTheSameValues) {
  std::mt19937_64 random(21);
  const auto ops = Make(2);
  for (const int head_dim : {20, 64, 80, 128}) {
    for (const int window : {0, 70}) {
      AttentionCase c = RandomCase(
          random, {.head_dim = head_dim, .window = window, .dtype = DType::kBF16}, MixedBatch());
      c.keys_values = RoundTo(DType::kF8E4M3, c.keys_values);
      const AttentionResult expected = RunAttention(*ops, c);
      c.geometry.dtype = DType::kF8E4M3;
      const AttentionResult actual = RunAttention(*ops, c);
      EXPECT_TRUE(SameBits(actual.out, expected.out)) << head_dim << ", window " << window;
      EXPECT_TRUE(SameBits(actual.lse, expected.lse)) << head_dim << ", window " << window;
    }
  }
}

}  // namespace
}  // namespace tokamak::attention_test
