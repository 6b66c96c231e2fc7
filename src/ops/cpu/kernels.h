// Functions that an ISA supplies. Each does one work item of an op on the calling thread. The
// algorithms are templates under kernels/, instantiated once per ISA folder with its compiler
// flags, and have internal linkage, so that no code for a newer machine is linked into the rest of
// the program. Only plain values cross this header.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/activation.h"
#include "tensor/dtype.h"

namespace tokamak::cpu {

// A Linear's sum over k is cut at multiples of this. A chunk is one chain of fused multiply-adds
// from zero over ascending k; chunk sums are added in ascending order. An output depends only on
// its own row and weights, and has the same bits on every ISA with FMA.
inline constexpr int kChunk = 256;
// Panels that a work item multiplies at once, and the scratch floats for them.
inline constexpr int kMaxPanels = 4;
inline constexpr int kTileFloats = kMaxPanels * kChunk * 16;

// out[t, n] for num_tokens rows of x and the outputs of num_panels panels. x is f32, int8
// (quant/activation_row.h) or bf16, as the kernel takes it.
struct LinearTask {
  DType dtype = DType::kF32;
  const std::byte* panels = nullptr;
  int64_t panel_bytes = 0;
  int num_panels = 0;  // <= kMaxPanels; int8: kMaxInt8Panels; bf16: kMaxBf16Panels
  int64_t cols = 0;
  const std::byte* x = nullptr;
  int64_t x_stride = 0;  // bytes
  int64_t num_tokens = 0;
  const float* bias = nullptr;  // of the first output, or null
  float* out = nullptr;
  int64_t out_stride = 0;   // floats
  int64_t num_outputs = 0;  // <= 16 · num_panels
  float* tile = nullptr;    // kTileFloats of scratch, aligned to 64 bytes; int8: may be null
  // int8: the last call with this tile had the same x and the same type of weights, so the tile
  // still holds x as that call packed it.
  bool tokens_packed = false;
};

// num_rows rows of AddRmsNorm or AddLayerNorm.
struct NormTask {
  const float* x = nullptr;  // or null
  float* residual = nullptr;
  const float* weight = nullptr;
  const float* bias = nullptr;  // or null; AddLayerNorm only
  float* out = nullptr;
  int64_t x_stride = 0, residual_stride = 0, out_stride = 0;  // floats
  int64_t num_rows = 0;
  int64_t cols = 0;
  float eps = 0;
};

// num_rows rows of GatedActivation; of Activate if `up` is null.
struct GateTask {
  Activation activation = Activation::kSilu;
  const float* gate = nullptr;
  const float* up = nullptr;
  float* out = nullptr;
  float limit = 0, alpha = 0;             // kClampedSwiglu
  int64_t in_stride = 0, out_stride = 0;  // floats
  int64_t num_rows = 0;
  int64_t cols = 0;
};

// Norm and rotation of one token's heads, in place.
struct RopeTask {
  float* heads = nullptr;  // [num_heads, head_dim]
  int num_heads = 0;
  int head_dim = 0;
  const float* norm = nullptr;  // [head_dim] or null
  float norm_eps = 0;
  const float* cosines = nullptr;  // [rotary_dim / 2]; null: no rotation
  const float* sines = nullptr;
  int rotary_dim = 0;
  bool half_split = true;
};

// Keys and values of one KV head of one layer, and the table of one sequence.
struct AttentionCache {
  const std::byte* base = nullptr;
  int64_t block_stride = 0;  // bytes
  int64_t k_offset = 0;      // bytes from a block's start to this head's keys
  int64_t v_offset = 0;
  int64_t key_stride = 0;     // bytes of a key; if keys are rows, also from key to key
  int64_t value_stride = 0;   // bytes from value to value
  bool keys_in_rows = false;  // for any block size (ops/cpu/cache_layout.h)
  DType dtype = DType::kF32;
  int32_t block_size = 0;
  const int32_t* block_table = nullptr;
};

// Attention is cut at absolute positions. A split has a softmax of its own; splits are merged in
// ascending order. If there are many rows, keys are converted to f32 a tile at a time.
inline constexpr int kKeyTile = 64;
inline constexpr int kKeySplit = 256;

// A block of queries: num_tokens consecutive tokens of one sequence times the `group` heads that
// share one KV head. Row i is token i / group, head i % group.
struct AttentionTask {
  AttentionCache cache;
  const float* q = nullptr;  // of the first token and the first head of the group
  int64_t q_stride = 0;      // floats between tokens
  int num_tokens = 0;
  int group = 0;
  int head_dim = 0;  // of queries and keys
  int value_dim = 0;
  float scale = 0;
  float softcap = 0;              // 0: none
  const float* slopes = nullptr;  // [group], or null
  int64_t first_position = 0;     // of the first token
  int64_t window = 0;             // keys that a query sees; 0: all
  int64_t num_keys = 0;           // keys that every query sees; 0: causal
  float* scratch = nullptr;       // AttentionScratchFloats, aligned to 64 bytes
};

// The result of one or several splits, for each row: the highest score (times log2 e), the sum of
// the weights 2^(score - highest), and the sum of the weighted values, padded to 16 columns.
struct AttentionPartial {
  float* highest = nullptr;  // [rows]
  float* sum = nullptr;      // [rows]
  float* values = nullptr;   // [rows, PadTo16(value_dim)]
};

constexpr int64_t PadTo16(int64_t n) { return (n + 15) / 16 * 16; }
// Floats of an AttentionPartial and of the scratch of attend_split.
constexpr int64_t AttentionPartialFloats(int64_t rows, int64_t value_dim) {
  return rows * PadTo16(value_dim) + 2 * PadTo16(rows);
}
constexpr int64_t AttentionScratchFloats(int64_t rows, int64_t head_dim, int64_t value_dim) {
  return PadTo16(rows) * PadTo16(head_dim)                                   // scaled queries
         + rows * kKeySplit                                                  // scores, then weights
         + kKeyTile * PadTo16(rows)                                          // scores by key
         + kKeyTile * PadTo16(head_dim > value_dim ? head_dim : value_dim);  // keys or values
}

// CausalConv of some channels of one sequence, at least one token.
struct ConvTask {
  const float* x = nullptr;       // of the first token
  const float* weight = nullptr;  // [kernel, channels]
  float* state = nullptr;         // [kernel - 1, channels]: the inputs before the first token
  float* out = nullptr;
  int64_t x_stride = 0, weight_stride = 0, state_stride = 0, out_stride = 0;  // floats
  int64_t num_tokens = 0;
  int kernel = 0;
  int64_t channels = 0;
};

// Columns of a state that a work item of GatedDelta updates.
inline constexpr int kDeltaColumns = 32;

// GatedDelta of some columns of one head of one sequence, at least one token. Keys and queries are
// normalized.
struct DeltaTask {
  float* state = nullptr;    // [key_dim, columns]
  const float* q = nullptr;  // of the first token: [key_dim], as k
  const float* k = nullptr;
  const float* v = nullptr;  // [columns]
  const float* decay = nullptr;
  const float* beta = nullptr;
  float* out = nullptr;  // [columns]
  // Floats between rows of the state, and between tokens.
  int64_t state_stride = 0, qk_stride = 0, v_stride = 0, gate_stride = 0, out_stride = 0;
  int64_t num_tokens = 0;
  int key_dim = 0;
  int64_t columns = 0;
};

// num_rows rows of GateOutput.
struct OutputGateTask {
  const float* x = nullptr;
  const float* gate = nullptr;
  const float* norm = nullptr;  // [head_dim], or null
  float* out = nullptr;
  int64_t x_stride = 0, gate_stride = 0, out_stride = 0;  // floats
  int64_t num_rows = 0;
  int64_t cols = 0;
  int64_t head_dim = 0;
  float eps = 0;
  bool silu = false;
};

struct Kernels {
  void (*linear)(const LinearTask& task);
  // Unpacks elements [k_begin, k_begin + k_count) of a panel's 16 rows to f32 [k_count][16]. Both
  // are multiples of 32 for block types; k_begin is even for BF16.
  void (*unpack)(DType dtype, const std::byte* panel, int64_t k_begin, int64_t k_count,
                 float* tile);
  void (*add_rms_norm)(const NormTask& task);
  void (*add_layer_norm)(const NormTask& task);
  void (*gate)(const GateTask& task);
  void (*rope)(const RopeTask& task);
  // x[i] = cap · tanh(x[i] / cap).
  void (*softcap)(float* x, int64_t n, float cap);
  // x[i] = max(-limit, min(x[i], limit)).
  void (*clamp)(float* x, int64_t n, float limit);
  // Converts n floats to F32, F16, BF16, F8_E4M3 or Q8_0 (n a multiple of 32).
  void (*convert)(DType dtype, const float* source, int64_t n, std::byte* destination);
  // Computes the partial of one split of kKeySplit positions.
  void (*attend_split)(const AttentionTask& task, int64_t split, const AttentionPartial& out);
  // Merges `from` into `into`. A merge starts with the first split's partial as `into`.
  void (*merge)(int64_t rows, int64_t value_dim, const AttentionPartial& from,
                const AttentionPartial& into);
  // out[i] = values[i] / sum for one row. `values` is padded to 16.
  void (*finish_head)(const float* values, float sum, int value_dim, float* out);
  void (*convolve)(const ConvTask& task);
  // x = scale · x / sqrt(Σ x² + eps) for each head.
  void (*normalize_heads)(float* heads, int num_heads, int head_dim, float eps, float scale);
  void (*delta)(const DeltaTask& task);
  void (*gate_output)(const OutputGateTask& task);
};

// One per ISA folder. Null if this build lacks the ISA.
const Kernels* BaselineKernels();
const Kernels* Avx2Kernels();
const Kernels* Avx512Kernels();

}  // namespace tokamak::cpu
