// Llama, the decoder that most open models start from. Papers: arXiv:2302.13971, arXiv:2307.09288,
// arXiv:2407.21783. Reference: transformers, models/llama.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "models/families.h"
#include "nn/attention.h"
#include "nn/embedding.h"
#include "nn/mlp.h"
#include "nn/norm.h"
#include "nn/rope.h"

namespace tokamak {
namespace {

struct Config {
  int32_t vocab_size = 0;
  int32_t num_layers = 0;
  float rms_norm_eps = 0;
  bool tie_word_embeddings = false;
  nn::RopeSpec rope;
  nn::AttentionConfig attention;
  nn::MlpShape mlp;

  int32_t hidden_size() const { return attention.hidden_size; }
};

// head_dim, or what it is when a checkpoint does not say.
int32_t ParseHeadDim(ConfigReader& reader, int32_t hidden_size, int32_t num_heads) {
  if (!reader.Has("head_dim") && hidden_size % num_heads != 0) {
    reader.Fail("num_attention_heads", "does not divide hidden_size, and there is no head_dim");
  }
  return static_cast<int32_t>(reader.IntOr("head_dim", hidden_size / num_heads, Positive(1 << 16)));
}

Activation ParseActivation(ConfigReader& reader) {
  const std::string name = reader.String("hidden_act");
  if (name == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  if (name != "silu") reader.Fail("hidden_act", "\"" + name + "\" is not supported");
  return Activation::kSilu;
}

Result<Config> ParseConfig(ConfigReader reader) {
  const auto size = [&](const char* name) { return static_cast<int32_t>(reader.Int(name)); };
  Config c;
  c.vocab_size = size("vocab_size");
  c.num_layers = static_cast<int32_t>(reader.Int("num_hidden_layers", Positive(10000)));
  c.rms_norm_eps = static_cast<float>(reader.Number("rms_norm_eps", {0, 1}));
  c.tie_word_embeddings = reader.BoolOr("tie_word_embeddings", false);

  nn::AttentionConfig& attention = c.attention;
  attention.hidden_size = size("hidden_size");
  attention.num_heads = static_cast<int32_t>(reader.Int("num_attention_heads", Positive(1 << 16)));
  attention.num_kv_heads = static_cast<int32_t>(
      reader.IntOr("num_key_value_heads", attention.num_heads, Positive(1 << 16)));
  if (attention.num_heads % attention.num_kv_heads != 0) {
    reader.Fail("num_key_value_heads", "does not divide num_attention_heads");
  }
  attention.head_dim = ParseHeadDim(reader, attention.hidden_size, attention.num_heads);
  attention.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(attention.head_dim)));
  attention.qkv_bias = reader.BoolOr("attention_bias", false);
  attention.output_bias = attention.qkv_bias;

  c.mlp.hidden_size = attention.hidden_size;
  c.mlp.intermediate_size = size("intermediate_size");
  c.mlp.activation = ParseActivation(reader);
  c.mlp.bias = reader.BoolOr("mlp_bias", false);

  c.rope = nn::ParseRope(reader, attention.head_dim, size("max_position_embeddings"));
  reader.ExpectOrAbsent("rope_interleaved", false);
  reader.Ignore({"pretraining_tp"});  // how the authors split their products; the sums are the same
  return reader.Finish(c);
}

class Layer {
 public:
  Layer(const Config& c, const nn::Builder& b, const nn::Rope* rope)
      : input_norm_(b / "input_layernorm", c.hidden_size(), c.rms_norm_eps),
        attention_(b / "self_attn", c.attention, rope),
        post_norm_(b / "post_attention_layernorm", c.hidden_size(), c.rms_norm_eps),
        mlp_(b / "mlp", c.mlp) {}

  // All f32 [T, hidden_size]. residual += delta (when there is one) and the attention's output; the
  // MLP's goes to `out`, which may be `delta`, for the next norm to add.
  void Forward(nn::Pass& pass, const Tensor& delta, Tensor residual, Tensor out) const {
    const ArenaScope scope(pass.arena);
    Tensor x = pass.arena.Allocate(attention_.activation(), residual.shape);
    input_norm_.AddForward(pass, delta, residual, x);
    attention_.Forward(pass, x, out);

    Tensor y = pass.arena.Allocate(mlp_.activation(), residual.shape);
    post_norm_.AddForward(pass, out, residual, y);
    mlp_.Forward(pass, y, out);
  }

 private:
  nn::RmsNorm input_norm_;
  nn::Attention attention_;
  nn::RmsNorm post_norm_;
  nn::Mlp mlp_;
};

class Llama final : public Model {
 public:
  Llama(const Config& c, const nn::Builder& b, nn::Rope rope)
      : hidden_size_(c.hidden_size()),
        rope_(std::move(rope)),
        embedding_(b / "model" / "embed_tokens", c.vocab_size, hidden_size_,
                   c.tie_word_embeddings) {
    layers_.reserve(static_cast<size_t>(c.num_layers));
    for (int32_t i = 0; i < c.num_layers && b.ok(); ++i) {
      layers_.emplace_back(c, b / "model" / "layers" / i, &rope_);
    }
    final_norm_ = nn::RmsNorm(b / "model" / "norm", hidden_size_, c.rms_norm_eps);
    lm_head_ = c.tie_word_embeddings
                   ? embedding_.OutputLayer()
                   : nn::Linear::Replicated(b / "lm_head", c.vocab_size, hidden_size_, false);
  }

  ModelSpec& mutable_spec() { return spec_; }
  const ModelSpec& spec() const override { return spec_; }

  Tensor Forward(nn::Pass& pass) const override {
    const Shape all{pass.num_tokens(), hidden_size_};
    const Shape wanted{pass.logit_rows.cols(), hidden_size_};
    Tensor hidden = pass.arena.Allocate(lm_head_.activation(), wanted);

    const ArenaScope scope(pass.arena);
    Tensor residual = pass.arena.Allocate(DType::kF32, all);
    embedding_.Forward(pass, residual);
    Tensor branch = pass.arena.Allocate(DType::kF32, all);
    Tensor delta;  // the last branch, not yet added; none before the first layer
    for (const Layer& layer : layers_) {
      layer.Forward(pass, delta, residual, branch);
      delta = branch;
    }
    final_norm_.AddForward(pass, GatherWanted(pass, delta), GatherWanted(pass, residual), hidden);
    return hidden;
  }

  Tensor Logits(nn::Pass& pass, Tensor hidden) const override {
    Tensor logits = pass.arena.Allocate(DType::kF32, {hidden.rows(), lm_head_.out_features()});
    lm_head_.Forward(pass, hidden, logits);
    return logits;
  }

 private:
  static Tensor GatherWanted(nn::Pass& pass, Tensor source) {
    Tensor out = pass.arena.Allocate(source.dtype, {pass.logit_rows.cols(), source.cols()});
    pass.ops.Run(GatherRows{.source = source, .rows = pass.logit_rows, .out = out}, pass.stream);
    return out;
  }

  const int64_t hidden_size_;
  const nn::Rope rope_;  // layers point to it
  nn::Embedding embedding_;
  std::vector<Layer> layers_;
  nn::RmsNorm final_norm_;
  nn::Linear lm_head_;
  ModelSpec spec_;
};

}  // namespace

Result<std::unique_ptr<Model>> CreateLlama(ConfigReader config, nn::WeightLoad& load,
                                           const LoadOptions& options) {
  ASSIGN_OR_RETURN(Config c, ParseConfig(std::move(config)));
  ASSIGN_OR_RETURN(const int32_t max_context, ServedContext(options, nn::MaxContext(c.rope)));
  const nn::Builder b(load);
  c.rope.divisors = nn::ReadRopeDivisors(b, c.rope);
  ASSIGN_OR_RETURN(nn::Rope rope, nn::Rope::Make(c.rope, max_context, load.ops));
  auto model = std::make_unique<Llama>(c, b, std::move(rope));
  model->mutable_spec() = {.architecture = "LlamaForCausalLM",
                           .vocab_size = c.vocab_size,
                           .max_context = max_context,
                           .num_parameters = load.num_parameters,
                           .weight_bytes = load.weight_bytes,
                           .cache = load.cache};
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace tokamak
