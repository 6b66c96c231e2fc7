// What an ISA supplies: one table of functions, each doing one work item of an op on the calling
// thread. The algorithms are templates under kernels/, instantiated once per ISA folder with its
// own compiler flags; everything there has internal linkage, so that no code compiled for a newer
// machine is ever shared with the rest of the program. Only plain values cross this header.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace tokamak::cpu {

// A Linear's sum over k is cut at multiples of this: each chunk is one chain of fused multiply-adds
// from zero over ascending k, and the chunk sums are added in ascending order. That is the whole
// recipe: it depends on the output's own row and weights only, and where the ISA has FMA it gives
// the same bits on every ISA.
inline constexpr int kChunk = 256;
// Panels that one work item multiplies at once, and floats of scratch it needs for them.
inline constexpr int kMaxPanels = 4;
inline constexpr int kTileFloats = kMaxPanels * kChunk * 16;

// out[t, n] for num_tokens rows of x, f32, int8 (quant/activation_row.h) or bf16 as the function
// that takes it says, and the outputs of num_panels panels.
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
  float* tile = nullptr;    // f32: kTileFloats of scratch, aligned to 64 bytes
};

// num_rows rows of AddRmsNorm or AddLayerNorm.
struct NormTask {
  const float* x = nullptr;  // or null
  float* residual = nullptr;
  const float* weight = nullptr;
  const float* bias = nullptr;  // or null; of AddLayerNorm
  float* out = nullptr;
  int64_t x_stride = 0, residual_stride = 0, out_stride = 0;  // floats
  int64_t num_rows = 0;
  int64_t cols = 0;
  float eps = 0;
};

enum class GateKind { kSilu, kGeluTanh, kGelu, kClampedSwiglu };

// num_rows rows of GatedActivation or, without `up`, of Activate.
struct GateTask {
  GateKind kind = GateKind::kSilu;
  const float* gate = nullptr;
  const float* up = nullptr;
  float* out = nullptr;
  float limit = 0, alpha = 0;             // kClampedSwiglu
  int64_t in_stride = 0, out_stride = 0;  // floats
  int64_t num_rows = 0;
  int64_t cols = 0;
};

// The heads of one token: norm and rotation in place.
struct RopeTask {
  float* heads = nullptr;  // [num_heads, head_dim]
  int num_heads = 0;
  int head_dim = 0;
  const float* norm = nullptr;  // [head_dim] or null
  float norm_eps = 0;
  const float* cosines = nullptr;  // [rotary_dim / 2], or null for no rotation
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
  int64_t key_stride = 0;     // bytes of a key, and from one to the next where they are rows
  int64_t value_stride = 0;   // bytes from value to value
  bool keys_in_rows = false;  // whatever the block size (ops/cpu/cache_layout.h)
  DType dtype = DType::kF32;
  int32_t block_size = 0;
  const int32_t* block_table = nullptr;
};

// Attention is cut at absolute positions. A split is a softmax of its own, from which results are
// merged in ascending order. A tile is what is converted to f32 at once where many rows use it.
inline constexpr int kKeyTile = 64;
inline constexpr int kKeySplit = 256;

// A block of queries: num_tokens consecutive tokens of one sequence times the `group` heads that
// share one KV head. Row i is token i / group, head i % group.
struct AttentionTask {
  AttentionCache cache;
  const float* q = nullptr;  // first token, first head of the group
  int64_t q_stride = 0;      // floats between tokens
  int num_tokens = 0;
  int group = 0;
  int head_dim = 0;   // of queries and keys
  int value_dim = 0;  // of values
  float scale = 0;
  float softcap = 0;              // 0: none
  const float* slopes = nullptr;  // [group], or null
  int64_t first_position = 0;     // of the first token
  int64_t window = 0;             // keys that a query sees, 0 for all
  int64_t num_keys = 0;           // not 0: every query sees so many, and not up to itself
  float* scratch = nullptr;       // AttentionScratchFloats, aligned to 64 bytes
};

// The result of one split, or of several merged: for each row the highest score (in powers of two,
// score · log2 e), the sum of 2^(score - highest) and the values weighted by it (padded to 16
// columns).
struct AttentionPartial {
  float* highest = nullptr;  // [rows]
  float* sum = nullptr;      // [rows]
  float* values = nullptr;   // [rows, PadTo16(value_dim)]
};

constexpr int64_t PadTo16(int64_t n) { return (n + 15) / 16 * 16; }
// Floats of an AttentionPartial, and of the scratch of attend_split.
constexpr int64_t AttentionPartialFloats(int64_t rows, int64_t value_dim) {
  return rows * PadTo16(value_dim) + 2 * PadTo16(rows);
}
constexpr int64_t AttentionScratchFloats(int64_t rows, int64_t head_dim, int64_t value_dim) {
  return PadTo16(rows) * PadTo16(head_dim)                                   // scaled queries
         + rows * kKeySplit                                                  // scores, then weights
         + kKeyTile * PadTo16(rows)                                          // scores by key
         + kKeyTile * PadTo16(head_dim > value_dim ? head_dim : value_dim);  // keys or values
}

struct Kernels {
  void (*linear)(const LinearTask& task);
  // Elements [k_begin, k_begin + k_count) of the 16 rows of a panel, as f32 [k_count][16]. Both are
  // multiples of 32 for block types; k_begin is even for BF16.
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
  // n floats to F32, F16, BF16 or, a multiple of 32 of them, to Q8_0.
  void (*convert)(DType dtype, const float* source, int64_t n, std::byte* destination);
  // One split (a number of kKeySplit positions) to its partial.
  void (*attend_split)(const AttentionTask& task, int64_t split, const AttentionPartial& out);
  // Adds `from` to `into`; the first `into` of a merge is the first split's partial.
  void (*merge)(int64_t rows, int64_t value_dim, const AttentionPartial& from,
                const AttentionPartial& into);
  // out[i] = values[i] / sum for one row; `values` is padded to 16.
  void (*finish_head)(const float* values, float sum, int value_dim, float* out);
};

// One per ISA folder; null where this build has no such ISA.
const Kernels* BaselineKernels();
const Kernels* Avx2Kernels();
const Kernels* Avx512Kernels();

}  // namespace tokamak::cpu
