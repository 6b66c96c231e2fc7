// The operations of gated delta nets on every backend, against the reference: with sequences that
// begin and that go on, in any company and any cuts.
#include "ops/gated_delta.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "ops/reference/reference_ops.h"
#include "ops/testing/op_harness.h"

namespace tokamak {
namespace {

class GatedDeltaOps : public OpTest {
 protected:
  void SetUp() override {
    OpTest::SetUp();
    if (IsSkipped()) return;
    ops_ = Make(2);
    if (Lacks(*ops_, {Capability::kGatedDelta, Capability::kGateOutput})) return;
  }
  std::unique_ptr<Ops> ops_;
};
INSTANTIATE_TEST_SUITE_P(All, GatedDeltaOps, ::testing::ValuesIn(OpBackends()), OpBackendName);

// `count` more tokens of a sequence; or rows of a sequence of length 0.
struct Piece {
  size_t sequence = 0;
  int count = 0;
  bool padding = false;
};
using Step = std::vector<Piece>;

// The inputs of sequences, [length, width] each.
struct Inputs {
  int width = 0;
  std::vector<std::vector<float>> sequences;

  Inputs(std::mt19937_64& random, int width, const std::vector<int>& lengths) : width(width) {
    for (const int length : lengths) {
      sequences.push_back(RandomFloats(random, int64_t{length} * width, 2.0f));
    }
  }
  Step Whole() const {
    Step step;
    for (size_t s = 0; s < sequences.size(); ++s) {
      step.push_back({s, static_cast<int>(sequences[s].size()) / width});
    }
    return step;
  }
};

struct Outcome {
  std::vector<std::vector<float>> outputs;  // of each sequence
  std::vector<float> states;                // of all slots, with the gaps between them
};

// Runs the steps of one operation. The state of sequence s lies in slot num_sequences - 1 - s;
// before, every slot is NaN.
class Runner {
 public:
  Runner(Ops& ops, const Inputs& inputs, const StateLayerSpec& spec) : run_(ops), inputs_(inputs) {
    view_.spec = spec;
    view_.slot_stride = spec.ConvElements() + kGap + spec.MatrixElements();
    const auto slots = static_cast<int64_t>(inputs.sequences.size());
    states_ = run_.Output({slots * view_.slot_stride});
    view_.conv = static_cast<float*>(states_.data);
    view_.matrix = view_.conv + spec.ConvElements() + kGap;
    lengths_.resize(inputs.sequences.size());
    outcome_.outputs.resize(inputs.sequences.size());
  }

  // Calls submit(rows, view, batch), which returns the rows of outputs, for each step.
  template <typename Submit>
  Outcome Run(const std::vector<Step>& steps, Submit submit) {
    for (const Step& step : steps) {
      std::vector<int32_t> starts = {0}, seq_lens, slots;
      std::vector<float> rows;
      for (const Piece& piece : step) {
        int& length = lengths_[piece.sequence];
        const auto begin = inputs_.sequences[piece.sequence].begin() + length * inputs_.width;
        rows.insert(rows.end(), begin, begin + piece.count * inputs_.width);
        starts.push_back(starts.back() + piece.count);
        seq_lens.push_back(piece.padding ? 0 : length + piece.count);
        slots.push_back(static_cast<int32_t>(lengths_.size() - 1 - piece.sequence));
        if (!piece.padding) length += piece.count;
      }
      const StateBatch batch = {.query_start_loc = starts,
                                .seq_lens = seq_lens,
                                .device_query_start_loc = run_.Ints(starts),
                                .device_seq_lens = run_.Ints(seq_lens),
                                .slots = run_.Ints(slots)};
      const Tensor x = run_.Floats(rows, {starts.back(), inputs_.width});
      const std::vector<float> out = run_.Download(submit(run_, x, view_, batch));
      const size_t cols = out.size() / std::max<size_t>(1, static_cast<size_t>(starts.back()));
      for (size_t i = 0; i < step.size(); ++i) {
        if (step[i].padding) continue;
        std::vector<float>& to = outcome_.outputs[step[i].sequence];
        to.insert(to.end(), out.begin() + starts[i] * static_cast<int64_t>(cols),
                  out.begin() + starts[i + 1] * static_cast<int64_t>(cols));
      }
    }
    outcome_.states = run_.Download(states_);
    return outcome_;
  }

 private:
  static constexpr int64_t kGap = 3;  // floats that nothing may write

  OpRunner run_;
  const Inputs& inputs_;
  StateLayerView view_;
  Tensor states_;
  std::vector<int> lengths_;  // of the sequences so far
  Outcome outcome_;
};

// CausalConv and GatedDelta with random weights.
struct Convolution {
  int kernel, channels;
  std::vector<float> weight;

  Convolution(std::mt19937_64& random, int kernel, int channels)
      : kernel(kernel),
        channels(channels),
        weight(RandomFloats(random, int64_t{kernel} * channels)) {}

  Outcome Run(Ops& ops, const Inputs& inputs, const std::vector<Step>& steps) const {
    Runner runner(ops, inputs, {.conv_channels = channels, .conv_kernel = kernel});
    return runner.Run(steps, [&](OpRunner& run, const Tensor& x, const StateLayerView& view,
                                 const StateBatch& batch) {
      const CausalConv op = {.x = x.Cols(1, 1 + channels),
                             .weight = run.Floats(weight, {kernel, channels}),
                             .state = view,
                             .batch = batch,
                             .out = run.Output({x.rows(), channels})};
      run.Run(op);
      return op.out;
    });
  }
  int width() const { return channels + 2; }
};

struct DeltaRule {
  int key_heads, value_heads, key_dim, value_dim;
  bool tiled = false;
  std::vector<float> rate, bias;

  DeltaRule(std::mt19937_64& random, int key_heads, int value_heads, int key_dim, int value_dim)
      : key_heads(key_heads),
        value_heads(value_heads),
        key_dim(key_dim),
        value_dim(value_dim),
        rate(RandomFloats(random, value_heads, 0.5f)),
        bias(RandomFloats(random, value_heads)) {
    for (float& r : rate) r = std::abs(r);
  }

  // A row is [q | k | v | a | b].
  Outcome Run(Ops& ops, const Inputs& inputs, const std::vector<Step>& steps) const {
    Runner runner(ops, inputs,
                  {.num_heads = value_heads, .key_dim = key_dim, .value_dim = value_dim});
    return runner.Run(steps, [&](OpRunner& run, const Tensor& x, const StateLayerView& view,
                                 const StateBatch& batch) {
      const int64_t keys = int64_t{key_heads} * key_dim, values = int64_t{value_heads} * value_dim;
      int64_t at = 0;
      const auto next = [&](int64_t cols) {
        at += cols;
        return x.Cols(at - cols, at);
      };
      GatedDelta op;
      op.q = next(keys);
      op.k = next(keys);
      op.v = next(values);
      op.a = next(value_heads);
      op.b = next(value_heads);
      op.rate = run.Floats(rate, {value_heads});
      op.bias = run.Floats(bias, {value_heads});
      op.tiled = tiled;
      op.state = view;
      op.batch = batch;
      op.out = run.Output({x.rows(), values});
      run.Run(op);
      return op.out;
    });
  }
  int width() const { return 2 * key_heads * key_dim + value_heads * (value_dim + 2); }
};

// All outputs and states; gaps, and states that nothing has written, must be NaN in both.
void CompareAll(WorstError& worst, const Outcome& actual, const Outcome& expected, double tolerance,
                const std::string& where) {
  for (size_t s = 0; s < expected.outputs.size(); ++s) {
    worst.Compare(actual.outputs[s], expected.outputs[s], tolerance,
                  fmt::format("{}, sequence {}", where, s));
  }
  ASSERT_EQ(actual.states.size(), expected.states.size());
  for (size_t i = 0; i < expected.states.size(); ++i) {
    ASSERT_EQ(std::isnan(actual.states[i]), std::isnan(expected.states[i])) << where << ' ' << i;
    if (std::isnan(expected.states[i])) continue;
    worst.Compare(actual.states[i], expected.states[i], tolerance,
                  [&] { return fmt::format("{}, state [{}]", where, i); });
  }
}

// Two sequences begin and go on, one of them in pieces shorter than the convolution's kernel; a
// third one only begins; and there are rows of padding and a sequence without rows.
const std::vector<int> kLengths = {9, 5, 30, 4};
const std::vector<Step> kSteps = {
    {{0, 2}, {3, 2, true}, {2, 19}}, {{2, 1}, {0, 1}, {1, 0, true}, {1, 5}}, {{0, 6}, {2, 10}}};

TEST_P(GatedDeltaOps, CausalConvMatchesTheReference) {
  std::mt19937_64 random(21);
  const auto reference = MakeReferenceOps();
  WorstError worst(fmt::format("{} causal_conv", ops_->name()));
  for (const int kernel : {1, 2, 4, 7}) {
    for (const int channels : {1, 19, 64, 300}) {
      const Convolution conv(random, kernel, channels);
      const Inputs inputs(random, conv.width(), kLengths);
      CompareAll(worst, conv.Run(*ops_, inputs, kSteps), conv.Run(*reference, inputs, kSteps),
                 kUnit * 16 * (kernel + 4),
                 fmt::format("kernel {}, {} channels", kernel, channels));
    }
  }
}

TEST_P(GatedDeltaOps, GatedDeltaMatchesTheReference) {
  std::mt19937_64 random(22);
  const auto reference = MakeReferenceOps();
  WorstError worst(fmt::format("{} gated_delta", ops_->name()));
  const std::vector<DeltaRule> rules = {
      {random, 1, 1, 1, 1},    {random, 2, 6, 10, 7},    {random, 3, 3, 12, 20},
      {random, 1, 2, 64, 36},  {random, 2, 4, 128, 128}, {random, 1, 1, 256, 33},
      {random, 2, 2, 100, 64},
  };
  for (const DeltaRule& rule : rules) {
    const Inputs inputs(random, rule.width(), kLengths);
    // A token's output is a sum of key_dim products with a state that 30 tokens have rounded.
    CompareAll(worst, rule.Run(*ops_, inputs, kSteps), rule.Run(*reference, inputs, kSteps),
               kUnit * 2 * (30 + std::sqrt(rule.key_dim)),
               fmt::format("{} heads of {} x {}", rule.value_heads, rule.key_dim, rule.value_dim));
  }
}

// A permutation of the heads undoes the other order.
TEST_P(GatedDeltaOps, TiledHeadsShareKeysInTurn) {
  std::mt19937_64 random(26);
  constexpr int kKeyHeads = 2, kGroup = 3, kHeads = kKeyHeads * kGroup, kDim = 5;
  DeltaRule grouped(random, kKeyHeads, kHeads, 8, kDim);
  DeltaRule tiled = grouped;
  tiled.tiled = true;
  const Inputs inputs(random, grouped.width(), {7});
  Inputs permuted = inputs;
  const auto place = [](int head) { return head % kGroup * kKeyHeads + head / kGroup; };
  // Moves what a row has for each head, `size` values from `first` on.
  const auto move = [&](const std::vector<float>& from, std::vector<float>& to, int width,
                        int first, int size) {
    for (int row = 0; row < static_cast<int>(from.size()) / width; ++row) {
      for (int head = 0; head < kHeads; ++head) {
        std::copy_n(from.begin() + row * width + first + head * size, size,
                    to.begin() + row * width + first + place(head) * size);
      }
    }
  };
  const int values = 2 * kKeyHeads * 8, gates = values + kHeads * kDim;
  for (const auto& [first, size] : {std::pair(values, kDim), {gates, 1}, {gates + kHeads, 1}}) {
    move(inputs.sequences[0], permuted.sequences[0], inputs.width, first, size);
  }
  move(grouped.rate, tiled.rate, kHeads, 0, 1);
  move(grouped.bias, tiled.bias, kHeads, 0, 1);
  std::vector<float> expected = grouped.Run(*ops_, inputs, {inputs.Whole()}).outputs[0];
  const std::vector<float> unmoved = expected;
  move(unmoved, expected, kHeads * kDim, 0, kDim);
  EXPECT_TRUE(SameBits(tiled.Run(*ops_, permuted, {permuted.Whole()}).outputs[0], expected));
}

// Every token alone, or all of a sequence at once: the same bits in outputs and states.
template <typename Op>
void ExpectCutsChangeNothing(Ops& ops, const Op& op, std::mt19937_64& random) {
  const Inputs inputs(random, op.width(), {23, 40, 1, 6});
  const Outcome whole = op.Run(ops, inputs, {inputs.Whole()});
  std::vector<Step> tokens, pieces;
  for (size_t s = 0; s < inputs.sequences.size(); ++s) {
    for (int t = 0; t < inputs.Whole()[s].count; ++t) tokens.push_back({{s, 1}});
  }
  std::vector<int> left;
  for (const Piece& piece : inputs.Whole()) left.push_back(piece.count);
  while (*std::max_element(left.begin(), left.end()) > 0) {
    Step& step = pieces.emplace_back();
    for (size_t s = 0; s < left.size(); ++s) {
      const int count = std::min<int>(left[s], static_cast<int>(random() % 9));
      if (count > 0) step.push_back({s, count});
      left[s] -= count;
    }
    std::shuffle(step.begin(), step.end(), random);
  }
  for (const auto& steps : {tokens, pieces}) {
    const Outcome cut = op.Run(ops, inputs, steps);
    for (size_t s = 0; s < cut.outputs.size(); ++s) {
      EXPECT_TRUE(SameBits(cut.outputs[s], whole.outputs[s])) << "sequence " << s;
    }
    EXPECT_TRUE(SameBits(cut.states, whole.states));
  }
}

TEST_P(GatedDeltaOps, CutsAndCompanyChangeNoBit) {
  std::mt19937_64 random(23);
  ExpectCutsChangeNothing(*ops_, Convolution(random, 4, 70), random);
  ExpectCutsChangeNothing(*ops_, DeltaRule(random, 1, 2, 24, 41), random);
}

TEST_P(GatedDeltaOps, NumberOfThreadsChangesNoBit) {
  std::mt19937_64 random(24);
  const auto alone = Make(1);
  const DeltaRule rule(random, 2, 4, 16, 40);
  const Inputs inputs(random, rule.width(), kLengths);
  EXPECT_TRUE(
      SameBits(rule.Run(*ops_, inputs, kSteps).states, rule.Run(*alone, inputs, kSteps).states));
}

TEST_P(GatedDeltaOps, GateOutputMatchesTheReference) {
  std::mt19937_64 random(25);
  const auto reference = MakeReferenceOps();
  WorstError worst(fmt::format("{} gate_output", ops_->name()));
  struct Case {
    OutputGate activation;
    int64_t head_dim;  // 0: no norm
    int64_t cols;
  };
  const Case cases[] = {{OutputGate::kSigmoid, 0, 1},  {OutputGate::kSigmoid, 0, 331},
                        {OutputGate::kSilu, 0, 512},   {OutputGate::kSilu, 7, 35},
                        {OutputGate::kSilu, 128, 768}, {OutputGate::kSigmoid, 20, 60}};
  for (const Case& c : cases) {
    for (const DType in : {DType::kF32, GetParam().inner}) {
      for (const DType out : {DType::kF32, GetParam().inner}) {
        const std::vector<float> x = RoundTo(in, RandomFloats(random, 5 * c.cols, 3.0f));
        const std::vector<float> gate = RoundTo(in, RandomFloats(random, 5 * c.cols, 6.0f));
        const std::vector<float> norm = RandomFloats(random, std::max<int64_t>(1, c.head_dim));
        const auto run_on = [&](Ops& ops, DType in_type, DType out_type) {
          OpRunner run(ops);
          const Tensor weight = run.Floats(norm, {static_cast<int64_t>(norm.size())});
          const GateOutput op = {.x = run.Rounded(x, in_type, {5, c.cols}),
                                 .gate = run.Rounded(gate, in_type, {5, c.cols}),
                                 .activation = c.activation,
                                 .norm = c.head_dim > 0 ? &weight : nullptr,
                                 .norm_eps = 1e-6f,
                                 .out = run.Output({5, c.cols}, out_type)};
          run.Run(op);
          return run.Download(op.out);
        };
        const std::vector<float> expected = run_on(*reference, DType::kF32, DType::kF32);
        const std::vector<float> actual = run_on(*ops_, in, out);
        ASSERT_EQ(actual.size(), expected.size());
        for (size_t i = 0; i < actual.size(); ++i) {
          worst.Compare(actual[i], expected[i],
                        kUnit * 16 * (std::abs(expected[i]) + 0x1p-20) +
                            (out == DType::kF32 ? 0 : StepAt(out, expected[i])),
                        [&] { return fmt::format("{} columns [{}]", c.cols, i); });
        }
      }
    }
  }
}

}  // namespace
}  // namespace tokamak
