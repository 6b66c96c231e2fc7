// The order in which products read their weights, and the kernels' ways to multiply many tokens.
#include "ops/cpu/linear.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ops/cpu/cpu_ops.h"
#include "ops/testing/memory_source.h"
#include "ops/testing/op_harness.h"
#include "quant/activation_row.h"

namespace tokamak::cpu {
namespace {

// The calls of the kernel. A global, because a kernel is a function without state.
std::vector<LinearTask>* tasks = nullptr;

TEST(CpuLinear, AStepReadsTheExpertsThatItTouchesFromMemoryOnce) {
  const IsaKernels real = *ChooseKernels("baseline/precise");
  Kernels noting = *real.kernels;
  noting.linear = [](const LinearTask& task) { tasks->push_back(task); };
  const IsaKernels isa = {.name = "noting", .kernels = &noting};
  std::vector<LinearTask> seen;
  tasks = &seen;

  // More than is cached at once.
  constexpr int64_t kRows = 1280, kCols = 1024;
  ASSERT_GT(kRows * kCols * int64_t{sizeof(float)}, kCachedPanelBytes);
  ThreadPool pool(1);
  WeightMemory memory;
  const auto part = std::make_shared<MemorySource>(
      "half an expert", DType::kF32, Shape{kRows / 2, kCols},
      std::vector<std::byte>(static_cast<size_t>(kRows / 2 * kCols) * sizeof(float)));
  std::vector<std::unique_ptr<PackedWeight>> experts;
  for (int e = 0; e < 5; ++e) {
    experts.push_back(*PanelWeight::Make({.parts = {part, part}}, isa, memory, pool));
  }
  // The third expert has more tokens than an item; the second and the last have none.
  std::vector<int32_t> offsets = {0, 3, 3, 303, 430, 430};
  const int64_t num_tokens = offsets.back();
  std::vector<float> x(static_cast<size_t>(num_tokens * kCols)), tile(kTileFloats);
  std::vector<float> out(static_cast<size_t>(num_tokens * kRows));
  std::vector<Product> products;
  products.reserve(experts.size());
  const PackedStack stack(std::move(experts));
  RunGroupedLinear(isa, pool, tile.data(),
                   {.x = Tensor(x.data(), DType::kF32, Shape{num_tokens, kCols}),
                    .weights = &stack,
                    .offsets = Tensor(offsets.data(), DType::kI32, Shape{6}),
                    .bias = {},
                    .out = Tensor(out.data(), DType::kF32, Shape{num_tokens, kRows})},
                   products);
  tasks = nullptr;

  std::map<std::pair<const std::byte*, const std::byte*>, int> times;  // of a panel and a row
  std::map<const std::byte*, size_t> last;                             // when panels were read
  for (size_t i = 0; i < seen.size(); ++i) {
    const LinearTask& task = seen[i];
    for (int panel = 0; panel < task.num_panels; ++panel) {
      for (int64_t t = 0; t < task.num_tokens; ++t) {
        ++times[{task.panels + panel * task.panel_bytes, task.x + t * task.x_stride}];
      }
    }
    // Panels that are read again are still cached.
    if (const auto found = last.find(task.panels); found != last.end()) {
      int64_t between = 0;
      for (size_t j = found->second; j < i; ++j) {
        between += seen[j].num_panels * seen[j].panel_bytes;
      }
      EXPECT_LE(between, kCachedPanelBytes) << "call " << i;
    }
    last[task.panels] = i;
  }
  for (const auto& [pair, count] : times) EXPECT_EQ(count, 1);
  // Every panel of an expert meets each of its tokens, and no other.
  size_t expected = 0;
  for (size_t e = 0; e < stack.members().size(); ++e) {
    const auto& weight = static_cast<const PanelWeight&>(*stack.members()[e]);
    for (const PanelSegment& segment : weight.segments()) {
      for (int64_t panel = 0; panel < segment.panels; ++panel) {
        for (int32_t t = offsets[e]; t < offsets[e + 1]; ++t, ++expected) {
          const auto* row = reinterpret_cast<const std::byte*>(x.data() + t * kCols);
          EXPECT_TRUE(times.contains({segment.data + panel * segment.panel_bytes, row}));
        }
      }
    }
  }
  EXPECT_EQ(times.size(), expected);
}

// The outputs of tokens [begin, end) in one call of the kernel. 37 rows are three panels, the last
// one not full.
std::vector<float> RunKernel(const IsaKernels& isa, const PanelWeight& weight,
                             const std::vector<std::byte>& x, int64_t begin, int64_t end,
                             float* tile = nullptr, bool tokens_packed = false) {
  const PanelSegment& segment = weight.segments().front();
  const auto row_bytes = static_cast<int64_t>(RowBytes(DType::kI8Blocks, weight.cols()));
  std::vector<float> out(static_cast<size_t>((end - begin) * weight.rows()));
  isa.int8->linear({.dtype = segment.dtype,
                    .panels = segment.data,
                    .panel_bytes = segment.panel_bytes,
                    .num_panels = static_cast<int>(segment.panels),
                    .cols = weight.cols(),
                    .x = x.data() + begin * row_bytes,
                    .x_stride = row_bytes,
                    .num_tokens = end - begin,
                    .out = out.data(),
                    .out_stride = weight.rows(),
                    .num_outputs = weight.rows(),
                    .tile = tile,
                    .tokens_packed = tokens_packed});
  return out;
}

TEST(CpuLinear, TokensThatShareWeightsGetTheirOwnBits) {
  constexpr int64_t kTokens = 141, kRows = 37, kCols = 1280;
  std::mt19937_64 random(1);
  std::vector<std::byte> x;
  for (int64_t t = 0; t < kTokens; ++t) {
    std::vector<std::byte> row(RowBytes(DType::kI8Blocks, kCols));
    QuantizeActivations(RandomFloats(random, kCols).data(), kCols, row.data());
    x.insert(x.end(), row.begin(), row.end());
  }
  struct alignas(64) Tile {
    float floats[kTileFloats];
  } tile;
  ThreadPool pool(1);
  WeightMemory memory;
  for (const std::string& name : CpuIsaNames()) {
    const Result<IsaKernels> isa = ChooseKernels(name);
    if (!isa.ok() || isa->int8 == nullptr) continue;
    for (const DType dtype : WeightTypes()) {
      if (!IsBlockType(dtype)) continue;
      const auto packed = PanelWeight::Make(
          {.parts = {MemorySource::Random("weight", dtype, {kRows, kCols}, random())}}, *isa,
          memory, pool);
      ASSERT_TRUE(packed.ok());
      const auto& weight = static_cast<const PanelWeight&>(**packed);
      const std::vector<float> all = RunKernel(*isa, weight, x, 0, kTokens);
      for (int64_t t = 0; t < kTokens; ++t) {
        EXPECT_TRUE(SameBits(RunKernel(*isa, weight, x, t, t + 1),
                             {all.begin() + t * kRows, all.begin() + (t + 1) * kRows}))
            << name << ", " << Name(dtype) << ", token " << t;
      }
      // Few tokens, whose packed rows the tile holds for a second call.
      for (int64_t n = 1; n <= 2 * kFewRows; ++n) {
        const std::vector<float> first(all.begin(), all.begin() + n * kRows);
        for (const bool packed : {false, true}) {
          EXPECT_TRUE(SameBits(RunKernel(*isa, weight, x, 0, n, tile.floats, packed), first))
              << name << ", " << Name(dtype) << ", " << n << " tokens, packed " << packed;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tokamak::cpu
