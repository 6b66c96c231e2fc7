#include "invariance/tiny_model.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "base/error.h"
#include "tensor/dtype.h"
#include "tokenizer/testing/tiny_vocabs.h"
#include "weights/testing/gguf_writer.h"

namespace tokamak::invariance {
namespace {

constexpr char kMixed[] = "mixed";

struct Sizes {
  int hidden, heads, kv_heads, head_dim, ffn;
};
// The smallest sizes that the types' blocks allow, but with sums longer than one chunk of the CPU
// kernels (256), and with enough heads for a long prompt to use all cores without splitting keys.
constexpr Sizes kSmall = {.hidden = 96, .heads = 6, .kv_heads = 2, .head_dim = 16, .ffn = 288};
constexpr Sizes kLarge = {.hidden = 256, .heads = 8, .kv_heads = 2, .head_dim = 32, .ffn = 512};
constexpr int kLayers = 2;

std::vector<DType> WeightDTypes() {
  std::vector<DType> dtypes;
  for (int i = 0; i < kNumDTypes; ++i) {
    if (HoldsWeights(static_cast<DType>(i))) dtypes.push_back(static_cast<DType>(i));
  }
  return dtypes;
}

class ModelWriter {
 public:
  ModelWriter(std::vector<DType> dtypes, const Sizes& sizes, uint64_t seed)
      : dtypes_(std::move(dtypes)), sizes_(sizes), random_(seed) {}

  Status Write(const std::string& path, bool tied) {
    const auto vocab = testing::TinyBytePairs();
    AddConfig();
    AddVocabulary(vocab);
    const auto rows = static_cast<int64_t>(vocab.tokens.size());
    AddMatrix("token_embd.weight", rows, sizes_.hidden, tied ? 0.2f : 1.0f);
    AddNorm("output_norm.weight");
    if (!tied) AddMatrix("output.weight", rows, sizes_.hidden, Scale(sizes_.hidden));
    for (int i = 0; i < kLayers; ++i) AddLayer(fmt::format("blk.{}.", i));
    return writer_.WriteFile(path);
  }

 private:
  static float Scale(int64_t cols) { return 2.0f / std::sqrt(static_cast<float>(cols)); }

  void AddConfig() {
    writer_.Set("general.architecture", "llama");
    writer_.Set("llama.context_length", kTinyContext);
    writer_.Set("llama.embedding_length", sizes_.hidden);
    writer_.Set("llama.block_count", kLayers);
    writer_.Set("llama.feed_forward_length", sizes_.ffn);
    writer_.Set("llama.attention.head_count", sizes_.heads);
    writer_.Set("llama.attention.head_count_kv", sizes_.kv_heads);
    writer_.Set("llama.attention.key_length", sizes_.head_dim);
    writer_.Set("llama.attention.value_length", sizes_.head_dim);
    writer_.Set("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    writer_.Set("llama.rope.freq_base", 1000.0f);
  }

  void AddVocabulary(const GgufVocab& vocab) {
    writer_.Set("tokenizer.ggml.model", "gpt2");
    writer_.Set("tokenizer.ggml.pre", vocab.pre_tokenizer);
    writer_.SetArray("tokenizer.ggml.tokens", vocab.tokens);
    std::vector<int32_t> types;
    for (const TokenType type : vocab.types) types.push_back(static_cast<int32_t>(type));
    writer_.SetArray("tokenizer.ggml.token_type", types);
    writer_.SetArray("tokenizer.ggml.merges", vocab.merges);
    writer_.Set("tokenizer.ggml.bos_token_id", vocab.special.bos);
    writer_.Set("tokenizer.ggml.eos_token_id", vocab.special.eos);
  }

  void AddLayer(const std::string& prefix) {
    const int64_t hidden = sizes_.hidden, q = int64_t{sizes_.heads} * sizes_.head_dim,
                  kv = int64_t{sizes_.kv_heads} * sizes_.head_dim;
    AddNorm(prefix + "attn_norm.weight");
    AddMatrix(prefix + "attn_q.weight", q, hidden, Scale(hidden));
    AddMatrix(prefix + "attn_k.weight", kv, hidden, Scale(hidden));
    AddMatrix(prefix + "attn_v.weight", kv, hidden, Scale(hidden));
    AddMatrix(prefix + "attn_output.weight", hidden, q, Scale(q));
    AddNorm(prefix + "ffn_norm.weight");
    AddMatrix(prefix + "ffn_gate.weight", sizes_.ffn, hidden, Scale(hidden));
    AddMatrix(prefix + "ffn_up.weight", sizes_.ffn, hidden, Scale(hidden));
    AddMatrix(prefix + "ffn_down.weight", hidden, sizes_.ffn, Scale(sizes_.ffn));
  }

  void AddNorm(const std::string& name) {
    std::vector<float> values = Noise(sizes_.hidden, 0.3f);
    for (float& value : values) value += 1;
    writer_.AddTensor(name, DType::kF32, {sizes_.hidden}, values);
  }

  void AddMatrix(const std::string& name, int64_t rows, int64_t cols, float scale) {
    const DType dtype = dtypes_[num_matrices_++ % dtypes_.size()];
    writer_.AddTensor(name, dtype, {rows, cols}, Noise(rows * cols, scale));
  }

  // About normally distributed (a sum of four uniform values); the same on every platform.
  std::vector<float> Noise(int64_t count, float deviation) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) {
      float sum = -2;
      for (int i = 0; i < 4; ++i) sum += static_cast<float>(random_() >> 40) * 0x1p-24f;
      value = deviation * 1.732f * sum;
    }
    return values;
  }

  const std::vector<DType> dtypes_;
  const Sizes sizes_;
  size_t num_matrices_ = 0;
  std::mt19937_64 random_;
  GgufWriter writer_;
};

}  // namespace

std::vector<std::string> WeightTypes() {
  std::vector<std::string> names;
  for (const DType dtype : WeightDTypes()) names.emplace_back(Name(dtype));
  names.emplace_back(kMixed);
  return names;
}

Status WriteTinyModel(const std::string& weight_type, const std::string& path, uint64_t seed) {
  const std::vector<std::string> names = WeightTypes();
  const auto found = std::find(names.begin(), names.end(), weight_type);
  if (found == names.end()) return InvalidArgument("no weight type \"{}\"", weight_type);
  std::vector<DType> dtypes = WeightDTypes();
  if (weight_type != kMixed) dtypes = {dtypes[static_cast<size_t>(found - names.begin())]};
  const bool large = std::any_of(dtypes.begin(), dtypes.end(), [](DType dtype) {
    return kSmall.hidden % Info(dtype).block_elements != 0;
  });
  // Half of the models have tied embeddings.
  const bool tied = (found - names.begin()) % 2 == 1;
  return ModelWriter(std::move(dtypes), large ? kLarge : kSmall, seed).Write(path, tied);
}

}  // namespace tokamak::invariance
