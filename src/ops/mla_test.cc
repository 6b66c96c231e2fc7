// Multi-head latent attention in its three forms, on every backend that has it, against a dense
// computation in double.
#include "ops/mla.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "ops/testing/memory_source.h"
#include "ops/testing/op_harness.h"

namespace tokamak {
namespace {

class MlaOps : public OpTest {
 protected:
  void SetUp() override {
    OpTest::SetUp();
    if (IsSkipped()) return;
    ops_ = Make(2);
    if (Lacks(*ops_, Capability::kMla)) return;
  }
  std::unique_ptr<Ops> ops_;
};
INSTANTIATE_TEST_SUITE_P(All, MlaOps, ::testing::ValuesIn(OpBackends()), OpBackendName);

struct Geometry {
  int heads = 3, rotated = 6, nope = 10, latent = 20, value = 13, block_size = 16;
  DType cache = DType::kF32, weights = DType::kF32;

  int key() const { return rotated + nope; }
  int entry() const { return rotated + latent; }
};

struct SequenceShape {
  int seq_len, num_queries;
};

// Cache entries of all sequences' positions, and queries. Blocks are scattered in the pool.
struct LatentCase {
  Geometry g;
  std::vector<SequenceShape> sequences;
  std::vector<int32_t> query_start_loc = {0}, seq_lens, block_tables;
  std::vector<int64_t> slot_mapping;  // of all positions, sequence after sequence
  int64_t table_stride = 0, num_blocks = 0;
  std::vector<float> entries;  // [positions, entry]
  std::vector<float> q;        // [tokens, heads · key]
  // By head: [nope, latent], its transpose, and [value, latent].
  std::vector<std::shared_ptr<MemorySource>> keys, queries, values;
  float scale = 0;

  int64_t num_tokens() const { return query_start_loc.back(); }
};

std::vector<float> Transpose(const std::vector<float>& m, int64_t rows, int64_t cols) {
  std::vector<float> out(m.size());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      out[static_cast<size_t>(j * rows + i)] = m[static_cast<size_t>(i * cols + j)];
    }
  }
  return out;
}

LatentCase RandomCase(std::mt19937_64& random, const Geometry& g,
                      const std::vector<SequenceShape>& sequences) {
  LatentCase c;
  c.g = g;
  c.sequences = sequences;
  c.scale = 1.0f / std::sqrt(static_cast<float>(g.key()));
  for (const SequenceShape& s : sequences) {
    c.query_start_loc.push_back(c.query_start_loc.back() + s.num_queries);
    c.seq_lens.push_back(s.seq_len);
    const int64_t blocks = (s.seq_len + g.block_size - 1) / g.block_size;
    c.table_stride = std::max(c.table_stride, blocks);
    c.num_blocks += blocks;
  }
  std::vector<int32_t> free(static_cast<size_t>(c.num_blocks));
  std::iota(free.begin(), free.end(), 0);
  std::shuffle(free.begin(), free.end(), random);
  c.block_tables.assign(sequences.size() * static_cast<size_t>(c.table_stride), -1);
  int64_t positions = 0;
  for (size_t s = 0; s < sequences.size(); ++s) {
    int32_t* table = c.block_tables.data() + s * static_cast<size_t>(c.table_stride);
    for (int i = 0; i < sequences[s].seq_len; ++i) {
      if (i % g.block_size == 0) {
        table[i / g.block_size] = free.back();
        free.pop_back();
      }
      c.slot_mapping.push_back(int64_t{table[i / g.block_size]} * g.block_size + i % g.block_size);
    }
    positions += sequences[s].seq_len;
  }
  c.entries = RandomFloats(random, positions * g.entry());
  c.q = RandomFloats(random, c.num_tokens() * g.heads * g.key(), 1.5f);
  const float size = 1 / std::sqrt(static_cast<float>(g.latent));
  for (int h = 0; h < g.heads; ++h) {
    c.keys.push_back(MemorySource::Random("k", g.weights, {g.nope, g.latent}, random(), size));
    c.values.push_back(MemorySource::Random("v", g.weights, {g.value, g.latent}, random(), size));
    c.queries.push_back(
        MemorySource::Quantize("q", g.weights, {g.latent, g.nope},
                               Transpose(c.keys.back()->Dequantized(), g.nope, g.latent)));
  }
  return c;
}

// Σ_k m[row, k] · x[k].
double Dot(const std::vector<float>& m, int64_t row, const float* x, int64_t cols) {
  double sum = 0;
  for (int64_t k = 0; k < cols; ++k) sum += double{m[static_cast<size_t>(row * cols + k)]} * x[k];
  return sum;
}

// [tokens, heads · value].
std::vector<float> Expected(const LatentCase& c) {
  const Geometry& g = c.g;
  std::vector<float> out(static_cast<size_t>(c.num_tokens() * g.heads * g.value));
  for (int h = 0; h < g.heads; ++h) {
    const auto k_weight = c.keys[static_cast<size_t>(h)]->Dequantized();
    const auto v_weight = c.values[static_cast<size_t>(h)]->Dequantized();
    int64_t first = 0;  // the sequence's first position
    for (size_t s = 0; s < c.sequences.size(); first += c.sequences[s++].seq_len) {
      const int length = c.sequences[s].seq_len;
      std::vector<double> keys, values;
      for (int j = 0; j < length; ++j) {
        const auto begin = c.entries.begin() + (first + j) * g.entry();
        const std::vector<float> entry = RoundTo(g.cache, {begin, begin + g.entry()});
        for (int i = 0; i < g.rotated; ++i) keys.push_back(entry[static_cast<size_t>(i)]);
        const float* latent = entry.data() + g.rotated;
        for (int i = 0; i < g.nope; ++i) keys.push_back(Dot(k_weight, i, latent, g.latent));
        for (int i = 0; i < g.value; ++i) values.push_back(Dot(v_weight, i, latent, g.latent));
      }
      for (int t = 0; t < c.sequences[s].num_queries; ++t) {
        const int64_t token = c.query_start_loc[s] + t;
        const float* q = c.q.data() + (token * g.heads + h) * g.key();
        const int seen = length - c.sequences[s].num_queries + t + 1;
        std::vector<double> sums(static_cast<size_t>(g.value));
        double total = 0;
        for (int j = 0; j < seen; ++j) {
          double score = 0;
          for (int i = 0; i < g.key(); ++i) {
            score += q[i] * keys[static_cast<size_t>(j) * static_cast<size_t>(g.key()) + i];
          }
          const double weight = std::exp(score * c.scale);
          total += weight;
          for (int i = 0; i < g.value; ++i) {
            sums[static_cast<size_t>(i)] +=
                weight * values[static_cast<size_t>(j) * static_cast<size_t>(g.value) + i];
          }
        }
        float* row = out.data() + (token * g.heads + h) * g.value;
        for (int i = 0; i < g.value; ++i) {
          row[i] = static_cast<float>(sums[static_cast<size_t>(i)] / total);
        }
      }
    }
  }
  return out;
}

class LatentRun {
 public:
  LatentRun(Ops& ops, const LatentCase& c) : run_(ops), c_(c), g_(c.g) {}

  // min_queries and chunk_keys are LatentExpansion's. Results must not depend on which op serves a
  // sequence.
  std::vector<float> Latent(int min_queries, int chunk_keys = 0) {
    const LatentExpansion expansion = {min_queries, g_.nope, g_.value, chunk_keys};
    MakeAttentionPlan({.num_heads = g_.heads,
                       .num_kv_heads = 1,
                       .head_dim = g_.entry(),
                       .value_dim = g_.latent,
                       .values_in_keys = true,
                       .expansion = expansion});
    const KvLayerView cache = Store(Entries(), {}, 1, g_.entry(), g_.latent, true);
    const Tensor q = run_.Floats(c_.q, {c_.num_tokens(), int64_t{g_.heads} * g_.key()});
    const Tensor out = run_.Output({c_.num_tokens(), int64_t{g_.heads} * g_.value});
    const auto keys = PackStack(c_.keys), values = PackStack(c_.values);
    Absorbed(q, cache, out);
    const Tensor scratch =
        run_.Output({LatentScratchBytes(expansion, g_.entry(), g_.heads, c_.num_tokens()) / 4});
    run_.Run(LatentAttention{.q = q,
                             .cache = cache,
                             .plan = plan_.get(),
                             .w_uk = keys.get(),
                             .w_uv = values.get(),
                             .scale = c_.scale,
                             .out = out,
                             .scratch = Bytes(scratch)});
    return run_.Download(out);
  }

  // Caches keys and values of all heads, which differ in size.
  std::vector<float> Standard() {
    MakeAttentionPlan({.num_heads = g_.heads,
                       .num_kv_heads = g_.heads,
                       .head_dim = g_.key(),
                       .value_dim = g_.value});
    const Tensor entries = Entries();
    const auto keys = PackStack(c_.keys), values = PackStack(c_.values);
    const Tensor k = run_.Output({entries.rows(), int64_t{g_.heads} * g_.key()});
    const Tensor v = run_.Output({entries.rows(), int64_t{g_.heads} * g_.value});
    const HeadColumns latent = {entries, g_.rotated, 0, g_.latent};
    run_.Run(HeadLinear{
        .x = latent, .weights = keys.get(), .copied = {entries, 0, 0, g_.rotated}, .out = k});
    run_.Run(HeadLinear{.x = latent, .weights = values.get(), .copied = {}, .out = v});
    const KvLayerView cache = Store(k, v, g_.heads, g_.key(), g_.value, false);
    const Tensor out = run_.Output({c_.num_tokens(), int64_t{g_.heads} * g_.value});
    Attend(run_.Floats(c_.q, {c_.num_tokens(), int64_t{g_.heads} * g_.key()}), cache, out);
    return run_.Download(out);
  }

 private:
  static Tensor Bytes(const Tensor& floats) {
    return Tensor(floats.data, DType::kI8, {floats.cols() * 4});
  }
  std::unique_ptr<PackedStack> PackStack(
      const std::vector<std::shared_ptr<MemorySource>>& sources) {
    std::vector<WeightSpec> members;
    for (const auto& source : sources) {
      members.push_back({.parts = {source}, .use = WeightUse::kHeads});
    }
    auto stack = run_.ops().PackStack(members);
    CHECK_MSG(stack.ok(), stack.status().ToString());
    return *std::move(stack);
  }

  Tensor Entries() {
    return run_.Floats(c_.entries, {static_cast<int64_t>(c_.slot_mapping.size()), g_.entry()});
  }

  void MakeAttentionPlan(AttentionShape shape) {
    shape.block_size = g_.block_size;
    shape.kv_dtype = g_.cache;
    shape.max_seqs = static_cast<int32_t>(c_.sequences.size());
    shape.max_tokens = static_cast<int32_t>(c_.num_tokens());
    shape.max_blocks_per_seq = static_cast<int32_t>(c_.table_stride);
    auto plan = run_.ops().MakeAttentionPlan(shape);
    CHECK_MSG(plan.ok(), plan.status().ToString());
    plan_ = *std::move(plan);
    const auto num_seqs = static_cast<int64_t>(c_.sequences.size());
    std::vector<int32_t> rows(c_.sequences.size());
    std::iota(rows.begin(), rows.end(), 0);
    plan_->Fill({.query_start_loc = c_.query_start_loc,
                 .seq_lens = c_.seq_lens,
                 .device_query_start_loc = run_.Ints(c_.query_start_loc),
                 .device_seq_lens = run_.Ints(c_.seq_lens),
                 .table_rows = run_.Ints(rows),
                 .block_tables =
                     run_.Upload(c_.block_tables.data(), DType::kI32, {num_seqs, c_.table_stride})},
                run_.stream());
  }

  // Writes all positions' rows to a new cache whose other bytes are NaN.
  KvLayerView Store(const Tensor& k, const Tensor& v, int kv_heads, int key, int value,
                    bool values_in_keys) {
    const auto bytes = [&](int dim) {
      return static_cast<int64_t>(RowBytes(g_.cache, int64_t{kv_heads} * g_.block_size * dim));
    };
    RopeAndStore op;
    op.cache = {
        .block_stride = 64 + bytes(key) + (values_in_keys ? 0 : bytes(value)) + 32,
        .k_offset = 64,
        .v_offset = 64 + (values_in_keys ? static_cast<int64_t>(RowBytes(g_.cache, key - value))
                                         : bytes(key)),
        .dtype = g_.cache,
        .block_size = g_.block_size,
        .num_kv_heads = kv_heads,
        .head_dim = key,
        .value_dim = value,
        .values_in_keys = values_in_keys};
    const std::vector<std::byte> poison(static_cast<size_t>(c_.num_blocks * op.cache.block_stride),
                                        std::byte{0xff});
    const auto size = static_cast<int64_t>(poison.size());
    op.cache.base = static_cast<std::byte*>(run_.Upload(poison.data(), DType::kI8, {size}).data);
    op.q = run_.Output({k.rows(), int64_t{2} * g_.key()});
    op.q_head_dim = g_.key();
    op.k = k;
    op.v = v;
    op.positions = run_.Ints(std::vector<int32_t>(c_.slot_mapping.size()));
    op.slot_mapping = run_.Longs(c_.slot_mapping);
    run_.Run(op);
    return op.cache;
  }

  void Attend(const Tensor& q, const KvLayerView& cache, const Tensor& out) {
    Attention op;
    op.q = q;
    op.cache = cache;
    op.plan = plan_.get();
    op.scale = c_.scale;
    op.out = out;
    run_.Run(op);
  }

  void Absorbed(const Tensor& q, const KvLayerView& cache, const Tensor& out) {
    const auto queries = PackStack(c_.queries), values = PackStack(c_.values);
    const Tensor absorbed = run_.Output({c_.num_tokens(), int64_t{g_.heads} * g_.entry()});
    run_.Run(HeadLinear{.x = {q, g_.rotated, g_.key(), g_.nope},
                        .weights = queries.get(),
                        .copied = {q, 0, g_.key(), g_.rotated},
                        .out = absorbed});
    const Tensor latents = run_.Output({c_.num_tokens(), int64_t{g_.heads} * g_.latent});
    Attend(absorbed, cache, latents);
    run_.Run(HeadLinear{.x = {latents, 0, g_.latent, g_.latent},
                        .weights = values.get(),
                        .copied = {},
                        .out = out});
  }

  OpRunner run_;
  const LatentCase& c_;
  const Geometry& g_;
  std::unique_ptr<AttentionPlan> plan_;
};

// An element of a key or a value is a sum of `latent` products of size 1 / sqrt(latent). A score is
// a sum of `key` products of such elements. Backends with weights in bf16 may round what they
// multiply to it.
double Tolerance(const Geometry& g, const OpBackend& backend) {
  const bool rounds = backend.weights == DType::kBF16;
  return kUnit * (64 + 4 * g.latent) + (rounds ? 12 * 0x1p-9 : 0);
}

TEST_P(MlaOps, AllFormsEqualDenseAttention) {
  std::mt19937_64 random(11);
  WorstError worst(fmt::format("{} latent attention", ops_->name()));
  const std::vector<Geometry> shapes = {
      {},
      {.heads = 1, .rotated = 2, .nope = 1, .latent = 3, .value = 5, .block_size = 5},
      {.heads = 20, .rotated = 32, .nope = 16, .latent = 64, .value = 48, .block_size = 32},
      {.heads = 2, .rotated = 64, .nope = 64, .latent = 128, .value = 64},
      {.heads = 3, .rotated = 64, .nope = 32, .latent = 512, .value = 16}};
  for (Geometry g : shapes) {
    g.weights = GetParam().weights;
    if (GetParam().name.starts_with("cuda")) g.heads = std::min(g.heads, 5);  // emulation is slow
    for (const DType dtype : CacheTypes(GetParam())) {
      const int block = Info(dtype).block_elements;
      if (g.entry() % block != 0 || g.latent % block != 0) continue;
      g.cache = dtype;
      const LatentCase c = RandomCase(random, g, {{1, 1}, {17, 17}, {270, 1}, {40, 30}, {261, 3}});
      const std::vector<float> expected = Expected(c);
      const std::string where =
          fmt::format("{} heads, latents of {}, {}", g.heads, g.latent, Name(dtype));
      for (const int min_queries : {0, 1, 3}) {
        worst.Compare(LatentRun(*ops_, c).Latent(min_queries), expected, Tolerance(g, GetParam()),
                      fmt::format("{}, decompressed from {} queries on", where, min_queries));
      }
      if (dtype != DType::kF32) continue;  // the standard form rounds other numbers
      worst.Compare(LatentRun(*ops_, c).Standard(), expected, Tolerance(g, GetParam()),
                    where + ", standard");
    }
  }
}

// Long sequences in chunks, of several sequences and of one, beside sequences that are absorbed.
TEST_P(MlaOps, LatentsThatAreDecompressedInChunksEqualDenseAttention) {
  if (Lacks(*ops_, Capability::kLatentScratch)) return;
  std::mt19937_64 random(13);
  WorstError worst(fmt::format("{} decompressed latents", ops_->name()));
  const std::vector<SequenceShape> sequences = {{130, 130}, {1, 1}, {545, 37}, {90, 60}, {40, 15}};
  for (const DType dtype : {DType::kBF16, DType::kF8E4M3}) {
    Geometry g = {.heads = 2,
                  .rotated = 64,
                  .nope = 128,
                  .latent = 64,
                  .value = 128,
                  .cache = dtype,
                  .weights = DType::kBF16};
    for (const int chunk_keys : {256, 768}) {
      const LatentCase c = RandomCase(random, g, sequences);
      worst.Compare(LatentRun(*ops_, c).Latent(20, chunk_keys), Expected(c),
                    Tolerance(g, GetParam()),
                    fmt::format("{}, chunks of {} keys", Name(dtype), chunk_keys));
      g.latent = 512;
    }
  }
}

// In each form, a row's bits do not depend on its chunk or on other rows.
TEST_P(MlaOps, CutAndBatchChangeNoBit) {
  std::mt19937_64 random(12);
  for (const DType dtype : CacheTypes(GetParam())) {
    const Geometry g = {.heads = 5,
                        .rotated = 32,
                        .nope = 24,
                        .latent = 64,
                        .value = 20,
                        .cache = dtype,
                        .weights = DType::kBF16};
    // The last 300 of 400 positions, then parts of them beside other sequences.
    const LatentCase whole = RandomCase(random, g, {{400, 300}});
    for (const int min_queries : {0, 1}) {
      const std::vector<float> expected = LatentRun(*ops_, whole).Latent(min_queries);
      for (const auto& [begin, end] : std::vector<std::pair<int, int>>{{100, 101}, {250, 400}}) {
        LatentCase part = RandomCase(random, g, {{40, 9}, {end, end - begin}});
        part.keys = whole.keys;
        part.queries = whole.queries;
        part.values = whole.values;
        std::copy_n(whole.entries.begin(), end * g.entry(), part.entries.begin() + 40 * g.entry());
        const int64_t width = int64_t{g.heads} * g.key(), out = int64_t{g.heads} * g.value;
        std::copy_n(whole.q.begin() + (begin - 100) * width, (end - begin) * width,
                    part.q.begin() + 9 * width);
        const std::vector<float> actual = LatentRun(*ops_, part).Latent(min_queries);
        EXPECT_TRUE(SameBits(
            {actual.begin() + 9 * out, actual.end()},
            {expected.begin() + (begin - 100) * out, expected.begin() + (end - 100) * out}))
            << Name(dtype) << ", positions " << begin << " to " << end;
      }
    }
  }
}

}  // namespace
}  // namespace tokamak
