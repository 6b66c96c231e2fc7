#include "ops/testing/attention_case.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/check.h"

namespace tokamak::attention_test {
namespace {

// Makes the visible keys and values of sequence `s`.
void FillSequence(std::mt19937_64& random, AttentionCase& c, int64_t s, int64_t first) {
  const Geometry& g = c.geometry;
  for (int64_t key = first; key < c.seq_lens[static_cast<size_t>(s)]; ++key) {
    const int32_t block =
        c.block_tables[static_cast<size_t>(s * c.table_stride + key / g.block_size)];
    c.slot_mapping.push_back(int64_t{block} * g.block_size + key % g.block_size);
    for (const bool is_key : {true, false}) {
      for (int h = 0; h < g.num_kv_heads; ++h) {
        const std::vector<float> values = RandomFloats(random, g.head_dim, is_key ? 1.5f : 1.0f);
        c.keys_values.insert(c.keys_values.end(), values.begin(), values.end());
        const std::vector<float> rounded = RoundTo(g.dtype, values);
        if (is_key) {
          c.max_key_norm = std::max(c.max_key_norm, Norm(rounded.data(), g.head_dim));
        } else {
          for (const float v : rounded) c.max_value = std::max<double>(c.max_value, std::abs(v));
        }
      }
    }
  }
  c.first_slot.push_back(c.slot_mapping.size());
}

// The case's cache. Unwritten bytes are 0xff, which is NaN in every cache type.
KvLayerView MakeCache(OpRunner& run, const AttentionCase& c) {
  const Geometry& g = c.geometry;
  const std::vector<std::byte> poison(static_cast<size_t>(c.num_blocks * c.block_stride()),
                                      std::byte{0xff});
  const Tensor pool = run.Upload(poison.data(), DType::kI8, {static_cast<int64_t>(poison.size())});
  RopeAndStore op;
  op.cache = {.base = static_cast<std::byte*>(pool.data),
              .block_stride = c.block_stride(),
              .k_offset = c.k_offset(),
              .v_offset = c.v_offset(),
              .dtype = g.dtype,
              .block_size = g.block_size,
              .num_kv_heads = g.num_kv_heads,
              .head_dim = g.head_dim};
  const auto rows = static_cast<int64_t>(c.slot_mapping.size());
  const int64_t width = static_cast<int64_t>(g.num_kv_heads) * g.head_dim;
  const Tensor keys_values = run.Floats(c.keys_values, {rows, 2 * width});
  op.q = run.Output({rows, width});
  op.k = keys_values.Cols(0, width);
  op.v = keys_values.Cols(width, 2 * width);
  op.positions = run.Ints(std::vector<int32_t>(c.slot_mapping.size()));
  op.slot_mapping = run.Longs(c.slot_mapping);
  run.Run(op);
  return op.cache;
}

// Captures the operation on as many empty sequences, and launches it on the batch.
void RunAsGraph(OpRunner& run, const Attention& op, const AttentionBatch& batch,
                AttentionPlan& plan) {
  CHECK(op.q.rows() == batch.num_seqs());
  std::vector<int32_t> query_start_loc(batch.query_start_loc.size());
  std::iota(query_start_loc.begin(), query_start_loc.end(), 0);
  const std::vector<int32_t> seq_lens(batch.seq_lens.size());
  AttentionBatch empty = batch;
  empty.query_start_loc = query_start_loc;
  empty.seq_lens = seq_lens;
  plan.Fill(empty, run.stream());
  const auto graph = run.ops().Capture(run.stream(), [&] { run.Run(op); });
  CHECK_MSG(graph.ok(), graph.status().ToString());
  plan.Fill(batch, run.stream());
  run.ops().Launch(**graph, run.stream());
  CHECK(run.ops().Synchronize(run.stream()).ok());
}

bool UsesTensorCores(std::string_view backend) {
  return backend.starts_with("cuda") && !backend.ends_with("/plain") &&
         !backend.ends_with("/precise");
}

}  // namespace

AttentionCase RandomCase(std::mt19937_64& random, const Geometry& g,
                         const std::vector<SequenceShape>& sequences) {
  AttentionCase c;
  c.geometry = g;
  c.scale = 1.0f / std::sqrt(static_cast<float>(g.head_dim));
  for (const SequenceShape& s : sequences) {
    c.seq_lens.push_back(s.seq_len);
    c.query_start_loc.push_back(c.query_start_loc.back() + s.num_queries);
    const int64_t blocks = (s.seq_len + g.block_size - 1) / g.block_size;
    c.table_stride = std::max(c.table_stride, blocks + 1);
    c.num_blocks += blocks;
  }
  c.num_blocks += 3;
  std::vector<int32_t> free(static_cast<size_t>(c.num_blocks));
  std::iota(free.begin(), free.end(), 0);
  std::shuffle(free.begin(), free.end(), random);
  c.block_tables.assign(sequences.size() * static_cast<size_t>(c.table_stride), -1);
  for (size_t s = 0; s < sequences.size(); ++s) {
    const int64_t first_query = sequences[s].seq_len - sequences[s].num_queries;
    const int64_t first = g.window > 0 ? std::max<int64_t>(0, first_query + 1 - g.window) : 0;
    for (int64_t b = first / g.block_size; b * g.block_size < sequences[s].seq_len; ++b) {
      c.block_tables[s * static_cast<size_t>(c.table_stride) + static_cast<size_t>(b)] =
          free.back();
      free.pop_back();
    }
    FillSequence(random, c, static_cast<int64_t>(s), first);
  }
  c.q = RandomFloats(random, c.num_tokens() * g.num_heads * g.head_dim, 1.5f);
  return c;
}

void AddPadding(AttentionCase& c, int tokens) {
  const int64_t width = static_cast<int64_t>(c.geometry.num_heads) * c.geometry.head_dim;
  const int32_t num_tokens = c.query_start_loc.back() + tokens;
  while (c.seq_lens.size() < static_cast<size_t>(num_tokens)) {
    c.seq_lens.push_back(0);
    c.query_start_loc.push_back(std::min(c.query_start_loc.back() + 1, num_tokens));
    c.first_slot.push_back(c.slot_mapping.size());
  }
  c.block_tables.resize(c.seq_lens.size() * static_cast<size_t>(c.table_stride), -1);
  c.q.resize(static_cast<size_t>(num_tokens * width));
}

AttentionResult RunAttention(Ops& ops, const AttentionCase& c, int repeats) {
  const Geometry& g = c.geometry;
  OpRunner run(ops);
  const AttentionShape shape = {
      .num_heads = g.num_heads,
      .num_kv_heads = g.num_kv_heads,
      .head_dim = g.head_dim,
      .block_size = g.block_size,
      .window = g.window,
      .causal = g.causal,
      .kv_dtype = g.dtype,
      .bidirectional = !c.bidirectional.empty(),
      .max_seqs = static_cast<int32_t>(c.seq_lens.size()),
      .max_tokens = static_cast<int32_t>(std::max<int64_t>(1, c.num_tokens())),
      .max_blocks_per_seq = static_cast<int32_t>(c.table_stride)};
  Result<std::unique_ptr<AttentionPlan>> plan = ops.MakeAttentionPlan(shape);
  CHECK_MSG(plan.ok(), plan.status().ToString());
  const auto num_seqs = static_cast<int64_t>(c.seq_lens.size());
  // Block tables are in another order than sequences.
  std::vector<int32_t> table_rows(c.seq_lens.size());
  std::vector<int32_t> tables;
  for (int64_t s = num_seqs - 1; s >= 0; --s) {
    table_rows[static_cast<size_t>(s)] = static_cast<int32_t>(num_seqs - 1 - s);
    const auto table = c.block_tables.begin() + s * c.table_stride;
    tables.insert(tables.end(), table, table + c.table_stride);
  }
  const AttentionBatch batch = {
      .query_start_loc = c.query_start_loc,
      .seq_lens = c.seq_lens,
      .device_query_start_loc = run.Upload(c.query_start_loc.data(), DType::kI32, {num_seqs + 1}),
      .device_seq_lens = run.Upload(c.seq_lens.data(), DType::kI32, {num_seqs}),
      .table_rows = run.Upload(table_rows.data(), DType::kI32, {num_seqs}),
      .block_tables = run.Upload(tables.data(), DType::kI32, {num_seqs, c.table_stride}),
      .bidirectional = c.bidirectional};
  (*plan)->Fill(batch, run.stream());
  Attention op;
  // q is a column range, as in a merged projection.
  const int64_t width = static_cast<int64_t>(g.num_heads) * g.head_dim;
  std::vector<float> wide(static_cast<size_t>(c.num_tokens() * (width + c.gap)), NAN);
  for (int64_t t = 0; t < c.num_tokens(); ++t) {
    std::copy_n(c.q.begin() + t * width, width, wide.begin() + t * (width + c.gap));
  }
  op.q = run.Rounded(wide, c.q_type, {c.num_tokens(), width + c.gap}).Cols(0, width);
  op.cache = MakeCache(run, c);
  op.plan = plan->get();
  op.scale = c.scale;
  op.softcap = c.softcap;
  if (!c.sinks.empty()) op.sinks = run.Floats(c.sinks, {g.num_heads});
  if (!c.slopes.empty()) op.slopes = run.Floats(c.slopes, {g.num_heads});
  AttentionResult result;
  for (int i = 0; i < repeats; ++i) {  // like layers that share the plan
    op.out = run.Output({c.num_tokens(), width}, c.out_type);
    if (c.wants_lse) op.output_lse = run.Output({c.num_tokens(), g.num_heads});
    c.as_graph ? RunAsGraph(run, op, batch, **plan) : run.Run(op);
    AttentionResult now = {run.Download(op.out), {}};
    if (c.wants_lse) now.lse = run.Download(op.output_lse);
    if (i > 0) {
      EXPECT_TRUE(SameBits(now.out, result.out)) << "layer " << i;
    }
    result = std::move(now);
  }
  return result;
}

void CheckAttention(Ops& ops, Ops& reference, const AttentionCase& c, WorstError& worst,
                    const std::string& where) {
  AttentionCase exact = c;
  exact.q_type = exact.out_type = DType::kF32;
  exact.wants_lse = true;
  const AttentionResult expected = RunAttention(reference, exact);
  const AttentionResult actual = RunAttention(ops, c, 2);
  const Geometry& g = c.geometry;
  const bool rounds = UsesTensorCores(ops.name()) && c.slopes.empty() &&
                      (g.dtype == DType::kBF16 || g.dtype == DType::kF8E4M3);
  ASSERT_EQ(actual.out.size(), expected.out.size());
  for (size_t row = 0; row < expected.lse.size(); ++row) {
    const int64_t offset = static_cast<int64_t>(row) * g.head_dim;
    const double score = Norm(c.q.data() + offset, g.head_dim) * c.max_key_norm * c.scale;
    const double relative = kUnit * (16 + 3 * score + 8 * c.softcap) +
                            (rounds ? 0x1p-9 * (2 + 2 * score) : 0) +
                            (c.out_type == DType::kBF16 ? 0x1p-8 : 0);
    for (int64_t i = offset; i < offset + g.head_dim; ++i) {
      worst.Compare(actual.out[static_cast<size_t>(i)], expected.out[static_cast<size_t>(i)],
                    relative * c.max_value, [&] { return fmt::format("{}, row {}", where, row); });
    }
    if (!c.wants_lse) continue;
    worst.Compare(actual.lse[row], expected.lse[row],
                  relative + kUnit * std::abs(expected.lse[row]),
                  [&] { return fmt::format("{}, lse of row {}", where, row); });
  }
}

const std::vector<SequenceShape>& MixedBatch() {
  static const std::vector<SequenceShape> kBatch = {{1, 1},   {17, 17},  {300, 1}, {65, 2},
                                                    {64, 64}, {520, 40}, {257, 1}, {700, 5}};
  return kBatch;
}

}  // namespace tokamak::attention_test
