// GatedActivation, RopeAndStore and small optional operations on every backend, against the
// reference.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <iterator>
#include <limits>
#include <optional>
#include <random>

#include "ops/reference/reference_ops.h"
#include "ops/testing/memory_source.h"
#include "ops/testing/op_harness.h"
#include "quant/quantize.h"

namespace tokamak {
namespace {

class ElementwiseOps : public OpTest {};
INSTANTIATE_TEST_SUITE_P(All, ElementwiseOps, ::testing::ValuesIn(OpBackends()), OpBackendName);

// `values` as rows of `cols` that begin at column `offset` of a wider tensor.
Tensor UploadRows(OpRunner& run, const std::vector<float>& values, int64_t rows, int64_t cols,
                  int64_t offset, DType dtype = DType::kF32) {
  const int64_t width = cols + 2 * offset;
  std::vector<float> wide(static_cast<size_t>(rows * width), NAN);
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(values.begin() + row * cols, cols, wide.begin() + row * width + offset);
  }
  return run.Rounded(wide, dtype, {rows, width}).Cols(offset, offset + cols);
}

std::vector<float> RunGate(Ops& ops, const std::vector<float>& gate_up, int64_t rows,
                           Activation activation, int64_t offset = 0, DType dtype = DType::kF32) {
  OpRunner run(ops);
  const int64_t width = static_cast<int64_t>(gate_up.size()) / std::max<int64_t>(1, rows) / 2;
  const GatedActivation op = {
      .gate_up = UploadRows(run, gate_up, rows, 2 * width, offset, dtype),
      .activation = activation,
      .out = run.Output({rows, width + 2 * offset}).Cols(offset, offset + width)};
  run.Run(op);
  return run.Download(op.out);
}

TEST_P(ElementwiseOps, GatedActivationMatchesTheReference) {
  std::mt19937_64 random(2);
  const auto ops = Make(2);
  const auto reference = MakeReferenceOps();
  for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
    WorstError worst(
        fmt::format("{} {}", ops->name(), activation == Activation::kSilu ? "silu" : "gelu_tanh"));
    for (const int64_t rows : {0, 1, 2, 33}) {
      for (const int64_t width : {1, 19, 1536, 2052}) {
        const std::vector<float> gate_up = RandomFloats(random, rows * 2 * width, 4.0f);
        const std::vector<float> expected = RunGate(*reference, gate_up, rows, activation);
        const std::vector<float> actual = RunGate(*ops, gate_up, rows, activation);
        ASSERT_EQ(actual.size(), expected.size());
        for (int64_t i = 0; i < rows * width; ++i) {
          // In gelu_tanh, an error of the exponent u is a relative error of the result, and the
          // reference loses precision to cancellation in 1 + tanh(u).
          const double gate = gate_up[static_cast<size_t>(i / width * 2 * width + i % width)];
          const double exponent = activation == Activation::kSilu
                                      ? 0
                                      : 1.6 * std::abs(gate + 0.044715 * gate * gate * gate);
          const auto at = static_cast<size_t>(i);
          worst.Compare(actual[at], expected[at],
                        kUnit * (10 + 6 * exponent) * std::abs(expected[at]) + 1e-13,
                        [&] { return fmt::format("{}x{} [{}]", rows, width, i); });
        }
      }
    }
  }
}

TEST_P(ElementwiseOps, AddResidualIsExact) {
  std::mt19937_64 random(12);
  const auto ops = Make(2);
  if (Lacks(*ops, Capability::kAddResidual)) return;
  for (const auto& [rows, scale] : {std::pair(0, 1.0f), {1, 1.0f}, {70, 1.0f}, {70, 0.25f}}) {
    const int64_t cols = 331;
    const std::vector<float> x = RandomFloats(random, rows * cols);
    std::vector<float> sum = RandomFloats(random, rows * cols, 30.0f);
    OpRunner run(*ops);
    const AddResidual op = {.x = run.Floats(x, {rows, cols}),
                            .residual = run.Floats(sum, {rows, cols}),
                            .scale = scale};
    run.Run(op);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += scale * x[i];
    EXPECT_TRUE(SameBits(run.Download(op.residual), sum)) << rows << " · " << scale;
  }
}

TEST_P(ElementwiseOps, SoftcapMatchesTheReference) {
  std::mt19937_64 random(13);
  const auto ops = Make(2);
  if (Lacks(*ops, Capability::kLogitSoftcap)) return;
  WorstError worst(fmt::format("{} softcap", ops->name()));
  for (const float cap : {0.5f, 30.0f}) {
    std::vector<float> values = RandomFloats(random, 3 * 1001, 2 * cap);
    values[0] = 0;
    values[1] = 1e6f;
    values[2] = -1e6f;
    OpRunner run(*ops);
    const Softcap op = {.x = run.Floats(values, {3, 1001}), .cap = cap};
    run.Run(op);
    const std::vector<float> actual = run.Download(op.x);
    for (size_t i = 0; i < values.size(); ++i) {
      const double expected = cap * std::tanh(double{values[i]} / cap);
      worst.Compare(actual[i], expected, 8 * kUnit * cap,
                    [&] { return fmt::format("cap {} [{}]", cap, i); });
    }
  }
}

// x / (1 + exp(-x)) over the whole range of exp: every multiple of 2^-10 in [-90, 90], then
// extremes.
TEST_P(ElementwiseOps, SiluIsAccurateOverTheWholeRange) {
  const auto ops = Make(1);
  const auto reference = MakeReferenceOps();
  std::vector<float> gate;
  for (float x = -90; x <= 90; x += 0x1p-10f) gate.push_back(x);
  for (const float x : {0.0f, 1e-40f, 1e-6f, 100.0f, 1e30f, 3e38f}) {
    gate.push_back(x);
    gate.push_back(-x);
  }
  std::vector<float> gate_up = gate;
  gate_up.resize(2 * gate.size(), 1.0f);
  const std::vector<float> expected = RunGate(*reference, gate_up, 1, Activation::kSilu);
  const std::vector<float> actual = RunGate(*ops, gate_up, 1, Activation::kSilu);
  WorstError worst(fmt::format("{} silu, whole range", ops->name()));
  for (size_t i = 0; i < gate.size(); ++i) {
    // Below -87, exp(-x) approaches the largest float.
    worst.Compare(actual[i], expected[i], kUnit * 8 * std::abs(expected[i]) + 1e-36,
                  [&] { return fmt::format("silu({})", gate[i]); });
  }
  const std::vector<float> nan = RunGate(*ops, {NAN, 1.0f}, 1, Activation::kSilu);
  EXPECT_TRUE(std::isnan(nan[0]));
}

// An op before a Linear that takes another type than f32 writes that type. Its results must be the
// f32 ones, rounded.
void CheckRoundedOutputs(Ops& ops, DType activation) {
  std::mt19937_64 random(8);
  const bool blocks = IsBlockType(activation);
  const int64_t rows = 7, cols = blocks ? 544 : 515;
  // Packing such a weight makes the backend support outputs of its activation type.
  const auto weight_of_the_width =
      ops.PackWeight({.parts = {MemorySource::Random("weight", DType::kQ8_0, {1, 544}, 1)}});
  ASSERT_TRUE(weight_of_the_width.ok());
  // Rows lie in a wider tensor if their type allows it.
  const auto output = [&](OpRunner& run, DType dtype) {
    return blocks ? run.Output({rows, cols}, dtype)
                  : run.Output({rows, cols + 3}, dtype).Cols(1, 1 + cols);
  };
  std::vector<float> values = RandomFloats(random, rows * 2 * cols, 3.0f);
  values[700] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> weight = RandomFloats(random, cols);
  const auto norm = [&](DType dtype) {
    OpRunner run(ops);
    AddRmsNorm op;
    op.residual = run.Floats({values.begin(), values.begin() + rows * cols}, {rows, cols});
    op.weight = run.Floats(weight, {cols});
    op.eps = 1e-5f;
    op.out = output(run, dtype);
    run.Run(op);
    return run.Download(op.out);
  };
  const auto gate = [&](DType dtype) {
    OpRunner run(ops);
    const GatedActivation op = {.gate_up = run.Floats(values, {rows, 2 * cols}),
                                .activation = Activation::kGeluTanh,
                                .out = output(run, dtype)};
    run.Run(op);
    return run.Download(op.out);
  };
  EXPECT_TRUE(SameBits(norm(activation), RoundTo(activation, norm(DType::kF32))));
  EXPECT_TRUE(SameBits(gate(activation), RoundTo(activation, gate(DType::kF32))));
}

TEST_P(ElementwiseOps, OutputsInTheActivationTypeAreRounded) {
  const auto ops = Make(2);
  for (const DType activation : GetParam().activations) {
    SCOPED_TRACE(Name(activation));
    CheckRoundedOutputs(*ops, activation);
  }
}

struct RopeCase {
  int num_heads = 4, num_kv_heads = 2, head_dim = 64, rotary_dim = 64, block_size = 16;
  DType dtype = DType::kF32;
  RopeStyle style = RopeStyle::kHalfSplit;
  bool norms = false, rotate = true;
  int64_t offset = 0;         // of the rows of qkv in a wider tensor
  DType inner = DType::kF32;  // of qkv
  std::vector<float> qkv;     // [tokens, (heads + 2 · kv heads) · head_dim]
  std::vector<float> q_norm, k_norm, angles;
  std::vector<int32_t> positions;
  std::vector<int64_t> slot_mapping;
  static constexpr int64_t kBlocks = 6, kPositions = 100;

  int64_t num_tokens() const { return static_cast<int64_t>(positions.size()); }
  int64_t width() const { return static_cast<int64_t>(num_heads + 2 * num_kv_heads) * head_dim; }
  int64_t head_bytes() const {
    return block_size * static_cast<int64_t>(RowBytes(dtype, head_dim));
  }
  int64_t block_stride() const { return 2 * num_kv_heads * head_bytes() + 48; }
};

void FillCase(std::mt19937_64& random, int64_t num_tokens, RopeCase& c) {
  for (int64_t t = 0; t < num_tokens; ++t) {
    c.positions.push_back(static_cast<int32_t>(random() % RopeCase::kPositions));
    // Each token has its own slot, in scattered blocks; some are padding.
    c.slot_mapping.push_back(t % 5 == 3 ? -1 : (t * 7) % (RopeCase::kBlocks * c.block_size));
  }
  c.qkv = RandomFloats(random, num_tokens * c.width());
  c.q_norm = RandomFloats(random, c.head_dim);
  c.k_norm = RandomFloats(random, c.head_dim);
  for (int64_t p = 0; p < RopeCase::kPositions; ++p) {
    for (const bool sine : {false, true}) {
      for (int i = 0; i < c.rotary_dim / 2; ++i) {
        const double angle = static_cast<double>(p) / (1 + 3 * i);
        c.angles.push_back(static_cast<float>(sine ? std::sin(angle) : std::cos(angle)));
      }
    }
  }
}

struct RopeResult {
  std::vector<float> q;
  std::vector<std::byte> pool;  // with keys as rows
};

RopeResult RunRope(Ops& ops, const RopeCase& c) {
  OpRunner run(ops);
  const std::vector<std::byte> untouched(static_cast<size_t>(RopeCase::kBlocks * c.block_stride()),
                                         std::byte{0x5a});
  const Tensor pool =
      run.Upload(untouched.data(), DType::kI8, {static_cast<int64_t>(untouched.size())});
  const Tensor qkv = UploadRows(run, c.qkv, c.num_tokens(), c.width(), c.offset, c.inner);
  const int64_t q_end = static_cast<int64_t>(c.num_heads) * c.head_dim;
  const int64_t k_end = q_end + static_cast<int64_t>(c.num_kv_heads) * c.head_dim;
  const Tensor q_norm = run.Floats(c.q_norm, {c.head_dim});
  const Tensor k_norm = run.Floats(c.k_norm, {c.head_dim});
  const RopeTable rope = {.cos_sin = run.Floats(c.angles, {RopeCase::kPositions, c.rotary_dim}),
                          .rotary_dim = c.rotary_dim,
                          .style = c.style};
  RopeAndStore op;
  op.q = qkv.Cols(0, q_end);
  op.k = qkv.Cols(q_end, k_end);
  op.v = qkv.Cols(k_end, c.width());
  op.positions = run.Ints(c.positions);
  op.slot_mapping = run.Longs(c.slot_mapping);
  if (c.norms) op.q_norm = &q_norm, op.k_norm = &k_norm;
  op.norm_eps = 1e-6f;
  if (c.rotate) op.rope = &rope;
  op.cache = {.base = static_cast<std::byte*>(pool.data),
              .block_stride = c.block_stride(),
              .k_offset = 16,
              .v_offset = 32 + c.num_kv_heads * c.head_bytes(),
              .dtype = c.dtype,
              .block_size = c.block_size,
              .num_kv_heads = c.num_kv_heads,
              .head_dim = c.head_dim};
  run.Run(op);
  RopeResult result = {run.Download(op.q), run.DownloadBytes(pool.data, untouched.size())};
  for (int64_t block = 0; block < RopeCase::kBlocks; ++block) {
    for (int64_t h = 0; h < c.num_kv_heads; ++h) {
      KeysToRows(ops, op.cache,
                 result.pool.data() + block * c.block_stride() + 16 + h * c.head_bytes());
    }
  }
  return result;
}

// q matches within rounding, the cache within one step of its type; other bytes are unchanged.
void CheckRope(Ops& ops, Ops& reference, const RopeCase& c, WorstError& worst) {
  const RopeResult expected = RunRope(reference, c);
  const RopeResult actual = RunRope(ops, c);
  // The elements of a normalized or random head are at most a few units.
  worst.Compare(actual.q, expected.q, kUnit * 120, "q");
  const int64_t key_elements = static_cast<int64_t>(c.num_kv_heads) * c.block_size * c.head_dim;
  std::vector<float> a(static_cast<size_t>(key_elements)), b(a.size());
  for (int64_t block = 0; block < RopeCase::kBlocks; ++block) {
    const int64_t keys = block * c.block_stride() + 16;
    const int64_t values = block * c.block_stride() + 32 + c.num_kv_heads * c.head_bytes();
    const int64_t size = c.num_kv_heads * c.head_bytes();
    // Everything but the keys is exact: values are only rounded.
    const auto same = [&](int64_t begin, int64_t end) {
      return std::memcmp(actual.pool.data() + begin, expected.pool.data() + begin,
                         static_cast<size_t>(end - begin)) == 0;
    };
    EXPECT_TRUE(same(block * c.block_stride(), keys));
    EXPECT_TRUE(same(keys + size, values));
    EXPECT_TRUE(same(values, (block + 1) * c.block_stride()));
    DequantizeRow(c.dtype, actual.pool.data() + keys, key_elements, a.data());
    DequantizeRow(c.dtype, expected.pool.data() + keys, key_elements, b.data());
    for (size_t i = 0; i < a.size(); ++i) {
      // Q8_0 may be off by one code, which is at most 0.04 if no element is above about 4.7.
      const double error = c.dtype == DType::kQ8_0 ? 0.04 : StepAt(c.dtype, b[i]);
      worst.Compare(a[i], b[i], error + kUnit * 120,
                    [&] { return fmt::format("key element {}", i); });
    }
  }
}

TEST_P(ElementwiseOps, RopeAndStoreMatchesTheReference) {
  std::mt19937_64 random(3);
  const auto ops = Make(2);
  const auto reference = MakeReferenceOps();
  for (const DType dtype : CacheTypes(GetParam())) {
    WorstError worst(fmt::format("{} rope_and_store {}", ops->name(), Name(dtype)));
    for (const auto& [head_dim, rotary_dim] :
         std::vector<std::pair<int, int>>{{64, 64}, {128, 64}, {20, 12}, {6, 2}, {34, 34}}) {
      if (head_dim % Info(dtype).block_elements != 0) continue;
      for (const RopeStyle style : {RopeStyle::kHalfSplit, RopeStyle::kInterleaved}) {
        for (const bool norms : {false, true}) {
          for (const int64_t num_tokens : {0, 1, 37}) {
            RopeCase c;
            c.head_dim = head_dim;
            c.rotary_dim = rotary_dim;
            c.style = style;
            c.norms = norms;
            c.rotate = num_tokens != 1 || norms;
            c.dtype = dtype;
            c.num_heads = head_dim == 20 ? 3 : 4;
            c.num_kv_heads = head_dim == 20 ? 1 : 2;
            c.block_size = num_tokens == 1 ? 7 : 16;
            FillCase(random, num_tokens, c);
            CheckRope(*ops, *reference, c, worst);
          }
        }
      }
    }
  }
}

// Rows that vectors cannot read: in a wider tensor, at odd addresses.
TEST_P(ElementwiseOps, ResultsDoNotDependOnAddresses) {
  std::mt19937_64 random(14);
  const auto ops = Make(1);
  const std::vector<float> gate_up = RandomFloats(random, 3 * 2 * 300);
  EXPECT_TRUE(SameBits(RunGate(*ops, gate_up, 3, Activation::kSilu, 1),
                       RunGate(*ops, gate_up, 3, Activation::kSilu)));
  for (const DType dtype : CacheTypes(GetParam())) {
    for (const auto& [head_dim, rotary_dim] :
         std::vector<std::pair<int, int>>{{64, 64}, {96, 32}, {128, 128}, {256, 256}, {576, 64}}) {
      for (const RopeStyle style : {RopeStyle::kHalfSplit, RopeStyle::kInterleaved}) {
        RopeCase c;
        c.head_dim = head_dim;
        c.rotary_dim = rotary_dim;
        c.dtype = dtype;
        c.style = style;
        c.norms = true;
        FillCase(random, 5, c);
        const RopeResult expected = RunRope(*ops, c);
        c.offset = 1;
        const RopeResult actual = RunRope(*ops, c);
        EXPECT_TRUE(SameBits(actual.q, expected.q)) << head_dim;
        EXPECT_EQ(actual.pool, expected.pool) << head_dim;
      }
    }
  }
}

// Inputs in an inner type give what their values give in f32; q is rounded to its type.
TEST_P(ElementwiseOps, InnerInputsAreReadAsTheirValues) {
  const DType inner = GetParam().inner;
  if (inner == DType::kF32) GTEST_SKIP() << "all inputs are f32";
  std::mt19937_64 random(16);
  const auto ops = Make(1);
  const std::vector<float> gate_up = RoundTo(inner, RandomFloats(random, 3 * 2 * 2052));
  const std::vector<float> gated = RunGate(*ops, gate_up, 3, Activation::kSilu);
  for (const int64_t offset : {0, 1, 2}) {
    EXPECT_TRUE(SameBits(RunGate(*ops, gate_up, 3, Activation::kSilu, offset, inner), gated));
  }
  for (const DType dtype : CacheTypes(GetParam())) {
    for (const int head_dim : {20, 64, 128, 576}) {
      for (const bool norms : {false, true}) {
        RopeCase c;
        c.head_dim = head_dim;
        c.rotary_dim = std::min(head_dim - head_dim % 8, 128);
        c.dtype = dtype;
        c.norms = norms;
        FillCase(random, 5, c);
        c.qkv = RoundTo(inner, c.qkv);
        const RopeResult expected = RunRope(*ops, c);
        c.inner = inner;
        for (c.offset = 0; c.offset < 3; ++c.offset) {
          const RopeResult actual = RunRope(*ops, c);
          EXPECT_TRUE(SameBits(actual.q, RoundTo(inner, expected.q))) << head_dim;
          EXPECT_EQ(actual.pool, expected.pool) << head_dim;
        }
      }
    }
  }
}

// A rank has the rows of some tokens. The other ranks have the others, and all are added.
TEST_P(ElementwiseOps, EmbedGivesZerosForTokensOfOtherShards) {
  const auto ops = Make(2);
  for (const int64_t cols : {96, 97}) {
    const std::vector<int32_t> ids = {0, 6, 7, 8, 16, 17, 29};
    std::vector<float> values, expected;  // small integers, which every type has
    for (int64_t i = 0; i < 10 * cols; ++i) values.push_back(static_cast<float>(i % 250 + 1));
    for (const int32_t id : ids) {
      for (int64_t i = 0; i < cols; ++i) {
        const bool is_here = 7 <= id && id < 17;
        expected.push_back(is_here ? values[static_cast<size_t>((id - 7) * cols + i)] : 0.0f);
      }
    }
    const auto source = MemorySource::Quantize("table", DType::kF32, {10, cols}, values);
    const auto table = ops->PackWeight({.parts = {source}, .use = WeightUse::kEmbedding});
    ASSERT_TRUE(table.ok());
    OpRunner run(*ops);
    const Tensor out = run.Output({std::ssize(ids), cols});
    run.Run(Embed{.ids = run.Ints(ids),
                  .table = table->get(),
                  .scale = 1,
                  .first_id = 7,
                  .vocab_size = 30,
                  .out = out});
    EXPECT_TRUE(SameBits(run.Download(out), expected));
  }
}

// Each op reads what the one before it writes, or writes what that one reads. Waiting for the
// stream after each of them changes nothing.
TEST_P(ElementwiseOps, OpsOfAStreamFollowOneAnother) {
  const auto ops = Make(2);
  const auto table =
      ops->PackWeight({.parts = {MemorySource::Random("table", DType::kF32, {9, 64}, 1)},
                       .use = WeightUse::kEmbedding});
  ASSERT_TRUE(table.ok());
  const auto chain = [&](bool waits, int64_t beside) {
    constexpr int64_t kTokens = 2, kBlockBytes = 4 * 16 * 4;
    OpRunner run(*ops);
    const std::vector<float> zeros(kTokens * 64, 0.0f);
    const Tensor x = run.Output({kTokens, 64}), residual = run.Floats(zeros, {kTokens, 64});
    const Tensor normed = run.Output({kTokens, 64});
    const Tensor gated = run.Output({kTokens, 32 + 2 * beside}).Cols(beside, 32 + beside);
    const Tensor pool =
        run.Floats(std::vector<float>(2 * kBlockBytes / 4, 0.0f), {2 * kBlockBytes / 4});
    const RopeTable rope = {.cos_sin = run.Floats(std::vector<float>(4 * 8, 0.7f), {4, 8}),
                            .rotary_dim = 8};
    const auto step = [&](const auto& op) {
      run.Run(op);
      if (waits) {
        EXPECT_TRUE(ops->Synchronize(run.stream()).ok());
      }
    };
    step(Embed{.ids = run.Ints({8, 3}), .table = table->get(), .scale = 1, .out = x});
    const Tensor weight = run.Floats(std::vector<float>(64, 1.5f), {64});
    const Tensor positions = run.Ints({2, 3}), slots = run.Longs({1, 6});
    const Tensor rows = run.Ints({1, 0});
    for (int round = 0; round < 8; ++round) {
      step(
          AddRmsNorm{.x = &x, .residual = residual, .weight = weight, .eps = 1e-5f, .out = normed});
      step(GatedActivation{.gate_up = normed, .out = gated});
      RopeAndStore store;
      store.q = gated.Cols(0, 16);
      store.k = gated.Cols(16, 24);
      store.v = gated.Cols(24, 32);
      store.positions = positions;
      store.slot_mapping = slots;
      store.rope = &rope;
      store.cache = {.base = static_cast<std::byte*>(pool.data),
                     .block_stride = kBlockBytes,
                     .k_offset = 0,
                     .v_offset = kBlockBytes / 2,
                     .dtype = DType::kF32,
                     .block_size = 4,
                     .num_kv_heads = 1,
                     .head_dim = 8};
      step(store);
      step(GatherRows{.source = gated, .rows = rows, .out = x.Cols(16, 48)});
    }
    std::vector<float> all = run.Download(x);
    for (const Tensor& tensor : {residual, pool}) {
      const std::vector<float> values = run.Download(tensor);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  for (const int64_t beside : {0, 1})
    EXPECT_TRUE(SameBits(chain(false, beside), chain(true, beside)));
}

// Includes ties, denormals, overflows and non-finite values of the cache's type.
TEST_P(ElementwiseOps, StoredValuesAreRoundedToNearestEven) {
  const auto ops = Make(1);
  const auto reference = MakeReferenceOps();
  RopeCase c;
  c.num_heads = c.num_kv_heads = 1;
  c.head_dim = c.rotary_dim = 4096;
  c.rotate = false;
  c.positions = {0};
  c.slot_mapping = {5};
  c.q_norm = c.k_norm = std::vector<float>(4096, 1.0f);
  c.angles.assign(static_cast<size_t>(RopeCase::kPositions * 4096), 0.0f);
  c.qkv.assign(3 * 4096, 0.0f);
  std::mt19937_64 random(4);
  for (size_t i = 4096; i < 3 * 4096; ++i) {
    auto bits = static_cast<uint32_t>(random());
    if (i % 3 == 0) bits &= 0xfffff000;                       // ties of F16; the low bits are zero
    if (i % 5 == 0) bits &= 0xffff8000;                       // ties of BF16
    if (i % 2 == 0) bits = (bits & 0x87ffffff) | 0x30000000;  // near F16's denormals
    if (i % 7 == 0) bits = (bits & 0x81ffffff) | 0x46000000;  // near F16's largest
    if (i % 3 == 1) bits = (bits & 0x8fffffff) + 0x38000000;  // 2^-15 to 2^16: around E4M3's range
    if (i % 6 == 1) bits &= 0xfff80000;                       // ties of E4M3
    std::memcpy(&c.qkv[i], &bits, 4);
  }
  for (const DType dtype : CacheTypes(GetParam())) {
    if (dtype == DType::kF32) continue;  // nothing to round
    c.dtype = dtype;
    // Q8_0 guarantees nothing for values that are not finite.
    for (float& x : c.qkv) {
      if (dtype == DType::kQ8_0 && !std::isfinite(x)) x = 1e3f;
    }
    EXPECT_EQ(RunRope(*ops, c).pool, RunRope(*reference, c).pool) << Name(dtype);
  }
}

TEST_P(ElementwiseOps, ARowsBitsDependOnNothingButTheRow) {
  std::mt19937_64 random(5);
  const auto ops = Make(1);
  const auto others = Make(3);
  const std::vector<float> gates = RandomFloats(random, 90 * 2 * 500);
  const std::vector<float> activated = RunGate(*ops, gates, 90, Activation::kSilu);
  EXPECT_TRUE(SameBits(RunGate(*others, gates, 90, Activation::kSilu), activated));
  EXPECT_TRUE(
      SameBits(RunGate(*others, {gates.begin() + 7000, gates.begin() + 8000}, 1, Activation::kSilu),
               {activated.begin() + 3500, activated.begin() + 4000}));
}

TEST_P(ElementwiseOps, ConvertRoundsAsTheTypeDoes) {
  std::mt19937_64 random(4);
  const auto ops = Make(2);
  if (Lacks(*ops, Capability::kConvert)) return;
  const std::vector<float> values = RandomFloats(random, 40 * 96, 3.0f);
  // Packing such a weight makes the backend support outputs of its activation type.
  const auto weight_of_the_width =
      ops->PackWeight({.parts = {MemorySource::Random("weight", DType::kQ8_0, {1, 96}, 1)}});
  ASSERT_TRUE(weight_of_the_width.ok());
  for (const DType dtype : GetParam().activations) {
    OpRunner run(*ops);
    const Tensor out = run.Output({40, 96}, dtype);
    run.Run(Convert{.x = run.Floats(values, {40, 96}), .out = out});
    EXPECT_TRUE(SameBits(run.Download(out), RoundTo(dtype, values))) << Name(dtype);
  }
}

}  // namespace
}  // namespace tokamak
