// Random batches for the tests of Attention, and the comparison with the reference.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "ops/ops.h"
#include "ops/testing/op_harness.h"

namespace tokamak::attention_test {

struct Geometry {
  int num_heads = 4;
  int num_kv_heads = 2;
  int head_dim = 64;
  int block_size = 16;
  int window = 0;
  DType dtype = DType::kF32;
  bool causal = true;
};

struct SequenceShape {
  int seq_len;
  int num_queries;
};

// A batch and its cache. Blocks are scattered in the pool between another layer's data; everything
// that no query may read is NaN.
struct AttentionCase {
  Geometry geometry;
  std::vector<int32_t> query_start_loc = {0};
  std::vector<int32_t> seq_lens;
  std::vector<BatchRows> bidirectional;
  std::vector<int32_t> block_tables;
  int64_t table_stride = 0;
  int64_t num_blocks = 0;
  // The cache's contents; each backend stores them in its own order.
  std::vector<int64_t> slot_mapping;
  std::vector<size_t> first_slot = {0};  // [sequences + 1]: where each sequence begins
  std::vector<float> keys_values;        // [slots, 2, kv_heads · head_dim]
  std::vector<float> q;                  // [tokens, heads · head_dim]
  double max_key_norm = 0;
  double max_value = 0;
  float scale = 0;
  DType q_type = DType::kF32;
  DType out_type = DType::kF32;
  bool wants_lse = true;
  // Launches a graph that was captured on padding. Requires as many sequences as tokens.
  bool as_graph = false;
  int64_t gap = 8;  // elements between rows of q
  float softcap = 0;
  std::vector<float> sinks;   // [heads], or none
  std::vector<float> slopes;  // [heads], or none

  int64_t num_tokens() const { return query_start_loc.back(); }
  int64_t head_bytes() const {
    return geometry.block_size * static_cast<int64_t>(RowBytes(geometry.dtype, geometry.head_dim));
  }
  int64_t k_offset() const { return 64; }  // after another layer's data
  int64_t v_offset() const { return k_offset() + geometry.num_kv_heads * head_bytes() + 32; }
  int64_t block_stride() const { return v_offset() + geometry.num_kv_heads * head_bytes() + 96; }
};

AttentionCase RandomCase(std::mt19937_64& random, const Geometry& g,
                         const std::vector<SequenceShape>& sequences);

struct AttentionResult {
  std::vector<float> out;
  std::vector<float> lse;  // empty if not wanted
};

// Adds empty sequences, `tokens` of them with a token, until there are as many sequences as tokens.
void AddPadding(AttentionCase& c, int tokens);

AttentionResult RunAttention(Ops& ops, const AttentionCase& c, int repeats = 1);

// Compares with the reference in f32. A score is off by a few units of |q| |k| · scale, and a
// weight by that relative error; sums add their own errors. CUDA's tensor-core kernels, which take
// no slopes, also round q and weights to bf16. Outputs of bf16 are rounded, and so may be the
// results that they merge.
void CheckAttention(Ops& ops, Ops& reference, const AttentionCase& c, WorstError& worst,
                    const std::string& where);

// Prefill, decode, extend, and verification of a few draft tokens; lengths around every cut.
const std::vector<SequenceShape>& MixedBatch();

}  // namespace tokamak::attention_test
